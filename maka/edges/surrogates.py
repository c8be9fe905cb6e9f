"""Half characters: the two parts of a surrogate pair joined, lone ones replaced by U+FFFD.

A model may emit half an emoji, and a provider may cut a pair between two fragments. Neither may get further: no
encoder of ours takes a lone surrogate.
"""

import re
from typing import Any

from maka.edges.loose_json import is_mapping, is_sequence

_HALF = re.compile("[\ud800-\udfff]")


def mend(text: str) -> str:
    """Return the text with pairs joined and lone halves replaced."""
    if text.isascii() or _HALF.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def mend_values(value: Any) -> Any:
    """Return a JSON value with every string and key mended."""
    if isinstance(value, str):
        return mend(value)
    if is_sequence(value):
        return [mend_values(item) for item in value]
    if is_mapping(value):
        return {mend(key): mend_values(item) for key, item in value.items()}
    return value


class Joiner:
    """Mends a text that comes in pieces. A first half at a piece's end waits for the next piece."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, piece: str) -> str:
        """Return what of the text is certain by now."""
        if self._half:
            piece, self._half = self._half + piece, ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        return mend(piece)

    def close(self) -> str:
        """Return what a last waiting half has become."""
        half, self._half = self._half, ""
        return mend(half)
