"""An immutable sequence that grows at its end: what folds keep their long collections in.

Appending copies at most one chunk of 32 pointers on each level, whatever the length, where a tuple copies all of
itself and makes a fold quadratic. An older value never changes, so a state can be kept, shared and folded on from.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")

CHUNK = 32


class Chunks(Struct, Generic[T], frozen=True, gc=False):
    """A sequence in order: full chunks (themselves such a sequence), then a tail shorter than a chunk."""

    tail: tuple[T, ...] = ()
    full: "Chunks[tuple[T, ...]] | None" = None
    size: int = 0

    def append(self, item: T) -> "Chunks[T]":
        """Return the sequence with one more item at its end."""
        tail = (*self.tail, item)
        if len(tail) < CHUNK:
            return Chunks(tail, self.full, self.size + 1)
        full: Chunks[tuple[T, ...]] = self.full if self.full is not None else Chunks()
        return Chunks((), full.append(tail), self.size + 1)

    def __iter__(self) -> Iterator[T]:
        if self.full is not None:
            for chunk in self.full:
                yield from chunk
        yield from self.tail

    def __len__(self) -> int:
        return self.size
