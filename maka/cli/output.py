"""Where words go: answers to stdout, everything about them to stderr.

A reader that left (`| head`) is an `OutputClosedError`, so that rooms that print through a library see one kind of
end. What a model or a tool said reaches a terminal without control characters: it can't move the cursor, set a title
or answer for the person.
"""

import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from errno import EIO, EPIPE
from typing import IO, Any, TextIO, cast

import msgspec

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_UNESCAPED = re.compile(r"[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What JSON needn't escape, although a terminal may act on it."""
_encoder = msgspec.json.Encoder()


class OutputClosedError(Exception):
    """Whoever read stdout has gone."""


class Output:
    """A text stream over this process's stdout of the moment, for libraries that print to a file."""

    def write(self, text: str) -> int:
        write(text)
        return len(text)

    def flush(self) -> None:
        with _closing():
            sys.stdout.flush()

    def isatty(self) -> bool:
        return sys.stdout.isatty()

    def fileno(self) -> int:
        return sys.stdout.fileno()

    @property
    def encoding(self) -> str:
        return sys.stdout.encoding


def stdout_file() -> IO[str]:
    """Return stdout as the file that a printing library wants."""
    return cast("IO[str]", Output())


def open_streams() -> None:
    """Put nothing in the place of a standard stream that is closed.

    The next file to be opened would take its number, and what is printed or inherited would go into that file.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def write_said(text: str) -> None:
    """Write what a model said to stdout: as it is to a pipe, without control characters to a terminal."""
    write(printable(text) if sys.stdout.isatty() else text)


def write(text: str) -> None:
    """Write text to stdout and flush it. Raises OutputClosedError."""
    with _closing():
        # A terminal of another encoding, or a lone surrogate, costs a question mark and not the command.
        sys.stdout.buffer.write(text.encode(sys.stdout.encoding or "utf-8", errors="replace"))
        sys.stdout.flush()


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout as they are; for whatever isn't a terminal. Raises OutputClosedError."""
    with _closing():
        sys.stdout.buffer.write(data)
        sys.stdout.flush()


def write_json(value: Any) -> None:
    """Write a value as one JSON line to stdout, at once. Raises OutputClosedError."""
    write_line(_encoder.encode(value))


def write_line(line: bytes) -> None:
    """Write an encoded line to stdout, at once. Raises OutputClosedError."""
    if sys.stdout.isatty():
        line = _UNESCAPED.sub(_escaped, line.decode("utf-8", "replace")).encode()
    with _closing():
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.flush()


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


@contextmanager
def _closing() -> Generator[None]:
    try:
        yield
    except OSError as error:
        # A terminal that went away says EIO, a pipe EPIPE. A full disk is a failure like any other.
        if error.errno not in (EPIPE, EIO):
            raise
        raise OutputClosedError from None


def note(text: str) -> None:
    """Write a line about what happens to stderr; nobody reading it is no reason to stop."""
    try:
        text = printable(text) if sys.stderr.isatty() else text
        sys.stderr.buffer.write(text.encode(sys.stderr.encoding or "utf-8", errors="replace") + b"\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        _discard(sys.stderr)


def discard_output() -> None:
    """Send what is still buffered for stdout nowhere, so that the interpreter's exit is quiet, too."""
    _discard(sys.stdout)


def _discard(stream: TextIO) -> None:
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def printable(text: str) -> str:
    """Return a text with its line breaks and tabs, but without escape sequences and other control characters."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def one_line(text: str, chars_max: int) -> str:
    """Return a text as one line of at most `chars_max` characters."""
    line = " ".join(printable(text[: 4 * chars_max]).split())
    return line if len(line) <= chars_max and len(text) <= 4 * chars_max else line[: chars_max - 1] + "…"
