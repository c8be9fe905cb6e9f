"""Where in a text an edit belongs, and what is put there. Pure.

Laws:
- An exact match that occurs once wins; one that occurs more often is refused with the count.
- Looser matches are tried only where there is no exact one, must be unique too, and are always named in the result.
  Blanks may differ at a line's ends, and then between its words; never within quotes on one line, where they are
  part of the text. A line that stays keeps the file's bytes; what is put in has the file's blanks, or is refused.
- What is put in is literal text: nothing in it is a pattern. Its line ends follow the file's, line by line, so that a
  line that stays keeps its own. Escapes are resolved only where old_string's had to be to find the place, and then
  all of them.
- Look-alike characters are never matched silently: they make a hint.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable

from msgspec import Struct

from maka.tools.edit_ends import with_line_ends
from maka.tools.edit_escapes import unescaped
from maka.tools.edit_lines import blanked, by_lines, lines_like, trimmed
from maka.tools.edit_place import LOOSE_CHARS_MIN, Found, MatchError, only_one, places

__all__ = ["Match", "MatchError", "find", "replaced"]

BOM = "\ufeff"
_LOOKS = {
    **dict.fromkeys((0x2018, 0x2019, 0x201A, 0x2032, 0x02BC), "'"),
    **dict.fromkeys((0x201C, 0x201D, 0x201E, 0x2033), '"'),
    **dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2212), "-"),
    **dict.fromkeys((0x00A0, 0x2007, 0x2009, 0x202F, 0x3000), " "),
}


class Match(Struct, frozen=True, kw_only=True):
    """Characters `start` to `end` become `new`. Lines count from 1; `how` is empty for an exact match."""

    start: int
    end: int
    new: str
    first_line: int
    last_line: int
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
    found = _locate(view, old.replace("\r\n", "\n") if breaks else old, new, bool(breaks), mask)
    # The k-th two-character line end stands k places earlier in the view.
    shifted = [at - number for number, at in enumerate(breaks)]

    def real(at: int) -> int:
        return base + at + bisect_right(shifted, at - 1)

    start, end, put = with_line_ends(text, real(found.start), real(found.end), found.new)
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


def _locate(view: str, old: str, new: str, pairs: bool, mask: Callable[[str], str]) -> Found:
    exact = places(view, old)
    if exact:
        only_one(exact, view, "old_string occurs")
        return Found(exact[0], exact[0] + len(old), new)
    if len("".join(old.split())) >= LOOSE_CHARS_MIN and "\0" not in old:
        looser = by_lines(view, old, new), unescaped(view, old, new, pairs)
        found = [one for one in looser if one is not None]
        if len(found) > 1:
            spaced, plain = (view.count("\n", 0, one.start) + 1 for one in found)
            raise MatchError(
                f"old_string isn't there exactly; but for spaces it is at line {spaced}, with its escapes resolved at "
                f"line {plain}: copy the exact text from the file"
            )
        if found:
            return found[0]
    raise MatchError("old_string was not found" + _hint(view, old, mask))


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
    spaced = lines_like(view.split("\n"), old.removesuffix("\n").split("\n"), blanked)
    if spaced and old.strip():
        return f"; line {spaced[0] + 1} differs in the spaces within it. Copy the text from the file"
    first = next((line for line in old.split("\n") if len(trimmed(line)) >= LOOSE_CHARS_MIN), None)
    if first is not None and (at := view.find(trimmed(first))) >= 0:
        return f"; its first line is at line {view.count(chr(10), 0, at) + 1}, but what follows differs. Read it again"
    return ": read the file again and copy the exact text"
