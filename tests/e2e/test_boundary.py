"""Permission as control flow: refused, asked for, parked, answered from any client, and gone on with."""

import json
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from maka.contracts.actions import BoundaryDecision
from maka.contracts.boundary import Expansion
from maka.contracts.commands import AnswerTaken, StopReceipt
from maka.contracts.errors import RefusalCode, RefusedError
from maka.contracts.ids import EventId, SessionId
from maka.contracts.ports import Append
from maka.contracts.session_events import PermissionClosureAck, SandboxBoundaryDecisionAck, SandboxBoundaryRequest
from maka.edges.scripted_model import Call, ScriptRequest, Turn
from maka.tools.policy import needed
from tests.e2e import checks
from tests.e2e.harness import WAIT_S, Live, Maka, World, asked_and_killed

ROUNDS = pytest.mark.parametrize("rounds", [10, pytest.param(50, marks=pytest.mark.slow)])


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


def test_h28_a_restart_in_order_leaves_an_approval_waiting(world: World, tmp_path: Path) -> None:
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


def decisions(maka: Maka, session: SessionId | None = None) -> list[BoundaryDecision]:
    deltas = maka.actions("state_delta", session)
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


def runs_whatever_is_decided(outside: Path) -> Any:
    """Ask to write below `outside/one`, then add a line to a file there that the message names, allowed or not."""

    def script(request: ScriptRequest) -> Turn:
        told = request.tool_results()
        if not told:
            asked = {"expansion": plain(below_one(outside)), "justification": "the task says so"}
            return Turn(calls=(Call(name="request_sandbox_boundary", args=asked),))
        if len(told) == 1:
            (name,) = (message["content"] for message in request.messages if message["role"] == "user")
            return Turn(calls=(Call(name="Bash", args={"command": f"echo ran >> {outside}/one/{name}"}),))
        return Turn(text="done")

    return script


def below_one(outside: Path) -> Expansion:
    return needed(str(outside / "one"), "write", "subtree")


def plain(expansion: Expansion) -> Any:
    return json.loads(msgspec.json.encode(expansion))


class Clients:
    """Two clients that act on one session at the same moment, and what each of them is told."""

    def __init__(self, *acts: Callable[[], object]) -> None:
        together = threading.Barrier(len(acts))

        def act(what: Callable[[], object]) -> object:
            together.wait(WAIT_S)
            try:
                return what()
            except RefusedError as error:
                return error.refusal.code

        with ThreadPoolExecutor(len(acts)) as pool:
            self.told = list(pool.map(act, acts))


def asked_in(maka: Maka, text: str, session: SessionId) -> tuple[Live, EventId]:
    """Send a message whose run asks, and return what it asks."""
    live = maka.send(text, session)
    return live, live.until(SandboxBoundaryRequest).request_id


def grants(maka: Maka, session: SessionId) -> list[Expansion]:
    return [grant.expansion for grant in maka.manager.boundary(session).grants]


def nothing_came_of_it(maka: Maka, session: SessionId, outside: Path) -> None:
    """No decision, no grant, and no tool that ran."""
    assert decisions(maka, session) == []
    assert grants(maka, session) == []
    (header,) = (each for each in checks.headers(maka.store) if each.session_id == session)
    assert (header.boundary_revision, header.waiting) == (0, ())
    assert maka.actions("process_started", session) == []
    assert os.listdir(outside / "one") == []


@pytest.mark.usefixtures("each_sandbox")
def test_h26_an_allow_after_a_stop_grants_nothing_and_starts_no_tool(world: World, outside: Path) -> None:
    """Also after a restart, and with whatever comes later in that session."""
    maka = opened(world, runs_whatever_is_decided(outside), outside)
    session = maka.session_id
    live, request = asked_in(maka, "a", session)
    other = maka.follow(session)
    maka.manager.stop(session, "test.button")
    for client in (live, other):
        assert client.until(PermissionClosureAck).request_id == request
    assert live.end().abort_source == "test.button"
    before = checks.everything(maka.store)
    for _ in range(2):
        for decision in ("allow", "deny"):
            with pytest.raises(RefusedError) as late:
                maka.manager.answer(session, request, decision=decision, scope="workspace")
            assert late.value.refusal.code is RefusalCode.WAIT_CLOSED
        maka.reopen()
        assert checks.everything(maka.store) == before
        nothing_came_of_it(maka, session, outside)
    assert maka.model.count == 1
    assert world.machine.maka("rules", "1", "--json").record["grants"] == []
    maka.model.says(Turn(calls=(Call(name="Bash", args={"command": f"echo ran >> {outside}/one/a"}),)), Turn(text="no"))
    maka.run("try it all the same")
    assert "sandbox_boundary_required" in maka.model.requests[-1].tool_results()[-1]
    assert os.listdir(outside / "one") == []


def test_h26_an_allow_that_comes_while_a_stop_is_stored_is_too_late(world: World, outside: Path) -> None:
    maka = opened(world, runs_whatever_is_decided(outside), outside)
    live, request = asked_in(maka, "a", maka.session_id)
    ending, go_on = threading.Event(), threading.Event()

    def hold(appends: Sequence[Append]) -> None:
        if any(append.settlement for append in appends):
            ending.set()
            assert go_on.wait(WAIT_S)

    world.faults.before = hold
    with ThreadPoolExecutor() as pool:
        stop = pool.submit(maka.manager.stop, maka.session_id, "test")
        try:
            assert ending.wait(WAIT_S)
            allow = pool.submit(maka.manager.answer, maka.session_id, request, decision="allow")
        finally:
            go_on.set()
        late = allow.exception(WAIT_S)
        assert stop.result(WAIT_S).was == "waiting for a person"
    assert isinstance(late, RefusedError)
    assert late.refusal.code is RefusalCode.WAIT_CLOSED
    assert live.end().status == "aborted"
    nothing_came_of_it(maka, maka.session_id, outside)


@ROUNDS
def test_h26_a_stop_and_an_allow_at_once_agree_on_who_was_first(world: World, outside: Path, rounds: int) -> None:
    maka = opened(world, runs_whatever_is_decided(outside), outside)
    for number in range(rounds):
        session = maka.new_session()
        live, request = asked_in(maka, f"r{number}", session)
        stop = partial(maka.manager.stop, session, "test")
        allow = partial(maka.manager.answer, session, request, decision="allow", client="test")
        stopped, allowed = Clients(*((stop, allow) if number % 2 else (allow, stop))).told[:: 1 if number % 2 else -1]
        ended, ran = live.end(), outside / "one" / f"r{number}"
        assert isinstance(stopped, StopReceipt)
        if isinstance(allowed, AnswerTaken):
            assert [one.decision for one in decisions(maka, session)] == ["allow"]
            assert grants(maka, session) == [below_one(outside)]
            assert not ran.exists() or ran.read_text() == "ran\n"
            ran.unlink(missing_ok=True)
        else:
            assert (allowed, ended.status) == (RefusalCode.WAIT_CLOSED, "aborted")
            nothing_came_of_it(maka, session, outside)


@ROUNDS
def test_h27_allow_and_deny_at_once_are_one_decision(world: World, outside: Path, rounds: int) -> None:
    """The command is run whatever was decided: only the sandbox keeps what was denied from happening."""
    maka = opened(world, runs_whatever_is_decided(outside), outside)
    for number in range(rounds):
        session = maka.new_session()
        live, request = asked_in(maka, f"r{number}", session)
        answer = partial(maka.manager.answer, session, request)
        told = Clients(
            partial(answer, decision="allow", client="desk"), partial(answer, decision="deny", client="phone")
        ).told
        assert [type(one) for one in told].count(AnswerTaken) == 1
        assert RefusalCode.WAIT_CLOSED in told
        allowed = isinstance(told[0], AnswerTaken)
        won = ("allow", "desk") if allowed else ("deny", "phone")
        ack = live.until(SandboxBoundaryDecisionAck)
        assert (ack.request_id, ack.decision, ack.client) == (request, *won), "so the other one learns who won"
        assert live.end().status == "completed"
        assert [(one.request_id, one.decision, one.client) for one in decisions(maka, session)] == [(request, *won)]
        assert grants(maka, session) == [below_one(outside)] * allowed
        assert len(maka.actions("process_started", session)) == 1
        ran = outside / "one" / f"r{number}"
        assert (ran.read_text() if ran.exists() else "") == "ran\n" * allowed


def test_h28_an_approval_outlives_a_kill_and_is_granted_as_shown(world: World, outside: Path) -> None:
    """From the command line, each time a process of its own."""
    maka = world.maka(world.model(runs_whatever_is_decided(outside)))
    env = {"PATH": f"{outside}/bin:{world.machine.env['PATH']}"}
    request = asked_and_killed(world, maka.model, "a", **env)
    (shown,) = world.machine.maka("inbox", "--json", **env).lines
    assert (shown["id"], shown["expansion"]) == (request, plain(below_one(outside)))
    assert (maka.model.count, os.listdir(outside / "one")) == (1, [])
    done = world.machine.maka("answer", request[-8:], "allow", **env)
    assert (done.code, done.out) == (0, "done\n"), done
    assert (outside / "one" / "a").read_text() == "ran\n"
    (grant,) = world.machine.maka("rules", "1", "--json", **env).record["grants"]
    assert grant["expansion"] == shown["expansion"]
    assert world.machine.maka("verify", **env).code == 0


def grants_of(maka: Maka, session: SessionId) -> list[EventId]:
    return [grant.origin for grant in maka.manager.boundary(session).grants]


def test_a_workspace_grant_goes_on_from_whichever_session_it_was_made_in(world: World, outside: Path) -> None:
    """Also after a restart; what any of them takes back is gone for later ones."""
    maka = opened(world, runs_whatever_is_decided(outside), outside)
    first, second = maka.new_session(), maka.new_session()
    one, two = below_one(outside), Expansion(network=True)
    maka.manager.change_boundary(first, grants=one, scope="workspace")
    third = maka.new_session()
    assert grants_of(maka, third) == grants_of(maka, first)
    assert grants_of(maka, second) == []
    maka.manager.change_boundary(second, grants=two, scope="workspace")
    maka.manager.change_boundary(second, grants=two, scope="session")
    maka.reopen()
    fourth = maka.new_session()
    assert grants_of(maka, fourth) == [*grants_of(maka, third), grants_of(maka, second)[0]]
    maka.manager.change_boundary(first, revoked=tuple(grants_of(maka, first)))
    fifth = maka.new_session()
    assert grants_of(maka, fifth) == grants_of(maka, second)[:1]
    assert grants_of(maka, fourth)[:1] == grants_of(maka, third), "those that are there keep what they began with"
