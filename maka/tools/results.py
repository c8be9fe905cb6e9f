"""Bounds on what the model sees of a result: whole lines where that is possible, and a marker where something is gone.

Laws: nothing removed, no marker. A cut never splits a character. Lines are counted without the one that a final line
break would begin.
"""

from maka.contracts.content import Outcome
from maka.contracts.limits import RESULT_BYTES_MAX, RESULT_LINES_MAX
from maka.contracts.tool_ports import ToolResult

BODY_LINES_MAX = RESULT_LINES_MAX - 20
BODY_BYTES_MAX = RESULT_BYTES_MAX - 2_048
"""What a body may have, so that it fits together with markers and a footer."""

HEAD_SHARE = 5
"""One part in so many of a middle cut is head, the rest is tail: a command says at its end how it went."""


def line_count(text: str) -> int:
    """Return the number of lines."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def take_head(text: str, lines_max: int = BODY_LINES_MAX, bytes_max: int = BODY_BYTES_MAX) -> str:
    """Return the beginning of a text within both bounds, at a line's end unless the first line is too long."""
    lines = text.split("\n", lines_max)
    kept = text if len(lines) <= lines_max else text[: len(text) - len(lines[-1])]
    data = kept[:bytes_max].encode("utf-8", "replace")
    if len(data) <= bytes_max and len(kept) <= bytes_max:
        return kept
    cut = data[:bytes_max].decode("utf-8", "ignore")
    whole = cut.rfind("\n") + 1
    return cut[:whole] if whole else cut


def take_tail(text: str, lines_max: int = BODY_LINES_MAX, bytes_max: int = BODY_BYTES_MAX) -> str:
    """Return the end of a text within both bounds, from a line's beginning unless the last line is too long."""
    body = text[:-1] if text.endswith("\n") else text
    lines = body.rsplit("\n", lines_max)
    kept = text if len(lines) <= lines_max else text[len(lines[0]) + 1 :]
    data = kept[-bytes_max:].encode("utf-8", "replace")
    if len(data) <= bytes_max and len(kept) <= bytes_max:
        return kept
    cut = data[-bytes_max:].decode("utf-8", "ignore")
    whole = cut.find("\n") + 1
    return cut[whole:] if 0 < whole < len(cut) else cut


def fits(text: str) -> bool:
    """Say whether a body is within the bounds."""
    return line_count(text) <= BODY_LINES_MAX and len(text.encode("utf-8", "replace")) <= BODY_BYTES_MAX


def cut_middle(head: str, tail: str, lines: int, size: int, hint: str) -> str:
    """Join what fits of a beginning and an end of a text of so many lines and bytes that is too long for the model."""
    first = take_head(head, BODY_LINES_MAX // HEAD_SHARE, BODY_BYTES_MAX // HEAD_SHARE)
    last = take_tail(tail, BODY_LINES_MAX - BODY_LINES_MAX // HEAD_SHARE, BODY_BYTES_MAX - BODY_BYTES_MAX // HEAD_SHARE)
    gone_lines = max(lines - line_count(first) - line_count(last), 0)
    gone = size - len(first.encode("utf-8", "replace")) - len(last.encode("utf-8", "replace"))
    return f"{_ended(first)}[... {gone_lines} lines, {gone} bytes not shown. {hint}]\n{last}"


def with_footer(body: str, *notes: str) -> str:
    """Put notes in brackets below a body."""
    return _ended(body) + "\n".join(f"[{note}]" for note in notes if note)


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def error(text: str, outcome: Outcome = Outcome.ERROR) -> ToolResult:
    """A result that says what went wrong and what to do."""
    return ToolResult(outcome=outcome, text=take_head(text))


def no_effect() -> None:
    """The cancel function of a call that has already ended."""
