"""An old_string that was escaped once too often, and what its new_string means then. Pure."""

import re

from maka.tools.edit_place import Found, MatchError, only_one, places

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\"}
_ESCAPE = re.compile(r"\\([ntr\"'\\])")


def unescaped(view: str, old: str, new: str) -> Found | None:
    """Search for old_string with its escapes resolved."""
    plain = _plain(old)
    at = places(view, plain) if plain not in (old, "") else []
    if not at:
        return None
    only_one(at, view, "old_string isn't there exactly; with its escapes resolved it occurs")
    how, end = "old_string was escaped once too often", at[0] + len(plain)
    same = _plain(new, only=frozenset(_ESCAPE.findall(old)))
    if "\n" in new and same != new:
        raise MatchError(
            "old_string isn't there exactly: it was escaped once too often. new_string has the same escapes and real "
            "line breaks, so what it means isn't clear: give both exactly as the file has them, without escaping"
        )
    if same != new:
        return Found(at[0], end, same, how + ", and so was new_string; the same escapes were resolved in both")
    return Found(at[0], end, new, how)


def _plain(text: str, only: frozenset[str] = frozenset(_ESCAPES)) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPES[match[1]] if match[1] in only else match[0], text)
