"""The order of a call's checks, in the log: what is refused has no dispatch, and at its use it is judged again."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from maka import adapters
from maka.contracts.content import FunctionResponse, Outcome
from maka.contracts.ports import Append
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolResult
from maka.edges.sandbox import NoSandbox
from maka.edges.scripted_model import Call, Turn
from maka.tools.policy import needed
from maka.tools.read import ReadTool
from tests.e2e.harness import WAIT_S, Maka, World

DONE = Turn(text="done")


def run(world: World, *calls: Call) -> tuple[Maka, dict[str, FunctionResponse]]:
    """Let a model make these calls in one step; return what became of them, by their tools' names."""
    maka = world.open([Turn(calls=calls), DONE])
    assert maka.run().status == "completed"
    return maka, {answer.name: answer for answer in maka.contents(FunctionResponse)}


def dispatched(maka: Maka) -> list[str]:
    return [dispatch.name for dispatch in maka.actions("tool_dispatch")]


def test_what_the_boundary_refuses_is_not_dispatched(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    maka, answers = run(
        world,
        Call(name="Write", args={"path": str(outside / "a"), "content": "x"}),
        Call(name="Edit", args={"path": "/etc/passwd", "old_string": "root", "new_string": "toor"}),
        Call(name="Read", args={"path": str(world.machine.state / "data.mdb")}),
        Call(name="Grep", args={"path": str(world.machine.state), "pattern": "x"}),
        Call(name="Glob", args={"path": str(world.machine.state), "pattern": "*"}),
        Call(name="Bash", args={"command": "echo one call is inside"}),
    )
    assert dispatched(maka) == ["Bash"]
    assert answers.pop("Bash").outcome is Outcome.OK
    assert {answer.outcome for answer in answers.values()} == {Outcome.REFUSED}
    assert len(answers) == 5
    assert list(outside.iterdir()) == []


def test_a_step_that_is_refused_as_a_whole_goes_on_with_one_append(world: World) -> None:
    maka, _ = run(world, Call(name="Write", args={"path": "/etc/a", "content": "x"}))
    events = [item.event for item in maka.facts()]
    answer = next(number for number, event in enumerate(events) if isinstance(event.content, FunctionResponse))
    following = events[answer + 1].actions
    assert following is not None and following.model_request is not None
    assert dispatched(maka) == []


def test_a_command_without_a_sandbox_is_not_dispatched(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> NoSandbox:
        return NoSandbox("nothing holds here")

    monkeypatch.setattr(adapters, "find_sandbox", nothing)
    searches = (Call(name=name, args={"pattern": "x"}) for name in ("Glob", "Grep"))
    maka, answers = run(world, Call(name="Bash", args={"command": "true"}), *searches)
    assert {name: answer.outcome for name, answer in answers.items()} == dict.fromkeys(answers, Outcome.REFUSED)
    assert len(answers) == 3
    assert all("nothing holds here" in answer.result for answer in answers.values())
    assert dispatched(maka) == []


def test_what_turns_into_a_link_after_the_dispatch_is_refused_at_its_use(world: World, tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", world.workspace / "notes"
    outside.mkdir()
    folder.mkdir()

    def swap(appends: Sequence[Append]) -> None:
        events = [draft.event for append in appends for group in append.groups for draft in group.drafts]
        if any(event.actions is not None and event.actions.tool_dispatch is not None for event in events):
            folder.rename(world.workspace / "moved")
            folder.symlink_to(outside)

    world.faults.after = swap
    maka, answers = run(world, Call(name="Write", args={"path": "notes/a", "content": "x"}))
    assert dispatched(maka) == ["Write"]
    assert answers["Write"].outcome is Outcome.REFUSED
    assert "sandbox_boundary_required" in answers["Write"].result
    assert os.listdir(outside) == []


def test_the_look_goes_by_the_boundary_as_it_is_now(world: World, tmp_path: Path) -> None:
    target = tmp_path / "granted.txt"
    write = Turn(calls=(Call(name="Write", args={"path": str(target), "content": "x"}),))
    maka = world.open([write, DONE])
    assert maka.run().status == "completed"
    assert (dispatched(maka), target.exists()) == ([], False)
    maka.manager.change_boundary(maka.session_id, grants=needed(str(tmp_path), "write", "subtree"))
    maka.model.says(write, DONE)
    assert maka.run().status == "completed"
    assert (dispatched(maka), target.read_text()) == (["Write"], "x")


def test_a_stop_waits_for_no_look(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looking, go_on = threading.Event(), threading.Event()

    def refusal(self: ReadTool, call: ToolCall, env: ToolEnv) -> ToolResult | None:
        looking.set()
        assert go_on.wait(WAIT_S)
        return None

    monkeypatch.setattr(ReadTool, "refusal", refusal)
    maka = world.open([Turn(calls=(Call(name="Read", args={"path": "a.txt"}),)), DONE])
    live = maka.send()
    assert looking.wait(WAIT_S)
    receipt = maka.manager.stop(live.accepted.session_id, "test.button")
    assert (receipt.status, receipt.was) == ("aborted", "running tools")
    assert not go_on.is_set()
    go_on.set()
    assert [answer.outcome for answer in maka.contents(FunctionResponse)] == [Outcome.NOT_STARTED]
    assert dispatched(maka) == []


def test_a_tool_that_fails_at_looking_is_refused_and_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(self: ReadTool, call: ToolCall, env: ToolEnv) -> ToolResult | None:
        raise SystemExit("no look")

    monkeypatch.setattr(ReadTool, "refusal", refusal)
    maka, answers = run(world, Call(name="Read", args={"path": "a.txt"}))
    assert (answers["Read"].outcome, dispatched(maka)) == (Outcome.REFUSED, [])
    assert "SystemExit" in answers["Read"].result
