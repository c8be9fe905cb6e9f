"""The links inside of a repository's own folder: git writes through each, wherever it leads.

A commit's message, a reflog's line or a fetched head then lands outside of the session, with words that a model chose;
and a link among the submodules leads to one that nobody looked at. git makes none of them by itself.
"""

import os
from collections.abc import Iterable
from time import monotonic

from maka.tools.identity import Identity, identity_of
from maka.tools.repositories import kinds_in

_FOLDERS_MAX = 20_000


def links_of(repositories: Iterable[str], until_s: float) -> tuple[dict[str, Identity], bool]:
    """Return the links, and whether all folders were looked into until then. Objects aren't: git replaces none."""
    found: dict[str, Identity] = {}
    waiting = list(dict.fromkeys(repositories))
    met = set(waiting)
    for _ in range(_FOLDERS_MAX):
        if not waiting or monotonic() > until_s:
            break
        folder = waiting.pop()
        for name, kind in kinds_in(folder):
            path = os.path.join(folder, name)
            if kind == "link" and (its := identity_of(path)) is not None and its.is_link:
                found[path] = its
            elif kind == "folder" and path not in met and not _holds_objects(folder, name):
                met.add(path)
                waiting.append(path)
    return found, not waiting


def _holds_objects(folder: str, name: str) -> bool:
    """Say whether a folder's files have the names of what they hold, and no folder is in it."""
    return os.path.basename(folder) == "objects" and (len(name) == 2 or name == "pack")
