"""Deadlines on one thread, behind `ports.Timers`.

Laws: a deadline fires at most once; one that was cancelled before its turn never fires; what a deadline calls can't
end the thread.
"""

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Self

_SWEEP_MIN = 1_024


class ThreadTimer:
    """One deadline. `cancel` is thread-safe and idempotent, and lets go of what it would have called."""

    def __init__(self, fire: Callable[[], None]) -> None:
        self._fire: Callable[[], None] | None = fire

    @property
    def is_over(self) -> bool:
        return self._fire is None

    def cancel(self) -> None:
        self._fire = None

    def run(self) -> None:
        """Fire once; for the timer thread."""
        fire, self._fire = self._fire, None
        if fire is not None:
            fire()


class ThreadTimers:
    """A heap of deadlines and the thread that waits for the first of them. Made by `start`."""

    def __init__(self, on_error: Callable[[BaseException], None] | None = None) -> None:
        self._wake = threading.Condition()
        self._heap: list[tuple[float, int, ThreadTimer]] = []
        self._order = count()
        self._closed = False
        self._sweep_at = _SWEEP_MIN
        self._on_error = on_error
        self._thread = threading.Thread(target=self._run, name="maka-timers", daemon=True)

    @classmethod
    def start(cls, on_error: Callable[[BaseException], None] | None = None) -> Self:
        """Start the thread. `on_error` hears, on that thread, what a deadline's call raised."""
        timers = cls(on_error)
        timers._thread.start()
        return timers

    def after(self, delay_s: float, fire: Callable[[], None]) -> ThreadTimer:
        """Call `fire` on the timer thread after `delay_s` seconds; dropped when the timers are closed."""
        timer = ThreadTimer(fire)
        with self._wake:
            if self._closed:
                timer.cancel()
                return timer
            self._sweep()
            entry = (time.monotonic() + max(delay_s, 0.0), next(self._order), timer)
            heapq.heappush(self._heap, entry)
            if self._heap[0] is entry:
                self._wake.notify()
        return timer

    def close(self, timeout_s: float = 5.0) -> None:
        """Drop every deadline and end the thread. Idempotent; from the timer thread itself it doesn't wait."""
        with self._wake:
            self._closed = True
            self._heap.clear()
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _sweep(self) -> None:
        """Drop cancelled deadlines when the heap has doubled: long ones would pile up until their time."""
        if len(self._heap) >= self._sweep_at:
            self._heap = [entry for entry in self._heap if not entry[2].is_over]
            heapq.heapify(self._heap)
            self._sweep_at = max(_SWEEP_MIN, 2 * len(self._heap))

    def _run(self) -> None:
        while (timer := self._next()) is not None:
            try:
                timer.run()
            except BaseException as error:
                # SystemExit too: one deadline's call must not take all others with it.
                if self._on_error is not None:
                    self._on_error(error)

    def _next(self) -> ThreadTimer | None:
        with self._wake:
            while not self._closed:
                if not self._heap:
                    self._wake.wait()
                    continue
                left_s = self._heap[0][0] - time.monotonic()
                if left_s <= 0:
                    return heapq.heappop(self._heap)[2]
                self._wake.wait(min(left_s, threading.TIMEOUT_MAX))
        return None
