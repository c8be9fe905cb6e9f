"""One asyncio thread that carries every provider stream and every subprocess.

Laws:
- Nothing that a task raises ends the loop: SystemExit and KeyboardInterrupt, which asyncio lets through, are turned
  into an error of that task alone.
- `done` of a submitted coroutine is called exactly once, also where the coroutine never began: on the loop's thread,
  or on the caller's where the loop is closed already.
- `close` cancels what is left, waits for it, then runs the close steps; no task outlives the loop.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, Self

Done = Callable[[BaseException | None], None]
"""Told how a coroutine ended: None, its exception, or a CancelledError."""


CloseStep = Callable[[], Coroutine[Any, Any, None]]
"""What is to be closed on the loop before it ends, such as idle connections."""


class IoTaskError(RuntimeError):
    """A task asked for the end of the process, or the loop is closed; it concerns that task alone."""


class IoTask:
    """A submitted coroutine. `cancel` is thread-safe, idempotent and returns at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, alive: set[asyncio.Task[None]]) -> None:
        self._loop = loop
        self._alive = alive
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """Cancel the coroutine at the place where it waits; its own clean-up still runs."""
        if self._cancelled:
            return
        self._cancelled = True
        _call_soon(self._loop, self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def begin(self, work: Coroutine[Any, Any, None], done: Done | None) -> None:
        """Make the task; for the loop's thread."""
        if self._cancelled:
            work.close()
            _tell(done, asyncio.CancelledError())
            return
        self._task = self._loop.create_task(_fenced(work))
        # asyncio itself holds a waiting task only weakly: one that nobody else knows would be collected.
        self._alive.add(self._task)
        self._task.add_done_callback(self._alive.discard)
        # A done callback, not a `finally`: a task that is cancelled before its first step never enters its body.
        self._task.add_done_callback(lambda task: _finish(task, work, done))


class IoLoop:
    """The I/O thread. Made by `start`; every method may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        self._loop = loop
        self._thread = thread
        # Held while work is handed over, so that whatever was taken is queued before the cancelling of everything.
        self._handing_over = threading.Lock()
        self._is_closing = False
        self._alive: set[asyncio.Task[None]] = set()
        self._at_close: list[CloseStep] = []

    @classmethod
    def start(cls, name: str = "maka-io") -> Self:
        """Start the thread and return when it takes work."""
        loop = asyncio.new_event_loop()
        started = threading.Event()
        thread = threading.Thread(target=_run, args=(loop,), name=name, daemon=True)
        io = cls(loop, thread)
        loop.call_soon(started.set)
        thread.start()
        started.wait()
        return io

    def submit(self, work: Coroutine[Any, Any, None], done: Done | None = None) -> IoTask:
        """Run a coroutine on the loop; `done` hears its end, whatever it is."""
        task = IoTask(self._loop, self._alive)
        with self._handing_over:
            is_taken = not self._is_closing and _call_soon(self._loop, task.begin, work, done)
        if not is_taken:
            work.close()
            _tell(done, IoTaskError("the I/O loop is closed"))
        return task

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        """Call a function on the loop's thread; dropped when the loop is closed."""
        _call_soon(self._loop, _guarded, function, *args)

    def at_close(self, step: CloseStep) -> None:
        """Run a step on the loop when it closes, after every task has ended."""
        self._at_close.append(step)

    def close(self, timeout_s: float = 5.0) -> None:
        """Cancel every task, wait until they are done (about `timeout_s` at most), and end the thread. Idempotent.

        Never called on the loop's own thread. What isn't done by then stays behind on a daemon thread.
        """
        with self._handing_over:
            if self._is_closing:
                return
            self._is_closing = True
        over: Future[None] = Future()
        _call_soon(self._loop, self._wind_up, over, timeout_s)
        wait([over], timeout_s + 1.0)
        _call_soon(self._loop, self._loop.stop)
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._loop.close()

    def _wind_up(self, over: Future[None], timeout_s: float) -> None:
        asyncio.ensure_future(self._cancel_all(timeout_s), loop=self._loop).add_done_callback(
            lambda _: over.set_result(None)
        )

    async def _cancel_all(self, timeout_s: float) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
        for step in self._at_close:
            closing = self._loop.create_task(_fenced(step()))
            await asyncio.wait([closing], timeout=timeout_s)
            if not closing.cancel() and not closing.cancelled():
                closing.exception()  # seen: a connection that closes badly is closed all the same
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    while True:
        try:
            loop.run_forever()
            return
        except (SystemExit, KeyboardInterrupt):
            # A callback of someone else's asked for the process to end. Only the main thread may decide that.
            continue


async def _fenced(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise IoTaskError(f"a task raised {type(error).__name__}") from error


def _finish(task: asyncio.Task[None], work: Coroutine[Any, Any, None], done: Done | None) -> None:
    work.close()  # does nothing unless it never began; then it would warn about that
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    _tell(done, error)


def _tell(done: Done | None, error: BaseException | None) -> None:
    if done is not None:
        _guarded(done, error)


def _guarded(function: Callable[..., object], *args: object) -> None:
    try:
        function(*args)
    except (SystemExit, KeyboardInterrupt) as error:
        raise IoTaskError(f"a callback raised {type(error).__name__}") from error


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: object) -> bool:
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:  # the loop is closed: nothing is left to do there
        return False
    return True
