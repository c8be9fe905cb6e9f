"""A command that never begins: it counts no more among those that run, however it came to that."""

import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from maka.contracts.boundary import FileEntry
from maka.contracts.content import Outcome
from maka.contracts.process_ports import Launch
from maka.contracts.sandbox_ports import Sandbox, SandboxPolicy
from maka.contracts.tool_ports import Handover, ToolResult
from maka.edges import bubblewrap, child_process
from maka.edges.processes import AsyncProcesses
from maka.tools import boxed
from maka.tools.guard import Guard
from maka.tools.inside import Inside
from maka.tools.shells import Shells
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import PATIENCE_S, Answer, Bench, Recorder, boundary, git
from tests.tools.test_background import Place
from tests.tools.test_boxed import after_each_look, make

EACH = pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
Begin = Callable[[Place, pytest.MonkeyPatch, bool], Recorder]


@pytest.fixture
def place(processes: AsyncProcesses, workspace: Path, sandbox: Sandbox) -> Place:
    place = Place(workspace, processes, shells_max=1)
    place.bench = Bench(
        make_tools(processes, sandbox=sandbox, shells=Shells(table=place.table)), workspace, boundary(workspace)
    )
    return place


def bash(place: Place, in_background: bool, answer: Answer = "grant") -> Recorder:
    return place.bench.begin("Bash", Recorder(answer), command="touch ran", run_in_background=in_background)


def stopped_at_its_gate(place: Place, patch: pytest.MonkeyPatch, in_background: bool) -> Recorder:
    recorder = bash(place, in_background, "hold")
    assert recorder.asked.wait(PATIENCE_S)
    recorder.cancel()
    return recorder


def not_recorded(place: Place, patch: pytest.MonkeyPatch, in_background: bool) -> Recorder:
    return bash(place, in_background, "refuse")


def not_spawned(place: Place, patch: pytest.MonkeyPatch, in_background: bool) -> Recorder:
    def fails(*_: object) -> None:
        raise OSError("no more processes")

    with pytest.MonkeyPatch.context() as now:
        now.setattr(child_process, "spawn_gated", fails)
        recorder = bash(place, in_background)
        recorder.wait()
    return recorder


def always_changed(place: Place, patch: pytest.MonkeyPatch, in_background: bool) -> Recorder:
    """Each try fails; the time for all of them is over in the end."""
    times = iter((0.0, 1.0, 59.0, 60.0))
    patch.setattr(boxed, "monotonic", lambda: next(times))
    make(place.bench.cwd / "build")

    def moves(number: int, policy: object) -> None:
        at = next(place.bench.cwd.glob("build*"))
        shutil.move(at, place.bench.cwd / f"build{number}")

    seen = after_each_look(patch, moves)
    recorder = bash(place, in_background)
    assert recorder.wait().text == boxed.LATE.format(60, 3)
    assert len(seen) == 4
    patch.undo()
    shutil.rmtree(next(place.bench.cwd.glob("build*")))
    return recorder


def gone_at_a_retry(place: Place, patch: pytest.MonkeyPatch, in_background: bool) -> Recorder:
    make(place.bench.cwd / "build")

    def goes(number: int, policy: object) -> None:
        if number > 1:
            raise PermissionError(13, "closed", "x")
        shutil.rmtree(place.bench.cwd / "build")

    after_each_look(patch, goes)
    recorder = bash(place, in_background)
    assert recorder.wait().text.startswith("no command was run: ")
    patch.undo()
    return recorder


def not_looked_at(place: Place, patch: pytest.MonkeyPatch, in_background: bool) -> Recorder:
    def closed(number: int, policy: object) -> None:
        raise PermissionError(13, "closed", "x")

    after_each_look(patch, closed)
    recorder = bash(place, in_background)
    recorder.wait()
    patch.undo()
    return recorder


WAYS: tuple[Begin, ...] = (
    *(stopped_at_its_gate, not_recorded, not_spawned),
    *(always_changed, gone_at_a_retry, not_looked_at),
)


@EACH
@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_person_makes_after_a_command_that_never_began_stays(
    place: Place, workspace: Path, way: Begin, in_background: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = way(place, monkeypatch, in_background)
    assert recorder.wait().outcome is not Outcome.OK
    (workspace / "AGENTS.md").write_text("the person's\n")
    result = place.bench.run("Bash", command="true")
    assert (result.outcome, result.text) == (Outcome.OK, "[no output, exit code 0]")
    assert (workspace / "AGENTS.md").read_text() == "the person's\n" and not (workspace / "ran").exists()
    for answer in recorder.keeping:
        answer(Handover(refusal="the test says no"))
    assert place.table.is_empty()


@EACH
def test_what_a_person_makes_after_a_refused_shell_stays(place: Place, workspace: Path) -> None:
    """There is no room for one more; nothing is looked at for it."""
    first = place.begin(command="until [ -e on ]; do :; done")
    assert first.wait().outcome is Outcome.OK
    shell = place.table.find(first.call_id)
    assert shell is not None
    second = bash(place, in_background=True)
    assert "nothing was started" in second.wait().text
    shell.stop("test")
    ended = threading.Event()
    shell.when_ended(lambda _: ended.set())
    assert ended.wait(PATIENCE_S)
    (workspace / "AGENTS.md").write_text("the person's\n")
    assert place.bench.run("Bash", command="true").outcome is Outcome.OK
    assert (workspace / "AGENTS.md").exists()


@EACH
def test_a_grant_of_a_command_that_never_began_shields_no_other(place: Place, workspace: Path) -> None:
    git(workspace, "init", "-q")
    config = workspace / ".git" / "config"
    plain = place.bench.boundary
    place.bench.boundary = boundary(
        workspace, plain.profile, FileEntry(path=str(config), access="write", scope="exact")
    )
    stopped = bash(place, in_background=False, answer="hold")
    assert stopped.asked.wait(PATIENCE_S)
    stopped.cancel()
    stopped.wait()
    place.bench.boundary = plain
    # An editor replaces the file: the sandbox holds it no more.
    runs = place.bench.begin("Bash", command="echo on; until [ -e go ]; do :; done; echo '[x]' >>.git/config; "
        "printf '[core]\\n\\tfsmonitor = ./evil\\n' >>.git/config")  # fmt: skip
    assert runs.spoke.wait(PATIENCE_S)
    (workspace / ".git" / "new").write_text(config.read_text())
    (workspace / ".git" / "new").rename(config)
    (workspace / "go").touch()
    assert runs.wait().outcome is Outcome.ERROR
    assert "fsmonitor" not in config.read_text()


def test_a_bug_while_a_command_is_settled_ends_its_look_too(
    place: Place, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(guard: Guard) -> None:
        raise ValueError("a bug")

    looks: list[Inside] = []
    right = Inside.settled

    def settles(inside: Inside, result: ToolResult, errors: str = "") -> ToolResult:
        looks.append(inside)  # it lives on, as with who is just reading it
        return right(inside, result, errors)

    monkeypatch.setattr(Guard, "put_right", breaks)
    monkeypatch.setattr(Inside, "settled", settles)
    assert place.bench.run("Bash", command="true").outcome is Outcome.OUTCOME_UNKNOWN
    monkeypatch.undo()
    (workspace / "AGENTS.md").write_text("the person's\n")
    assert looks and place.bench.run("Bash", command="true").outcome is Outcome.OK
    assert (workspace / "AGENTS.md").exists()


@EACH
@pytest.mark.parametrize("timeout_ms", [1, 120_000])
def test_a_set_up_that_took_too_long_is_not_tried_again(
    place: Place, sandbox: Sandbox, timeout_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxed, "SANDBOX_SETUP_LEAST_S", 0.01)
    monkeypatch.setattr(boxed, "SANDBOX_SETUP_S", 0.02)
    monkeypatch.setattr(child_process, "KILL_GRACE_S", 0.01)
    right = sandbox.wrap

    def never(argv: tuple[str, ...], policy: SandboxPolicy, env: Mapping[str, str]) -> Launch:
        return replace(right(argv, policy, env), argv=("/bin/sh", "-c", "exec tail -f /dev/null"))

    monkeypatch.setattr(sandbox, "wrap", never)
    seen = after_each_look(monkeypatch, lambda number, policy: None)
    result = place.bench.run("Bash", command="touch ran", timeout_ms=timeout_ms)
    limit_s = 0.01 if timeout_ms == 1 else 0.02
    assert (result.outcome, result.text) == (Outcome.ERROR, boxed.LATE.format(limit_s, 1))
    assert len(seen) == 1


@EACH
def test_a_stop_waits_for_no_look_between_two_tries(
    place: Place, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(workspace / "build")
    looking, go_on = threading.Event(), threading.Event()

    def stays(number: int, policy: object) -> None:
        if number == 1:
            shutil.rmtree(workspace / "build")
        else:
            looking.set()
            assert go_on.wait(PATIENCE_S)

    after_each_look(monkeypatch, stays)
    recorder = bash(place, in_background=False)
    assert looking.wait(PATIENCE_S)
    recorder.cancel()
    assert recorder.wait().text == "Stopped before the command began; nothing was run."
    go_on.set()
    monkeypatch.undo()
    (workspace / "AGENTS.md").write_text("the person's\n")
    assert place.bench.run("Bash", command="true").outcome is Outcome.OK
    assert (workspace / "AGENTS.md").exists() and len(recorder.results) == 1


@pytest.mark.parametrize("sandbox", ["bubblewrap"], indirect=True)
def test_too_many_repositories_are_told_at_once(place: Place, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(workspace / "build")
    monkeypatch.setattr(bubblewrap, "SANDBOX_MOUNTS_MAX", 2)
    seen = after_each_look(monkeypatch, lambda number, policy: None)
    result = place.bench.run("Bash", command="touch ran")
    assert result.outcome is Outcome.ERROR and "a person should remove some" in result.text
    assert len(seen) == 1 and not (workspace / "ran").exists()
