"""PURE: what a sandbox probably denied, read from what a command printed. A likely reason, never a proof."""

import os.path
import re
from collections.abc import Callable
from typing import Literal

from maka.contracts.boundary import Expansion, FileEntry

Kind = Literal["folder", "other", "missing"]
_SCANNED_CHARS = 16_000
_DENIED = re.compile(r"read-only file system|permission denied|operation not permitted|EROFS|EACCES", re.IGNORECASE)
_NETWORK = re.compile(
    r"network is unreachable|could not resolve host|temporary failure in name resolution|name or service not known"
    r"|ENETUNREACH|EAI_AGAIN|no route to host",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"['\"‘`]([^'\"’`]+)['\"’`]")
_PLAIN = re.compile(r"(?:^|[\s:(])((?:/|\.{1,2}/|~/)[^\s:'\",;)]+)")

_PROGRAM = re.compile(r"^\s*/\S+: (?:line \d+: |\d+: )?")
"""Who says it, which isn't what was denied: `/usr/bin/bash: line 1: …`."""


def likely(output: str, cwd: str, kind: Callable[[str], Kind], allowed: Callable[[str], bool]) -> Expansion | None:
    """Return the expansion that a failed command seems to have lacked, None where its output doesn't say.

    `kind` says what a path is, `allowed` whether it may be written already: then the sandbox wasn't what denied it.
    """
    text = output[-_SCANNED_CHARS:]
    for line in reversed(text.splitlines()):
        if not _DENIED.search(line):
            continue
        for word in _words(line):
            path = os.path.normpath(os.path.join(cwd, word))
            if not allowed(path) and (entry := _entry(path, kind)) is not None:
                return Expansion(filesystem=(entry,))
    return Expansion(network=True) if _NETWORK.search(text) else None


def _words(line: str) -> list[str]:
    told = _PROGRAM.sub("", line)
    return [word for word in (*_QUOTED.findall(told), *_PLAIN.findall(told)) if "\0" not in word]


def _entry(path: str, kind: Callable[[str], Kind]) -> FileEntry | None:
    """Name the path itself where it is there; a sandbox can't let a command make one, so else its folder."""
    while (found := kind(path)) == "missing":
        path = os.path.dirname(path)
    if path == "/":
        return None
    return FileEntry(path=path, access="write", scope="subtree" if found == "folder" else "exact")
