"""How the file writes what an edit puts in where the blanks of its lines differ from old_string's. Pure.

Laws:
- A line that is in old_string and in new_string keeps the file's bytes: only other lines are written from new_string.
- On these, the file's own blanks stay beside words that stay. Others are new_string's, unless old_string has the same
  ones only where the file has something else (blanks for tabs): then the edit is refused.
- Their indentation is the file's: all shifted by the same, or each as the given ones are; else the edit is refused.
"""

import re
from bisect import bisect_right
from collections import Counter

from maka.tools.edit_ends import aligned, common
from maka.tools.edit_place import MatchError

Blanks = set[tuple[str, str]]
"""Blanks in old_string, each with what the file has in their place."""


def fitted(there: list[str], wanted: list[str], new: str) -> tuple[str, str]:
    """Return the new text as the file would have it, and words for the result.

    `there` are the file's lines that were found for the `wanted` ones of old_string, one for each. Raises MatchError
    where it isn't plain which blanks belong in a line.
    """
    ends = ["\r" if line.endswith("\r") else "" for line in new.split("\n")]
    given = [line.removesuffix("\r") for line in new.split("\n")]
    places = aligned(given, wanted)
    lines = [there[place] if stays else line for line, (place, stays) in zip(given, places, strict=True)]
    # The indentation of a line that was moved or copied is judged, too: it may be that of another block.
    put_in = [number for number, line in enumerate(given) if line.strip(" \t") and not places[number][1]]
    real_of = _indents(there, wanted, {_indent(given[number]) for number in put_in})
    own: dict[str, set[str]] = {}
    known: Blanks = set()
    for want, line in zip(wanted, there, strict=True):
        own.setdefault(want, set()).add(line)
        known |= _between(want, line)
    pairs = _pairs(wanted, given, {number for number in put_in if given[number] not in own}, places)
    for number in put_in:
        line, was = given[number], pairs.get(number)
        if line in own:
            put = _moved(line, own[line])
        else:
            put = _added(line, known) if was is None else _changed(line, wanted[was], there[was])
        lines[number] = (_indent(line) if real_of is None else real_of[_indent(line)]) + put
    how = "" if real_of is None else "; new_string was indented like the text it replaces"
    return "\n".join(line + end for line, end in zip(lines, ends, strict=True)), how


def _pairs(wanted: list[str], given: list[str], others: set[int], places: list[tuple[int, bool]]) -> dict[int, int]:
    """Say which line of old_string each of the other lines was, as far as that is plain."""
    stay = {*given}
    passed = [place for place, stays in places if stays]
    # Both are counted from one line that stays in its place to the next.
    was: dict[int, list[int]] = {}
    for number, want in enumerate(wanted):
        if want not in stay and want.strip(" \t"):
            was.setdefault(bisect_right(passed, number), []).append(number)
    put: dict[int, list[int]] = {}
    before = 0
    for number, (_, stays) in enumerate(places):
        before += stays
        if number in others:
            put.setdefault(before, []).append(number)
    pairs: dict[int, int] = {}
    for block in was.keys() & put.keys():
        pairs |= _pairs_of(was[block], put[block], wanted, given)
    return pairs


def _pairs_of(was: list[int], put: list[int], wanted: list[str], given: list[str]) -> dict[int, int]:
    """Pair the lines that alone begin with a word; if as many are left on both sides, these in their order."""
    first_was, first_put = [wanted[number].split()[0] for number in was], [given[number].split()[0] for number in put]
    times_was, times_put = Counter(first_was), Counter(first_put)
    one = {word for word in times_was if times_was[word] == times_put[word] == 1}
    line_of = dict(zip(first_was, was, strict=True))
    pairs = {number: line_of[word] for number, word in zip(put, first_put, strict=True) if word in one}
    was = [number for number, word in zip(was, first_was, strict=True) if word not in one]
    put = [number for number, word in zip(put, first_put, strict=True) if word not in one]
    if len(was) == len(put):
        for old, number in zip(was, put, strict=True):
            if any(_same(_parts(wanted[old])[0], _parts(given[number])[0])):
                pairs[number] = old
    return pairs


def _changed(line: str, want: str, there: str) -> str:
    """Return a line that isn't as in old_string any more, without its indentation, with the blanks that stay."""
    words, gaps, tail = _parts(line)
    was, was_gaps, was_tail = _parts(want)
    _, own_gaps, own_tail = _parts(there)
    between = [*zip(was_gaps, own_gaps, strict=True)]
    head, last = _same(was, words)
    longer = len(words) - len(was)
    new_from, new_to = (head - 1, len(words) - last) if longer > 0 and head + last == len(was) else (0, 0)
    put = words[:1]
    for number, gap in enumerate(gaps):
        beside: Blanks = set()
        if not new_from <= number < new_to:
            beside |= {between[number]} if number < head else set()
            beside |= {between[number - longer]} if number + 1 >= len(words) - last else set()
        put += [_stays(gap, beside) if beside else _new(gap, {*between}), words[number + 1]]
    return "".join(put) + _stays(tail, {(was_tail, own_tail)})


def _moved(line: str, ways: set[str]) -> str:
    """Return a line that is somewhere else in old_string, without its indentation, as the file has it there."""
    if len(ways) > 1 and line not in ways:
        raise _unclear(f"has the line {line.strip()[:80]!a} in several ways, and which one of them")
    return (line if line in ways else min(ways)).lstrip(" \t")


def _added(line: str, known: Blanks) -> str:
    """Return a line that is no line of old_string, without its indentation."""
    for gap in _parts(line)[1]:
        _new(gap, known)
    return line.lstrip(" \t")


def _stays(gap: str, beside: Blanks) -> str:
    """Return what belongs between words that stood there: the file's blanks, if new_string has them as old_string."""
    own = {there for _, there in beside}
    if all(want == there for want, there in beside):
        return gap
    if len(own) == 1 and (gap in own or gap in {want for want, _ in beside}):
        return own.pop()
    raise _unclear("has other blanks between or behind its words, and which of them")


def _new(gap: str, known: Blanks) -> str:
    """Return blanks that weren't there, unless the file never has them where old_string does."""
    own = {there for want, there in known if want == gap}
    if own and gap not in own:
        raise _unclear("has other blanks between its words, and which of them")
    return gap


def _unclear(what: str) -> MatchError:
    return MatchError(
        f"old_string isn't there exactly: the file {what} belong in new_string isn't clear; copy the exact text, with "
        "its blanks, from the file"
    )


def _indents(there: list[str], wanted: list[str], used: set[str]) -> dict[str, str] | None:
    """Return for each indentation of new lines what it is in the file; None where none differs.

    Raises MatchError where that can't be told: written as they are they would mix two ways to indent.
    """
    pairs = [(_indent(line), _indent(want)) for line, want in zip(there, wanted, strict=True) if want.strip(" \t")]
    if not used or all(real == given for real, given in pairs):
        return None
    deeper = {real[: len(real) - len(given)] if real.endswith(given) else None for real, given in pairs}
    real_of = {given: real for real, given in pairs}
    if len(deeper) == 1 and (shift := deeper.pop()):
        return {given: shift + given for given in used}
    if len({*pairs}) > len(real_of) or not used <= real_of.keys():
        raise MatchError(
            "old_string isn't there exactly: its indentation differs from the file's, and what that makes of "
            "new_string isn't clear; copy the exact text, with its indentation, from the file"
        )
    return real_of


def _parts(line: str) -> tuple[list[str], list[str], str]:
    """Return the words of a line, the blanks between them, and those behind them."""
    pieces = re.split("([ \t]+)", line.strip(" \t"))
    return pieces[::2], pieces[1::2], line[len(line.rstrip(" \t")) :]


def _between(want: str, there: str) -> Blanks:
    return {*zip(_parts(want)[1], _parts(there)[1], strict=True)}


def _same(was: list[str], words: list[str]) -> tuple[int, int]:
    """Count the words that are the same at the beginning, and of the others those at the end."""
    head = common(was, words)
    return head, common(was[head:][::-1], words[head:][::-1])


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]
