"""PURE: git's configuration files, read as git reads them, and which settings of one make git run nothing.

Source: the section "Syntax" of git-config's manual page.
"""

import re
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct

_SECTION = re.compile(r"\[\s*([A-Za-z0-9.-]+)(?:\s+\"((?:[^\"\\\n]|\\.)*)\")?\s*\]")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"'}
_BLANKS = " \t\r\f\v"

_PLAIN_SETTINGS = {
    "core": (
        "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks sparsecheckout "
        "sparsecheckoutcone autocrlf eol safecrlf abbrev quotepath longpaths untrackedcache splitindex preloadindex"
    ),
    "extensions": (
        "objectformat compatobjectformat refstorage partialclone preciousobjects relativeworktrees worktreeconfig"
    ),
    "user": "name email",
    "init": "defaultbranch",
    "branch": "remote merge rebase description pushremote",
    "remote": "url pushurl fetch push mirror tagopt prune promisor partialclonefilter skipdefaultupdate skipfetchall",
    "submodule": "url active branch",
    "lfs": "repositoryformatversion access",
    "pull": "rebase ff",
    "push": "default",
    "fetch": "prune",
    "gc": "auto",
}
_PLAIN = frozenset((section, key) for section, keys in _PLAIN_SETTINGS.items() for key in keys.split())


class Setting(Struct, frozen=True):
    """One line of a configuration: section and key in lower case, `value` as git understands it."""

    section: str
    subsection: str
    key: str
    value: str


class SyntaxFault(ValueError):
    """A file that git refuses to read."""


def settings_of(text: str) -> list[Setting]:
    """Return a file's settings, those before a fault where there is one: git refuses such a file."""
    found: list[Setting] = []
    with suppress(SyntaxFault):
        found.extend(_settings(text))
    return found


def is_plain(text: str, *, but: frozenset[tuple[str, str]] = frozenset()) -> bool:
    """Say whether nothing that a file says makes git run, read or write anything else. `but` are known to be plain."""
    try:
        return all((one.section, one.key) in but or _is_plain(one) for one in _settings(text))
    except SyntaxFault:
        return False


def differs_plainly(old: str, new: str) -> bool:
    """Say whether a newer version of a file makes git run, read or write what the older one did, and nothing else."""
    try:
        return [one for one in _settings(new) if not _is_plain(one)] == [
            one for one in _settings(old) if not _is_plain(one)
        ]
    except SyntaxFault:
        return False


def _is_plain(one: Setting) -> bool:
    return (one.section, one.key) in _PLAIN and "ext::" not in one.value


def _settings(text: str) -> Iterator[Setting]:
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    at, section, subsection = 0, "", ""
    while at < len(text):
        sign = text[at]
        if sign in _BLANKS or sign == "\n":
            at += 1
        elif sign in "#;":
            at = _line_end(text, at)
        elif sign == "[":
            match = _SECTION.match(text, at)
            if match is None:
                raise SyntaxFault
            section, _, old = match[1].lower().partition(".")
            subsection = old if match[2] is None else re.sub(r"\\(.)", r"\1", match[2])
            at = match.end()
        else:
            match = _KEY.match(text, at)
            if match is None or not section:
                raise SyntaxFault
            value, at = _value(text, match.end())
            yield Setting(section, subsection, match[0].lower(), value)


def _value(text: str, at: int) -> tuple[str, int]:
    """Read what follows a key, to the end of its line."""
    while at < len(text) and text[at] in " \t":
        at += 1
    if at >= len(text) or text[at] in "\n#;":
        return "", _line_end(text, at)
    if text[at] != "=":
        raise SyntaxFault
    signs: list[str] = []
    kept, quoted = 0, False
    at += 1
    while at < len(text) and text[at] != "\n":
        sign = text[at]
        at += 1
        if sign == "\\":
            following = text[at : at + 1]
            at += 1
            if following == "\n":
                continue
            if following not in _ESCAPES:
                raise SyntaxFault
            signs.append(_ESCAPES[following])
        elif sign == '"':
            quoted = not quoted
            kept = len(signs)
            continue
        elif sign in "#;" and not quoted:
            at = _line_end(text, at)
            break
        elif sign in _BLANKS and not quoted:
            if signs:
                signs.append(sign)
            continue
        else:
            signs.append(sign)
        kept = len(signs)
    if quoted:
        raise SyntaxFault
    return "".join(signs[:kept]), at


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end
