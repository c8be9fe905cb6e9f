"""Where in a text lines are that are equal to given ones but for their blanks. Pure.

Law: blanks may differ at a line's ends, and then between its words; never within quotes on one line, where they are
part of the text. What is put in is `edit_fit`'s.
"""

import re
from collections.abc import Callable

from maka.tools.edit_fit import fitted
from maka.tools.edit_place import COUNTED_MAX, Found, only_one

_BLANKS = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`|["'`].*)|[ \t]+""")
_RAW_BLANKS = re.compile(r"""("[^"]*"|'[^']*'|`[^`]*`|["'`].*)|[ \t]+""")


def by_lines(view: str, old: str, new: str) -> Found | None:
    """Search for whole lines that are equal but for the spaces at their ends, or else between their words."""
    ends_line = old.endswith("\n")
    wanted = (old[:-1] if ends_line else old).split("\n")
    lines, size = view.split("\n"), len(wanted)
    how = "the spaces at line ends and beginnings differ"
    if not (at := lines_like(lines, wanted, trimmed)):
        at = lines_like(lines, wanted, _spaced)
        how = "the spaces between words differ; beside words that stay the file's were kept"
    if not at:
        return None
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line) + 1)
    only_one([begins[number] for number in at], view, "old_string isn't there exactly; but for spaces it occurs")
    start, end = begins[at[0]], begins[at[0] + size] - 1
    if end - start > max(len(old) + 500, 4 * len(old)):
        return None
    if ends_line and end == len(view):
        new = re.sub("\r?\n\\Z", "", new)  # old_string ends with a line break that isn't there: nor is new_string's
    # A last line end isn't the beginning of one more line where old_string has one, too.
    last = "\n" if ends_line and new.endswith("\n") else ""
    put, moved = fitted(lines[at[0] : at[0] + size], wanted, new.removesuffix(last)) if new else ("", "")
    return Found(start, min(end + ends_line, len(view)), put + last, how + moved)


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


def trimmed(line: str) -> str:
    """Return a line without the blanks at its ends."""
    return line.strip(" \t")


def blanked(line: str) -> str:
    """Return a line with one blank where there are several, in quotes, too."""
    return re.sub("[ \t]+", " ", trimmed(line))


def _spaced(line: str) -> str:
    """Return a line with one blank where there are several, but for what is in quotes, or behind an open one.

    It is read twice, as a backslash before a quote is an escape in some strings, and in others not. Quotes that began
    on another line can't be seen.
    """
    readings = (blanks.sub(lambda match: match[1] or " ", trimmed(line)) for blanks in (_BLANKS, _RAW_BLANKS))
    return "\0".join(readings)
