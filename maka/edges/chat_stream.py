"""One request under way: reads the answer on the I/O thread, watches for silence, and tells the listener.

Laws:
- The listener hears batches, then exactly one of `finished` or `failed`; after `cancel` has returned it hears at most
  one `failed(CANCELLED)`. A lock around each call makes that so: what a listener does is a tell, and short.
- Only data counts as life: comments don't push a deadline back. While the listener is behind nothing is read, and that
  silence isn't the provider's, so no deadline runs.
- Every way out closes the connection.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from maka.contracts.limits import AFTER_FINISH_S
from maka.contracts.model_ports import (
    DeltaBatch,
    ErrorKind,
    ModelProfile,
    ProviderError,
    ProviderListener,
    StepResult,
)
from maka.edges.answer import Answer, Verdict
from maka.edges.deltas import DeltaMerger
from maka.edges.io_loop import IoLoop, IoTask
from maka.edges.redact import Redactor

_LINGER_S = 0.25
_SILENCE_SLACK = 1.125


class HttpAnswer(Protocol):
    """An answer whose head has come, with status 200."""

    @property
    def content_type(self) -> str: ...

    def bytes(self) -> AsyncIterator[bytes]: ...


Open = Callable[[bytes], AbstractAsyncContextManager[HttpAnswer]]
"""Sends a body and opens the answer; leaving the context closes the connection or gives it back."""

Connect = Callable[[], Awaitable[Open]]
"""Makes ready what sends; its time isn't the provider's."""

Explain = Callable[[BaseException], ProviderError]
"""Says what an exception of the connection means."""


class ChatStream:
    """A `ProviderStream`. `start` begins it; `ack` and `cancel` may be called from any thread."""

    def __init__(
        self,
        profile: ModelProfile,
        connect: Connect,
        explain: Explain,
        listener: ProviderListener,
        redact: Redactor,
        slots: asyncio.Semaphore | None = None,
    ) -> None:
        self._profile = profile
        self._connect = connect
        self._explain = explain
        self._listener = listener
        self._redact = redact
        self._slots: AbstractAsyncContextManager[None] = slots if slots is not None else nullcontext()
        self._telling = threading.RLock()
        self._cancelled = False
        self._told = False
        self._merger: DeltaMerger | None = None
        self._answer: Answer | None = None
        self._io: IoLoop | None = None
        self._task: IoTask | None = None

    def start(self, io: IoLoop, body: bytes) -> None:
        """Send the body; called once."""
        self._io = io
        self._task = io.submit(self._run(body), self._over)
        if self._cancelled:  # by the listener, while this was being set up
            self._task.cancel()

    def ack(self) -> None:
        if self._io is not None:
            self._io.call_soon(self._ack)

    def cancel(self) -> None:
        with self._telling:
            self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    def _ack(self) -> None:
        if self._merger is not None:
            self._merger.ack()

    async def _run(self, body: bytes) -> None:
        self._merger = DeltaMerger(asyncio.get_running_loop(), self._tell_batch)
        try:
            async with self._slots:
                await self._exchange(body, self._merger)
        finally:
            self._merger.close()

    async def _exchange(self, body: bytes, merger: DeltaMerger) -> None:
        broken: ProviderError | None = None
        guard = asyncio.timeout(self._profile.first_event_s or None)
        try:
            open_answer = await self._connect()
            async with guard:
                async with open_answer(body) as http:
                    await self._read(http, merger, guard)
                    guard.reschedule(None)
                    await self._conclude(merger, None)
                    await _linger(http)
                return
        except TimeoutError as error:
            broken = self._stalled() if guard.expired() else self._explain(error)
        except Exception as error:
            broken = self._explain(error)
        await self._conclude(merger, broken)

    async def _read(self, http: HttpAnswer, merger: DeltaMerger, guard: asyncio.Timeout) -> None:
        answer = self._answer = Answer(http.content_type, self._profile.reasoning_field, self._redact)
        loop = asyncio.get_running_loop()
        frames = 0
        async for data in http.bytes():
            for kind, text in answer.feed(data):
                merger.add(kind, text)
            if answer.is_over:
                return
            if merger.is_full:
                guard.reschedule(None)
                await merger.room()
            elif answer.frames == frames:
                continue  # comments, or a frame that isn't whole: no sign of life
            frames = answer.frames
            until_s = deadline_after(guard.when(), loop.time(), self._silence_s(answer))
            if until_s != guard.when():
                guard.reschedule(until_s)

    def _silence_s(self, answer: Answer) -> float:
        """Return how long the provider may be silent now; 0 means for ever."""
        idle_s = self._profile.idle_s
        if not answer.has_finish:
            return idle_s
        # Only usage can follow a finish. A server that then keeps the line open must not hold the verdict back.
        return min(idle_s, AFTER_FINISH_S) if idle_s else AFTER_FINISH_S

    def _stalled(self) -> ProviderError:
        if self._answer is None or not self._answer.frames:
            what = f"no event within {self._profile.first_event_s:g} s"
        else:
            what = f"no data for {self._profile.idle_s:g} s"
        return ProviderError(kind=ErrorKind.TIMEOUT, message=f"the provider stalled: {what}", retryable=True)

    async def _conclude(self, merger: DeltaMerger, broken: ProviderError | None) -> None:
        answer = self._answer
        if answer is not None:
            for kind, text in answer.rest():
                merger.add(kind, text)
        await merger.drain()
        if answer is not None:
            self._tell(answer.verdict(broken))
        elif broken is not None:
            self._tell(broken)

    def _over(self, error: BaseException | None) -> None:
        """Make sure of a verdict, however the task ended."""
        if isinstance(error, asyncio.CancelledError):
            self._tell(ProviderError(kind=ErrorKind.CANCELLED, message="the request was cancelled"))
        elif error is not None or not self._told:
            what = self._redact.line(f"{type(error).__name__}: {error}", 300)
            self._tell(ProviderError(kind=ErrorKind.UNKNOWN, message=f"the request broke inside Maka: {what}"))

    def _tell_batch(self, batch: DeltaBatch) -> None:
        with self._telling:
            if not self._cancelled and not self._told:
                self._listener.batch(batch)

    def _tell(self, verdict: Verdict) -> None:
        with self._telling:
            if self._told:
                return
            if self._cancelled:
                verdict = ProviderError(kind=ErrorKind.CANCELLED, message="the request was cancelled")
            self._told = True
            if isinstance(verdict, StepResult):
                self._listener.finished(verdict)
            else:
                self._listener.failed(verdict, self._answer is not None and self._answer.observed)


def deadline_after(until_s: float | None, now_s: float, silence_s: float) -> float | None:
    """Return when a silence that begins now is over: after `silence_s` (0 is for ever), or up to an eighth later.

    The deadline that stands is kept where it will do: moving a timer for each frame is an eighth of the CPU time of a
    fast stream, and the loop keeps the old timers for a while.
    """
    if not silence_s:
        return None
    latest_s = now_s + silence_s * _SILENCE_SLACK
    return until_s if until_s is not None and now_s + silence_s <= until_s <= latest_s else latest_s


async def _linger(http: HttpAnswer) -> None:
    """Read the end of the body, so that the connection can serve the next request; not for long."""
    try:
        async with asyncio.timeout(_LINGER_S):
            async for _ in http.bytes():
                pass
    except Exception:
        # The verdict is told: all that is lost is a connection.
        return
