"""A walk over every record of the store: is each what was stored, in its place, and do all other rows follow from it?

Laws: the chain goes on by the stored digests, so one damaged payload is one finding; a record that can't be read at
all ends the chain's proof for its successor only; each finding names its session and position where they are known.
Rows that differ are handed to `mend`: `verify` reports them, `rebuild` puts them right.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256

from msgspec import Struct

from maka.contracts.codec import CodecError, decode
from maka.contracts.errors import LedgerError
from maka.contracts.events import Committed, RuntimeEvent
from maka.contracts.ids import InvalidIdError, InvocationId, SessionId, id_text
from maka.contracts.ports import LedgerHead
from maka.storage.blobs import blob_key
from maka.storage.environment import REBUILDABLE, Snapshot
from maka.storage.keys import EVENT_KEY_BYTES, GENESIS, Record, chained, number, seq_of, unpack_record, unpack_tail
from maka.storage.reader import LmdbReader
from maka.storage.replay import Replay, Row
from projections.append_rules import named_blobs


class Problem(Struct, frozen=True, kw_only=True):
    """One finding. `database` is set where a rebuildable row is wrong."""

    what: str
    session_id: SessionId | None = None
    position: int | None = None
    database: str | None = None


class Difference(Struct, frozen=True, kw_only=True):
    """A row that isn't what the events say: `expected` is None where there should be none."""

    database: str
    key: bytes
    found: bytes | None
    expected: bytes | None
    session_id: SessionId | None = None


class Survey:
    """Walks positions page by page, then compares what they add up to."""

    def __init__(
        self, reader: LmdbReader, report: Callable[[Problem], None], mend: Callable[[Difference], None]
    ) -> None:
        self._reader = reader
        self._databases = reader.databases
        self._report = report
        self._mend = mend
        self._chain: bytes | None = GENESIS.hash
        self._places: dict[int, bytes] | None = None
        self._rows: dict[str, int] = dict.fromkeys(REBUILDABLE, 0)
        self._events = 0
        self._unread: set[bytes] = set()
        self._wrong: set[tuple[str, bytes]] = set()
        self._blobs: set[str] = set()
        self.replay = Replay()

    def walk(self, snapshot: Snapshot, first: int, last: int) -> None:
        """Check the records at positions first to last."""
        for position in range(first, last + 1):
            key = self._key_at(snapshot, position)
            if key is None:
                self._report(Problem(what="no record has this position", position=position))
                self._chain = None
                continue
            self._events += 1
            self._expect(snapshot, Row("stream", number(position), key, SessionId("")))
            self._check(snapshot, position, key, snapshot.get(key, db=self._databases.events) or b"")

    def finish(self, snapshot: Snapshot, head: LedgerHead) -> None:
        """Check the head, and every row that isn't one event's own."""
        if self._chain is not None and self._chain != head.hash:
            self._report(Problem(what="the head isn't the chain's end", position=head.position))
        if snapshot.stat(self._databases.events)["entries"] != self._events:
            for position, key in self._scan(snapshot):
                if not 0 < position <= head.position or self._key_at(snapshot, position) != key:
                    what = f"a record of invocation {id_text(key[:16])}, seq {seq_of(key)}, has no place in the order"
                    self._report(Problem(what=what, session_id=self._session_of(key), position=position))
        expected = self.replay.folded_rows()
        for row in expected:
            self._expect(snapshot, row)
        self._find_extra(snapshot, expected, head.position)

    def chain_at(self) -> bytes | None:
        """Return the stored chain hash through the last position walked; None where that record can't be read."""
        return self._chain

    def _check(self, snapshot: Snapshot, position: int, key: bytes, value: bytes) -> None:
        try:
            record = unpack_record(value)
        except CodecError as error:
            self._damaged(key, position, str(error))
            self._chain = None
            return
        self._check_link(record, position, key)
        try:
            if sha256(record.payload).digest() != record.digest:
                raise CodecError("the payload isn't the one that was stored")
            event = decode(record.payload)
            if event.invocation_id != id_text(key[:16]):
                raise CodecError("the payload is of another invocation")
            fact = Committed(position=position, seq=seq_of(key), event=event)
            rows = self.replay.event_rows(fact)
        except (CodecError, InvalidIdError) as error:
            self._damaged(key, position, str(error))
            return
        for row in rows:
            self._expect(snapshot, row)
        broken = self.replay.take(fact, len(record.payload))
        if broken is not None:
            self._report(Problem(what=broken, session_id=event.session_id, position=position))
        self._check_blobs(event, position)

    def _check_link(self, record: Record, position: int, key: bytes) -> None:
        if record.position != position:
            what = f"the record says position {record.position}"
            self._report(Problem(what=what, session_id=self._session_of(key), position=position))
        before = self._chain
        if before is not None and chained(before, position, key, record.epoch, record.digest) != record.chain:
            what = "the chain breaks here: a record was changed, dropped or moved"
            self._report(Problem(what=what, session_id=self._session_of(key), position=position))
        self._chain = record.chain

    def _damaged(self, key: bytes, position: int, why: str) -> None:
        session_id = self._session_of(key)
        if session_id is not None:
            self.replay.fence(session_id)
        self._unread.add(number(position))
        self._report(Problem(what=why, session_id=session_id, position=position))

    def _check_blobs(self, event: RuntimeEvent, position: int) -> None:
        for ref in named_blobs(event):
            if ref.sha256 in self._blobs:
                continue
            self._blobs.add(ref.sha256)
            what = None
            try:
                data = self._reader.blob(ref.sha256) if blob_key(ref.sha256) is not None else None
                if data is None or len(data) != ref.size_bytes:
                    what = f"value {ref.sha256} is missing or has another size"
            except LedgerError as error:
                what = str(error)
            if what is not None:
                self._report(Problem(what=what, session_id=event.session_id, position=position))

    # Rows

    def _expect(self, snapshot: Snapshot, row: Row) -> None:
        found = snapshot.get(row.key, db=getattr(self._databases, row.database))
        self._rows[row.database] += 1
        if found != row.value:
            if found is not None:
                self._wrong.add((row.database, row.key))
            self._mend(
                Difference(
                    database=row.database,
                    key=row.key,
                    found=found,
                    expected=row.value,
                    session_id=row.session_id or self._session_of(row.value),
                )
            )

    def _find_extra(self, snapshot: Snapshot, expected: list[Row], head: int) -> None:
        known = {(row.database, row.key) for row in expected}
        for database in ("tails", "open_work", "commands", "session_headers"):
            for key, value in list(snapshot.cursor(getattr(self._databases, database))):
                if (database, key) not in known and not self._is_fenced(snapshot, database, key, value):
                    self._mend(Difference(database=database, key=key, found=value, expected=None))
        for database in ("stream", "by_session", "event_ids", "session_numbers"):
            if snapshot.stat(getattr(self._databases, database))["entries"] > self._rows[database]:
                for key, value in list(snapshot.cursor(getattr(self._databases, database))):
                    if not self._belongs(snapshot, database, key, value, head):
                        self._mend(Difference(database=database, key=key, found=value, expected=None))

    def _is_fenced(self, snapshot: Snapshot, database: str, key: bytes, value: bytes) -> bool:
        """Say whether a row is about a session that can't be recomputed, so that it has to be left alone."""
        if not self.replay.fenced and not self._unread:
            return False
        session = key[:16]
        if database == "tails":
            try:
                return unpack_tail(value).session_id in self.replay.fenced
            except CodecError:
                return True
        if database == "open_work":
            session = value[8:24]
        if database == "commands" and not any(session):
            place = self._key_at(snapshot, int.from_bytes(value[:8], "big"))
            return place is not None and self._session_of(place) in self.replay.fenced
        return id_text(session) in self.replay.fenced

    def _belongs(self, snapshot: Snapshot, database: str, key: bytes, value: bytes, head: int) -> bool:
        """Say whether an event's own row is among those that the walk expected."""
        place = {"stream": key, "by_session": key[16:]}.get(database, value)
        if place in self._unread or (database, key) in self._wrong:
            return True
        position = int.from_bytes(place, "big")
        event_key = self._key_at(snapshot, position) if 0 < position <= head else None
        if event_key is None or database == "stream":
            return event_key is not None
        payload = unpack_record(snapshot.get(event_key, db=self._databases.events) or b"").payload
        fact = Committed(position=position, seq=seq_of(event_key), event=decode(payload))
        return any(row.database == database and row.key == key for row in self.replay.event_rows(fact))

    # Places

    def _key_at(self, snapshot: Snapshot, position: int) -> bytes | None:
        """Return the key of the record at a position: by `stream`, or where that is wrong by the records themselves."""
        key = snapshot.get(number(position), db=self._databases.stream)
        value = snapshot.get(key, db=self._databases.events) if key and len(key) == EVENT_KEY_BYTES else None
        if value is not None and (len(value) < 8 or value[:8] == number(position)):
            return key
        if self._places is None:
            self._places = dict(self._scan(snapshot))
        return self._places.get(position, key if value is not None else None)

    def _scan(self, snapshot: Snapshot) -> Iterator[tuple[int, bytes]]:
        for key, value in snapshot.cursor(self._databases.events):
            yield int.from_bytes(value[:8], "big"), key

    def _session_of(self, key: bytes) -> SessionId | None:
        invocation = key[:16]
        session_id = self.replay.session_of(InvocationId(id_text(invocation)))
        return session_id if session_id is not None else self._reader.session_of(invocation)
