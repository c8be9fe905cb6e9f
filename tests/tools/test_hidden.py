"""Secrets that are links, and what is hidden inside of something hidden."""

import os
from pathlib import Path

import pytest

from maka.contracts.boundary import FileEntry, Profile
from maka.contracts.content import Outcome
from maka.contracts.sandbox_ports import Sandbox
from maka.edges import bubblewrap
from maka.edges.processes import AsyncProcesses
from maka.tools.policy import Ground
from maka.tools.survey import as_now, survey
from maka.tools.walk import Walk
from tests.tools.conftest import make_tools
from tests.tools.harness import Bench, boundary
from tests.tools.test_meanwhile import meanwhile, saved

pytestmark = pytest.mark.one_sandbox


@pytest.fixture
def bench(
    processes: AsyncProcesses, workspace: Path, home: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> Bench:
    """Its home has a secret behind a link, as who keeps dotfiles has them, and may be read but for what is hidden."""
    monkeypatch.setattr(bubblewrap, "_SPARE", ("/var/tmp", "/run"))
    (home / "dotfiles").mkdir()
    (home / "dotfiles" / "npmrc").write_text("swordfish")
    (home / ".npmrc").symlink_to("dotfiles/npmrc")
    (home / ".history").symlink_to("/dev/null")
    names = tuple(str(home.resolve() / name) for name in (".npmrc", ".kube", ".history"))
    entry = FileEntry(path=str(home.resolve()), access="read", scope="subtree")
    tools = make_tools(processes, sandbox=sandbox, ground=as_now(Ground(secret_names=names)))
    return Bench(tools, workspace, boundary(workspace, Profile.ASK, entry))


def is_hidden(bench: Bench, path: Path) -> bool:
    shown = bench.run("Bash", command=f"cat {path}; cat {path.parent}/notes").text
    refused = bench.run("Read", path=str(path)).outcome is Outcome.REFUSED
    return "swordfish" not in shown and "notes" in shown and refused


def test_a_secret_behind_a_link_is_hidden_under_both_names(bench: Bench, home: Path) -> None:
    assert is_hidden(bench, home / ".npmrc")
    assert "swordfish" not in bench.run("Bash", command=f"cat {home}/dotfiles/npmrc").text


def test_a_link_that_is_replaced_by_what_it_led_to_hides_it(bench: Bench, home: Path) -> None:
    assert "swordfish" not in meanwhile(bench, saved(home / ".npmrc", "swordfish again"), f"cat {home}/.npmrc")
    assert is_hidden(bench, home / ".npmrc")


def test_a_link_that_leads_elsewhere_by_now_hides_that_and_what_it_led_to(bench: Bench, home: Path) -> None:
    """As a key that is rotated, with both in one place for a while."""
    (home / "dotfiles" / "npmrc2").write_text("swordfish")
    (home / ".npmrc").unlink()
    (home / ".npmrc").symlink_to("dotfiles/npmrc2")
    assert is_hidden(bench, home / ".npmrc")
    assert "swordfish" not in bench.run("Bash", command=f"cat {home}/dotfiles/npmrc*").text


def test_a_link_to_a_folder_that_comes_hides_the_folder(bench: Bench, home: Path) -> None:
    (home / "dotfiles" / "kube").mkdir()
    (home / "dotfiles" / "kube" / "config").write_text("swordfish")
    (home / ".kube").symlink_to("dotfiles/kube")
    shown = bench.run("Bash", command=f"cat {home}/.kube/config; echo works").text
    assert "swordfish" not in shown and "works\n" in shown
    assert bench.run("Read", path=str(home / ".kube" / "config")).outcome is Outcome.REFUSED


def test_a_link_to_a_device_hides_no_device(bench: Bench) -> None:
    assert bench.run("Bash", command="echo x > /dev/null && cat /dev/null && echo works").text == "works\n"


def test_what_is_hidden_may_lie_in_something_hidden(
    processes: AsyncProcesses, workspace: Path, sandbox: Sandbox
) -> None:
    """A state root in the workspace with the configuration in it, say."""
    own = workspace.resolve() / ".maka"
    (own / "deep").mkdir(parents=True)
    (own / "deep" / "key").write_text("swordfish")
    (own / "config.toml").write_text("swordfish")
    (workspace / "d").mkdir()
    ground = Ground(own=(str(own), str(own / "config.toml"), str(own / "deep" / "key")))
    bench = Bench(make_tools(processes, sandbox=sandbox, ground=ground), workspace)
    shown = bench.run(
        "Bash", command="cat .maka/config.toml .maka/deep/key; mkdir -p d; cd d && echo works > made; cat made"
    ).text
    assert "swordfish" not in shown and "works" in shown


def test_what_was_granted_to_be_read_stays_writable_in_the_workspace(
    processes: AsyncProcesses, workspace: Path, sandbox: Sandbox
) -> None:
    (workspace / "data").mkdir()
    entry = FileEntry(path=str(workspace.resolve() / "data"), access="read", scope="subtree")
    bench = Bench(make_tools(processes, sandbox=sandbox), workspace, boundary(workspace, Profile.ASK, entry))
    assert bench.run("Bash", command="echo more > data/x").outcome is Outcome.OK


def test_a_grant_may_lie_between_hidden_things(processes: AsyncProcesses, workspace: Path, sandbox: Sandbox) -> None:
    outer = workspace.resolve() / "keys"
    (outer / "shown" / "deep").mkdir(parents=True)
    for name in ("key", "shown/key", "shown/deep/key"):
        (outer / name).write_text(f"swordfish of {name}")
    ground = Ground(secrets=(str(outer), str(outer / "shown" / "deep")))
    entry = FileEntry(path=str(outer / "shown"), access="read", scope="subtree")
    wide = boundary(workspace, Profile.ASK, entry)
    bench = Bench(make_tools(processes, sandbox=sandbox, ground=ground), workspace, wide)
    shown = bench.run("Bash", command="cat keys/key keys/shown/key keys/shown/deep/key").text
    assert "swordfish of shown/key" in shown
    assert shown.count("swordfish") == 1


def test_a_workspace_in_a_hidden_place_shows_nothing_else_that_is_hidden(
    processes: AsyncProcesses, home: Path, sandbox: Sandbox
) -> None:
    """Maka's key and configuration may lie in `~/.ssh`, and someone works there."""
    place = home.resolve() / ".ssh"
    (place / "config.toml").write_text("swordfish")
    ground = Ground(own=(str(place / "config.toml"), str(place / "id")), secrets=(str(place),), programs=(str(home),))
    bench = Bench(make_tools(processes, sandbox=sandbox, ground=ground), place, boundary(place))
    shown = bench.run("Bash", command="cat config.toml id; echo evil >> config.toml; echo evil > id; echo works").text
    assert "swordfish" not in shown and "works" in shown
    assert {(place / name).read_text() for name in ("config.toml", "id")} == {"swordfish"}


def test_a_secret_that_is_a_pipe_is_hidden(
    processes: AsyncProcesses, workspace: Path, home: Path, sandbox: Sandbox
) -> None:
    """Some programs serve secrets by one."""
    os.mkfifo(home / ".pypirc")
    writer = os.open(home / ".pypirc", os.O_RDWR | os.O_NONBLOCK)
    os.write(writer, b"swordfish\n")
    ground = as_now(Ground(secret_names=(str(home.resolve() / ".pypirc"),), programs=(str(home.resolve()),)))
    bench = Bench(make_tools(processes, sandbox=sandbox, ground=ground), workspace)
    try:
        assert "swordfish" not in bench.run("Bash", command=f"head -1 {home}/.pypirc; echo works").text
    finally:
        os.close(writer)


def test_a_folder_above_a_secret_may_turn_into_a_link(bench: Bench, home: Path) -> None:
    (home / "dotfiles" / "kube").mkdir()
    (home / "dotfiles" / "kube" / "config").write_text("swordfish")
    ground = as_now(Ground(secret_names=(str(home.resolve() / "conf" / "kube"),)))
    (home / "conf").symlink_to("dotfiles")
    now = as_now(ground)
    assert str(home.resolve() / "dotfiles" / "kube") in now.secrets
    assert str(home.resolve() / "conf" / "kube") not in survey(Walk(bench.boundary), now, ()).hidden
