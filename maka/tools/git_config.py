"""PURE: git's configuration files, read as git reads them, and which settings of one make git run nothing.

Source: the section "Syntax" of git-config's manual page.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import lru_cache

from msgspec import Struct

_SECTION = re.compile(r"\[\s*([A-Za-z0-9.-]+)(?:\s+\"((?:[^\"\\\n]|\\.)*)\")?\s*\]")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"'}
_BLANKS = " \t\r"

_PLAIN_SETTINGS = {
    "core": (
        "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks sparsecheckout "
        "sparsecheckoutcone autocrlf eol safecrlf abbrev quotepath longpaths untrackedcache splitindex preloadindex "
        "commitgraph"
    ),
    "extensions": (
        "objectformat compatobjectformat refstorage partialclone preciousobjects relativeworktrees worktreeconfig"
    ),
    "user": "name email",
    "init": "defaultbranch",
    "branch": "remote merge rebase description pushremote sort autosetuprebase autosetupmerge",
    "credential": "username",
    "checkout": "defaultremote",
    "feature": "manyfiles",
    "index": "version",
    "remote": (
        "url pushurl pushdefault fetch push mirror tagopt prune promisor partialclonefilter skipdefaultupdate "
        "skipfetchall"
    ),
    "submodule": "url active branch ignore",
    "lfs": "repositoryformatversion access locksverify",
    "pull": "rebase ff",
    "push": "default autosetupremote followtags",
    "fetch": "prune prunetags writecommitgraph",
    "gc": "auto autodetach",
    "maintenance": "auto strategy",
    "rerere": "enabled autoupdate",
    "rebase": "autostash autosquash updaterefs",
    "merge": "ff conflictstyle",
}
_PLAIN_SECTIONS = ("color", "advice")
_PLAIN = frozenset((section, key) for section, keys in _PLAIN_SETTINGS.items() for key in keys.split())


_NOTED = ("vscode-", "gh-", "gk-", "github-")
"""What editors and servers' programs note of branches and remotes: git doesn't read it."""

_REMOTES = frozenset(
    {
        *(("remote", "url"), ("remote", "pushurl"), ("remote", "pushdefault")),
        *(("branch", "remote"), ("branch", "pushremote"), ("submodule", "url")),
    }
)
_KNOWN_MAX = 16
_URL = re.compile(r"(?:https?|ssh|git|git\+ssh)://")
_HOST = re.compile(r"(?:[\w.+-]+@)?\w[\w.-]*:")


class Setting(Struct, frozen=True):
    """One line of a configuration: section and key in lower case, `value` as git understands it, `raw` as it stands."""

    section: str
    subsection: str
    key: str
    value: str
    raw: str


class SyntaxFault(ValueError):
    """A file that git refuses to read."""


@lru_cache(maxsize=_KNOWN_MAX)
def settings_of(text: str) -> tuple[Setting, ...]:
    """Return a file's settings, those before a fault where there is one: git refuses such a file.

    All worktrees of a repository have the same ones: a few texts are known again.
    """
    found: list[Setting] = []
    with suppress(SyntaxFault):
        found.extend(_settings(text))
    return tuple(found)


def is_plain(text: str, *, but: frozenset[tuple[str, str]] = frozenset()) -> bool:
    """Say whether nothing that a file says makes git run, read or write anything else. `but` are known to be plain."""
    try:
        return all((one.section, one.key) in but or _is_plain(one) for one in _settings(text))
    except SyntaxFault:
        return False


def differs_plainly(old: str, new: str) -> bool:
    """Say whether a newer version of a file makes git run, read or write nothing that the older one didn't.

    What isn't plain may be taken away, but not changed in a sign: git's versions read some values differently.
    """
    try:
        before = iter([_as_it_stands(one) for one in settings_of(old)])
        found = list(_settings(new))
        remotes = {one.subsection for one in found if (one.section, one.key) == ("remote", "url")}
        return all(_as_it_stands(one) in before for one in found if not (_is_plain(one) and _is_no_path(one, remotes)))
    except SyntaxFault:
        return False


def _as_it_stands(one: Setting) -> tuple[str, str, str, str]:
    return one.section, one.subsection, one.key, one.raw


def _is_plain(one: Setting) -> bool:
    if "ext::" in one.value or ("::" in one.value and (one.section, one.key) in _REMOTES):
        return False  # a program of that name
    if one.section in ("branch", "remote") and one.key.startswith(_NOTED):
        return True
    if (one.section, one.key) == ("submodule", "update"):
        return not one.value.startswith("!")
    return one.section in _PLAIN_SECTIONS or (one.section, one.key) in _PLAIN


def _is_no_path(one: Setting, remotes: Collection[str]) -> bool:
    """Say whether a remote isn't a folder of this machine, whose hooks would run. `remotes` are those with a name."""
    if (one.section, one.key) not in _REMOTES or one.value == ".":
        return True
    if "://" in one.value:
        return _URL.match(one.value) is not None
    is_name = one.key in ("remote", "pushremote", "pushdefault") and one.value in remotes
    return is_name or _HOST.match(one.value) is not None


def _settings(text: str) -> Iterator[Setting]:
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if "\0" in text:  # to git it ends a value, and to the system a path
        text = text[: text.index("\0")]
        yield from _settings(text)
        raise SyntaxFault
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
            value, end = _value(text, match.end())
            yield Setting(section, subsection, match[0].lower(), value, text[at:end])
            at = end


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
