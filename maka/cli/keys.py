"""The person at the terminal: one key, or one line.

Laws: what was typed before the question is no answer to it; a pasted text or an arrow key is no key; the terminal is
left as it was found. A read gives up as soon as it is told to.
"""

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from maka.cli.output import end_prompt

POLL_S = 0.1
TOGETHER_S = 0.05
READ_BYTES_MAX = 1 << 16
END_OF_INPUT = b"\x04"


class LeftError(Exception):
    """The person ended the input (Ctrl-D, or the terminal has gone), or the read was told to give up."""


class Keys:
    """Reads a terminal. Used by one thread; `gives_up` is asked ten times a second."""

    def __init__(self, fd: int, say: Callable[[str], None], gives_up: Callable[[], bool] = lambda: False) -> None:
        self._fd = fd
        self._say = say
        self._gives_up = gives_up

    def key(self, prompt: str, known: str) -> str:
        """Ask for one of the known keys and return it. Raises LeftError."""
        with self._one_by_one():
            self._say(prompt)
            while True:
                data = self._read()
                if data in (b"", END_OF_INPUT):
                    end_prompt()
                    raise LeftError
                # More than one byte at once is a pasted text or an arrow: never an answer.
                if len(data) == 1 and (key := data.decode("latin-1")) in known:
                    return key
                self._swallow()
                self._say(f"(one of {' '.join(known)}) ")

    def line(self, prompt: str) -> str:
        """Ask for a line and return it without its end. Raises LeftError."""
        termios.tcflush(self._fd, termios.TCIFLUSH)
        self._say(prompt)
        data = self._read()
        while data and not data.endswith(b"\n"):
            data += self._read() or b"\n"
        if not data:
            end_prompt()
            raise LeftError
        end_prompt(typed=True)
        return data.decode("utf-8", "replace").rstrip("\n")

    def tell(self, text: str) -> None:
        """Say what a key meant, since the key itself isn't seen."""
        self._say(f"{text}\n")

    def _read(self) -> bytes:
        while not self._gives_up():
            # A signal that is handled elsewhere doesn't end a read; the time limit sees what it asked for.
            if select.select([self._fd], [], [], POLL_S)[0]:
                return _read(self._fd)
        end_prompt()
        raise LeftError

    def _swallow(self) -> None:
        """Drop the rest of what came at once: its last byte alone would look like a key."""
        while select.select([self._fd], [], [], TOGETHER_S)[0]:
            if not _read(self._fd):
                return

    @contextmanager
    def _one_by_one(self) -> Generator[None]:
        before = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd, termios.TCSAFLUSH)  # and what was typed ahead is dropped
        try:
            yield
        finally:
            with suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSADRAIN, before)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, READ_BYTES_MAX)
    except OSError:
        return b""  # the terminal has gone


def is_interactive() -> bool:
    """Say whether a person can be asked: what they type and what they are told go through a terminal."""
    streams = (sys.stdin, sys.stderr)
    with suppress(OSError, ValueError, AttributeError):
        return all(stream.isatty() for stream in streams)
    return False
