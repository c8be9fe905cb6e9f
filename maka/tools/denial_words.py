"""PURE: how programs say that something was denied to them: which words, and which names stand beside them.

Laws:
- What a program printed proves nothing: who looks at the names here has to look at what they are, too.
- A line has the shape of an error where the reason ends it, or where only what it is about follows.
"""

import re
from typing import Literal

from msgspec import Struct

from maka.tools.denial_python import called, made_its_name_up

Why = Literal["read_only", "denied", "busy", "apart", "missing"]

_SCANNED_CHARS, _SAID_MAX, _NAMES_MAX, _BEFORE_LINES = 16_000, 64, 24, 4
_REASONS: dict[Why, str] = {
    "read_only": r"read-only file ?system|\bEROFS\b",
    "denied": r"permission denied|operation not permitted|access denied|\bEACCES\b|\bEPERM\b",
    "busy": r"device or resource busy|resource busy or locked|\bEBUSY\b",
    "apart": r"(?:invalid )?cross-device link(?: not permitted)?|\bEXDEV\b",
    "missing": r"no such file or directory|\bENOENT\b",
}
_REASON = re.compile("|".join(f"(?P<{why}>{words})" for why, words in _REASONS.items()), re.IGNORECASE)
_QUOTED = re.compile(r"""(?<!\w)(?:'((?:[^'\\]|\\.)+)'|"((?:[^"\\]|\\.)+)"|‘([^’]+)’|`([^`']+)['`])(?!\w)""")
_QUOTE = re.compile(r"['\"‘’`]")
_ESCAPE = re.compile(r"\\([\\'\"])")
_RENAMES = re.compile(r"\bmov(?:e|ing)\b|\brenam|\breplac", re.IGNORECASE)
_COPIES = re.compile(r"\bcop(?:y|ying|ies|yfile)\b|\bclon(?:e|ing)\b", re.IGNORECASE)
_TWO = re.compile(r"'' (?:[-=]>|to) ''|\blink(?:ing)? '' ''|\bsymlink '' ''")
_LINKED_FIRST = re.compile(r"^(?:\S*/)?(?:ln|cp|mv|install|rsync): .*link '' (?:[-=]>|to) ''")
"""These say first what was to be made, and then what it leads to."""

_LINKED_TO = re.compile(r"\b(?:sym|hard |symbolic )?link to ''")
_FOLDERS = re.compile(
    r"\bmkdirs?\b|\bcreat(?:e|ing) (?:\w+ )?(?:director(?:y|ies)|folder)|\bwork tree dir", re.IGNORECASE
)
_A_LINK = re.compile(r"\b(?:sym|hard |symbolic )?link\b", re.IGNORECASE)
_PASSING = re.compile(r"\btemp(?:orary)? (?:file|name)|\bmks?temp\b", re.IGNORECASE)
_MOVES = re.compile(r"\b(?:re)?mov(?:e|ing)\b|\bunlink|\brename|\brmdir\b|\bdelet|\block\b|[-=]>", re.IGNORECASE)
_LINKS = re.compile(r"\bhard link\b|\blink(?:at)?\b", re.IGNORECASE)
_READS = re.compile(
    r"^(?:cat|find|grep|egrep|rg|ls|du|head|tail|less|more|wc|stat|file|diff|cmp|tree|od|xxd|\w+sum|readlink): "
    r"|cannot (?:open directory|read|access|stat)\b|for reading\b"
)
_MAKES = re.compile(r"\bcreat|\btouch\b|\bmkdir\b|\bwrit(?:e|ing)\b|\bmkstemp\b|\bsave\b|\bmaking\b", re.IGNORECASE)
_AFTER = re.compile(
    r"(?:\s*[(:,]?\s*(?:os error )?\d*\)?)?[\s.)\]}]*$|:\s*['\"‘`]|,\s*\w+\s+['\"‘`]| at \S+ line \d+\.?$|:?\s+/\S+$"
)
_AROUND = " \t:;,.-([{=>"
_BROKEN = "Warning: "
"""With this curl goes on with a line that it broke."""

_FOLLOWING = re.compile(r"^:?\s+(/\S+)$")
_FRAME = re.compile(r'\s+(?:File "|at |\^)')
_NO_NAME = re.compile(r"E[A-Z]{3,}|(?:error|fatal|warning|failed|denied|err|code|errno)!?", re.IGNORECASE)
_MARKS = "\"'‘’`()[],;:"
_PROGRAM = re.compile(r"^(?:\S+|[\w.-]+ (?:error|ERR!)(?: \S+)?)$")

_NETWORK = re.compile(
    r"network is unreachable|could(?: not|n't) resolve|temporary failure (?:in name resolution|resolving)"
    r"|no route to host|name or service not known|nodename nor servname|unable to resolve host|failed to lookup address"
    r"|dial (?:tc|ud)p\S*: lookup|lookup \S+ on \S+: |ENETUNREACH|EAI_AGAIN|getaddrinfo E\w+|ENOTFOUND|EHOSTUNREACH"
    r"|failed to establish a new connection|\(from versions: none\)",
    re.IGNORECASE,
)
_REFUSED = re.compile(r"connection refused|ECONNREFUSED|couldn't connect to server|could not connect to", re.IGNORECASE)
_UNIX = re.compile(
    r"AF_UNIX|unix(?: domain)? socket|(?:dial|connect|listen) unix|unix:/|\.sock\b|\.s\.PGSQL|docker daemon"
    r"|could not create socket|_socket\.socket(?:pair)?\b|(?:listen|connect) EACCES|multiprocessing/connection",
    re.IGNORECASE,
)


class Said(Struct, frozen=True, kw_only=True):
    """One line that says why something didn't work. `names` are what it may be about, the likeliest first.

    `sure` are so many of them that stand in quotes. `moves` says that a name was to come or go, `makes` that
    something was to be written, `folder` that it was to be a folder, `link` that it was to be a link, `passing` that
    the program made its name up, `reads` that nothing was. `source` is what was to be copied: that is read alone, and
    none of the names.
    """

    why: Why
    names: tuple[str, ...]
    sure: int
    reads: bool
    moves: bool
    makes: bool
    folder: bool = False
    link: bool = False
    passing: bool = False
    source: str = ""


def denials(text: str, *, strict: bool = False, command: str = "") -> list[Said]:
    """Return what the lines of an output say, the last one first; with `strict` of those alone that look as errors.

    Where a line doesn't say what was done, the words of the `command` may.
    """
    lines = _whole(text[-_SCANNED_CHARS:].splitlines())
    found: list[Said] = []
    for at in reversed(range(len(lines))):
        reason = _last(lines[at])
        if reason is None or (strict and not _AFTER.match(lines[at][reason.end() :])):
            continue
        found.append(_said(lines, at, reason, command))
        if len(found) == _SAID_MAX:
            break
    return found


def _whole(lines: list[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        if line.startswith(_BROKEN) and found and _BROKEN in found[-1]:
            found[-1] += line.removeprefix(_BROKEN)
        else:
            found.append(line)
    return found


def lacks_network(text: str, *, strict: bool = False) -> bool:
    """Say whether a program got nowhere. Nobody may have listened yet, so with `strict` a refusal says nothing."""
    tail = text[-_SCANNED_CHARS:]
    return _NETWORK.search(tail) is not None or (not strict and _REFUSED.search(tail) is not None)


def lacks_unix_socket(text: str) -> bool:
    """Say whether a program was probably denied a unix socket: the reason stands beside words for one."""
    lines = text[-_SCANNED_CHARS:].splitlines()
    for at, line in enumerate(lines):
        reason = _last(line)
        if reason is not None and reason.lastgroup == "denied":
            near = lines[max(at - _BEFORE_LINES, 0) : at + 1]
            if any(_UNIX.search(one) for one in near):
                return True
    return False


def _last(line: str) -> re.Match[str] | None:
    """Return the reason that a line ends with, or else its first; what is quoted is none."""
    quoted = [one.span() for one in _QUOTED.finditer(line)]
    found = [one for one in _REASON.finditer(line) if not any(start <= one.start() < end for start, end in quoted)]
    return None if not found else found[-1] if len(found) == 1 or _AFTER.match(line[found[-1].end() :]) else found[0]


def _said(lines: list[str], at: int, reason: re.Match[str], command: str) -> Said:
    line = lines[at]
    quoted = _quoted(line)
    is_end = _AFTER.match(line[reason.end() :]) is not None
    about = _QUOTED.sub("''", line[: reason.start()]) + " " + _QUOTED.sub("''", line[reason.end() :])
    about += " " + called(lines, at, about, command)
    # A hard link is held to one mount, and is refused for that also where the place is closed, too.
    is_link = _LINKS.search(about) is not None and "symbolic" not in about and reason.lastgroup != "missing"
    made, source = (quoted, "") if is_link or reason.lastgroup == "apart" else _made(about, quoted)
    others = [*_plain(line[: reason.start()], is_end=is_end), *_FOLLOWING.findall(line[reason.end() :])]
    # Where names stand in quotes, what still has a quote in it is a piece of the sentence.
    others = [name for name in others if not (quoted and _QUOTE.search(name))]
    names = made + [name for name in others if not any(one in name for one in quoted if one not in made)]
    if not (names or quoted) or not re.search(r"\w", about + "".join(quoted)):
        # Some name what it is about in a line of its own, before they tell why.
        before = [one for one in lines[max(at - _BEFORE_LINES, 0) : at] if one.strip() and not _FRAME.match(one)]
        names += [name for one in reversed(before) for name in _quoted(one)]
        about = " ".join((about, *before))
    moves = not source and _MOVES.search(about) is not None
    makes = bool(source) or _MAKES.search(about) is not None
    return Said(
        why="apart" if is_link else _why(reason),
        names=tuple(name for name in dict.fromkeys(names) if _may_be_name(name))[:_NAMES_MAX],
        sure=len(made),
        reads=_READS.search(line) is not None and not (moves or makes),
        moves=moves,
        makes=makes,
        folder=_FOLDERS.search(about) is not None,
        link=_A_LINK.search(about) is not None,
        passing=_PASSING.search(about) is not None or made_its_name_up(lines, at),
        source=source,
    )


def _made(about: str, quoted: list[str]) -> tuple[list[str], str]:
    """Return which of the quoted names were to come or to go, and what was to be copied there.

    What a link leads to needs nothing. Of two names that nobody says more about the last one is named: should the first
    one have to go, too, that is told next.
    """
    if len(quoted) == 1 and _LINKED_TO.search(about):
        return [], ""
    if len(quoted) != 2 or _TWO.search(about) is None or _RENAMES.search(about):
        return quoted, ""
    if _COPIES.search(about):
        return quoted[1:], quoted[0]
    return (quoted[:1] if _LINKED_FIRST.search(about) else quoted[1:]), ""


def _may_be_name(name: str) -> bool:
    return bool(name) and "\0" not in name and not (_NO_NAME.fullmatch(name) or _REASON.fullmatch(name))


def _why(reason: re.Match[str]) -> Why:
    return next(why for why in _REASONS if reason.lastgroup == why)


def _quoted(line: str) -> list[str]:
    found = (next(filter(None, match.groups()), "") for match in _QUOTED.finditer(line))
    return [_ESCAPE.sub(r"\1", name) for name in found]


def _plain(before: str, *, is_end: bool) -> list[str]:
    """Return what may be a name without quotes: the longest first, nearest to the reason.

    Who says it isn't what was denied: `/usr/bin/bash: line 1: …`.
    """
    is_list = is_end and before.rstrip().endswith(":")
    parts = [part.strip() for part in before.rstrip(_AROUND).split(": ") if part.strip()]
    by_someone = len(parts) > 1 and _PROGRAM.match(parts[0]) is not None
    if by_someone:
        parts = parts[1:]
    found: list[str] = []
    for part in reversed(parts):
        words = part.split(" ")
        found += [" ".join(words[at:]).strip(_MARKS) for at in range(min(len(words), 8))]
    words = before.split()
    found += [word.strip(_MARKS) for word in words[by_someone:] if "/" in word]
    # A word without a folder in it is a name only right before the reason, and after who says it.
    plain = found[: min(len(parts[-1].split(" ")), 8)] if parts and is_list else []
    return [name for name in found if "/" in name] + [name for name in plain if "/" not in name]
