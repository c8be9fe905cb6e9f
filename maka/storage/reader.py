"""Reads of the LMDB store: each call is one short snapshot, from any thread.

Laws: bytes are copied inside the snapshot and decoded after it, so no transaction waits for Python; a record that
isn't what was stored raises LedgerDamagedError with its session and position, and hides nothing else.
"""

from collections.abc import Iterator
from pathlib import Path

import lmdb

from maka.contracts.codec import CodecError
from maka.contracts.errors import LedgerDamagedError
from maka.contracts.events import Committed
from maka.contracts.ids import CommandId, InvalidIdError, InvocationId, SessionId, id_bytes, id_text
from maka.contracts.limits import READ_POSITIONS_MAX, READERS_MAX
from maka.contracts.ports import KnownCommand, LedgerHead, OpenWork, Partial, StreamTail
from maka.storage.blobs import blob_key, checked, read_file
from maka.storage.environment import (
    HEAD,
    Database,
    Databases,
    Snapshot,
    open_databases,
    open_environment,
    snapshot_of,
)
from maka.storage.keys import (
    EVENT_KEY_BYTES,
    ID_BYTES,
    command_key,
    event_key,
    number,
    read_record,
    session_key,
    unpack_command,
    unpack_head,
    unpack_open,
    unpack_tail,
)
from maka.storage.partials import joined
from projections import session_index

PAGE_POSITIONS = 1_000


class LmdbReader:
    """A LedgerReader over an open environment, beside its owner or within it."""

    def __init__(self, root: Path, environment: lmdb.Environment, databases: Databases) -> None:
        self.root = root
        self.environment = environment
        self.databases = databases

    @classmethod
    def open(cls, root: Path, *, readers_max: int = READERS_MAX) -> "LmdbReader":
        """Open a store to read it, whether or not somebody owns it; raises StoreOpenError."""
        environment = open_environment(root, write=False, readers_max=readers_max)
        try:
            return cls(root, environment, open_databases(root, environment, write=False))
        except BaseException:
            environment.close()
            raise

    def close(self) -> None:
        """Close the environment; idempotent."""
        self.environment.close()

    def head(self) -> LedgerHead:
        with snapshot_of(self.environment) as snapshot:
            return unpack_head(snapshot.get(HEAD, db=self.databases.meta))

    def tail(self, invocation_id: InvocationId) -> StreamTail | None:
        value = self._get(self.databases.tails, _id(invocation_id))
        if value is None:
            return None
        try:
            tail = unpack_tail(value)
        except CodecError as error:
            raise LedgerDamagedError(f"invocation {invocation_id}: {error}") from None
        return StreamTail(tail.seq, tail.position, tail.sealed)

    def read_stream(
        self, invocation_id: InvocationId, after_seq: int = 0, limit: int = READ_POSITIONS_MAX
    ) -> list[Committed]:
        key = _id(invocation_id)
        if key is None:
            return []
        after_seq = max(after_seq, 0)
        rows: list[tuple[bytes, bytes]] = []
        with snapshot_of(self.environment) as snapshot, snapshot.cursor(self.databases.events) as cursor:
            found = cursor.set_range(event_key(key, after_seq + 1))
            while found and len(rows) < limit:
                row = cursor.item()
                if row[0][:16] != key:
                    break
                rows.append(row)
                found = cursor.next()
        return self._facts(rows, after_seq + 1)

    def read_session(
        self, session_id: SessionId, after_position: int = 0, limit: int = READ_POSITIONS_MAX
    ) -> list[Committed]:
        key = _id(session_id)
        if key is None:
            return []
        rows: list[tuple[int, bytes, bytes | None]] = []
        with snapshot_of(self.environment) as snapshot, snapshot.cursor(self.databases.by_session) as cursor:
            found = cursor.set_range(session_key(key, max(after_position, 0) + 1))
            while found and len(rows) < limit:
                row = cursor.key()
                if row[:16] != key:
                    break
                rows.append(self._row_at(snapshot, row[16:]))
                found = cursor.next()
        return [self._fact_at(row, session_id) for row in rows]

    def iter_session(self, session_id: SessionId, after_position: int = 0) -> Iterator[Committed]:
        while page := self.read_session(session_id, after_position, PAGE_POSITIONS):
            yield from page
            after_position = page[-1].position

    def read_positions(self, after_position: int = 0, limit: int = READ_POSITIONS_MAX) -> list[Committed]:
        rows: list[tuple[int, bytes, bytes | None]] = []
        with snapshot_of(self.environment) as snapshot:
            head = unpack_head(snapshot.get(HEAD, db=self.databases.meta)).position
            first = max(after_position, 0) + 1
            for position in range(first, min(head + 1, first + limit)):
                rows.append(self._row_at(snapshot, number(position)))
        return [self._fact_at(row, None) for row in rows]

    def command(self, scope: str, command_id: CommandId) -> KnownCommand | None:
        try:
            value = self._get(self.databases.commands, command_key(scope, command_id))
        except (InvalidIdError, lmdb.BadValsizeError):
            return None
        try:
            return unpack_command(value) if value is not None else None
        except CodecError as error:
            raise LedgerDamagedError(f"command {command_id}: {error}") from None

    def open_work(self) -> list[OpenWork]:
        found = (self._work(key, value) for key, value in self._all(self.databases.open_work))
        return sorted((work for work in found if work is not None), key=lambda work: work.position)

    def header_bytes(self) -> list[bytes]:
        return [value for _, value in self._all(self.databases.session_headers)]

    def last_number(self) -> int:
        numbers, headers = self.databases.session_numbers, self.databases.session_headers
        with snapshot_of(self.environment) as snapshot, snapshot.cursor(numbers) as cursor:
            if snapshot.stat(numbers)["entries"] == snapshot.stat(headers)["entries"]:
                return int.from_bytes(cursor.key()[:8], "big") if cursor.last() else 0
            last = int.from_bytes(cursor.key()[:8], "big") if cursor.last() else 0
        # A row is missing: until it is made again the headers say it, too, which takes a look at each.
        return max(last, *map(_number_of, self.header_bytes()), 0)

    def header_of(self, session_id: SessionId) -> bytes | None:
        return self._get(self.databases.session_headers, _id(session_id))

    def partials(self, invocation_id: InvocationId) -> list[Partial]:
        key = _id(invocation_id)
        if key is None:
            return []
        rows: list[tuple[bytes, bytes]] = []
        with snapshot_of(self.environment) as snapshot, snapshot.cursor(self.databases.partials) as cursor:
            found = cursor.set_range(key)
            while found and cursor.key()[:16] == key:
                rows.append(cursor.item())
                found = cursor.next()
        return joined(rows)

    def blob(self, sha256: str) -> bytes | None:
        key = blob_key(sha256)
        if key is None:
            return None
        data = self._get(self.databases.blobs, key)
        if data is None:
            data = read_file(self.root, key)
        return checked(key, data) if data is not None else None

    def session_of(self, invocation: bytes) -> SessionId | None:
        """Return the session of an invocation, for naming damage; None where that is lost as well."""
        if len(invocation) != ID_BYTES:
            return None
        value = self._get(self.databases.tails, invocation)
        if value is not None:
            try:
                return unpack_tail(value).session_id
            except CodecError:
                pass
        control = self._get(self.databases.session_headers, invocation)
        return SessionId(id_text(invocation)) if control is not None else None

    def _work(self, key: bytes, value: bytes) -> OpenWork | None:
        """Read a row of open work; one that is damaged says what the tail of its invocation does."""
        try:
            return unpack_open(key, value)
        except CodecError:
            pass
        row = self._get(self.databases.tails, key) if len(key) == ID_BYTES else None
        try:
            tail = unpack_tail(row or b"")
        except CodecError:
            return None  # the session's own header still names its open runs
        return OpenWork(tail.session_id, InvocationId(id_text(key)), tail.run_id, tail.position)

    def _get(self, database: Database, key: bytes | None) -> bytes | None:
        if key is None:
            return None
        with snapshot_of(self.environment) as snapshot:
            return snapshot.get(key, db=database)

    def _all(self, database: Database) -> list[tuple[bytes, bytes]]:
        with snapshot_of(self.environment) as snapshot:
            return list(snapshot.cursor(database))

    def _row_at(self, snapshot: Snapshot, position: bytes) -> tuple[int, bytes, bytes | None]:
        key = snapshot.get(position, db=self.databases.stream)
        value = snapshot.get(key, db=self.databases.events) if key and len(key) == EVENT_KEY_BYTES else None
        return int.from_bytes(position, "big"), key or b"", value

    def _fact_at(self, row: tuple[int, bytes, bytes | None], session_id: SessionId | None) -> Committed:
        position, key, value = row
        try:
            if value is None:
                raise CodecError("the record is missing")
            fact = read_record(key, value)
            if fact.position != position:
                raise CodecError(f"the record says position {fact.position}")
            return fact
        except CodecError as error:
            session_id = session_id or self.session_of(key[:16])
            raise _damaged(error, session_id, position) from None

    def _facts(self, rows: list[tuple[bytes, bytes]], first_seq: int) -> list[Committed]:
        facts: list[Committed] = []
        for seq, (key, value) in enumerate(rows, first_seq):
            try:
                fact = read_record(key, value)
                if fact.seq != seq:
                    raise CodecError(f"seq {seq} is missing")
                facts.append(fact)
            except CodecError as error:
                raise _damaged(error, self.session_of(key[:16]), self._position_of(key)) from None
        return facts

    def _position_of(self, key: bytes) -> int | None:
        """Find the position of a record whose own bytes can't say it."""
        session_id = self.session_of(key[:16])
        if session_id is None:
            return None
        prefix = id_bytes(session_id)
        with snapshot_of(self.environment) as snapshot, snapshot.cursor(self.databases.by_session) as cursor:
            found = cursor.set_range(prefix)
            while found and cursor.key()[:16] == prefix:
                position = cursor.key()[16:]
                if snapshot.get(position, db=self.databases.stream) == key:
                    return int.from_bytes(position, "big")
                found = cursor.next()
        return None


def _damaged(error: CodecError, session_id: SessionId | None, position: int | None) -> LedgerDamagedError:
    where = f"session {session_id or 'unknown'}, position {position if position is not None else 'unknown'}"
    return LedgerDamagedError(f"{where}: {error}: run `maka verify`", session_id=session_id, position=position)


def _number_of(header: bytes) -> int:
    try:
        return session_index.number_of(header)
    except CodecError:
        return 0  # damaged: its own session shows it


def _id(value: str) -> bytes | None:
    try:
        return id_bytes(value)
    except InvalidIdError:
        return None
