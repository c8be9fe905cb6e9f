"""One place of a text, or the words that say why there is none. Pure."""

from msgspec import Struct

LOOSE_CHARS_MIN = 5
"""Fewer characters than these, spaces aside, are found by accident too easily."""
COUNTED_MAX = 100
"""Places that are counted: each may cost a look at all of old_string again."""


class MatchError(Exception):
    """No place, or more than one; the message is for the model."""


class Found(Struct, frozen=True):
    """Characters `start` to `end` of a text without two-character line ends become `new`."""

    start: int
    end: int
    new: str
    how: str = ""


def places(view: str, old: str) -> list[int]:
    """Where `old` begins; places may overlap, since either could be meant."""
    found: list[int] = []
    at = view.find(old)
    while at >= 0 and len(found) < COUNTED_MAX:
        found.append(at)
        at = view.find(old, at + 1)
    return found


def only_one(found: list[int], view: str, what: str) -> None:
    """Refuse more places than one, and name their lines."""
    if len(found) > 1:
        lines = ", ".join(str(view.count("\n", 0, at) + 1) for at in found[:10])
        more = ", ..." if len(found) > 10 else ""
        times = f"at least {COUNTED_MAX}" if len(found) == COUNTED_MAX else str(len(found))
        raise MatchError(f"{what} {times} times (lines {lines}{more}): add text around it until it is unique")
