"""A process in a sandbox that is set up anew where that failed: other programs change the workspace at the same time.

A sandbox is told of each path that it has to hold. One that went after the look fails it, and isn't left out: what
goes may come back, the same file, which nothing would hold then, and no later look would tell it from what was held all
the time. So it is looked again and tried again. Laws:
- Only what never came to its gate is tried again: nothing has run, and nobody was asked for the fact of a start.
- As often as SANDBOX_TRIES_MAX: where folders come and go all the time, one try in two may fail. All tries have one
  time limit, and a set-up that took too long isn't tried again.
- Each look is ended: by `drop` where its command never began, before anybody is told so, else by whoever settles it.
- A stop between two tries is one before the command began, and waits for no look.
- Looks take long: the next try is begun where `later` does work.
"""

import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeVar

from msgspec.structs import replace

from maka.contracts.actions import ProcessIdentity
from maka.contracts.errors import NoLaunchError
from maka.contracts.limits import SANDBOX_SETUP_LEAST_S, SANDBOX_SETUP_S, SANDBOX_TRIES_MAX
from maka.contracts.process_ports import Launch, ProcessEnd, Processes, ProcessHandle, ProcessListener, ProcessSpec
from maka.tools.boundary import closed_text
from maka.tools.results import no_effect
from maka.tools.settler import Later

CHANGED = "No command was run: the workspace changed while the sandbox was being set up; try again"
FAILED = "No command was run: the sandbox could not be set up: {}. A person should run maka doctor"
LATE = (
    "No command was run: the sandbox took longer than {:g} s to be set up (tries: {}). Each repository and each "
    "protected name in the workspace takes time, and a busy machine is slow: try again, with a larger timeout_ms if it "
    "was small. If that doesn't help, a person should start Maka in a folder with fewer repositories"
)

T = TypeVar("T")


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
    """Implements `Processes` for one command: `look` looks anew, and returns how it is started then, or raises
    NoLaunchError. What a spec says of that isn't asked. `drop` is told that what was looked at last never began.
    """

    def __init__(
        self, processes: Processes, look: Callable[[], Launch], later: Later, drop: Callable[[], None] = no_effect
    ) -> None:
        self.processes = processes
        self.look = look
        self.later = later
        self.drop = drop

    def spawn(self, spec: ProcessSpec, listener: ProcessListener) -> ProcessHandle:
        tries = _Tries(self, spec, listener)
        tries.begin()
        return tries

    def kill_left_over(self, found: Sequence[ProcessIdentity]) -> list[ProcessIdentity]:
        return self.processes.kill_left_over(found)


class _Tries:
    """The handle of whichever process is the newest, and what listens to it."""

    def __init__(self, box: Boxed, spec: ProcessSpec, listener: ProcessListener) -> None:
        self._box = box
        self._spec = spec
        self._listener = listener
        # Any set-up takes longer than the shortest time limits, which are the command's own.
        limit_s = SANDBOX_SETUP_S if spec.timeout_s is None else max(spec.timeout_s, SANDBOX_SETUP_LEAST_S)
        self._setup_s = min(limit_s, SANDBOX_SETUP_S)
        self._until_s: float | None = None
        self._lock = threading.Lock()
        self._handle: ProcessHandle | None = None
        self._number = 0
        self._is_between = False
        self._is_told = False
        self._has_changed = False
        self._released = False
        self._cancelled = False

    def begin(self) -> None:
        """Look at the workspace, and try what that says."""
        try:
            launch = self._box.look()
        except NoLaunchError as reason:
            return self._fail(str(reason))
        except BaseException as bug:  # of ours; a call that is never answered would hold its run for ever
            return self._fail(FAILED.format(f"Maka failed ({type(bug).__name__})"))
        with self._lock:
            self._is_between = False
            is_stopped = self._cancelled
        if is_stopped:
            return self._never(ProcessEnd(cause="not_started"))
        if (left_s := self._left_s()) <= 0:
            return self._fail(self._late())
        # What was said tells no more: each step of a set-up has words of its own for what isn't there any more.
        self._has_changed = self._has_changed or (self._number > 0 and launch != self._spec.launch)
        self._spec = replace(self._spec, launch=launch, setup_s=left_s)
        self._try()

    def _left_s(self) -> float:
        """Return what is left of the time for all tries, which begins with the first one."""
        if self._until_s is None:
            self._until_s = monotonic() + self._setup_s
            return self._setup_s
        return self._until_s - monotonic()

    def _try(self) -> None:
        with self._lock:
            self._number += 1
            number = self._number
        handle = self._box.processes.spawn(self._spec, self)
        with self._lock:
            if number < self._number:  # it has failed already, and the next one is there
                return
            self._handle = handle
        self._steer()

    def release(self) -> None:
        self._released = True
        self._steer()

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            is_between = self._is_between
        if is_between:
            self._never(ProcessEnd(cause="not_started"))
        else:
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
        self._fail(message)

    def ended(self, end: ProcessEnd) -> None:
        if end.cause != "not_started":
            self._listener.ended(end)
        elif end.said is None or end.survivors or self._cancelled:
            self._never(end)
        elif end.is_late:
            self._fail(self._late())
        elif self._number < SANDBOX_TRIES_MAX:
            self._again(end)
        else:
            self._fail(CHANGED if self._has_changed else FAILED.format(end.said))

    def _again(self, end: ProcessEnd) -> None:
        self._box.drop()  # now, not at the next look: others begin meanwhile
        with self._lock:
            is_stopped = self._cancelled
            self._is_between = not is_stopped
        if is_stopped:
            self._never(end)
        else:
            self._box.later(self.begin)

    def _late(self) -> str:
        return LATE.format(self._setup_s, self._number)

    def _fail(self, message: str) -> None:
        self._box.drop()
        if self._is_first_told():
            self._listener.failed(message)

    def _never(self, end: ProcessEnd) -> None:
        self._box.drop()
        if self._is_first_told():
            self._listener.ended(end)

    def _is_first_told(self) -> bool:
        """Say whether nobody was told yet: a stop isn't told of the look that was under way."""
        with self._lock:
            is_told, self._is_told = self._is_told, True
        return not is_told
