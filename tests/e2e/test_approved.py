"""Children of a command that was approved: a stop, an end of its owner or of its grant leaves none that uses it."""

import shlex
import signal
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import Struct

from maka.contracts.boundary import Expansion
from maka.contracts.content import FunctionResponse, Outcome
from maka.contracts.errors import FailureClass
from maka.contracts.ids import SessionId
from maka.contracts.session_events import SandboxBoundaryRequest
from maka.edges.landlock import find_landlock
from maka.edges.scripted_model import Call, ScriptRequest, Turn
from maka.tools.policy import needed
from tests.cli.bare import CANT_HIDE
from tests.cli.real import finished
from tests.e2e import checks
from tests.e2e.harness import Live, Maka, World, asked_and_killed
from tests.e2e.test_boundary import opened, outside, plain

__all__ = ["outside"]

Script = Callable[[ScriptRequest], Turn]


class Approved(Struct, frozen=True):
    """What is approved, how a command uses it to say a letter, and all that was said that way."""

    expansion: Expansion
    words: str
    said: Callable[[], str]

    def use(self, letter: str) -> str:
        return self.words.replace("LETTER", letter)

    @property
    def children(self) -> str:
        """Shell words that leave two children, each of which says its letter again and again, and one ignores TERM."""
        here, away = (f"while :; do {self.use(letter)}; sleep 0.02; done" for letter in "ab")
        return f"(trap '' TERM; {here}) & (setsid bash -c {shlex.quote(away)} >/dev/null 2>&1 &)"

    @property
    def is_used(self) -> bool:
        return set(self.said()) >= {"a", "b"}

    def must_be_over(self, world: World) -> str:
        """Nobody is left, so nothing more can be said; returns what was."""
        assert not checks.living_in(world.workspace)
        return self.said()


class Listener(socketserver.ThreadingTCPServer):
    """Takes what is said to it over the network."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        self.heard: list[str] = []
        heard = self.heard

        class Hears(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                heard.append(self.rfile.read().decode().strip())

        super().__init__(("127.0.0.1", 0), Hears)


@pytest.fixture(params=["path", "net"])
def approved(request: pytest.FixtureRequest, outside: Path) -> Iterator[Approved]:
    if request.param == "path":
        log = outside / "one" / "log"
        log.touch()
        yield Approved(
            needed(str(log.parent), "write", "subtree"),
            f"echo LETTER >> {log}",
            lambda: log.read_text().replace("\n", ""),
        )
        return
    with Listener() as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
        thread.start()
        port = listener.server_address[1]
        yield Approved(
            Expansion(network=True), f"echo LETTER > /dev/tcp/127.0.0.1/{port}", lambda: "".join(listener.heard)
        )
        listener.shutdown()
        thread.join()


def approved_then(approved: Approved, *turns: Turn) -> Script:
    """Ask for what is approved, and go on with these turns."""
    asked = {"expansion": plain(approved.expansion), "justification": "the task says so"}
    asks = Turn(calls=(Call(name="request_sandbox_boundary", args=asked),))

    def script(request: ScriptRequest) -> Turn:
        told = len(request.tool_results())
        return asks if not told else turns[min(told, len(turns)) - 1]

    return script


def bash(command: str, **more: Any) -> Turn:
    return Turn(calls=(Call(name="Bash", args={"command": command, **more}),))


def allowed(maka: Maka, approved: Approved, scope: Literal["once", "session"] = "session") -> Live:
    """Let it run, and wait until both children use what was approved."""
    live = maka.send()
    request = live.until(SandboxBoundaryRequest).request_id
    assert approved.said() == ""
    maka.manager.answer(maka.session_id, request, decision="allow", scope=scope, client="test")
    checks.eventually(lambda: approved.is_used, "both children use it")
    return live


def outcomes(maka: Maka, session: SessionId | None = None) -> list[Outcome]:
    return [answer.outcome for answer in maka.contents(FunctionResponse, session)]


@pytest.mark.usefixtures("each_sandbox")
@pytest.mark.parametrize("scope", ["once", pytest.param("session", marks=pytest.mark.slow)])
def test_a_stop_ends_all_children_of_an_approved_command(
    world: World, outside: Path, approved: Approved, scope: Literal["once", "session"]
) -> None:
    """What was granted to the session stays granted; what was granted for the run is gone with it."""
    maka = opened(world, approved_then(approved, bash(f"{approved.children}; wait")), outside)
    live = allowed(maka, approved, scope)
    receipt = maka.manager.stop(maka.session_id, "test")
    said = approved.must_be_over(world)
    assert [(call.name, call.outcome) for call in receipt.calls] == [("Bash", "aborted")]
    assert (live.end().status, outcomes(maka)) == ("aborted", [Outcome.OK, Outcome.ABORTED])
    kept = [grant.expansion for grant in maka.manager.boundary(maka.session_id).grants]
    assert kept == [approved.expansion] * (scope == "session")
    maka.reopen()
    assert (approved.said(), maka.model.count) == (said, 2)


@pytest.mark.usefixtures("each_sandbox")
def test_a_restart_in_order_ends_all_children_of_an_approved_command(
    world: World, outside: Path, approved: Approved
) -> None:
    both = Turn(
        calls=(*bash(f"{approved.children}; wait", run_in_background=True).calls, *bash("exec tail -f /dev/null").calls)
    )
    maka = opened(world, approved_then(approved, both), outside)
    allowed(maka, approved)
    maka.close()
    said = approved.must_be_over(world)
    maka.open()
    (end,) = maka.actions("process_ended")
    assert (end.how, end.by) == ("stopped", "host.shutdown")
    assert outcomes(maka) == [Outcome.OK, Outcome.OK, Outcome.ABORTED]
    assert (approved.said(), maka.model.count) == (said, 2), "nothing is begun again"


@pytest.mark.usefixtures("each_sandbox")
def test_a_grant_that_is_taken_back_holds_for_the_command_that_runs_and_for_none_after_it(
    world: World, outside: Path, approved: Approved
) -> None:
    """A call keeps what it began with, and so do its children; with the call they end."""
    runs = f"{approved.children}; until [ -e go ]; do sleep 0.02; done"
    maka = opened(world, approved_then(approved, bash(runs), bash(approved.use("c")), Turn(text="done")), outside)
    live = allowed(maka, approved)
    (grant,) = maka.manager.boundary(maka.session_id).grants
    maka.manager.change_boundary(maka.session_id, revoked=(grant.origin,), client="test")
    said = len(approved.said())
    checks.eventually(lambda: set(approved.said()[said:]) >= {"a", "b"}, "both go on")
    (world.workspace / "go").touch()
    assert live.end().status == "completed"
    approved.must_be_over(world)
    assert outcomes(maka) == [Outcome.OK, Outcome.OK, Outcome.ERROR]
    assert "c" not in approved.said()
    if approved.expansion.filesystem:  # a server that isn't there, in a network of its own, may be one that is down
        assert '"error":"sandbox_boundary_required"' in maka.model.requests[-1].tool_results()[-1]


@pytest.mark.usefixtures("each_sandbox")
def test_a_grant_that_is_taken_back_ends_what_runs_with_it_in_the_background(
    world: World, outside: Path, approved: Approved
) -> None:
    """With all its children. A stop of the run, before that, leaves it alone and says so."""
    begins = bash(f"{approved.children}; wait", run_in_background=True)
    waits = bash("exec tail -f /dev/null")
    maka = opened(world, approved_then(approved, begins, waits), outside)
    live = allowed(maka, approved)
    receipt = maka.manager.stop(maka.session_id, "test")
    assert receipt.background == ("b1",)
    live.end()
    said = len(approved.said())
    checks.eventually(lambda: set(approved.said()[said:]) >= {"a", "b"}, "both go on")
    (grant,) = maka.manager.boundary(maka.session_id).grants
    maka.manager.change_boundary(maka.session_id, revoked=(grant.origin,), client="test")
    checks.eventually(lambda: bool(maka.actions("process_ended")), "the end is recorded")
    (end,) = maka.actions("process_ended")
    assert (end.how, end.by, end.survivors) == ("stopped", "boundary", ())
    approved.must_be_over(world)


@pytest.mark.parametrize(
    "hidden", [(), pytest.param(("bubblewrap",), marks=pytest.mark.slow)], ids=["bubblewrap", "landlock"]
)
@pytest.mark.parametrize("in_background", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_no_child_of_an_approved_command_outlives_a_kill_and_the_next_start(
    world: World, outside: Path, approved: Approved, hidden: tuple[str, ...], in_background: bool
) -> None:
    """The owner is killed while they run; nothing is run again, and what became of the call is said."""
    if hidden and isinstance(found := find_landlock(), str):
        pytest.skip(found)
    begins = bash(f"{approved.children}; wait", **({"run_in_background": True} if in_background else {}))
    script = approved_then(approved, begins, bash("touch tails; exec tail -f /dev/null"))
    begun = world.workspace / "tails"

    def is_under_way() -> bool:
        return approved.is_used and (begun.exists() or not in_background)

    maka = world.maka(world.model(script))
    env = {"PATH": f"{outside}/bin:{world.machine.env['PATH']}"}
    request = asked_and_killed(world, maka.model, "do it", **env)
    world.machine.hidden = hidden
    with world.machine.start("answer", request[-8:], "allow", **env) as owner:
        try:
            checks.eventually(lambda: is_under_way() or owner.poll() is not None, "both children use it")
        finally:
            owner.send_signal(signal.SIGKILL)
        if finished(owner).code == CANT_HIDE:
            pytest.skip("this machine lets nobody hide bubblewrap")
    asked = maka.model.count
    maka.open()
    said = approved.must_be_over(world)
    (session,) = (header.session_id for header in checks.headers(maka.store))
    answers = [Outcome.OK, *([Outcome.OK] * in_background), Outcome.OUTCOME_UNKNOWN]
    assert outcomes(maka, session) == answers
    (run,) = {item.event.run_id for item in maka.facts(session) if item.event.run_id is not None}
    record = maka.record(run)
    assert (record.status, record.failure_class) == ("failed", FailureClass.INTERRUPTED_TOOL)
    assert [end.how for end in maka.actions("process_ended", session)] == ["orphaned"] * in_background
    maka.reopen()
    assert (approved.said(), maka.model.count) == (said, asked)


def test_h32_what_was_approved_is_what_runs_also_when_another_process_goes_on(world: World, outside: Path) -> None:
    """Asked by a process that is killed, and answered in a new one: path and command keep every hidden character."""
    folder = outside / "a\u202etxt\u200b"
    folder.mkdir()
    asked = needed(str(folder), "write", "subtree")
    command = f"printf %s 'b\u202e\u2066' > '{folder}/c\u200b'"
    approved = Approved(asked, "", lambda: "")
    maka = world.maka(world.model(approved_then(approved, bash(command), Turn(text="done"))))
    env = {"PATH": f"{outside}/bin:{world.machine.env['PATH']}"}
    request = asked_and_killed(world, maka.model, "do it", **env)
    (shown,) = world.machine.maka("inbox", "--json", **env).lines
    assert (shown["id"], shown["expansion"]) == (request, plain(asked))
    done = world.machine.maka("answer", request[-8:], "allow", **env)
    assert (done.code, done.out) == (0, "done\n"), done
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"c\u200b": "b\u202e\u2066"}
    maka.open()
    (session,) = (header.session_id for header in checks.headers(maka.store))
    assert [grant.expansion for grant in maka.manager.boundary(session).grants] == [asked]
    (process,) = maka.actions("process_started", session)
    assert process.command == command
