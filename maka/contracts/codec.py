"""Event <-> bytes. A payload is one byte of schema version, then UTF-8 JSON with camelCase keys.

New fields have defaults, tags are never reused, and each schema version has an upcaster to the next one. A payload
newer than this program is refused: guessing would lose what it doesn't know.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from maka.contracts.events import Committed, RuntimeEvent

SCHEMA_VERSION = 1
UPCASTERS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Schema version n -> function from a decoded version-n object to version n + 1."""

_PREFIX = bytes([SCHEMA_VERSION])
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(RuntimeEvent)
_export_decoder = msgspec.json.Decoder(dict[str, Any])


class CodecError(ValueError):
    """Bytes that are no event of a known schema."""


class NewerSchemaError(CodecError):
    """Bytes written by a newer program."""


class Draft(Struct, frozen=True):
    """An event with its payload and the payload's SHA-256 (32 bytes), ready to be appended."""

    event: RuntimeEvent
    payload: bytes
    digest: bytes


def encode(event: RuntimeEvent) -> bytes:
    """Return the payload of an event. Raises UnicodeEncodeError on a lone surrogate: edges replace those."""
    return _PREFIX + _encoder.encode(event)


def decode(payload: bytes | memoryview) -> RuntimeEvent:
    """Return the event of a payload; raises CodecError for anything else."""
    version = payload[0] if len(payload) else 0
    try:
        if version == SCHEMA_VERSION:
            return _decoder.decode(memoryview(payload)[1:])
        return _upcast(version, bytes(payload[1:]))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CodecError(f"not a runtime event: {error}") from None


def _upcast(version: int, body: bytes) -> RuntimeEvent:
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(f"written with schema {version}, this program knows {SCHEMA_VERSION}: update maka")
    if version not in UPCASTERS:
        raise CodecError(f"unknown schema version {version}")
    value = _export_decoder.decode(body)
    for step in range(version, SCHEMA_VERSION):
        value = UPCASTERS[step](value)
    return msgspec.convert(value, RuntimeEvent)


def draft(event: RuntimeEvent) -> Draft:
    """Encode an event for appending. Done by the sender, so that the single writer only hashes and puts."""
    payload = encode(event)
    return Draft(event, payload, sha256(payload).digest())


def drafts(events: Iterable[RuntimeEvent]) -> tuple[Draft, ...]:
    """Encode several events for appending."""
    return tuple(draft(event) for event in events)


def export_line(item: Committed) -> bytes:
    """Return the JSONL line of a fact: position and seq first, then the event's own keys."""
    head = f'{{"position":{item.position},"seq":{item.seq},'.encode()
    return head + _encoder.encode(item.event)[1:]


def canonical_json(value: Any) -> bytes:
    """Return JSON with sorted keys: the form that argument and command hashes are taken over."""
    return msgspec.json.encode(value, order="sorted")


def hash_hex(data: bytes) -> str:
    """Return the SHA-256 of some bytes as hex."""
    return sha256(data).hexdigest()
