"""What is committed in LMDB, as a batch asks for it: rows behind a write-through cache of tails and headers."""

from pathlib import Path

from maka.contracts.codec import CodecError
from maka.contracts.errors import LedgerDamagedError
from maka.contracts.ids import CommandId, InvocationId, SessionId, id_bytes
from maka.contracts.ports import KnownCommand
from maka.storage.blobs import blob_key, file_size
from maka.storage.environment import Databases, Snapshot
from maka.storage.keys import (
    EVENT_KEY_BYTES,
    POSITION_BYTES,
    command_key,
    number,
    seq_of,
    unpack_command,
    unpack_record,
    unpack_tail,
)
from projections import session_index
from projections.append_rules import Stored
from projections.append_tail import Tail
from projections.session_index import Header


class Cache:
    """Tails and headers as of the last commit. What is missing is read from its row; sealed tails aren't kept."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self.tails: dict[InvocationId, Tail] = {}
        self.headers: dict[SessionId, Header] = {}

    def swap_in(self, tails: dict[InvocationId, Tail], headers: dict[SessionId, Header]) -> None:
        """Take over what a commit has made durable. A full cache starts anew, which costs a few reads."""
        if len(self.tails) + len(self.headers) > self._entries_max:
            self.clear()
        for invocation_id, tail in tails.items():
            if tail.sealed:
                self.tails.pop(invocation_id, None)
            else:
                self.tails[invocation_id] = tail
        self.headers.update(headers)

    def clear(self) -> None:
        """Forget everything."""
        self.tails.clear()
        self.headers.clear()


class CommittedRows:
    """The `Standing` of one transaction."""

    def __init__(self, root: Path, snapshot: Snapshot, databases: Databases, cache: Cache) -> None:
        self._root = root
        self._snapshot = snapshot
        self._databases = databases
        self._cache = cache

    def tail(self, invocation_id: InvocationId) -> Tail | None:
        tail = self._cache.tails.get(invocation_id)
        if tail is not None:
            return tail
        value = self._snapshot.get(id_bytes(invocation_id), db=self._databases.tails)
        if value is None:
            return None
        try:
            return unpack_tail(value)
        except CodecError as error:
            raise LedgerDamagedError(f"invocation {invocation_id}: {error}") from None

    def header(self, session_id: SessionId) -> Header | None:
        header = self._cache.headers.get(session_id)
        if header is not None:
            return header
        value = self._snapshot.get(id_bytes(session_id), db=self._databases.session_headers)
        if value is None:
            return None
        try:
            return session_index.decode(value)
        except CodecError as error:
            raise LedgerDamagedError(f"session {session_id}: {error}", session_id=session_id) from None

    def stored(self, key: bytes) -> Stored | None:
        place = self._snapshot.get(key, db=self._databases.event_ids)
        if place is None:
            return None
        event = self._key_at(place)
        value = self._snapshot.get(event, db=self._databases.events)
        position = int.from_bytes(place, "big")
        try:
            return Stored(position, seq_of(event), unpack_record(value or b"").digest)
        except CodecError as error:
            raise LedgerDamagedError(f"position {position}: {error}: run `maka verify`") from None

    def command(self, scope: str, command_id: CommandId) -> KnownCommand | None:
        value = self._snapshot.get(command_key(scope, command_id), db=self._databases.commands)
        try:
            return unpack_command(value) if value is not None else None
        except CodecError as error:
            raise LedgerDamagedError(f"command {command_id}: {error}") from None

    def places(self, position: int, count: int) -> tuple[tuple[int, int], ...]:
        return tuple((place, seq_of(self._key_at(number(place)))) for place in range(position, position + count))

    def blob_size(self, sha256: str) -> int | None:
        key = blob_key(sha256)
        if key is None:
            return None
        value = self._snapshot.get(key, db=self._databases.blobs)
        return len(value) if value is not None else file_size(self._root, key)

    def _key_at(self, place: bytes) -> bytes:
        key = self._snapshot.get(place, db=self._databases.stream) if len(place) == POSITION_BYTES else None
        if key is None or len(key) != EVENT_KEY_BYTES:
            raise LedgerDamagedError(f"no event at position {place.hex()}: run `maka verify --rebuild`")
        return key
