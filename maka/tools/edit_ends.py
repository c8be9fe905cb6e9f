"""Line ends of what an edit puts in, and which lines of a new text are lines of an old one. Pure.

Law: line ends follow the file's, line by line, so that a line that stays keeps its own.
"""

import re
from difflib import SequenceMatcher

COMPARED_MAX = 1_000_000
"""Pairs of lines that are compared to see which ones stayed."""


def with_line_ends(text: str, start: int, end: int, new: str) -> tuple[int, int, str]:
    """Return what to replace by what: the place itself or, where line ends are mixed in its lines, all of these."""
    begin, stop = text.rfind("\n", 0, start) + 1, text.find("\n", end) + 1 or len(text)
    lines = text[begin:stop]
    pairs, ends = lines.count("\r\n"), lines.count("\n")
    if 0 < pairs < ends:
        whole = text[begin:start] + new + text[end:stop]
        return begin, stop, _with_own_ends(whole.split("\n"), lines.split("\n"))
    if not ends:
        pairs, ends = text.count("\r\n"), text.count("\n")
    return start, end, re.sub("(?<!\r)\n", "\r\n", new) if pairs > ends - pairs else new


def _with_own_ends(new: list[str], there: list[str]) -> str:
    """Join new lines so that each one that was there keeps its line end; others end like the one in their place."""
    was, ends = [line.removesuffix("\r") for line in there[:-1]], [line.endswith("\r") for line in there[:-1]]
    given = [line.removesuffix("\r") for line in new[:-1]]
    joined: list[str] = []
    for number, (place, stays) in enumerate(aligned(given, was)):
        is_pair = ends[place] or (not stays and new[number].endswith("\r"))
        joined.append(given[number] + ("\r\n" if is_pair else "\n"))
    return "".join(joined) + new[-1]


def aligned(given: list[str], was: list[str]) -> list[tuple[int, bool]]:
    """Say for each given line whose place it takes, and whether that line stays as it is. The cost is bounded."""
    head = common(was, given)
    tail = common(was[head:][::-1], given[head:][::-1])
    to, given_to = len(was) - tail, len(given) - tail
    changed = [("replace", 0, to - head, 0, given_to - head)]
    if (to - head) * (given_to - head) <= COMPARED_MAX:
        changed = [*SequenceMatcher(None, was[head:to], given[head:given_to], False).get_opcodes()]
    places = [(number, True) for number in range(head)]
    for tag, was_from, was_to, from_, until in changed:
        for offset in range(until - from_):
            last = max(was_to - 1, was_from - 1) + head
            places.append((max(min(was_from + offset + head, last), 0), tag == "equal"))
    return [*places, *((number, True) for number in range(to, len(was)))]


def common(one: list[str], other: list[str]) -> int:
    """Count the lines that are the same at the beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(one), len(other)))
