"""Where in a text an edit belongs, and what is put there. Pure.

Laws:
- An exact match that occurs once wins; one that occurs more often is refused with the count.
- Looser matches are tried only where there is no exact one, must be unique too, and are always named in the result.
  Blanks may differ at a line's ends, and then between its words; never within quotes on one line, where they are
  part of the text. What is put in is indented as the file is, or refused.
- What is put in is literal text: nothing in it is a pattern. Its line ends follow the file's, line by line, so that a
  line that stays keeps its own. Escapes are resolved only where the same ones had to be to find the place, and that
  is said.
- Look-alike characters are never matched silently: they make a hint.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable
from difflib import SequenceMatcher

from msgspec import Struct

BOM = "\ufeff"
LOOSE_CHARS_MIN = 5
"""Fewer characters than these, spaces aside, are found by accident too easily."""
COUNTED_MAX = 100
"""Places that are counted: each may cost a look at all of old_string again."""

COMPARED_MAX = 1_000_000
"""Pairs of lines that are compared to see which ones stayed."""
_LOOKS = {
    **dict.fromkeys((0x2018, 0x2019, 0x201A, 0x2032, 0x02BC), "'"),
    **dict.fromkeys((0x201C, 0x201D, 0x201E, 0x2033), '"'),
    **dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2212), "-"),
    **dict.fromkeys((0x00A0, 0x2007, 0x2009, 0x202F, 0x3000), " "),
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\"}
_BLANKS = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`|["'`].*)|[ \t]+""")
_RAW_BLANKS = re.compile(r"""("[^"]*"|'[^']*'|`[^`]*`|["'`].*)|[ \t]+""")
_ESCAPE = re.compile(r"\\([ntr\"'\\])")


class MatchError(Exception):
    """No place, or more than one; the message is for the model."""


class Match(Struct, frozen=True, kw_only=True):
    """Characters `start` to `end` become `new`. Lines count from 1; `how` is empty for an exact match."""

    start: int
    end: int
    new: str
    first_line: int
    last_line: int
    how: str = ""


class _Found(Struct, frozen=True):
    start: int
    end: int
    new: str
    how: str = ""


def find(text: str, old: str, new: str, mask: Callable[[str], str] = str) -> Match:
    """Find the one place. Raises MatchError; `mask` takes out of a line that it shows what nobody may see."""
    if not old:
        raise MatchError("old_string is empty: give the text to replace, or use Write for a whole file")
    if old == new:
        raise MatchError("old_string and new_string are the same: nothing would change")
    base = 1 if text.startswith(BOM) else 0
    if base and old.startswith(BOM):
        old, new = old[1:], new.removeprefix(BOM)
    raw = text[base:]
    breaks = [match.start() for match in re.finditer("\r\n", raw)]
    view = raw.replace("\r\n", "\n") if breaks else raw
    found = _locate(view, old.replace("\r\n", "\n") if breaks else old, new, mask)
    # The k-th two-character line end stands k places earlier in the view.
    shifted = [at - number for number, at in enumerate(breaks)]

    def real(at: int) -> int:
        return base + at + bisect_right(shifted, at - 1)

    start, end, put = _with_line_ends(text, real(found.start), real(found.end), found.new)
    return Match(
        start=start,
        end=end,
        new=put,
        first_line=view.count("\n", 0, found.start) + 1,
        last_line=view.count("\n", 0, max(found.start, found.end - 1)) + 1,
        how=found.how,
    )


def replaced(text: str, match: Match) -> str:
    """Return the text after the edit."""
    return text[: match.start] + match.new + text[match.end :]


def _with_line_ends(text: str, start: int, end: int, new: str) -> tuple[int, int, str]:
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
    for number, (place, stays) in enumerate(_places_of(given, was)):
        is_pair = ends[place] or (not stays and new[number].endswith("\r"))
        joined.append(given[number] + ("\r\n" if is_pair else "\n"))
    return "".join(joined) + new[-1]


def _places_of(given: list[str], was: list[str]) -> list[tuple[int, bool]]:
    """Say for each given line whose place it takes, and whether that line stays as it is. The cost is bounded."""
    head = _common(was, given)
    tail = _common(was[head:][::-1], given[head:][::-1])
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


def _common(one: list[str], other: list[str]) -> int:
    """Count the lines that are the same at the beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(one), len(other)))


def _locate(view: str, old: str, new: str, mask: Callable[[str], str]) -> _Found:
    exact = _places(view, old)
    if exact:
        _only_one(exact, view, "old_string occurs")
        return _Found(exact[0], exact[0] + len(old), new)
    if len("".join(old.split())) >= LOOSE_CHARS_MIN and "\0" not in old:
        for attempt in (_by_lines, _unescaped):
            found = attempt(view, old, new)
            if found is not None:
                return found
    raise MatchError("old_string was not found" + _hint(view, old, mask))


def _places(view: str, old: str) -> list[int]:
    """Where `old` begins; places may overlap, since either could be meant."""
    places: list[int] = []
    at = view.find(old)
    while at >= 0 and len(places) < COUNTED_MAX:
        places.append(at)
        at = view.find(old, at + 1)
    return places


def _only_one(places: list[int], view: str, what: str) -> None:
    if len(places) > 1:
        lines = ", ".join(str(view.count("\n", 0, at) + 1) for at in places[:10])
        more = ", ..." if len(places) > 10 else ""
        times = f"at least {COUNTED_MAX}" if len(places) == COUNTED_MAX else str(len(places))
        raise MatchError(f"{what} {times} times (lines {lines}{more}): add text around it until it is unique")


def _trimmed(line: str) -> str:
    return line.strip(" \t")


def _spaced(line: str) -> str:
    """Return a line with one blank where there are several, but for what is in quotes, or behind an open one.

    It is read twice, as a backslash before a quote is an escape in some strings, and in others not. Quotes that began
    on another line can't be seen.
    """
    readings = (blanks.sub(lambda match: match[1] or " ", line.strip(" \t")) for blanks in (_BLANKS, _RAW_BLANKS))
    return "\0".join(readings)


def _blanked(line: str) -> str:
    return re.sub("[ \t]+", " ", line.strip(" \t"))


def _by_lines(view: str, old: str, new: str) -> _Found | None:
    """Search for whole lines that are equal but for the spaces at their ends, or else between their words."""
    ends_line = old.endswith("\n")
    wanted = (old[:-1] if ends_line else old).split("\n")
    lines, size = view.split("\n"), len(wanted)
    how = "the spaces at line ends and beginnings differ"
    if not (at := lines_like(lines, wanted, _trimmed)):
        at, how = lines_like(lines, wanted, _spaced), "the spaces between words differ"
    if not at:
        return None
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line) + 1)
    _only_one([begins[number] for number in at], view, "old_string isn't there exactly; but for spaces it occurs")
    start, end = begins[at[0]], begins[at[0] + size] - 1
    if end - start > max(len(old) + 500, 4 * len(old)):
        return None
    if ends_line and end == len(view):
        new = re.sub("\r?\n\\Z", "", new)  # old_string ends with a line break that isn't there: nor is new_string's
    fitted, moved = _indented_like(lines[at[0] : at[0] + size], wanted, new)
    return _Found(start, min(end + ends_line, len(view)), fitted, how + moved)


def lines_like(lines: list[str], wanted: list[str], key: Callable[[str], str]) -> list[int]:
    """Where lines begin that are equal to the wanted ones under a key; no more places than are counted.

    Linear, however often lines repeat (Knuth, Morris, Pratt): comparing block by block is quadratic.
    """
    numbers: dict[str, int] = {}
    keys = [numbers.setdefault(key(line), len(numbers)) for line in lines]
    # A key that no line has is one number more: it equals none.
    pattern = [numbers.get(key(line), len(numbers)) for line in wanted]
    back, places, same = _borders(pattern), list[int](), 0
    for number, one in enumerate(keys):
        while same and (same == len(pattern) or pattern[same] != one):
            same = back[same - 1]
        same += pattern[same] == one
        if same == len(pattern):
            places.append(number - same + 1)
            if len(places) == COUNTED_MAX:
                break
    return places


def _borders(pattern: list[int]) -> list[int]:
    """Return for each beginning of a pattern how much of it is also its end, itself aside."""
    found, same = [0], 0
    for one in pattern[1:]:
        while same and pattern[same] != one:
            same = found[same - 1]
        same += pattern[same] == one
        found.append(same)
    return found


def _indented_like(there: list[str], wanted: list[str], new: str) -> tuple[str, str]:
    """Indent the new lines as the file has it: all shifted by the same, or each as the given ones are.

    Raises MatchError where neither is possible: written as they are they would mix two ways to indent.
    """
    pairs = [(_indent(line), _indent(want)) for line, want in zip(there, wanted, strict=True) if _trimmed(want)]
    lines = new.split("\n")
    used = {_indent(line) for line in lines if line.strip(" \t\r")}
    if not used or all(real == given for real, given in pairs):
        return new, ""
    deeper = {real[: len(real) - len(given)] if real.endswith(given) else None for real, given in pairs}
    real_of = {given: real for real, given in pairs}
    if len(deeper) == 1 and (shift := deeper.pop()):
        real_of = {given: shift + given for given in used}
    elif len({*pairs}) > len(real_of) or not used <= real_of.keys():
        raise MatchError(
            "old_string isn't there exactly: its indentation differs from the file's, and what that makes of "
            "new_string isn't clear; copy the exact text, with its indentation, from the file"
        )
    fitted = [real_of[_indent(line)] + line[len(_indent(line)) :] if line.strip(" \t\r") else line for line in lines]
    return "\n".join(fitted), "; new_string was indented like the text it replaces"


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unescaped(view: str, old: str, new: str) -> _Found | None:
    plain = _plain(old)
    places = _places(view, plain) if plain not in (old, "") else []
    if not places:
        return None
    _only_one(places, view, "old_string isn't there exactly; with its escapes resolved it occurs")
    how, end = "old_string was escaped once too often", places[0] + len(plain)
    same = _plain(new, only=frozenset(_ESCAPE.findall(old)))
    if "\n" in new and same != new:
        raise MatchError(
            "old_string isn't there exactly: it was escaped once too often. new_string has the same escapes and real "
            "line breaks, so what it means isn't clear: give both exactly as the file has them, without escaping"
        )
    if same != new:
        return _Found(places[0], end, same, how + ", and so was new_string; the same escapes were resolved in both")
    return _Found(places[0], end, new, how)


def _plain(text: str, only: frozenset[str] = frozenset(_ESCAPES)) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPES[match[1]] if match[1] in only else match[0], text)


def _looks(text: str) -> str:
    return unicodedata.normalize("NFC", text).translate(_LOOKS)


def _hint(view: str, old: str, mask: Callable[[str], str]) -> str:
    seen = _looks(view)
    at = seen.find(_looks(old))
    if at >= 0:
        number = seen.count("\n", 0, at)
        line = mask(view.split("\n")[number])
        return (
            f", but line {number + 1} looks alike with other characters (accents, quotes, dashes or no-break spaces): "
            f"{line[:200]!a}. Copy the text from the file"
        )
    spaced = lines_like(view.split("\n"), old.removesuffix("\n").split("\n"), _blanked)
    if spaced and old.strip():
        return f"; line {spaced[0] + 1} differs in the spaces within it. Copy the text from the file"
    first = next((line for line in old.split("\n") if len(_trimmed(line)) >= LOOSE_CHARS_MIN), None)
    if first is not None and (at := view.find(_trimmed(first))) >= 0:
        return f"; its first line is at line {view.count(chr(10), 0, at) + 1}, but what follows differs. Read it again"
    return ": read the file again and copy the exact text"
