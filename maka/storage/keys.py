"""The bytes of the store: how each row's key and value are laid out. Nothing here touches a database.

Numbers in keys are big-endian and of fixed width, so that they sort as numbers. Ids are their 16 bytes.
"""

from hashlib import sha256
from struct import Struct as Layout

import msgspec
from msgspec import Struct

from maka.contracts.codec import CodecError, decode
from maka.contracts.errors import LedgerDamagedError
from maka.contracts.events import Committed
from maka.contracts.ids import InvocationId, RunId, SessionId, id_bytes, id_text
from maka.contracts.ports import KnownCommand, LedgerHead, OpenWork
from projections.append_tail import Tail

GENESIS = LedgerHead(0, bytes(32))
STORE_SCHEMA = 1
ID_BYTES, POSITION_BYTES, EVENT_KEY_BYTES = 16, 8, 24

_RECORD = Layout(">QQ32s32s")
_EVENT_KEY = Layout(">16sQ")
_LINK = Layout(">32sQ24sQ32s")
_HEAD = Layout(">Q32s")
_OPEN = Layout(">Q16s16s")
_COMMAND = Layout(">QI")
_NO_ID = bytes(16)
_tail_encoder = msgspec.msgpack.Encoder()
_tail_decoder = msgspec.msgpack.Decoder(Tail)


class Record(Struct, frozen=True):
    """One stored event: where it stands, who stored it, its payload's digest, the chain through it, its payload."""

    position: int
    epoch: int
    digest: bytes
    chain: bytes
    payload: bytes


def number(value: int) -> bytes:
    """Return a number as 8 bytes that sort."""
    return value.to_bytes(8, "big")


def event_key(invocation: bytes, seq: int) -> bytes:
    """Return the key of an event from its invocation's 16 bytes and its seq."""
    return _EVENT_KEY.pack(invocation, seq)


def seq_of(key: bytes) -> int:
    """Return the seq in an event key."""
    return int.from_bytes(key[16:24], "big")


def chained(before: bytes, position: int, key: bytes, epoch: int, digest: bytes) -> bytes:
    """Return the chain hash through an event: it covers the event's place, owner and payload digest."""
    return sha256(_LINK.pack(before, position, key, epoch, digest)).digest()


def pack_record(position: int, epoch: int, digest: bytes, chain: bytes, payload: bytes) -> bytes:
    """Return the value of an `events` row."""
    return _RECORD.pack(position, epoch, digest, chain) + payload


def unpack_record(value: bytes) -> Record:
    """Return the record of an `events` row; raises CodecError where it is too short to be one."""
    if len(value) <= _RECORD.size:
        raise CodecError(f"a record of {len(value)} bytes")
    position, epoch, digest, chain = _RECORD.unpack_from(value)
    return Record(position, epoch, digest, chain, value[_RECORD.size :])


def read_record(key: bytes, value: bytes) -> Committed:
    """Return the fact of an `events` row; raises CodecError where its bytes aren't what was stored."""
    record = unpack_record(value)
    if sha256(record.payload).digest() != record.digest:
        raise CodecError("the payload isn't the one that was stored")
    return Committed(position=record.position, seq=seq_of(key), event=decode(record.payload))


def session_key(session: bytes, position: int) -> bytes:
    """Return the key of a `by_session` row."""
    return session + number(position)


def session_number_key(session_number: int, session: bytes) -> bytes:
    """Return the key of a `session_numbers` row; its value is the position of the session's first fact."""
    return number(session_number) + session


def pack_tail(tail: Tail) -> bytes:
    """Return the value of a `tails` row."""
    return _tail_encoder.encode(tail)


def unpack_tail(value: bytes) -> Tail:
    """Return the tail of a `tails` row; raises CodecError where it is none."""
    try:
        return _tail_decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise CodecError(f"not a tail (maka verify --rebuild makes it anew): {error}") from None


def pack_open(tail: Tail) -> bytes:
    """Return the value of an `open_work` row: it says all that recovery needs to find the work."""
    run = id_bytes(tail.run_id) if tail.run_id is not None else _NO_ID
    return _OPEN.pack(tail.open_since, id_bytes(tail.session_id), run)


def unpack_open(invocation: bytes, value: bytes) -> OpenWork:
    """Return the work of an `open_work` row; raises CodecError where it is none."""
    if len(invocation) != 16 or len(value) != _OPEN.size:
        raise CodecError(f"not open work (maka verify --rebuild makes it anew): {value[:64]!r}")
    position, session, run = _OPEN.unpack(value)
    run_id = RunId(id_text(run)) if run != _NO_ID else None
    return OpenWork(
        session_id=SessionId(id_text(session)),
        invocation_id=InvocationId(id_text(invocation)),
        run_id=run_id,
        position=position,
    )


def command_key(scope: str, command_id: str) -> bytes:
    """Return the key of a `commands` row; the store's own scope is 16 zero bytes."""
    return (id_bytes(scope) if scope else _NO_ID) + command_id.encode("ascii", "replace")


def pack_command(command: KnownCommand) -> bytes:
    """Return the value of a `commands` row."""
    return _COMMAND.pack(command.position, command.count) + command.command_hash.encode()


def unpack_command(value: bytes) -> KnownCommand:
    """Return the outcome in a `commands` row; raises CodecError where it is none."""
    if len(value) < _COMMAND.size:
        raise CodecError(f"not a command's outcome (maka verify --rebuild makes it anew): {value!r}")
    position, count = _COMMAND.unpack_from(value)
    return KnownCommand(value[_COMMAND.size :].decode("utf-8", "replace"), position, count)


def pack_head(head: LedgerHead) -> bytes:
    """Return the value of the head row."""
    return _HEAD.pack(head.position, head.hash)


def unpack_head(value: bytes | None) -> LedgerHead:
    """Return the head of a store; a store without events has none. Raises LedgerDamagedError where it is none."""
    if value is None:
        return GENESIS
    if len(value) != _HEAD.size:
        raise LedgerDamagedError(f"the head of the store is {len(value)} bytes that say nothing")
    return LedgerHead(*_HEAD.unpack(value))
