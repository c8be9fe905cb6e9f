"""What commands left is put right on a thread of its own: whatever that takes, nobody else waits for it."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from maka.contracts.boundary import Boundary, Profile
from maka.contracts.content import Outcome
from maka.contracts.ids import CallId
from maka.contracts.tool_ports import BoundaryNeed
from maka.edges.processes import AsyncProcesses
from maka.tools.inside import Inside
from maka.tools.settler import Settler
from tests.tools.conftest import make_tools, needs, the_sandbox
from tests.tools.harness import PATIENCE_S, SESSION, Bench, boundary
from tests.tools.test_background import Place

PLANT = "echo evil > CLAUDE.md"
SLOW = "slow"
"""The name of the workspace in which it takes until a test lets it go on."""


class Barrier:
    """Stands before what is put right in one workspace."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.let = threading.Event()
        self.threads: list[str] = []
        right = Inside.verdict

        def verdict(inside: Inside, text: str, **told: Any) -> tuple[BoundaryNeed, str] | None:
            self.threads.append(threading.current_thread().name)
            if inside._boundary.workspace.endswith(SLOW):  # pyright: ignore[reportPrivateUsage]
                self.reached.set()
                assert self.let.wait(PATIENCE_S)
            return right(inside, text, **told)

        patch.setattr(Inside, "verdict", verdict)


@pytest.fixture
def barrier(monkeypatch: pytest.MonkeyPatch) -> Barrier:
    needs(the_sandbox())
    return Barrier(monkeypatch)


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    (tmp_path / SLOW).mkdir()
    return tmp_path / SLOW


def both(processes: AsyncProcesses, slow: Path, workspace: Path) -> tuple[Bench, Bench]:
    """Two sessions of one host."""
    tools = make_tools(processes)
    return Bench(tools, slow, boundary(slow)), Bench(tools, workspace, boundary(workspace))


def test_a_slow_one_holds_up_no_output_and_no_other_end(
    processes: AsyncProcesses, slow: Path, workspace: Path, barrier: Barrier
) -> None:
    first, second = both(processes, slow, workspace)
    held = first.begin("Bash", command=PLANT)
    assert barrier.reached.wait(PATIENCE_S)
    other = second.begin("Bash", command=f"echo on; until [ -e go ]; do :; done; echo more; {PLANT}")
    assert other.spoke.wait(PATIENCE_S), "its output comes"
    (workspace / "a").write_text("word\n")
    assert second.run("Grep", pattern="word").text == "a:1:word\n"
    second.boundary = Boundary(profile=Profile.BYPASS)
    assert second.run("Bash", command="echo free").text == "free\n"
    (workspace / "go").touch()
    assert not held.results and not other.results
    barrier.let.set()
    for bench, call, said in ((first, held, "[no output"), (second, other, "on\nmore\n[")):
        result = call.wait()
        assert result.text.startswith(said) and "moved aside" in result.text
        assert (bench.cwd / "CLAUDE.md.maka-aside-1").exists()
    assert other.shown() == "on\nmore\n"
    assert barrier.threads == ["maka-settle"] * 2


def test_a_slow_end_of_a_background_shell_holds_nobody_up(
    processes: AsyncProcesses, slow: Path, workspace: Path, barrier: Barrier
) -> None:
    place = Place(slow, processes)
    place.bench.boundary = boundary(slow)
    call_id = place.begin(command=f"echo out; {PLANT}; exit 3").call_id
    assert barrier.reached.wait(PATIENCE_S)
    shell = place.table.find(call_id)
    assert shell is not None
    glance = shell.glance()
    assert (glance.text, glance.end, place.ends()) == ("out\n", None, ())
    free = Bench(place.tools, workspace, Boundary(profile=Profile.BYPASS))
    assert free.run("Bash", command="echo free").text == "free\n"
    ended = threading.Event()
    shell.when_ended(lambda _: ended.set())
    barrier.let.set()
    assert ended.wait(PATIENCE_S)
    (end,) = place.ends()
    assert (end.how, end.exit_code) == ("exited", 3)
    assert end.note is not None and "moved aside" in end.note


@pytest.mark.parametrize("bug", [ValueError("a bug"), SystemExit(1)])
@pytest.mark.parametrize("in_background", [False, True])
def test_a_crash_is_told_and_the_next_one_is_put_right(
    processes: AsyncProcesses,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    bug: BaseException,
    in_background: bool,
) -> None:
    needs(the_sandbox())

    def broken(inside: Inside, text: str, **told: Any) -> None:
        raise bug

    place = Place(workspace, processes)
    place.bench.boundary = boundary(workspace)
    with monkeypatch.context() as patch:
        patch.setattr(Inside, "verdict", broken)
        recorder = place.bench.begin("Bash", command="echo out", run_in_background=in_background)
        result = recorder.wait()
        said = ended_note(place, recorder.call_id) if in_background else result.text
    assert type(bug).__name__ in said and "look at" in said
    assert in_background or result.outcome is Outcome.OUTCOME_UNKNOWN
    assert "moved aside" in place.bench.run("Bash", command=PLANT).text


def ended_note(place: Place, call_id: CallId) -> str:
    """Wait for a shell's end, and return what is said about it."""
    shell, ended = place.table.find(call_id), threading.Event()
    assert shell is not None
    shell.when_ended(lambda _: ended.set())
    assert ended.wait(PATIENCE_S)
    (end,) = place.table.unrecorded(SESSION)
    return end.note or ""


# -- the thread -------------------------------------------------------------------------------------------------------


def test_all_is_done_in_its_order_by_one_thread_that_then_ends() -> None:
    let, done = threading.Event(), list[tuple[int, threading.Thread]]()
    settler = Settler()

    def note(number: int) -> None:
        done.append((number, threading.current_thread()))

    settler.do(lambda: assert_(let.wait(PATIENCE_S)))
    for number in range(20):
        settler.do(partial(note, number))
    assert not settler.wait(0.0) and not done
    let.set()
    assert settler.wait(PATIENCE_S)
    assert [number for number, _ in done] == list(range(20))
    (thread,) = {thread for _, thread in done}
    thread.join(PATIENCE_S)
    assert thread.daemon and not thread.is_alive()
    settler.do(partial(note, 20))
    assert settler.wait(PATIENCE_S) and done[-1][0] == 20


def test_what_raises_is_reported_and_the_next_is_done() -> None:
    raised: list[BaseException] = []

    def report(bug: BaseException) -> None:
        raised.append(bug)
        raise ValueError("the report fails, too")

    settler, done = Settler(report), threading.Event()
    bugs = [ValueError("one"), SystemExit(2), KeyboardInterrupt()]
    for bug in bugs:
        settler.do(raising(bug))
    settler.do(done.set)
    assert done.wait(PATIENCE_S)
    assert raised == bugs


def test_without_a_thread_it_is_done_by_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    settler, done = Settler(), list[str]()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        settler.do(lambda: done.append(threading.current_thread().name))
    assert done == [threading.current_thread().name]
    settler.do(lambda: done.append(threading.current_thread().name))
    assert settler.wait(PATIENCE_S)
    assert done[1] == "maka-settle"


def raising(bug: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise bug

    return work


def assert_(held: bool) -> None:
    assert held
