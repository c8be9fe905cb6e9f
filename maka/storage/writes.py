"""The rows of a batch, put into one write transaction. A conflict on a new row is a bug of the rules."""

from collections.abc import Sequence

import lmdb
import msgspec

from maka.contracts.content import SessionOpened
from maka.contracts.ids import InvalidIdError, id_bytes
from maka.contracts.ports import PutPartial
from maka.storage.batch import Batch
from maka.storage.environment import HEAD, Databases, Snapshot
from maka.storage.keys import (
    command_key,
    number,
    pack_command,
    pack_head,
    pack_open,
    pack_record,
    pack_tail,
    session_number_key,
)
from maka.storage.partials import Verdict, judge, pack_piece, piece_key, stream_prefix, unpack_piece
from maka.storage.standing import CommittedRows
from projections import session_index

Rows = list[tuple[bytes, bytes]]


def write_batch(snapshot: Snapshot, databases: Databases, batch: Batch, standing: CommittedRows, epoch: int) -> None:
    """Put everything that a batch staged."""
    events: Rows = []
    stream: Rows = []
    sessions: Rows = []
    numbers: Rows = []
    for new in batch.events:
        place = number(new.position)
        record = pack_record(new.position, epoch, new.draft.digest, new.chain, new.draft.payload)
        events.append((new.key, record))
        stream.append((place, new.key))
        sessions.append((new.session + place, b""))
        if isinstance(opened := new.draft.event.content, SessionOpened):
            numbers.append((session_number_key(opened.number, new.session), place))
    _put_new(snapshot, databases.events, events)
    _put_new(snapshot, databases.stream, stream)
    _put_new(snapshot, databases.by_session, sessions)
    _put_new(snapshot, databases.session_numbers, numbers)
    _put_new(snapshot, databases.event_ids, [(key, number(stored.position)) for key, stored in batch.keys.items()])
    _write_tails(snapshot, databases, batch, standing)
    headers = [(id_bytes(session), session_index.encode(header)) for session, header in batch.headers.items()]
    _put(snapshot, databases.session_headers, headers)
    commands = [(command_key(*key), pack_command(known)) for key, known in batch.commands.items()]
    _put_new(snapshot, databases.commands, commands)
    for name, data in batch.blobs.items():
        snapshot.put(bytes.fromhex(name), data, db=databases.blobs, overwrite=False)
    snapshot.put(HEAD, pack_head(batch.head), db=databases.meta)
    _end_partials(snapshot, databases, batch)


def write_partials(snapshot: Snapshot, databases: Databases, batch: Batch, partials: Sequence[PutPartial]) -> bool:
    """Put the pieces of unfinished streams, after the batch's events; say whether anything was put."""
    wrote = False
    for put in partials:
        try:
            prefix = stream_prefix(put)
        except InvalidIdError:
            continue
        tail = batch.tail(put.invocation_id)
        if tail is None or tail.sealed or batch.stored(prefix[16:]) is not None:
            continue
        generation, length = _kept(snapshot, databases, prefix)
        verdict = judge(generation, length, put)
        if verdict is Verdict.DROP:
            continue
        _delete_from(snapshot, databases, prefix, piece_key(prefix, put.offset))
        snapshot.put(piece_key(prefix, put.offset), pack_piece(put), db=databases.partials)
        wrote = True
    return wrote


def _put_new(snapshot: Snapshot, database: "lmdb._Database", rows: Rows) -> None:
    if rows:
        with snapshot.cursor(database) as cursor:
            _, added = cursor.putmulti(rows, overwrite=False)
        assert added == len(rows), "a new row's key is taken: the rules let something through"


def _put(snapshot: Snapshot, database: "lmdb._Database", rows: Rows) -> None:
    if rows:
        with snapshot.cursor(database) as cursor:
            cursor.putmulti(rows)


def _write_tails(snapshot: Snapshot, databases: Databases, batch: Batch, standing: CommittedRows) -> None:
    tails: Rows = []
    for invocation_id, tail in batch.tails.items():
        key = id_bytes(invocation_id)
        tails.append((key, pack_tail(tail)))
        before = standing.tail(invocation_id)
        if tail.open_since == (before.open_since if before is not None else 0):
            continue
        if tail.open_since:
            snapshot.put(key, pack_open(tail), db=databases.open_work)
        else:
            snapshot.delete(key, db=databases.open_work)
    _put(snapshot, databases.tails, tails)


def _end_partials(snapshot: Snapshot, databases: Databases, batch: Batch) -> None:
    """Drop what was kept of streams that ended, and of runs that did."""
    if not snapshot.stat(databases.partials)["entries"]:
        return
    for new in batch.events:
        _delete_from(snapshot, databases, new.key[:16] + new.id_key, new.key[:16] + new.id_key)
    for invocation_id, tail in batch.tails.items():
        if tail.sealed:
            key = id_bytes(invocation_id)
            _delete_from(snapshot, databases, key, key)


def _delete_from(snapshot: Snapshot, databases: Databases, prefix: bytes, start: bytes) -> None:
    with snapshot.cursor(databases.partials) as cursor:
        found = cursor.set_range(start)
        while found and cursor.key().startswith(prefix):
            found = cursor.delete()


def _kept(snapshot: Snapshot, databases: Databases, prefix: bytes) -> tuple[int | None, int]:
    """Return the generation and the length in characters of what is kept of a stream."""
    with snapshot.cursor(databases.partials) as cursor:
        found = cursor.set_range(prefix + b"\xff" * 8)
        found = cursor.prev() if found else cursor.last()
        if not found or not cursor.key().startswith(prefix):
            return None, 0
        key, value = cursor.item()
    try:
        piece = unpack_piece(value)
    except msgspec.MsgspecError:
        return None, 0
    return piece.generation, int.from_bytes(key[32:], "big") + len(piece.text)
