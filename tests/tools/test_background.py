"""Background shells as tools begin, show and end them, over scripted processes and over real ones."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from maka.contracts.actions import ProcessIdentity
from maka.contracts.background_ports import ShellEnd
from maka.contracts.boundary import Boundary, Expansion, FileEntry, Grant, Profile
from maka.contracts.content import Outcome
from maka.contracts.ids import EventId, SessionId
from maka.contracts.limits import (
    BACKGROUND_OUTPUT_BYTES_MAX,
    BACKGROUND_PROCESSES_MAX,
    BACKGROUND_TIMEOUT_MAX_S,
    BASH_TIMEOUT_MAX_S,
)
from maka.contracts.process_ports import ProcessEnd, ProcessHandle, ProcessListener, ProcessSpec
from maka.contracts.sandbox_ports import Sandbox
from maka.contracts.tool_ports import Handover
from maka.edges.processes import AsyncProcesses
from maka.tools import shell_watch
from maka.tools.background import BackgroundTable
from maka.tools.inside import Inside
from maka.tools.registry import Catalog, builtin_tools
from maka.tools.shells import Shells
from maka.tools.survey import ground_of
from projections.background import Shell
from tests.tools.conftest import the_sandbox
from tests.tools.harness import CHILD_ENV, PATIENCE_S, SESSION, Bench, Recorder, boundary

EXITED = ProcessEnd(cause="exited", exit_code=0)
OTHER = SessionId("0198c0de-0000-7000-8000-000000000002")


class Child(ProcessHandle):
    """A process that does what a test says."""

    def __init__(self, spec: ProcessSpec, listener: ProcessListener, pid: int) -> None:
        self.spec = spec
        self.listener = listener
        self.identity = ProcessIdentity(pid=pid, group=pid, start_ticks=1, boot_id="b")
        self.released = False
        self.cancelled = False

    def release(self) -> None:
        self.released = True

    def cancel(self) -> None:
        self.cancelled = True

    def wait(self) -> None:
        self.listener.waiting(self.identity)

    def end(self, end: ProcessEnd = EXITED) -> None:
        self.listener.ended(end)


class Scripted:
    """Processes that a test moves by hand."""

    def __init__(self) -> None:
        self.children: list[Child] = []

    def spawn(self, spec: ProcessSpec, listener: ProcessListener) -> ProcessHandle:
        self.children.append(Child(spec, listener, 100 + len(self.children)))
        return self.children[-1]

    def kill_left_over(self, found: Sequence[ProcessIdentity]) -> list[ProcessIdentity]:
        raise AssertionError(found)


class Place:
    """A bench with a table, and the record that a session would have made of what was kept."""

    def __init__(self, workspace: Path, processes: Any, *, shells_max: int = BACKGROUND_PROCESSES_MAX) -> None:
        self.table = BackgroundTable(shells_max)
        self.changed: list[SessionId] = []
        self.table.listen(self.changed.append)
        self.record: list[Shell] = []
        self.tools: Catalog = builtin_tools(
            processes,
            child_env=CHILD_ENV,
            rg_path=None,
            sandbox=the_sandbox(),
            ground=ground_of(str(Path.home()), (), CHILD_ENV["PATH"]),
            shells=Shells(table=self.table, record=lambda session: self.record if session == SESSION else []),
        )
        self.bench = Bench(self.tools, workspace, Boundary(profile=Profile.BYPASS))

    def begin(self, answer: Recorder | None = None, command: str = "serve", **more: Any) -> Recorder:
        return self.bench.begin("Bash", answer, command=command, run_in_background=True, **more)

    def note(self, recorder: Recorder, process: ProcessIdentity, name: str = "b1") -> None:
        """Let the record have the start of a shell."""
        self.record.append(
            Shell(
                shell_id=name,
                session_id=SESSION,
                run_id=None,
                call_id=recorder.call_id,
                command="serve",
                process=process,
                position=1,
                started_ts=0,
            )
        )

    def ends(self) -> tuple[ShellEnd, ...]:
        return self.table.unrecorded(SESSION)


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
def place(workspace: Path, scripted: Scripted) -> Place:
    return Place(workspace, scripted)


def begun(place: Place, scripted: Scripted, **more: Any) -> tuple[Recorder, Child]:
    """Begin a shell that is granted at once."""
    recorder = place.begin(**more)
    child = scripted.children[-1]
    child.wait()
    return recorder, child


def test_the_gate_opens_when_the_start_is_durable_and_the_call_ends_then(place: Place, scripted: Scripted) -> None:
    recorder = place.begin(Recorder("hold"))
    (child,) = scripted.children
    child.wait()
    assert (child.released, recorder.results) == (False, [])
    assert [(fact.command, fact.background) for fact in recorder.process_facts] == [("serve", True)]
    recorder.keeping[0](Handover(shell_id="b4"))
    assert child.released
    (result,) = recorder.results
    assert result.outcome is Outcome.OK
    assert result.text.startswith("Running in the background as b4 (pid 100). check_background with this id")


def test_a_stop_of_the_call_after_the_handover_touches_nothing(place: Place, scripted: Scripted) -> None:
    recorder, child = begun(place, scripted)
    recorder.cancel()
    assert not child.cancelled and len(recorder.results) == 1
    child.end()
    (end,) = place.ends()
    assert (end.how, end.exit_code, end.by) == ("exited", 0, None)
    assert place.changed == [SESSION]
    place.table.recorded(end.call_id)
    assert place.table.is_empty()


def test_a_bug_at_its_end_leaves_no_shell_without_one(
    workspace: Path, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Inside, text: str, *, failed: bool, exit_code: int | None = None) -> None:
        raise ValueError("a bug")

    place = Place(workspace, scripted)
    place.bench.boundary = Boundary()
    _, child = begun(place, scripted)
    monkeypatch.setattr(Inside, "verdict", broken)
    child.end()
    (end,) = place.ends()
    assert end.how == "exited"
    assert end.note is not None and "ValueError" in end.note


def test_a_stop_before_there_is_a_process_leaves_no_trace(place: Place, scripted: Scripted) -> None:
    recorder = place.begin()
    recorder.cancel()
    (child,) = scripted.children
    assert child.cancelled
    child.wait()
    child.end(ProcessEnd(cause="not_started"))
    assert recorder.facts == []
    assert recorder.wait().outcome is Outcome.ABORTED
    assert place.table.is_empty()


@pytest.mark.parametrize("ended_first", [True, False])
def test_a_stop_while_the_fact_is_on_its_way(place: Place, scripted: Scripted, ended_first: bool) -> None:
    """It becomes a fact all the same, so its end is told; nothing has run."""
    recorder = place.begin(Recorder("hold"))
    (child,) = scripted.children
    child.wait()
    recorder.cancel()
    steps: list[Callable[[], None]] = [
        lambda: child.end(ProcessEnd(cause="not_started")),
        lambda: recorder.keeping[0](Handover(shell_id="b1")),
    ]
    for step in steps if ended_first else reversed(steps):
        step()
    assert not child.released
    assert recorder.wait().outcome is Outcome.ABORTED
    (end,) = place.ends()
    assert end.how == "not_started"


def test_one_that_is_refused_is_forgotten(place: Place, scripted: Scripted) -> None:
    recorder = place.begin(Recorder("refuse"))
    (child,) = scripted.children
    child.wait()
    assert child.cancelled and not child.released
    child.end(ProcessEnd(cause="not_started"))
    result = recorder.wait()
    assert (result.outcome, result.text) == (
        Outcome.NOT_STARTED,
        "The process was not recorded, so nothing was run: the test says no",
    )
    assert place.table.is_empty() and not place.ends()


def test_one_of_which_nobody_knows_whether_it_is_a_fact_never_begins_and_is_told_of(
    place: Place, scripted: Scripted
) -> None:
    recorder = place.begin(Recorder("hold"))
    (child,) = scripted.children
    child.wait()
    recorder.keeping[0](Handover(refusal="who knows", unclear=True))
    assert child.cancelled and not child.released
    child.end(ProcessEnd(cause="not_started"))
    assert [end.how for end in place.ends()] == ["not_started"]
    place.table.recorded(recorder.call_id)
    recorder.keeping[0](Handover(shell_id="b1"))  # the clear word comes late, after all
    assert [end.how for end in place.ends()] == ["not_started"], "it is a fact, so its end is told again"
    recorder.keeping[0](Handover(refusal="no"))
    assert len(place.ends()) == 1, "a clear word is the last one"


def test_at_the_cap_of_64_a_start_fails_with_advice_and_nothing_is_spawned(place: Place, scripted: Scripted) -> None:
    for _ in range(BACKGROUND_PROCESSES_MAX):
        begun(place, scripted)
    result = place.begin().wait()
    assert result.outcome is Outcome.ERROR
    assert result.text.startswith("64 background processes live already")
    assert "Wait until one ends, or end one with stop_background" in result.text
    assert len(scripted.children) == BACKGROUND_PROCESSES_MAX
    scripted.children[0].end()
    place.table.recorded(place.ends()[0].call_id)
    assert begun(place, scripted)[0].wait().outcome is Outcome.OK


def test_a_closed_table_takes_none_and_ends_all(place: Place, scripted: Scripted) -> None:
    _, child = begun(place, scripted)
    held = place.begin(Recorder("hold"))
    scripted.children[-1].wait()
    place.table.close("host.shutdown")
    place.table.close("again")
    assert all(each.cancelled for each in scripted.children)
    assert "shutting down" in place.begin().wait().text and len(scripted.children) == 2
    child.end(ProcessEnd(cause="cancelled", signal=15))
    (end,) = place.ends()
    assert (end.how, end.by, end.exit_code) == ("stopped", "host.shutdown", 143)
    place.table.recorded(end.call_id)
    assert not place.table.is_empty(), "one waits for its word"
    scripted.children[1].end(ProcessEnd(cause="not_started"))
    held.keeping[0](Handover(refusal="the host is shutting down"))
    assert place.table.is_empty()


def test_what_nobody_can_record_any_more_is_forgotten_when_it_ends(place: Place, scripted: Scripted) -> None:
    _, ended = begun(place, scripted)
    ended.end()
    _, lives = begun(place, scripted)
    place.table.forget(OTHER)
    assert len(place.ends()) == 1
    place.table.forget(SESSION)
    assert not place.ends() and not place.table.is_empty()
    lives.end()
    assert place.table.is_empty()


def test_one_that_could_not_be_started_says_why(place: Place, scripted: Scripted) -> None:
    recorder = place.begin()
    scripted.children[0].listener.failed("the directory is gone")
    result = recorder.wait()
    assert (result.outcome, result.text) == (Outcome.ERROR, "the directory is gone")
    assert place.table.is_empty()


@pytest.mark.parametrize(
    ("end", "how", "code"),
    [
        (ProcessEnd(cause="exited", exit_code=3), "exited", 3),
        (ProcessEnd(cause="exited", signal=9), "killed", 137),
        (ProcessEnd(cause="timeout", signal=15), "timeout", 143),
        (ProcessEnd(cause="unknown"), "unknown", None),
    ],
)
def test_each_way_to_end_has_its_word(
    place: Place, scripted: Scripted, end: ProcessEnd, how: str, code: int | None
) -> None:
    _, child = begun(place, scripted)
    child.end(end)
    (found,) = place.ends()
    assert (found.how, found.exit_code, found.by) == (how, code, None)


def test_what_it_prints_is_kept_within_a_bound(place: Place, scripted: Scripted) -> None:
    recorder, child = begun(place, scripted)
    child.listener.output("stdout", b"first\n")
    for _ in range(40):
        child.listener.output("stdout", b"x" * (BACKGROUND_OUTPUT_BYTES_MAX // 8))
    child.listener.output("stderr", b"\nlast\n")
    child.end()
    (end,) = place.ends()
    assert len(end.output) < BACKGROUND_OUTPUT_BYTES_MAX * 5 // 4
    assert end.output.startswith(b"first\n") and end.output.endswith(b"\nlast\n")
    assert b"bytes were dropped here" in end.output
    assert recorder.outputs == [], "the call is over: nothing is shown live"


def test_time_limits(place: Place, scripted: Scripted) -> None:
    place.begin()
    place.begin(timeout_ms=int(BACKGROUND_TIMEOUT_MAX_S * 1000))
    assert [child.spec.timeout_s for child in scripted.children] == [None, BACKGROUND_TIMEOUT_MAX_S]
    result = place.bench.run("Bash", command="x", timeout_ms=int(BASH_TIMEOUT_MAX_S * 1000) + 1)
    assert result.outcome is Outcome.ERROR and "set run_in_background" in result.text
    assert len(scripted.children) == 2


# -- what the model is shown --------------------------------------------------------------------------------------


def test_a_session_without_shells_says_how_to_start_one(place: Place) -> None:
    result = place.bench.run("check_background")
    assert result.text == "This session has no background shells. Bash starts one with run_in_background."
    wrong = place.bench.run("check_background", id="b1")
    assert wrong.outcome is Outcome.ERROR
    assert wrong.text.startswith("There is no such background shell in this session. These are there:\n")
    assert "b1" not in wrong.text, "what was given isn't repeated"


def test_a_shell_is_shown_while_it_lives_when_it_has_ended_and_when_that_is_recorded(
    place: Place, scripted: Scripted
) -> None:
    recorder, child = begun(place, scripted)
    place.note(recorder, child.identity)
    child.listener.output("stdout", b"line\n")
    assert place.bench.run("check_background").text == "b1 · running · pid 100 · serve"
    assert place.bench.run("check_background", id="b1").text == "line\n[b1: running]"
    child.end(ProcessEnd(cause="exited", exit_code=2))
    assert place.bench.run("check_background").text == "b1 · exited with code 2 · pid 100 · serve"
    assert place.bench.run("check_background", id="b1").text == "line\n[b1: exited with code 2]"
    assert place.bench.run("stop_background", id="b1").text == ("line\n[b1 had ended before]\n[b1: exited with code 2]")


def test_a_stop_is_answered_when_it_has_ended_and_says_whom_it_could_not_end(place: Place, scripted: Scripted) -> None:
    recorder, child = begun(place, scripted)
    place.note(recorder, child.identity)
    first, second = place.bench.begin("stop_background", id="b1"), place.bench.begin("stop_background", id="b1")
    assert child.cancelled and not first.results
    child.listener.output("stdout", b"bye\n")
    child.end(ProcessEnd(cause="cancelled", signal=9, survivors=(7, 8)))
    for recorder in (first, second):
        result = recorder.wait()
        assert result.outcome is Outcome.OUTCOME_UNKNOWN
        assert result.text.startswith("bye\n[b1: stopped by model]\n[these processes could not be ended")
        assert "7, 8" in result.text


def test_a_stop_of_the_stop_leaves_the_shell_to_its_end(place: Place, scripted: Scripted) -> None:
    recorder, child = begun(place, scripted)
    place.note(recorder, child.identity)
    stopping = place.bench.begin("stop_background", id="b1")
    stopping.cancel()
    assert stopping.results[0].outcome is Outcome.ABORTED
    assert child.cancelled


def test_many_that_ended_are_cut_from_the_list_and_none_that_lives(place: Place, scripted: Scripted) -> None:
    for number in range(40):
        recorder, child = begun(place, scripted)
        place.note(recorder, child.identity, f"b{number + 1}")
        if number not in (0, 39):
            child.end()
    lines = place.bench.run("check_background").text.splitlines()
    assert lines[0].startswith("b1 · running") and lines[1].startswith("b40 · running")
    assert lines[2].startswith("b10 ·") and lines[-2].startswith("b39 ·")
    assert lines[-1] == "[8 that ended earlier are not listed]"


# -- in the sandbox -----------------------------------------------------------------------------------------------


@pytest.fixture
def real(workspace: Path, processes: AsyncProcesses) -> Place:
    return Place(workspace, processes)


def until_ended(place: Place) -> ShellEnd:
    over = threading.Event()
    place.table.listen(lambda _: over.set())
    if not place.ends():
        assert over.wait(PATIENCE_S)
    (end,) = place.ends()
    place.table.recorded(end.call_id)
    return end


def grant(path: Path, scope: str) -> Boundary:
    entries = (FileEntry(path=str(path), access="write", scope="subtree"),)
    once = Grant(
        origin=EventId("0198c0de-0000-7000-8000-00000000000e"),
        scope=scope,  # type: ignore[arg-type]
        expansion=Expansion(filesystem=entries),
    )
    return Boundary(profile=Profile.ASK, grants=(once,))


@pytest.mark.parametrize("scope", ["once", "session"])
def test_what_was_granted_for_one_run_is_not_for_what_outlives_it(
    real: Place, workspace: Path, tmp_path: Path, scope: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    given = grant(outside, scope)
    real.bench.boundary = Boundary(profile=given.profile, grants=given.grants, workspace=str(workspace))
    real.begin(command=f"touch {outside}/made").wait()
    end = until_ended(real)
    assert (outside / "made").exists() == (scope == "session")
    assert (end.exit_code == 0) == (scope == "session")


def test_a_protected_name_is_moved_aside_while_the_shell_lives(
    workspace: Path, processes: AsyncProcesses, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that plants something is seen at the second look, not when it ends some day."""
    monkeypatch.setattr(shell_watch, "SHELL_LOOK_S", 0.01)
    place = Place(workspace, processes)
    place.bench = Bench(
        builtin_tools(
            processes,
            child_env=CHILD_ENV,
            rg_path=None,
            sandbox=sandbox,
            ground=ground_of(str(Path.home()), (), CHILD_ENV["PATH"]),
            shells=Shells(table=place.table),
        ),
        workspace,
        boundary(workspace),
    )
    command = "echo evil > .envrc; until [ ! -e .envrc ]; do sleep 0.02; done; echo gone"
    place.begin(command=command).wait()
    end = until_ended(place)
    assert end.output == b"gone\n"
    assert end.note is not None and ".envrc" in end.note and "moved aside" in end.note
    assert (workspace / ".envrc.maka-aside-1").read_text() == "evil\n"
