"""The thread on which it is put right what commands left, however many end at once.

Not on the I/O thread: to walk through a workspace may take seconds, and every stream, output and stop waits there.
Laws:
- One after the other, in the order in which it was asked for: two that walk at once would take what the other moves
  for moved by a command.
- Nothing is dropped, also where no thread is to be had; what raises is reported, and the next one is done.
- The thread lives while there is something to do, and holds no process up: one on a file system that doesn't answer
  would never end. So it is no `ThreadPoolExecutor`, whose threads an interpreter waits for without a limit.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

Work = Callable[[], None]
"""It answers whoever waits for it by itself, whatever happens in it."""

Later = Callable[[Work], None]


def at_once(work: Work) -> None:
    """Do it here and now: for what takes no time."""
    work()


class Settler:
    """Does work on a thread of its own. `report` is told what it raised; every method is for any thread."""

    def __init__(self, report: Callable[[BaseException], object] | None = None) -> None:
        self._report = report or _as_any_thread
        self._changed = threading.Condition()
        self._waiting: deque[Work] = deque()
        self._is_running = False

    def do(self, work: Work) -> None:
        """Do it after all that was asked for before; returns at once."""
        with self._changed:
            self._waiting.append(work)
            if self._is_running:
                return
            self._is_running = True
        try:
            threading.Thread(target=self._run, name="maka-settle", daemon=True).start()
        except RuntimeError:  # no thread is to be had, and a command that is never settled holds its run for ever
            self._run()

    def wait(self, timeout_s: float) -> bool:
        """Wait until all is done, for a while; say whether it is. What is left goes on, and ends with the process."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_running, timeout_s)

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except BaseException as bug:  # SystemExit, too: it would end this thread, and nobody would hear of it
                with suppress(Exception):
                    self._report(bug)

    def _next(self) -> Work | None:
        """Return what is to be done next; None ends the thread, since nothing is."""
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()
            self._is_running = False
            self._changed.notify_all()
            return None


def _as_any_thread(bug: BaseException) -> None:
    threading.excepthook(threading.ExceptHookArgs((type(bug), bug, bug.__traceback__, threading.current_thread())))
