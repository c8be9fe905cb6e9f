"""A repository that a command made, or settings that were replaced: would git run anything for it?

Law: it is harmless if it holds no hook, no pointer to settings elsewhere, and a configuration of plain values alone.
"""

import os
import stat
from collections.abc import Collection

from maka.tools.closed import is_closed
from maka.tools.git_config import differs_plainly, is_plain, settings_of
from maka.tools.identity import Content, regular_bytes
from maka.tools.policy import is_under

_CONFIG_BYTES_MAX = 64 << 10
_WORKTREE = frozenset({("core", "worktree")})


def is_harmless(repository: str, known: Collection[str] = (), roots: Collection[str] = ()) -> bool:
    """Say whether a new repository may stay. Raises OSError where it changes meanwhile.

    One inside of a `known` repository may point to that, as a linked worktree does, and name its own worktree, as a
    submodule does, where that lies in one of the `roots`.
    """
    try:
        return not is_closed(repository) and _holds_nothing_that_runs(repository, known, roots)
    except PermissionError:  # nobody can say as long as it is closed to us
        return False


def runs_the_same(was: Content | None, now: Content | None) -> bool:
    """Say whether a newer version of a repository's settings makes git run what the older one did."""
    if was is None or now is None or was.data is None or now.data is None or not (was.is_file and now.is_file):
        return False
    old, new = (data.decode("utf-8", "surrogateescape") for data in (was.data, now.data))
    return differs_plainly(old, new)


def _holds_nothing_that_runs(repository: str, known: Collection[str], roots: Collection[str]) -> bool:
    if not stat.S_ISDIR(os.lstat(repository).st_mode):
        return False
    inner = any(repository.startswith(f"{folder}/") for folder in known)
    pointer = os.path.join(repository, "commondir")
    if os.path.lexists(pointer) and not (inner and _pointed(pointer) in known):
        return False
    for name in ("remotes", "branches"):
        if os.path.lexists(old := os.path.join(repository, name)) and not (os.path.isdir(old) and not os.listdir(old)):
            return False  # where remotes were before they were settings
    hooks = os.path.join(repository, "hooks")
    if os.path.islink(hooks) or (
        os.path.isdir(hooks) and any(not name.endswith(".sample") for name in os.listdir(hooks))
    ):
        return False
    return all(_is_plain_file(os.path.join(repository, name), inner, roots) for name in ("config", "config.worktree"))


def _is_plain_file(config: str, inner: bool, roots: Collection[str]) -> bool:
    if not os.path.lexists(config):
        return True
    text = _text(config)
    if text is None or not is_plain(text, but=_WORKTREE if inner else frozenset()):
        return False
    worktrees = (one.value for one in settings_of(text) if (one.section, one.key) == ("core", "worktree"))
    folders = (os.path.realpath(os.path.join(os.path.dirname(config), value)) for value in worktrees)
    return all(any(is_under(folder, root) for root in roots) for folder in folders)


def _pointed(pointer: str) -> str | None:
    text = _text(pointer)
    if text is None or "\0" in text:
        return None
    # No other sign is cut off: to git a blank at the end is a part of the name.
    return os.path.realpath(os.path.join(os.path.dirname(pointer), text.rstrip("\r\n")))


def _text(path: str) -> str | None:
    """Return the text of a small regular file: a command that still runs may swap it for anything at this moment."""
    data = regular_bytes(path, _CONFIG_BYTES_MAX)
    return None if data is None else data.decode("utf-8", "surrogateescape")
