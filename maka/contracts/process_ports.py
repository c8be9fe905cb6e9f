"""Ports of processes: what is started, behind which gate, and how it ends.

No command begins before its fact is durable: a process waits behind its gate until `release`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from maka.contracts.actions import ProcessIdentity
from maka.contracts.limits import SANDBOX_SETUP_S
from maka.contracts.tool_limits import LimitMet


class Launch(Struct, frozen=True, kw_only=True):
    """What is started: an `argv`, and the `inputs` that its program reads from descriptors it inherits.

    `is_boxed` says that a sandbox stands in front of the command. It has the command's variables among its inputs, and
    gets none of them: some name libraries that a command may have written. And it waits behind the gate by itself, when
    all is set up. `sweep` removes what it leaves on this machine where it was killed; it may take long.
    """

    argv: tuple[str, ...]
    inputs: tuple[bytes, ...] = ()
    is_boxed: bool = False
    sweep: Callable[[], None] | None = None


class ProcessSpec(Struct, frozen=True, kw_only=True):
    """What to run: `launch` without a shell, `env` whole (nothing is inherited), stdin closed, own process group.
    `timeout_s` begins at the gate; `setup_s` is what a sandbox has to get there.
    """

    launch: Launch
    cwd: str
    env: Mapping[str, str]
    timeout_s: float | None
    setup_s: float = SANDBOX_SETUP_S


class ProcessEnd(Struct, frozen=True, kw_only=True):
    """How a process ended: an exit code or a signal; `cause` is exited, timeout, cancelled, not_started or unknown.

    It is also limit, and then `limit` says which. `survivors` are pids that outlived KILL; the caller reports them.
    `said` is what a sandbox said that could not be set up: nothing was waiting at the gate, and nothing has run.
    `is_late` says that it took too long.
    """

    cause: str
    exit_code: int | None = None
    signal: int | None = None
    survivors: tuple[int, ...] = ()
    limit: LimitMet | None = None
    said: str | None = None
    is_late: bool = False


class ProcessListener(Protocol):
    """Called on the I/O thread: `waiting` (or `failed`), outputs, then `ended`.

    Where the command never comes to its gate, since it was stopped or its sandbox can't be set up, `ended` comes alone.
    """

    def waiting(self, process: ProcessIdentity) -> None:
        """The process exists behind its gate, in its sandbox; nothing of the command has run."""
        ...

    def output(self, stream: str, data: bytes) -> None: ...

    def ended(self, end: ProcessEnd) -> None: ...

    def failed(self, message: str) -> None:
        """It could not be started, for example since the directory is gone. Nothing ran; `ended` won't come."""
        ...


class ProcessHandle(Protocol):
    """A spawned process; all calls are thread-safe, idempotent and return at once."""

    def release(self) -> None:
        """Open the gate: its fact is durable."""
        ...

    def cancel(self) -> None:
        """End the whole group: TERM, grace, KILL, grace; `ended` comes in every case."""
        ...


class Processes(Protocol):
    """Starts processes behind a gate and finds those that a dead owner left."""

    def spawn(self, spec: ProcessSpec, listener: ProcessListener) -> ProcessHandle: ...

    def kill_left_over(self, found: Sequence[ProcessIdentity]) -> list[ProcessIdentity]:
        """Kill the groups that still are what was recorded (same start time and boot); return those killed."""
        ...
