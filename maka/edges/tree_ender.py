"""One thread on which the trees of all calls that end are ended, however many end at once.

Not on the I/O thread: each wait there costs a turn of its loop, which is long when a hundred streams are read. The
thread lives while there is something to end, so that nothing of it is left after the last.
"""

import threading
from collections.abc import Callable

from maka.edges.process_end import FIRST_POLL_S, POLL_S, Ending, step_all

Done = Callable[[tuple[int, ...]], None]
"""Told the pids that are still alive; called on the thread."""


class TreeEnder:
    """Ends trees. `end` may be called from any thread, and returns at once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._new: list[tuple[Ending, Done]] = []
        self._is_running = False

    def end(self, ending: Ending, done: Done) -> None:
        """End a tree, and tell who survived it."""
        with self._changed:
            self._new.append((ending, done))
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="maka-ender", daemon=True).start()
            self._changed.notify()

    def _run(self) -> None:
        work: dict[Ending, Done] = {}
        pause_s = FIRST_POLL_S
        while self._take(work, pause_s):
            over = step_all(work)
            for ending in over:
                work.pop(ending)(ending.survivors)
            pause_s = FIRST_POLL_S if over else min(2 * pause_s, POLL_S)

    def _take(self, work: dict[Ending, Done], pause_s: float) -> bool:
        """Wait for a while or for new work; False ends the thread, since there is nothing left."""
        with self._changed:
            if work and not self._new:
                self._changed.wait(pause_s)
            if not work and not self._new:
                self._is_running = False
                return False
            work.update(self._new)
            self._new = []
            return True
