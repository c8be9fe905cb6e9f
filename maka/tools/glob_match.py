"""Which paths a pattern of names means. Pure.

`*` and `?` stay within one name, `**` stands for any number of folders, `[...]` is one of some characters, `{a,b}` one
of some words. A pattern is matched against a whole path relative to where the search begins.
"""

import re

DEPTH_MAX = 8
"""Braces within braces."""


class PatternError(Exception):
    """A pattern that can't be used; the message is for the model."""


def checked(pattern: str) -> str:
    """Return the pattern without a leading `./`. Raises PatternError for one that leaves the search's root."""
    if "\0" in pattern:
        raise PatternError("the pattern holds a NUL byte")
    if pattern.startswith("/"):
        raise PatternError("the pattern must not be absolute: give the directory in path, or a pattern relative to it")
    if ".." in pattern.split("/"):
        raise PatternError("the pattern must not contain `..`: give the directory in path")
    return pattern.removeprefix("./")


def compiled(pattern: str) -> re.Pattern[str]:
    """Translate a pattern. Raises PatternError."""
    try:
        return re.compile(_translate(pattern, 0), re.DOTALL)
    except re.error:
        raise PatternError(f"the pattern {pattern!r} can't be understood") from None


def _translate(pattern: str, depth: int) -> str:
    if depth > DEPTH_MAX:
        raise PatternError("the pattern has too many braces within braces")
    out: list[str] = []
    at = 0
    while at < len(pattern):
        piece, at = _piece(pattern, at, depth)
        out.append(piece)
    return "".join(out)


def _piece(pattern: str, at: int, depth: int) -> tuple[str, int]:
    """Translate what stands at a place; returns the expression and the next place."""
    if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
        return "(?:[^/]+/)*", at + 3
    if pattern.startswith("**", at):
        return ".*", at + 2
    char = pattern[at]
    if char == "*":
        return "[^/]*", at + 1
    if char == "?":
        return "[^/]", at + 1
    if char == "[" and (close := pattern.find("]", at + 2)) > 0:
        return _one_of(pattern[at + 1 : close]), close + 1
    if char == "{" and (close := _closing(pattern, at)) > 0:
        words = _split(pattern[at + 1 : close])
        return "(?:" + "|".join(_translate(word, depth + 1) for word in words) + ")", close + 1
    if char == "\\" and at + 1 < len(pattern):
        return re.escape(pattern[at + 1]), at + 2
    return re.escape(char), at + 1


def _one_of(inside: str) -> str:
    negated = inside[0] in "!^"
    chars = inside[1:] if negated else inside
    safe = re.sub(r"([\\\[\]^&~|])", r"\\\1", chars)
    return f"(?!/)[{'^' if negated else ''}{safe}]"


def _closing(pattern: str, at: int) -> int:
    open_braces = 0
    for place in range(at, len(pattern)):
        open_braces += {"{": 1, "}": -1}.get(pattern[place], 0)
        if not open_braces:
            return place
    return -1


def _split(inside: str) -> list[str]:
    words, open_braces = [""], 0
    for char in inside:
        open_braces += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and not open_braces:
            words.append("")
        else:
            words[-1] += char
    return words
