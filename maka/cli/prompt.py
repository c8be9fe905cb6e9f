"""The prompt: an argument, piped stdin, or both joined."""

import os
import select
import stat
import sys
from contextlib import suppress
from typing import BinaryIO, NoReturn

from maka.cli.output import note
from maka.contracts.errors import Refusal, RefusalCode, RefusedError
from maka.contracts.limits import PROMPT_CHARS_MAX

SILENT_S = 1.0


def read_prompt(argument: str | None) -> str:
    """Return the prompt; raises RefusedError where it is empty or too long. Blocks until a piped stdin ends."""
    named_stdin = argument == "-"
    words = "" if argument is None or named_stdin else _clean(os.fsencode(argument))
    piped = _read_stdin(waited_for=named_stdin or argument is None)
    if piped is None and argument is None:
        _refuse('There is no prompt: write maka run "what to do", or pipe it in.')
    text = "\n\n".join(part for part in (words.strip("\n"), (piped or "").strip("\n")) if part.strip())
    if not text:
        _refuse('The prompt is empty: write maka run "what to do", or pipe it in.')
    if len(text) > PROMPT_CHARS_MAX:
        _refuse(f"The prompt is longer than {PROMPT_CHARS_MAX:,} characters: put it into a file and name that.")
    return text


def _read_stdin(*, waited_for: bool) -> str | None:
    """Return what is piped in, or None where stdin is a terminal or, with a prompt beside it, no pipe or file."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        return None
    stream = sys.stdin.buffer
    if not waited_for and not _is_piped(stream):
        return None
    _say_when_silent(stream)
    # Enough to see that it is too long, never all of an endless stream.
    data = stream.read(4 * PROMPT_CHARS_MAX + 4)
    return _clean(data)


def _is_piped(stream: BinaryIO) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return True
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _say_when_silent(stream: BinaryIO) -> None:
    with suppress(OSError, ValueError):
        if not select.select([stream.fileno()], [], [], SILENT_S)[0]:
            note("Reading stdin, which is part of the prompt (it ends with Ctrl-D; < /dev/null leaves it out) ...")


def _clean(data: bytes) -> str:
    # What isn't UTF-8 would be refused by the ledger's codec and by providers.
    return data.decode("utf-8", errors="replace").replace("\0", "\ufffd")


def _refuse(message: str) -> NoReturn:
    raise RefusedError(Refusal(code=RefusalCode.INVALID_INPUT, message=message))
