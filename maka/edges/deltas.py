"""Pieces of a streaming answer merged into batches, one of them unanswered at a time.

Laws: a piece is shown at once when nothing was shown for a moment, else after that moment or when a batch is full; no
batch is larger than `DELTA_MERGE_BYTES_MAX`, so a partial takes it whole; order is kept. Lives on the I/O thread.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

from maka.contracts.limits import DELTA_MERGE_BYTES_MAX, DELTA_MERGE_S, STREAM_BACKLOG_BYTES_MAX
from maka.contracts.model_ports import DeltaBatch


class Cancellable(Protocol):
    """A call that can be taken back."""

    def cancel(self) -> None: ...


class LoopTime(Protocol):
    """What merging needs of the loop: its clock, and calls at a later time."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Cancellable: ...


class DeltaMerger:
    """The buffer between a provider that sends and a listener that acknowledges."""

    def __init__(self, loop: LoopTime, send: Callable[[DeltaBatch], None]) -> None:
        self._loop = loop
        self._send = send
        self._pieces: deque[tuple[str, str]] = deque()
        self._bytes = 0
        self._unanswered = False
        self._draining = False
        self._sent_at = -math.inf
        self._timer: Cancellable | None = None
        self._sent = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Say that the reader must stop until there is room: this is the back-pressure."""
        return self._bytes >= STREAM_BACKLOG_BYTES_MAX

    def add(self, kind: str, text: str) -> None:
        """Take a piece that isn't empty."""
        for part in _split(text):
            self._pieces.append((kind, part))
            self._bytes += _size(part)
        self._consider()

    def ack(self) -> None:
        """Take the listener's answer to the last batch; one that nobody waits for does nothing."""
        self._unanswered = False
        self._consider()

    async def room(self) -> None:
        """Wait until the reader may go on."""
        while self.is_full:
            await self._wait_for_a_batch()

    async def drain(self) -> None:
        """Send everything that is left, without merging delays; returns when the last batch was handed over."""
        self._draining = True
        self._consider()
        while self._pieces:
            await self._wait_for_a_batch()

    def close(self) -> None:
        """Drop what is left."""
        self._pieces.clear()
        self._bytes = 0
        if self._timer is not None:
            self._timer.cancel()

    async def _wait_for_a_batch(self) -> None:
        self._sent.clear()
        await self._sent.wait()

    def _consider(self) -> None:
        if self._unanswered or not self._pieces:
            return
        wait_s = self._sent_at + DELTA_MERGE_S - self._loop.time()
        if wait_s <= 0 or self._draining or self._bytes >= DELTA_MERGE_BYTES_MAX:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._consider()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sent_at = self._loop.time()
        self._unanswered = True
        batch = DeltaBatch(pieces=self._take())
        self._sent.set()
        self._send(batch)

    def _take(self) -> tuple[tuple[str, str], ...]:
        """Take what fits into a batch, neighbours of one kind joined."""
        runs: list[tuple[str, list[str]]] = []
        room = DELTA_MERGE_BYTES_MAX
        while self._pieces:
            kind, text = self._pieces[0]
            size = _size(text)
            if size > room:
                break
            room -= size
            self._bytes -= size
            self._pieces.popleft()
            if runs and runs[-1][0] == kind:
                runs[-1][1].append(text)
            else:
                runs.append((kind, [text]))
        return tuple((kind, "".join(texts)) for kind, texts in runs)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _split(text: str) -> list[str]:
    """Cut a piece that is larger than a batch; a character has at most four bytes."""
    if len(text) * 4 <= DELTA_MERGE_BYTES_MAX or _size(text) <= DELTA_MERGE_BYTES_MAX:
        return [text]
    step = DELTA_MERGE_BYTES_MAX // 4
    return [text[start : start + step] for start in range(0, len(text), step)]
