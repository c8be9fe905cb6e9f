"""Ports of the ledger and of the runtime: what actors see of storage, time and ids.

Threads: a `LedgerStore` is written by one thread only; a `LedgerReader` may be used by any thread and never keeps a
transaction open between calls.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from maka.contracts.codec import Draft
from maka.contracts.content import BlobRef
from maka.contracts.errors import Refusal
from maka.contracts.events import Committed
from maka.contracts.ids import CommandId, EventId, InvocationId, RunId, SessionId


class Group(Struct, frozen=True):
    """Events for one invocation. `expected_seq` is the seq of its last event so far, 0 for a new one."""

    invocation_id: InvocationId
    expected_seq: int
    drafts: tuple[Draft, ...]


class CommandKey(Struct, frozen=True):
    """A command's identity. `scope` is a session id, or empty for a command that makes a session."""

    scope: str
    command_id: CommandId
    command_hash: str


class Append(Struct, frozen=True, kw_only=True):
    """One all-or-nothing append: up to 4 groups at contiguous positions.

    `blobs` are the small values that its events name. A `settlement` may use the room that ordinary appends leave.
    """

    groups: tuple[Group, ...]
    blobs: tuple[bytes, ...] = ()
    command: CommandKey | None = None
    settlement: bool = False


class Appended(Struct, frozen=True):
    """Durable. `places` are (position, seq) of each event in order; `known` says that it had been stored before."""

    places: tuple[tuple[int, int], ...]
    known: bool = False


AppendResult = Appended | Refusal


class PutPartial(Struct, frozen=True, kw_only=True):
    """A piece of an unfinished stream: `offset` counts characters before `text` (≤ 8 KiB of UTF-8)."""

    session_id: SessionId
    invocation_id: InvocationId
    stream_id: EventId
    kind: str
    generation: int
    offset: int
    text: str


class Partial(Struct, frozen=True, kw_only=True):
    """What is stored of an unfinished stream. `kind` is text or thinking."""

    stream_id: EventId
    kind: str
    generation: int
    text: str


class LedgerHead(Struct, frozen=True):
    """The last position (0 when empty) and the chain hash (32 bytes) through it."""

    position: int
    hash: bytes


class StreamTail(Struct, frozen=True):
    """Where an invocation ends: its last seq and position, and whether a terminal sealed it."""

    seq: int
    position: int
    sealed: bool


class KnownCommand(Struct, frozen=True):
    """The stored outcome of a command: the places of its own append."""

    command_hash: str
    position: int
    count: int


class OpenWork(Struct, frozen=True):
    """An invocation that recovery must look at: a run without terminal, or a control stream with work left."""

    session_id: SessionId
    invocation_id: InvocationId
    run_id: RunId | None
    position: int


class LedgerReader(Protocol):
    """Reads committed facts. Every call is one short snapshot; long reads are many calls."""

    def head(self) -> LedgerHead: ...

    def tail(self, invocation_id: InvocationId) -> StreamTail | None: ...

    def read_stream(self, invocation_id: InvocationId, after_seq: int = 0, limit: int = ...) -> list[Committed]:
        """Return an invocation's events in order; raises LedgerDamagedError where bytes break a rule."""
        ...

    def read_session(self, session_id: SessionId, after_position: int = 0, limit: int = ...) -> list[Committed]:
        """Return a session's events (control stream and runs) in order of position, at most `limit`."""
        ...

    def iter_session(self, session_id: SessionId, after_position: int = 0) -> Iterator[Committed]:
        """Yield all of a session's events by many short snapshots."""
        ...

    def read_positions(self, after_position: int = 0, limit: int = ...) -> list[Committed]:
        """Return events of the whole store in order of position, at most `limit`."""
        ...

    def command(self, scope: str, command_id: CommandId) -> KnownCommand | None: ...

    def open_work(self) -> list[OpenWork]: ...

    def header_bytes(self) -> list[bytes]:
        """Return every session header, as encoded by `projections.session_index`."""
        ...

    def last_number(self) -> int:
        """Return the highest number of a session; 0 where there is none. Costs the same in a large store."""
        ...

    def header_of(self, session_id: SessionId) -> bytes | None: ...

    def partials(self, invocation_id: InvocationId) -> list[Partial]: ...

    def blob(self, sha256: str) -> bytes | None: ...


class LedgerStore(LedgerReader, Protocol):
    """The writing side, for LedgerActor's thread alone."""

    def commit(self, appends: Sequence[Append], partials: Sequence[PutPartial] = ()) -> list[AppendResult]:
        """Validate each append whole and in order, store the good ones in one durable transaction.

        Returns one result per append. Raises LedgerFullError (nothing of the batch is stored) or LedgerFailedError
        (the outcome is unknown: stop the process).
        """
        ...

    def has_room(self) -> bool:
        """Probe whether runs may start: free disk above the minimum, and a write of the probe succeeds."""
        ...

    def close(self) -> None: ...


class BlobWriter(Protocol):
    """Stores values before the append that names them; called on the tool's side, from any thread."""

    def put(self, data: bytes) -> tuple[BlobRef, bytes | None]:
        """Return the reference, and the bytes where they are small enough to travel with the append."""
        ...


class Clock(Protocol):
    """Time. `now_ms` is Unix ms for people; `monotonic_s` is for durations and deadlines."""

    def now_ms(self) -> int: ...

    def monotonic_s(self) -> float: ...


class Timer(Protocol):
    """A deadline that can be taken back; cancelling one that has fired does nothing."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Deadlines as calls: `fire` runs on the timer thread and only tells."""

    def after(self, delay_s: float, fire: Callable[[], None]) -> Timer: ...
