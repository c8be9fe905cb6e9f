"""Secrets out of texts that people or logs will see.

Law: mask first, cut afterwards. A text that is cut before could end in half a key, which no mask would find.
"""

import re
from collections.abc import Iterable

MASK = "***"

# What looks like a credential, known to us or not.
_SHAPES = (
    re.compile(r"(?i)\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"),
    re.compile(r"\b(?:sk|pk|rk|gsk|xai|key)[-_][A-Za-z0-9_-]{12,}"),
    re.compile(r"\bAIza[A-Za-z0-9_-]{20,}"),
)
_SECRET_CHARS_MIN = 6


class Redactor:
    """Masks the given secrets and everything of a credential's shape. Immutable; any thread may use it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # A shorter one ("none", "x") would mask ordinary words; the longest goes first, since it may hold another.
        known = sorted({secret for secret in secrets if len(secret) >= _SECRET_CHARS_MIN}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        for shape in _SHAPES:
            text = shape.sub(MASK, text)
        return text

    def line(self, text: str, chars_max: int) -> str:
        """Return the text without secrets and control characters, in one line of at most `chars_max` characters."""
        clean = " ".join("".join(char if char.isprintable() else " " for char in self(text)).split())
        return clean if len(clean) <= chars_max else clean[: chars_max - 1] + "…"
