"""The secrets of this process, and how they are taken out of texts of any length, whole or in pieces.

Laws:
- A character is removed if, and only if, it belongs to an occurrence of a secret; each run of such characters becomes
  one mark. So the result doesn't depend on how a text was cut into pieces, nor on which secret is looked for first.
- What is held back between two pieces is the longest end that a secret begins with: shorter than the longest secret.
- Secrets are only known as they are: not encoded, not in part, not in capitals. Of JSON's escapes those that a key can
  need are known.
"""

import json
import threading
from collections.abc import Iterable, Iterator

from maka.contracts.masks import SECRET_MARK, MaskStream
from maka.edges.redact import Redactor

CHARS_MIN, PLAIN_CHARS_MIN = 8, 20
"""What is shorter, or without a digit shorter than the second, is taken for a placeholder such as `not-needed`: masking
it would take ordinary words out of files."""


def is_secret(value: str) -> bool:
    """Say whether a configured value is one that can be looked for in texts."""
    enough = CHARS_MIN if any(char.isdigit() for char in value) else PLAIN_CHARS_MIN
    return len(value) >= enough


class SecretStream:
    """Implements `MaskStream` over fixed secrets."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets
        self._held = ""
        self._covered = 0
        self._in_mark = False

    def feed(self, text: str) -> str:
        text = self._held + text
        return self._pass_on(text, self._held_from(text))

    def end(self) -> str:
        last = self._pass_on(self._held, len(self._held))
        self._covered, self._in_mark = 0, False
        return last

    def _pass_on(self, text: str, until: int) -> str:
        """Return the text up to a place with its secrets removed, and hold the rest."""
        out: list[str] = []
        covered = self._covered  # of a secret whose mark was passed on
        for start, end in self._spans(text):
            if start >= until:
                break
            if start > covered:
                out.append(text[covered:start])
                self._in_mark = False
            if not self._in_mark:
                out.append(SECRET_MARK)
                self._in_mark = True
            covered = max(covered, end)
        if covered < until:
            out.append(text[covered:until])
            self._in_mark = False
        self._held = text[until:]
        self._covered = max(covered - until, 0)
        return "".join(out)

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Return where the secrets are, in order of their starts."""
        return sorted((at, at + len(secret)) for secret in self._secrets for at in _places(text, secret))

    def _held_from(self, text: str) -> int:
        """Return where the longest end begins that is a beginning of a secret."""
        first = len(text)
        for secret in self._secrets:
            for at in _places(text, secret[0], max(0, len(text) - len(secret) + 1)):
                if at >= first or secret.startswith(text[at:]):
                    first = min(first, at)
                    break
        return first


def _places(text: str, part: str, start: int = 0) -> Iterator[int]:
    at = text.find(part, start)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


class Secrets:
    """Implements `Masks`. Keys are added as they are read; whoever asks later sees them. Any thread."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._known: tuple[str, ...] = ()
        self._redactor = Redactor()
        self.add(*values)

    def add(self, *values: str) -> None:
        """Know some more; what is no secret by its look is left out."""
        forms = {form for value in values if is_secret(value) for form in (value, json.dumps(value)[1:-1])}
        with self._lock:
            self._known = tuple(sorted({*self._known, *forms}))
            self._redactor = Redactor((*self._known, *values))

    def __call__(self, text: str) -> str:
        if not self.holds(text):
            return text
        stream = self.stream()
        return stream.feed(text) + stream.end()

    def cut(self, text: str) -> str:
        return self.stream().feed(text)

    def holds(self, text: str) -> bool:
        return any(secret in text for secret in self._known)

    def stream(self) -> MaskStream:
        return SecretStream(self._known)

    def redact(self, text: str) -> str:
        """Mask a line of the log: also what only looks like a credential, and keys too short for files."""
        return self._redactor(text)
