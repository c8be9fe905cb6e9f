"""The I/O thread lives through whatever its tasks do, and leaves nothing behind."""

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator

import pytest

from maka.edges.io_loop import IoLoop, IoTask, IoTaskError


class End:
    """A `done` that remembers and can be waited for."""

    def __init__(self) -> None:
        self.heard: list[BaseException | None] = []
        self._over = threading.Event()

    def __call__(self, error: BaseException | None) -> None:
        self.heard.append(error)
        self._over.set()

    @property
    def error(self) -> BaseException | None:
        assert self._over.wait(30)
        assert len(self.heard) == 1
        return self.heard[0]


@pytest.fixture
def io() -> Iterator[IoLoop]:
    loop = IoLoop.start()
    yield loop
    loop.close()


async def nothing() -> None:
    return


async def raising(error: BaseException) -> None:
    raise error


async def for_ever(started: threading.Event | None = None) -> None:
    if started is not None:
        started.set()
    await asyncio.Event().wait()


def works(io: IoLoop) -> bool:
    end = End()
    io.submit(nothing(), end)
    return end.error is None


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_task_that_wants_to_end_the_process_ends_itself_alone(io: IoLoop, kind: type[BaseException]) -> None:
    end = End()
    io.submit(raising(kind()), end)
    assert isinstance(end.error, IoTaskError)
    assert works(io)


def test_a_callback_that_wants_to_end_the_process_ends_itself_alone(io: IoLoop) -> None:
    io.call_soon(sys.exit, 3)
    assert works(io)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_foreign_callback_that_exits_does_not_stop_the_loop(io: IoLoop) -> None:
    async def plant() -> None:
        asyncio.get_running_loop().call_soon(sys.exit, 3)

    end = End()
    io.submit(plant(), end)
    assert end.error is None
    assert works(io)


def test_an_error_reaches_done(io: IoLoop) -> None:
    end = End()
    io.submit(raising(ValueError("x")), end)
    assert isinstance(end.error, ValueError)


def test_cancel_at_any_moment_is_heard_once(io: IoLoop) -> None:
    for _ in range(50):
        end = End()
        task = io.submit(for_ever(), end)
        task.cancel()
        task.cancel()
        assert isinstance(end.error, asyncio.CancelledError)


def test_cancel_on_the_loop_before_the_first_step(io: IoLoop) -> None:
    end = End()
    tasks: list[IoTask] = []

    def submit_and_cancel() -> None:
        tasks.append(io.submit(for_ever(), end))
        tasks[0].cancel()

    io.call_soon(submit_and_cancel)
    assert isinstance(end.error, asyncio.CancelledError)


def test_a_waiting_task_that_nobody_knows_is_kept(io: IoLoop) -> None:
    end, started = End(), threading.Event()
    io.submit(for_ever(started), end)
    assert started.wait(30)
    assert works(io)
    gc.collect()
    assert works(io)
    assert end.heard == []
    io.close()
    assert isinstance(end.error, asyncio.CancelledError)


def test_close_cancels_then_runs_the_close_steps() -> None:
    io = IoLoop.start("maka-io-closed")
    end, started = End(), threading.Event()
    order: list[str] = []

    async def step(name: str) -> None:
        order.append(name)
        raise RuntimeError("a step that fails")

    io.at_close(lambda: step(f"one, after {len(end.heard)}"))
    io.at_close(lambda: step("two"))
    io.submit(for_ever(started), end)
    assert started.wait(30)
    io.close()
    io.close()
    assert isinstance(end.error, asyncio.CancelledError)
    assert order == ["one, after 1", "two"]
    assert not any(thread.name == "maka-io-closed" for thread in threading.enumerate())


def test_after_close_work_is_refused() -> None:
    io = IoLoop.start()
    io.close()
    end = End()
    io.submit(nothing(), end).cancel()
    assert isinstance(end.error, IoTaskError)
    io.call_soon(print)


def test_a_task_that_will_not_end_does_not_hold_close() -> None:
    io = IoLoop.start()
    started, free = threading.Event(), asyncio.Event()

    async def stubborn() -> None:
        started.set()
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    io.submit(stubborn())
    assert started.wait(30)
    # A second cancel comes with the end of the loop's own clean-up, so the task must be let go before that.
    io.call_soon(lambda: asyncio.get_running_loop().call_later(0.1, free.set))
    io.close(timeout_s=30)
