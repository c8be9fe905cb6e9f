"""The port of background shells: what actors see of the processes that outlive their run.

Laws: whoever holds them is the truth about those of this host that live; a shell whose end isn't recorded stays known
until an actor says that it is, so a lost hint loses nothing. All calls are thread-safe and return at once.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from maka.contracts.actions import ProcessIdentity
from maka.contracts.ids import CallId, SessionId


class ShellEnd(Struct, frozen=True, kw_only=True):
    """How a shell ended: the raw material of a `process_ended` fact. `output` is what is kept of it."""

    call_id: CallId
    process: ProcessIdentity
    how: str
    exit_code: int | None = None
    by: str | None = None
    output: bytes = b""
    note: str | None = None
    survivors: tuple[int, ...] = ()


class BackgroundShells(Protocol):
    """The background shells of one host."""

    def listen(self, changed: Callable[[SessionId], object]) -> None:
        """Call `changed` for each end and each recording from now on, from any thread: a hint to look again."""
        ...

    def unrecorded(self, session_id: SessionId) -> tuple[ShellEnd, ...]:
        """Return the ends that nobody has recorded yet, of shells whose start is or may be a fact."""
        ...

    def recorded(self, call_id: CallId) -> None:
        """Forget an ended shell: its end is durable, or its start never was."""
        ...

    def forget(self, session_id: SessionId) -> None:
        """Expect no recording of a session's shells any more, also of those that still live: nobody can."""
        ...

    def stop(self, session_id: SessionId, by: str, call_id: CallId | None = None) -> bool:
        """End one shell of a session, or all of them; say whether there was one. The first `by` stays."""
        ...

    def close(self, by: str) -> None:
        """Take no further one, and end all."""
        ...

    def is_empty(self) -> bool:
        """Say whether there is nothing left to end or to record."""
        ...
