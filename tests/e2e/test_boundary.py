"""Permission as control flow: refused, asked for, parked, answered from any client, and gone on with."""

import json
import os
from pathlib import Path
from typing import Any, Literal

import pytest

from maka.contracts.actions import BoundaryDecision
from maka.contracts.commands import AnswerTaken
from maka.contracts.ids import EventId
from maka.contracts.session_events import SandboxBoundaryDecisionAck, SandboxBoundaryRequest
from maka.edges.scripted_model import Call, ScriptRequest, Turn
from maka.tools.policy import needed
from tests.e2e.harness import Live, Maka, World


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


def touch_both(one: Path, two: Path) -> Any:
    """Touch two files in one turn, ask in one turn for what each refusal names, touch both again, and be done."""
    touches = tuple(Call(name="Bash", args={"command": f"touch {path}"}) for path in (one, two))

    def script(request: ScriptRequest) -> Turn:
        results = request.tool_results()
        if len(results) == 2:
            return Turn(calls=tuple(map(asking_for, results)))
        return Turn(text="done") if len(results) == 6 else Turn(calls=touches)

    return script


def asking_for(result: str) -> Call:
    refusal = json.loads(next(line for line in result.splitlines() if line.startswith('{"error"')))
    assert refusal["error"] == "sandbox_boundary_required"
    asked = {"expansion": refusal["expansion"], "justification": "the task says so"}
    return Call(name="request_sandbox_boundary", args=asked)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the workspace, which each sandbox shows: it holds programs, as the search path says."""
    path = tmp_path / "outside"
    for name in ("bin", "one", "two"):
        (path / name).mkdir(parents=True)
    return path.resolve()


def opened(world: World, script: Any, outside: Path) -> Maka:
    return world.maka(world.model(script), env={"PATH": f"{outside}/bin:{world.machine.env['PATH']}"}).open()


def both_asked(live: Live) -> tuple[EventId, EventId]:
    """Return the requests of a run's two calls, once both wait."""
    return live.until(SandboxBoundaryRequest).request_id, live.until(SandboxBoundaryRequest).request_id


def waiting(maka: Maka) -> list[EventId]:
    return [wait.id for wait in maka.manager.pending()]


def decisions(maka: Maka) -> list[BoundaryDecision]:
    deltas = maka.actions("state_delta")
    return [delta.boundary_decision for delta in deltas if delta.boundary_decision is not None]


@pytest.mark.usefixtures("each_sandbox")
def test_h29_a_denied_request_leaves_the_other_one_waiting(world: World, outside: Path) -> None:
    maka = opened(world, touch_both(outside / "one" / "a", outside / "two" / "b"), outside)
    first, second = both_asked(maka.send())
    assert [wait.expansion for wait in maka.manager.pending()] == [
        needed(str(outside / name), "write", "subtree") for name in ("one", "two")
    ]
    maka.manager.answer(maka.session_id, first, decision="deny", client="test")
    assert waiting(maka) == [second]
    maka.reopen()
    assert waiting(maka) == [second], "also after a restart"
    assert [(one.request_id, one.decision) for one in decisions(maka)] == [(first, "deny")]
    events = maka.follow(maka.session_id)
    maka.manager.answer(maka.session_id, second, decision="allow", client="test")
    assert events.end().status == "completed"
    assert "sandbox_boundary_required" in maka.model.requests[-1].tool_results()[-2]
    assert not (outside / "one" / "a").exists()
    assert (outside / "two" / "b").exists()


@pytest.mark.usefixtures("each_sandbox")
@pytest.mark.parametrize("scope", ["once", "workspace"])
def test_h29_an_allow_that_covers_the_other_request_says_so_and_does_not_answer_it(
    world: World, outside: Path, scope: Literal["once", "workspace"]
) -> None:
    """Both commands lack the same folder. The second request is denied, which takes nothing back."""
    maka = opened(world, touch_both(outside / "one" / "a", outside / "one" / "b"), outside)
    live = maka.send()
    first, second = both_asked(live)
    maka.manager.answer(maka.session_id, first, decision="allow", scope=scope, client="test")
    assert live.until(SandboxBoundaryDecisionAck).covers == (second,)
    assert waiting(maka) == [second]
    assert [(one.request_id, one.scope, one.covers) for one in decisions(maka)] == [(first, scope, (second,))]
    assert os.listdir(outside / "one") == []
    maka.manager.answer(maka.session_id, second, decision="deny", client="test")
    assert live.end().status == "completed"
    assert [one.decision for one in decisions(maka)] == ["allow", "deny"]
    told = maka.model.requests[-1].tool_results()
    assert "allowed" in told[2]
    assert "denied" in told[3]
    assert sorted(os.listdir(outside / "one")) == ["a", "b"]
