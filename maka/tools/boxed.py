"""A process in a sandbox that is set up anew where that failed: other programs change the workspace at the same time.

A sandbox is told of each path that it has to hold. One that went after the look fails it, and isn't left out: what
goes may come back, the same file, which nothing would hold then, and no later look would tell it from what was held all
the time. So it is looked again and tried again. Laws:
- Only what never came to its gate is tried again: nothing has run, and nobody was asked for the fact of a start.
- As often as SANDBOX_TRIES_MAX: where folders come and go all the time, one try in two may fail.
- A stop between two tries is one before the command began.
- Looks take long: the next try is begun where `later` does work.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from maka.contracts.actions import ProcessIdentity
from maka.contracts.limits import SANDBOX_TRIES_MAX
from maka.contracts.tool_ports import Launch, ProcessEnd, Processes, ProcessHandle, ProcessListener, ProcessSpec
from maka.tools.boundary import closed_text
from maka.tools.settler import Later

CHANGED = "No command was run: the workspace changed while the sandbox was being set up; try again"
FAILED = "No command was run: the sandbox could not be set up: {}. A person should run maka doctor"

T = TypeVar("T")


class NoLaunchError(Exception):
    """There is no launch, for a reason that is told as it is."""


def looked(look: Callable[[], T]) -> T:
    """Look at the workspace, and again where it changes at that moment. Raises NoLaunchError."""
    for left in reversed(range(SANDBOX_TRIES_MAX)):
        try:
            return look()
        except PermissionError as closed:
            raise NoLaunchError(f"no command was run: {closed_text(str(closed.filename))}") from None
        except OSError as problem:
            if not left:
                words = f"path_changed: the workspace changed while it was looked at ({problem}): try again"
                raise NoLaunchError(words) from None
    raise AssertionError("the last try returns or raises")


class Boxed:
    """Implements `Processes` for one command: `again` looks anew, and returns how it is started then, or raises
    NoLaunchError.
    """

    def __init__(self, processes: Processes, again: Callable[[], Launch], later: Later) -> None:
        self._processes = processes
        self._again = again
        self._later = later

    def spawn(self, spec: ProcessSpec, listener: ProcessListener) -> ProcessHandle:
        tries = _Tries(self._processes, spec, listener, self._again, self._later)
        tries.begin()
        return tries

    def kill_left_over(self, found: Sequence[ProcessIdentity]) -> list[ProcessIdentity]:
        return self._processes.kill_left_over(found)


class _Tries:
    """The handle of whichever process is the newest, and what listens to it."""

    def __init__(
        self,
        processes: Processes,
        spec: ProcessSpec,
        listener: ProcessListener,
        again: Callable[[], Launch],
        later: Later,
    ) -> None:
        self._processes = processes
        self._spec = spec
        self._listener = listener
        self._again = again
        self._later = later
        self._lock = threading.Lock()
        self._handle: ProcessHandle | None = None
        self._number = 0
        self._has_changed = False
        self._released = False
        self._cancelled = False

    def begin(self) -> None:
        with self._lock:
            self._number += 1
            number = self._number
        handle = self._processes.spawn(self._spec, self)
        with self._lock:
            if number < self._number:  # it has failed already, and the next one is there
                return
            self._handle = handle
        self._steer()

    def release(self) -> None:
        self._released = True
        self._steer()

    def cancel(self) -> None:
        self._cancelled = True
        self._steer()

    def _steer(self) -> None:
        """Pass on what is known: a process may be at its gate before `spawn` has returned its handle."""
        with self._lock:
            handle = self._handle
        if handle is not None and self._cancelled:
            handle.cancel()
        elif handle is not None and self._released:
            handle.release()

    # -- what it tells ----------------------------------------------------------------------------------------------

    def waiting(self, process: ProcessIdentity) -> None:
        self._listener.waiting(process)

    def output(self, stream: str, data: bytes) -> None:
        self._listener.output(stream, data)

    def failed(self, message: str) -> None:
        self._listener.failed(message)

    def ended(self, end: ProcessEnd) -> None:
        if end.said is None or end.survivors or self._cancelled:
            self._listener.ended(end)
        elif self._number < SANDBOX_TRIES_MAX:
            self._later(self._anew)
        else:
            self._listener.failed(CHANGED if self._has_changed else FAILED.format(end.said))

    def _anew(self) -> None:
        try:
            launch = self._again()
        except NoLaunchError as reason:
            return self._listener.failed(str(reason))
        except BaseException as bug:  # of ours; a call that is never answered would hold its run for ever
            return self._listener.failed(FAILED.format(f"Maka failed ({type(bug).__name__})"))
        if self._cancelled:
            return self._listener.ended(ProcessEnd(cause="not_started"))
        # What was said tells no more: each step of a set-up has words of its own for what isn't there any more.
        self._has_changed = self._has_changed or launch != self._spec.launch
        self._spec = replace(self._spec, launch=launch)
        self.begin()
