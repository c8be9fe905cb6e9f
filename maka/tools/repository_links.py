"""The links inside of a repository's own folder: git writes through each, wherever it leads.

A commit's message, a reflog's line or a fetched head then lands outside of the session, with words that a model chose;
and a link among the submodules leads to one that nobody looked at. git makes none of them by itself.
"""

import os
import re
from collections.abc import Iterable
from time import monotonic

from maka.tools.identity import Identity, identity_of
from maka.tools.repositories import is_surely_git_folder, kinds_in

_FOLDERS_MAX = 20_000
_OBJECTS = re.compile("[0-9a-f]{2}")
"""Folders whose files have the names of what they hold."""


def links_of(repositories: Iterable[str], until_s: float) -> tuple[dict[str, Identity], bool]:
    """Return the links, and whether all folders were looked into until then.

    Single objects aren't: git replaces none. A link to a name beside it leads nowhere else.
    """
    found: dict[str, Identity] = {}
    waiting = list(dict.fromkeys(repositories))
    met = set(waiting)
    whole = {os.path.join(folder, "objects") for folder in waiting if is_surely_git_folder(folder)}
    for _ in range(_FOLDERS_MAX):
        if not waiting or monotonic() > until_s:
            break
        folder = waiting.pop()
        for name, kind in kinds_in(folder):
            path = os.path.join(folder, name)
            if kind == "link" and (its := identity_of(path)) is not None and its.is_link and not _leads_beside(path):
                found[path] = its
            elif kind == "folder" and path not in met and not (folder in whole and _OBJECTS.fullmatch(name)):
                met.add(path)
                waiting.append(path)
    return found, not waiting


def _leads_beside(link: str) -> bool:
    """Say so of what editors make, to lock a file."""
    try:
        target = os.readlink(link)
    except OSError:  # it changes at this moment
        return False
    return "/" not in target and target not in (".", "..")
