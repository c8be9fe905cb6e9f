"""`maka rules`: a workspace grant that is taken back is told with the sessions that still hold it."""

from collections.abc import Iterator

import pytest

from maka.edges.scripted_model import ScriptedModel, Turn, by_step
from tests.cli.real import Machine


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    server = ScriptedModel.start(by_step([Turn(text="Done.")]))
    yield server
    server.close()


def test_a_workspace_grant_that_is_taken_back_is_told_with_who_still_holds_it(
    machine: Machine, model: ScriptedModel
) -> None:
    assert machine.run(model, "first").code == 0
    assert machine.maka("rules", "1", "--allow", "net", "--scope", "workspace").code == 0
    for _ in range(2):
        assert machine.run(model, "and then").code == 0
    other = machine.folder / "other"
    other.mkdir()
    assert machine.run(model, "--cwd", str(other), "elsewhere").code == 0
    (grant,) = machine.maka("rules", "2", "--json").record["grants"]
    name = grant["origin"][-8:]
    in_two = machine.maka("rules", "2", "--revoke", name)
    assert f"{name} is taken back in session #2, and for those that begin from now on; " in in_two.err
    assert "it still holds in #1, #3: revoke it there, too\n" in in_two.err
    assert machine.maka("rules", "3", "--json").record["grants"] == [grant]
    assert "it still holds in #3:" in machine.maka("rules", "1", "--revoke", name).err
    last = machine.maka("rules", "3", "--revoke", name, "--json")
    assert f"{name} is taken back; no session of this workspace holds it any more\n" in last.err
    assert last.record["grants"] == []
    assert machine.run(model, "after that").code == 0
    assert machine.maka("rules", "@last", "--json").record["grants"] == []


def test_of_a_sessions_own_grant_nothing_is_told(machine: Machine, model: ScriptedModel) -> None:
    assert machine.run(model, "--allow", "net", "first").code == 0
    (grant,) = machine.maka("rules", "1", "--json").record["grants"]
    assert machine.maka("rules", "1", "--revoke", grant["origin"]).err == ""
