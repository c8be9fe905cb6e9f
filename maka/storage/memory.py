"""The ledger's twin in memory: the same rules and results, for simulations and tests that need no disk.

Laws: what `commit` returned is committed; a snapshot shares the immutable records and copies the rest, so a simulated
crash keeps exactly the committed bytes. Reads decode nothing: each event went through the codec once, at its commit.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.codec import decode
from maka.contracts.content import BlobRef
from maka.contracts.events import Committed
from maka.contracts.ids import CommandId, EventId, InvalidIdError, InvocationId, SessionId, id_bytes
from maka.contracts.limits import BLOB_INLINE_BYTES_MAX, READ_POSITIONS_MAX
from maka.contracts.ports import (
    Append,
    AppendResult,
    KnownCommand,
    LedgerHead,
    OpenWork,
    Partial,
    PutPartial,
    StreamTail,
)
from maka.storage.batch import Batch, NewEvent
from maka.storage.blobs import blob_key, check_size
from maka.storage.keys import GENESIS
from maka.storage.partials import Verdict, judge
from projections import session_index
from projections.append_rules import Limits, Stored
from projections.append_tail import Tail
from projections.session_index import Header


class MemoryState(Struct, kw_only=True):
    """Everything that is committed. Facts lie by position; a stream and a session list their positions."""

    epoch: int = 0
    head: LedgerHead = GENESIS
    facts: list[Committed] = []
    streams: dict[InvocationId, list[int]] = {}
    sessions: dict[SessionId, list[int]] = {}
    keys: dict[bytes, Stored] = {}
    tails: dict[InvocationId, Tail] = {}
    headers: dict[SessionId, Header] = {}
    commands: dict[tuple[str, str], KnownCommand] = {}
    blobs: dict[str, bytes] = {}
    partials: dict[InvocationId, dict[EventId, Partial]] = {}

    def copy(self) -> "MemoryState":
        """Return a copy that later commits of either don't change in the other."""
        return replace(
            self,
            facts=self.facts.copy(),
            streams={key: positions.copy() for key, positions in self.streams.items()},
            sessions={key: positions.copy() for key, positions in self.sessions.items()},
            keys=self.keys.copy(),
            tails=self.tails.copy(),
            headers=self.headers.copy(),
            commands=self.commands.copy(),
            blobs=self.blobs.copy(),
            partials={key: streams.copy() for key, streams in self.partials.items()},
        )


class MemoryBlobs:
    """The BlobWriter beside a MemoryLedger. Large values are stored at once, like files."""

    def __init__(self) -> None:
        self.large: dict[str, bytes] = {}

    def put(self, data: bytes) -> tuple[BlobRef, bytes | None]:
        """Store a value as `FileBlobs.put` does."""
        check_size(data)
        name = sha256(data).hexdigest()
        ref = BlobRef(sha256=name, size_bytes=len(data))
        if len(data) <= BLOB_INLINE_BYTES_MAX:
            return ref, data
        self.large[name] = data
        return ref, None


class MemoryLedger:
    """A LedgerStore in memory. Pass a snapshot to begin a new owner epoch on it, as a restart does."""

    def __init__(
        self,
        state: MemoryState | None = None,
        *,
        blobs: MemoryBlobs | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._state = state.copy() if state is not None else MemoryState()
        self._state.epoch += 1
        self._large = blobs if blobs is not None else MemoryBlobs()
        self._limits = limits or Limits()

    def snapshot(self) -> MemoryState:
        """Return a copy of what is committed."""
        return self._state.copy()

    def commit(self, appends: Sequence[Append], partials: Sequence[PutPartial] = ()) -> list[AppendResult]:
        """Store a batch as `LedgerStore.commit` says; nothing here can be full or fail."""
        state = self._state
        batch = Batch(_Committed(state, self._large), state.head, state.epoch, self._limits)
        results = [batch.add(append) for append in appends]
        state.keys.update(batch.keys)
        state.tails.update(batch.tails)
        state.headers.update(batch.headers)
        state.commands.update(batch.commands)
        state.blobs.update(batch.blobs)
        state.head = batch.head
        for new in batch.events:
            self._store(new)
        for put in partials:
            self._put_partial(put)
        return results

    def has_room(self) -> bool:
        return True

    def close(self) -> None:
        return None

    def head(self) -> LedgerHead:
        return self._state.head

    def tail(self, invocation_id: InvocationId) -> StreamTail | None:
        tail = self._state.tails.get(invocation_id)
        return StreamTail(tail.seq, tail.position, tail.sealed) if tail is not None else None

    def read_stream(
        self, invocation_id: InvocationId, after_seq: int = 0, limit: int = READ_POSITIONS_MAX
    ) -> list[Committed]:
        positions, after_seq = self._state.streams.get(invocation_id, []), max(after_seq, 0)
        return [self._state.facts[position - 1] for position in positions[after_seq : after_seq + limit]]

    def read_session(
        self, session_id: SessionId, after_position: int = 0, limit: int = READ_POSITIONS_MAX
    ) -> list[Committed]:
        positions = self._state.sessions.get(session_id, [])
        first = bisect_right(positions, after_position)
        return [self._state.facts[position - 1] for position in positions[first : first + limit]]

    def iter_session(self, session_id: SessionId, after_position: int = 0) -> Iterator[Committed]:
        while page := self.read_session(session_id, after_position):
            yield from page
            after_position = page[-1].position

    def read_positions(self, after_position: int = 0, limit: int = READ_POSITIONS_MAX) -> list[Committed]:
        first = max(after_position, 0)
        return self._state.facts[first : first + limit]

    def command(self, scope: str, command_id: CommandId) -> KnownCommand | None:
        return self._state.commands.get((scope, command_id))

    def open_work(self) -> list[OpenWork]:
        found = [
            OpenWork(tail.session_id, invocation_id, tail.run_id, tail.open_since)
            for invocation_id, tail in self._state.tails.items()
            if tail.open_since
        ]
        return sorted(found, key=lambda work: work.position)

    def header_bytes(self) -> list[bytes]:
        return [session_index.encode(header) for _, header in sorted(self._state.headers.items())]

    def last_number(self) -> int:
        return max((header.number for header in self._state.headers.values()), default=0)

    def header_of(self, session_id: SessionId) -> bytes | None:
        header = self._state.headers.get(session_id)
        return session_index.encode(header) if header is not None else None

    def partials(self, invocation_id: InvocationId) -> list[Partial]:
        return [partial for _, partial in sorted(self._state.partials.get(invocation_id, {}).items())]

    def blob(self, sha256: str) -> bytes | None:
        small = self._state.blobs.get(sha256)
        return small if small is not None else self._large.large.get(sha256)

    def _store(self, new: NewEvent) -> None:
        state, event = self._state, decode(new.draft.payload)
        state.facts.append(Committed(position=new.position, seq=new.seq, event=event))
        state.streams.setdefault(event.invocation_id, []).append(new.position)
        state.sessions.setdefault(event.session_id, []).append(new.position)
        streams = state.partials.get(event.invocation_id)
        if streams is not None:
            streams.pop(event.id, None)
            if event.status is not None:
                del state.partials[event.invocation_id]

    def _put_partial(self, put: PutPartial) -> None:
        tail = self._state.tails.get(put.invocation_id)
        try:
            ended = id_bytes(put.stream_id) in self._state.keys
        except InvalidIdError:
            return
        if tail is None or tail.sealed or ended:
            return
        streams = self._state.partials.setdefault(put.invocation_id, {})
        known = streams.get(put.stream_id)
        generation, text = (known.generation, known.text) if known is not None else (None, "")
        verdict = judge(generation, len(text), put)
        if verdict is not Verdict.DROP:
            kept = text[: put.offset] if verdict is Verdict.GROW else ""
            streams[put.stream_id] = Partial(
                stream_id=put.stream_id, kind=put.kind, generation=put.generation, text=kept + put.text
            )


class _Committed:
    """The `Standing` of a memory state."""

    def __init__(self, state: MemoryState, large: MemoryBlobs) -> None:
        self._state = state
        self._large = large

    def tail(self, invocation_id: InvocationId) -> Tail | None:
        return self._state.tails.get(invocation_id)

    def header(self, session_id: SessionId) -> Header | None:
        return self._state.headers.get(session_id)

    def stored(self, key: bytes) -> Stored | None:
        return self._state.keys.get(key)

    def command(self, scope: str, command_id: CommandId) -> KnownCommand | None:
        return self._state.commands.get((scope, command_id))

    def places(self, position: int, count: int) -> tuple[tuple[int, int], ...]:
        return tuple((fact.position, fact.seq) for fact in self._state.facts[position - 1 : position - 1 + count])

    def blob_size(self, sha256: str) -> int | None:
        if blob_key(sha256) is None:
            return None
        data = self._state.blobs.get(sha256)
        data = data if data is not None else self._large.large.get(sha256)
        return len(data) if data is not None else None
