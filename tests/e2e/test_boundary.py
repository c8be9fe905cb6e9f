"""Permission as control flow: refused, asked for, parked, answered from any client, and gone on with."""

import json
from pathlib import Path
from typing import Any

from maka.contracts.commands import AnswerTaken
from maka.contracts.session_events import SandboxBoundaryRequest
from maka.edges.scripted_model import Call, ScriptRequest, Turn
from tests.e2e.harness import World


def write_outside(path: Path) -> Any:
    """Write outside, ask for exactly what the refusal names, write again, and say how it went."""

    def script(request: ScriptRequest) -> Turn:
        results = request.tool_results()
        write = Call(name="Write", args={"path": str(path), "content": "hello\n"})
        if not results:
            return Turn(calls=(write,))
        if len(results) == 1:
            refusal = json.loads(next(line for line in results[0].splitlines() if line.startswith("{")))
            assert refusal["error"] == "sandbox_boundary_required"
            asked = {"expansion": refusal["expansion"], "justification": "the task says so"}
            return Turn(calls=(Call(name="request_sandbox_boundary", args=asked),))
        if len(results) == 2 and "allowed" in results[1]:
            return Turn(calls=(write,))
        return Turn(text=results[-1])

    return script


def test_a_refused_write_is_asked_for_allowed_and_done(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = outside / "note.txt"
    maka = world.open(write_outside(target))
    live = maka.send("write the note")
    live.until(SandboxBoundaryRequest)
    (wait,) = maka.manager.pending()
    assert not target.exists()
    assert wait.expansion is not None
    assert [entry.access for entry in wait.expansion.filesystem] == ["write"]
    taken = maka.manager.answer(wait.session_id, wait.id, decision="allow", client="test")
    assert isinstance(taken, AnswerTaken)
    assert live.end().status == "completed"
    assert target.read_text() == "hello\n"
    assert [grant.expansion for grant in maka.manager.boundary(wait.session_id).grants] == [wait.expansion]


def test_a_denied_write_never_happens_and_the_model_goes_on(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    maka = world.open(write_outside(outside / "note.txt"))
    live = maka.send("write the note")
    live.until(SandboxBoundaryRequest)
    (wait,) = maka.manager.pending()
    maka.manager.answer(wait.session_id, wait.id, decision="deny")
    ended = live.end()
    assert ended.status == "completed"
    assert "denied" in ended.final_text
    assert list(outside.iterdir()) == []


def test_h28_daemon_restart_with_a_pending_approval(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    maka = world.open(write_outside(outside / "note.txt"))
    maka.send("write the note").until(SandboxBoundaryRequest)
    maka.reopen()
    (wait,) = maka.manager.pending()
    events = maka.follow(wait.session_id)
    maka.manager.answer(wait.session_id, wait.id, decision="allow")
    assert events.end().status == "completed"
    assert (outside / "note.txt").read_text() == "hello\n"
