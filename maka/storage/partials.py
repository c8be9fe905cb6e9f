"""Unfinished streams: which pieces are kept, and their rows.

Laws: what is kept of a stream is one gapless text; a newer generation replaces an older one; a stream that ended, a
run that is sealed or never was, and an over-long piece keep nothing.
"""

from enum import Enum

import msgspec
from msgspec import Struct

from maka.contracts.ids import EventId, id_bytes, id_text
from maka.contracts.limits import EVENT_BYTES_MAX, PARTIAL_CHUNK_BYTES_MAX
from maka.contracts.ports import Partial, PutPartial
from maka.storage.keys import number


class Piece(Struct, frozen=True, array_like=True):
    """The value of a `partials` row; its key ends in the piece's offset."""

    generation: int
    kind: str
    text: str


class Verdict(Enum):
    DROP = "drop"
    RESTART = "restart"
    GROW = "grow"


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Piece)


def judge(generation: int | None, length: int, put: PutPartial) -> Verdict:
    """Say what a piece does to a stream of which `length` characters of a generation are kept.

    A piece that starts before the end takes the place of what follows its offset; one that starts after it leaves a
    hole, and is dropped.
    """
    if (
        len(put.text.encode("utf-8", "replace")) > PARTIAL_CHUNK_BYTES_MAX
        or put.offset + len(put.text) > EVENT_BYTES_MAX
    ):
        return Verdict.DROP
    if generation is None or put.generation > generation:
        return Verdict.RESTART if put.offset == 0 else Verdict.DROP
    if put.generation < generation or put.offset > length:
        return Verdict.DROP
    return Verdict.RESTART if put.offset == 0 else Verdict.GROW


def stream_prefix(put: PutPartial) -> bytes:
    """Return what the keys of a stream's rows begin with; raises InvalidIdError."""
    return id_bytes(put.invocation_id) + id_bytes(put.stream_id)


def piece_key(prefix: bytes, offset: int) -> bytes:
    """Return the key of a piece."""
    return prefix + number(offset)


def pack_piece(put: PutPartial) -> bytes:
    """Return the value of a piece's row."""
    return _encoder.encode(Piece(put.generation, put.kind, put.text))


def unpack_piece(value: bytes) -> Piece:
    """Return the piece of a row; raises msgspec.MsgspecError where it is none."""
    return _decoder.decode(value)


def joined(rows: list[tuple[bytes, bytes]]) -> list[Partial]:
    """Return the streams of some rows in key order; a later piece covers what it overlaps, a damaged one ends it."""
    found: dict[bytes, Partial] = {}
    broken: set[bytes] = set()
    for key, value in rows:
        stream, offset = key[16:32], int.from_bytes(key[32:], "big")
        known = found.get(stream)
        try:
            piece = unpack_piece(value)
        except msgspec.MsgspecError:
            broken.add(stream)
            continue
        text = known.text if known is not None else ""
        if stream in broken or offset > len(text):
            continue
        found[stream] = Partial(
            stream_id=EventId(id_text(stream)),
            kind=piece.kind,
            generation=piece.generation,
            text=text[:offset] + piece.text,
        )
    return list(found.values())
