"""What a sandbox can't hold while a command runs, put right when it has ended: protected names that weren't there.

A file that doesn't exist can't be mounted read-only, and a link can be replaced. So their state is remembered before a
command, and what has appeared under such a name is moved aside afterwards, never deleted. Law: a new repository may
stay if nothing in it would make git run anything.
"""

import os
import re
import stat
from collections.abc import Collection, Sequence
from contextlib import suppress

ASIDE = ".maka-aside"
_TRIES = 5
_HARMLESS = re.compile(
    r"\s*(\[core\]|\[user\]|\[init\]|\[branch \"[^\"]*\"\]|\[remote \"[^\"]*\"\]|[#;].*"
    r"|(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|name|email"
    r"|defaultbranch|merge|remote|rebase|fetch|url)\s*=.*)?\s*",
    re.IGNORECASE,
)
_CONFIG_BYTES_MAX = 64 << 10


class Guard:
    """Remembers paths at its making."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._before = {path: _state(path) for path in paths}

    @property
    def is_empty(self) -> bool:
        """Say whether there is nothing to watch."""
        return not self._before

    def changed(self) -> frozenset[str]:
        """Return what has changed and would be moved aside, as it looks at this moment."""
        return frozenset(path for path, before in self._before.items() if _has_changed(path, before))

    def put_right(self, paths: Collection[str] | None = None) -> tuple[str, ...]:
        """Move aside what has changed, of some paths or of all; return the paths.

        The command and all its children must have ended, or what they are just making may be taken from them.
        """
        given = self._before if paths is None else paths
        return tuple(path for path in given if _put_right(path, self._before[path]))


def _state(path: str) -> str | None:
    """Return a link's target; None for what isn't there. Anything else has appeared meanwhile."""
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return None
    except OSError:
        return ""


def _put_right(path: str, before: str | None) -> bool:
    for _ in range(_TRIES):
        with suppress(OSError):  # another command changes the same name at this moment
            return _put_right_once(path, before)
    return True


def _has_changed(path: str, before: str | None) -> bool:
    try:
        new_repository = before is None and os.path.basename(path) == ".git"
        return _state(path) != before and not (new_repository and _is_harmless(path))
    except OSError:  # it changes at this moment
        return True


def _put_right_once(path: str, before: str | None) -> bool:
    if _state(path) == before or (before is None and os.path.basename(path) == ".git" and _is_harmless(path)):
        return False
    if os.path.lexists(path):
        _move_aside(path)
    if before:
        with suppress(OSError):
            os.symlink(before, path)
    return True


def _move_aside(path: str) -> None:
    for number in range(1, 1_000):
        name = f"{path}{ASIDE}-{number}"
        if not os.path.lexists(name):
            os.rename(path, name)
            return


def _is_harmless(repository: str) -> bool:
    """Say whether a new repository holds no hook, no pointer to another place, and a configuration of plain values."""
    if not stat.S_ISDIR(os.lstat(repository).st_mode):
        return False
    if any(os.path.lexists(os.path.join(repository, name)) for name in ("commondir", "config.worktree", "modules")):
        return False
    hooks = os.path.join(repository, "hooks")
    if os.path.islink(hooks) or (
        os.path.isdir(hooks) and any(not name.endswith(".sample") for name in os.listdir(hooks))
    ):
        return False
    config = os.path.join(repository, "config")
    if not os.path.lexists(config):
        return True
    if not stat.S_ISREG(os.lstat(config).st_mode) or os.lstat(config).st_size > _CONFIG_BYTES_MAX:
        return False
    with open(config, encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\n")
    return all(_HARMLESS.fullmatch(line) and not line.endswith("\\") and "ext::" not in line for line in lines)
