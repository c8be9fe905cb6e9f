"""What a program reads from descriptors that it inherits: longer than an argument may be, and in no process list.

A word of an argv that is `input_word(n)` becomes the number of the descriptor of the n-th input. No real argument can
be mistaken for one, since it can hold no NUL.
"""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager

_SIGN = "\0"


def input_word(number: int) -> str:
    """Return the word that stands for an input's descriptor."""
    return f"{_SIGN}{number}"


@contextmanager
def opened(argv: Sequence[str], inputs: Sequence[bytes]) -> Generator[tuple[list[str], tuple[int, ...]]]:
    """Yield the argv as it can be run and the descriptors that its program has to inherit. Raises OSError."""
    fds: list[int] = []
    try:
        for data in inputs:
            fds.append(os.memfd_create("maka-input"))
            with os.fdopen(os.dup(fds[-1]), "wb") as file:
                file.write(data)
            os.lseek(fds[-1], 0, os.SEEK_SET)
        yield [str(fds[int(word[1:])]) if word.startswith(_SIGN) else word for word in argv], tuple(fds)
    finally:
        for fd in fds:
            os.close(fd)
