r"""An old_string that was escaped once too often, and what its new_string means then. Pure.

Laws:
- The place is the one that old_string's text is at, one level of escapes taken off; the result says so.
- A new_string without a backslash means one thing and is taken as it is. From any other one level is taken off, too
  (`\\` becomes `\`), if all of it shows that it was escaped as old_string was; else the edit is refused. Taking off
  some escapes and leaving others, or guessing from one, writes text that nobody meant.
- An escape for a control character is taken for one only where old_string has one for the same: who escaped the quotes
  alone meant it as it stands, as in `\textbf` and `s/a\n/b/`.
"""

import re

from msgspec import Struct

from maka.tools.edit_place import Found, MatchError, only_one, places

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\"}
_CONTROLS = frozenset("\n\t\r")
_ESCAPE = re.compile(r"\\([ntr\"'\\])")
_TOKEN = re.compile(
    r"""
    \\\\\\\\ | \\\\(?:\\?["'])?                         # a backslash, and the quote that it keeps within quotes
    | (?P<quote>(?:\\?"){3} | (?:\\?'){3} | \\?" | \\' | (?<!\w\w)' | '(?!\w))    # but for an apostrophe in a word
    | (?P<end>(?:\\r)?\\n)
    | (?P<blank>\\[tr])
    """,
    re.VERBOSE,
)


class _Signs(Struct, frozen=True):
    """What a text shows of how it was escaped: the characters that stand there escaped, and those as they are."""

    escaped: frozenset[str]
    real: frozenset[str]

    @property
    def whole(self) -> bool:
        """Whether all of it is escaped: every double quote, every backslash, and no character only here and there.

        Single quotes aren't by most who escape text, and neither are line breaks and tabs by some.
        """
        return not self.escaped & self.real and not self.real & {"\\", '"'}


def unescaped(view: str, old: str, new: str, pairs: bool) -> Found | None:
    """Search for old_string with its escapes resolved; `pairs` says that the file has two-character line ends."""
    plain = _plain(old)
    if pairs:
        plain = plain.replace("\r\n", "\n")
    at = places(view, plain) if plain not in (old, "") else []
    if not at:
        return None
    only_one(at, view, "old_string isn't there exactly; with its escapes resolved it occurs")
    how, end = "old_string was escaped once too often", at[0] + len(plain)
    if "\\" not in new:
        return Found(at[0], end, new, how)
    if not _escaped_alike(old, new):
        raise MatchError(
            "old_string isn't there exactly: it was escaped once too often. It isn't clear whether all of new_string "
            "was, too, so what its backslashes mean isn't: give both exactly as the file has them, without escaping"
        )
    return Found(at[0], end, _plain(new), how + ", and so was new_string; one level of escapes was taken off both")


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPES[match[1]], text)


def _escaped_alike(old: str, new: str) -> bool:
    """Tell whether all of a new text was escaped, and in the way in which the old one was."""
    was, now = _signs(old), _signs(new)
    return (
        was.whole
        and now.whole
        and not was.escaped & now.real
        and not was.real & now.escaped
        and now.real <= was.real | {"'"}
        and now.escaped & _CONTROLS <= was.escaped
        and _doubts(new) <= _doubts(old)
    )


def _signs(text: str) -> _Signs:
    rest = _ESCAPE.sub("", text)
    escaped = frozenset(_ESCAPES[letter] for letter in _ESCAPE.findall(text))
    return _Signs(escaped, frozenset(char for char in _ESCAPES.values() if char in rest))


def _doubts(text: str) -> set[str]:
    r"""Name what in an escaped text may be meant as it stands, by one who escaped the quotes but not the backslashes.

    That is an escape for a control character within quotes on one line, where the text would hold the escape, and one
    for a tab or carriage return that doesn't begin a line (`\textbf`).
    """
    doubts, crossed = set[str](), set[str]()
    opened, behind = "", 0
    for token in _TOKEN.finditer(text):
        quote = (token["quote"] or "").replace("\\", "")
        if quote and opened == quote:
            doubts |= {sign for sign in crossed if len(quote) == 1}
            opened = ""
        elif quote and not opened:
            opened, crossed = quote, set[str]()
        elif token["end"] or token["blank"]:
            crossed = {"in quotes"}
            if token["blank"] and token.start() != behind and text[token.start() - 1] != "\n":
                doubts.add(token[0])
            behind = token.end()
    return doubts
