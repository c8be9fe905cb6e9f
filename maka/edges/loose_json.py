"""JSON as real providers write it: decoded without trust, read without surprises.

Laws: `decode` returns plain values or raises ValueError, whatever the bytes; the readers return an empty value where
the wanted type isn't there. Text that leaves this module may still hold lone surrogates: `surrogates` mends those.
"""

import json
from typing import Any, TypeGuard

import msgspec


def decode(data: bytes | str) -> Any:
    """Return the value of some JSON; raises ValueError for anything else, bad UTF-8 and bottomless nesting included."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        # msgspec refuses half surrogate pairs, which models do send; the standard library keeps them.
        try:
            return json.loads(data)
        except RecursionError:
            raise ValueError("JSON nested too deeply") from None


def is_mapping(value: object) -> TypeGuard[dict[str, Any]]:
    """Say whether a decoded value is an object."""
    return isinstance(value, dict)


def is_sequence(value: object) -> TypeGuard[list[Any]]:
    """Say whether a decoded value is an array."""
    return isinstance(value, list)


def mapping(value: object) -> dict[str, Any]:
    """Return an object's members, or none."""
    return value if is_mapping(value) else {}


def sequence(value: object) -> list[Any]:
    """Return an array's items, or none."""
    return value if is_sequence(value) else []


def text(value: object) -> str:
    """Return a string, or the empty one."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int | None:
    """Return a whole number that isn't negative; digits in a string and whole floats are taken too."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < 1 << 53 else None
