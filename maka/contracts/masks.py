"""The port by which secrets are taken out of what tools meet, and what stands in their place.

Law: mask first, cut afterwards. A text that is cut before could end in half a secret, which nobody would recognise.
"""

from typing import Protocol

SECRET_MARK = "[secret removed]"


class MaskStream(Protocol):
    """A text that comes in pieces. What was returned so far never holds a secret, nor a part of one that has begun."""

    def feed(self, text: str) -> str:
        """Return what is safe now; an end that may become a secret is held back, shorter than the longest one."""
        ...

    def end(self) -> str:
        """Return what was held back: the text is over, so it was none. The stream is as new afterwards."""
        ...


class Masks(Protocol):
    """Knows the secrets of this process. Any thread."""

    def __call__(self, text: str) -> str:
        """Return a whole text with a mark in the place of each secret."""
        ...

    def cut(self, text: str) -> str:
        """Do the same to a text that goes on elsewhere: an end that may be half a secret is left out."""
        ...

    def holds(self, text: str) -> bool:
        """Say whether there is a secret in a text."""
        ...

    def stream(self) -> MaskStream: ...


class _Open:
    def feed(self, text: str) -> str:
        return text

    def end(self) -> str:
        return ""


class NoMasks:
    """Stands where no secret is known: texts stay as they are."""

    def __call__(self, text: str) -> str:
        return text

    def cut(self, text: str) -> str:
        return text

    def holds(self, text: str) -> bool:
        del text
        return False

    def stream(self) -> MaskStream:
        return _Open()


NO_MASKS = NoMasks()
