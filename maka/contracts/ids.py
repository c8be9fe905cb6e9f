"""Identifiers, and what makes one acceptable.

Ids of ours are UUIDv7 in their canonical 36-character form, so keys grow in the order of minting. Ids that clients
choose (commands) are short printable words. Minting needs a clock and randomness and is therefore a port.
"""

import re
from typing import NewType, Protocol

SessionId = NewType("SessionId", str)
InvocationId = NewType("InvocationId", str)
RunId = NewType("RunId", str)
TurnId = NewType("TurnId", str)
EventId = NewType("EventId", str)
CallId = NewType("CallId", str)
"""The id of the `function_call` event; a provider's own id for the call lives in `refs.tool_call_id`."""
MessageId = NewType("MessageId", str)
"""The id of the `message_queued` event."""
StreamId = NewType("StreamId", str)
"""The id, minted at a stream's start, of the event that will end it."""
CommandId = NewType("CommandId", str)

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_COMMAND = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}", re.ASCII)


class IdSource(Protocol):
    """Mints ids that grow in the order of minting, also when the wall clock steps back."""

    def __call__(self) -> str: ...


class InvalidIdError(ValueError):
    """An id that is not of the accepted form."""


def id_bytes(value: str) -> bytes:
    """Return the 16 bytes of a canonical UUID, the form that storage keys use."""
    if _UUID.fullmatch(value) is None:
        raise InvalidIdError(f"not a canonical lower-case UUID: {value[:64]!r}")
    return bytes.fromhex(value.replace("-", ""))


def id_text(raw: bytes) -> str:
    """Return the canonical text of 16 id bytes."""
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_id(value: str) -> bool:
    """Say whether a value is an id of ours in its canonical form."""
    return _UUID.fullmatch(value) is not None


def is_command_id(value: str) -> bool:
    """Say whether a client's command id is acceptable: 1 to 128 characters of letters, digits and `_.:-`."""
    return _COMMAND.fullmatch(value) is not None
