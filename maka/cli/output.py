"""Where words go: answers to stdout, everything about them to stderr.

A reader that left (`| head`) is an `OutputClosedError`, so that rooms that print through a library see one kind of
end.

Law: this is the only file of the command line that writes. `write`, `note` and `say` show each control, direction and
invisible character as an escape, whoever it comes from, so that no text can move the cursor, set a title, or hide.
Exempt are a final text, a diff, an artifact and JSON lines to a pipe, which whoever reads them gets as they are, and
the colours of `maka.cli.screen`.
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
_UNDRAWN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""What acts on a terminal or isn't drawn. Not here: what joins or varies the visible characters beside it (emoji)."""
_encoder = msgspec.json.Encoder()


class OutputClosedError(Exception):
    """Whoever read stdout has gone."""


class StyledOutput:
    """A text stream over this process's stdout of the moment, as it is: for `maka.cli.screen` and its colours alone."""

    def write(self, text: str) -> int:
        _put(text)
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


def styled_stdout() -> IO[str]:
    """Return stdout as the file that a printing library wants."""
    return cast("IO[str]", StyledOutput())


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
    """Write what a model said to stdout: as it is to a pipe, harmless to a terminal. Raises OutputClosedError."""
    if sys.stdout.isatty():
        write(printable(text))
    else:
        _put(text)


def write(text: str) -> None:
    """Write text to stdout, with its line breaks and tabs, and flush it. Raises OutputClosedError."""
    _put(harmless(text))


def _put(text: str) -> None:
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
        line = _UNDRAWN.sub(_in_json, line.decode("utf-8", "replace")).encode()
    with _closing():
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.flush()


def harmless(text: str) -> str:
    """Return a text with its line breaks and tabs; what a terminal acts on or doesn't draw is an escape."""
    return _UNDRAWN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _in_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


@contextmanager
def _closing() -> Generator[None]:
    try:
        yield
    except OSError as error:
        # A terminal that went away says EIO, a pipe EPIPE. A full disk is a failure like any other.
        if error.errno not in (EPIPE, EIO):
            raise
        raise OutputClosedError from None


class _Stderr:
    """Whether the line that stderr stands in holds a prompt of ours."""

    prompting = False


def note(text: str) -> None:
    """Write a line about what happens to stderr; one of its own, also beside a prompt."""
    end_prompt()
    say(text + "\n")


def end_prompt(*, typed: bool = False) -> None:
    """End the line of a prompt, if one is open; `typed` says that the person's own line break did."""
    if _Stderr.prompting and not typed:
        say("\n")
    _Stderr.prompting = False


def say(text: str) -> None:
    """Write a piece of a prompt or a line to stderr, at once; nobody reading it is no reason to stop."""
    _Stderr.prompting = not text.endswith("\n")
    try:
        sys.stderr.buffer.write(harmless(text).encode(sys.stderr.encoding or "utf-8", errors="replace"))
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
