"""What a sandbox can't hold while a command runs, put right when it has ended: protected names that weren't there.

A file that doesn't exist can't be mounted read-only, and a link can be replaced. So their state is remembered before a
command, and what has appeared under such a name is moved aside afterwards, never deleted. Laws:
- A new repository may stay if nothing in it would make git run anything.
- What a folder hides that a command closed to us isn't taken for missing: the folder is opened.
"""

import os
import re
import secrets
import stat
import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from maka.tools.closed import is_closed, open_again, there
from maka.tools.made import Made

ASIDE = ".maka-aside"
_TRIES = 5
_HARMLESS = re.compile(
    r"\s*(\[core\]|\[user\]|\[init\]|\[branch \"[^\"]*\"\]|\[remote \"[^\"]*\"\]|[#;].*"
    r"|(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|name|email"
    r"|defaultbranch|merge|remote|rebase|fetch|url)\s*=.*)?\s*",
    re.IGNORECASE,
)
_HARMLESS_INNER = re.compile(r"\s*(\[submodule \"[^\"]*\"\]|(worktree|active)\s*=.*)\s*", re.IGNORECASE)
_CONFIG_BYTES_MAX = 64 << 10


class Guard:
    """Remembers paths at its making; `guards` are those of other commands that may run at the same time."""

    def __init__(self, paths: Sequence[str], guards: "Guards") -> None:
        self.before = guards.begin(self, paths)
        self._made = guards.made
        self.is_over = False
        self.stuck: set[str] = set()

    @property
    def is_empty(self) -> bool:
        """Say whether there is nothing to watch."""
        return not self.before

    def changed(self) -> frozenset[str]:
        """Return what has changed and would be moved aside, as it looks at this moment."""
        changed = (path for path, before in self.before.items() if _has_changed(path, before))
        return frozenset(path for path in changed if not self._made.holds(path))

    def put_right(self, paths: Collection[str] | None = None) -> tuple[str, ...]:
        """Move aside what has changed, of some paths or of all; return the paths. What can't be moved is `stuck`.

        The command and all its children must have ended, or what they are just making may be taken from them.
        """
        found = tuple(path for path in (self.before if paths is None else paths) if self._put_right(path))
        self.is_over = self.is_over or paths is None
        return found

    def _put_right(self, path: str) -> bool:
        for _ in range(_TRIES):
            try:
                moved = not self._made.holds(path) and _put_right_once(path, self.before[path])
            except PermissionError as closed:
                open_again(closed.filename or os.path.dirname(path))
            except OSError:  # another command changes the same name at this moment
                pass
            else:
                self.stuck.discard(path)
                return moved
        self.stuck.add(path)
        return False


class Guards:
    """The guards of commands that run at the same time. Any thread.

    Law: what one of them has just made is nobody's state from before. `made` is what is nobody's planting.
    """

    def __init__(self, made: Made | None = None) -> None:
        self.made = made or Made()
        self._lock = threading.Lock()
        self._live: weakref.WeakSet[Guard] = weakref.WeakSet()

    def begin(self, guard: Guard, paths: Sequence[str]) -> dict[str, str | None]:
        """Return the state of each path from before all commands that run now."""
        with self._lock:
            known: dict[str, str | None] = {}
            for other in self._live:
                known.update({} if other.is_over else other.before)
            self._live.add(guard)
            return {path: known[path] if path in known else _state(path) for path in paths}


def _state(path: str) -> str | None:
    """Return a link's target; None for what isn't there. Anything else has appeared meanwhile."""
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return None
    except OSError:
        there(path)  # raises where a closed folder of ours may hide it
        return ""


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
    name = next((name for number in range(1, 100) if not os.path.lexists(name := f"{path}{ASIDE}-{number}")), None)
    name = name or f"{path}{ASIDE}-{secrets.token_hex(8)}"
    try:
        os.rename(path, name)
    except PermissionError:  # the command may have taken away our own right to the folder
        folder = os.path.dirname(path)
        mode = stat.S_IMODE(os.stat(folder).st_mode)
        os.chmod(folder, mode | stat.S_IRWXU)
        try:
            os.rename(path, name)
        finally:
            os.chmod(folder, mode)


def put_repositories_right(before: Mapping[str, str | None], new: Mapping[str, str | None]) -> list[str]:
    """Move aside what makes a repository of a folder that was none, unless git would run nothing for it.

    Both name each `.git`, bare repository and submodule with its folder; `new` are those that have come, of which a
    worktree or submodule of a repository from before is judged as that.
    """
    known = frozenset(folder for folder in before.values() if folder is not None)
    moved: list[str] = []
    for path, repository in new.items():
        name = path if os.path.basename(path) == ".git" else os.path.join(path, "HEAD")
        with suppress(OSError):
            if (repository is None or not _is_harmless(repository, known)) and os.path.lexists(name):
                _move_aside(name)
                moved.append(name)
    return moved


def put_names_right(planted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Move aside what has come under a protected name; return what was moved, and what could not be."""
    moved: list[str] = []
    stuck: list[str] = []
    for path in planted:
        with suppress(FileNotFoundError):  # it went by itself
            try:
                _move_aside(path)
                moved.append(path)
            except FileNotFoundError:
                raise
            except OSError:
                stuck.append(path)
    return moved, stuck


def _is_harmless(repository: str, known: Collection[str] = ()) -> bool:
    try:
        return not is_closed(repository) and _holds_nothing_that_runs(repository, known)
    except PermissionError:  # nobody can say as long as it is closed to us
        return False


def _holds_nothing_that_runs(repository: str, known: Collection[str]) -> bool:
    """Say whether a new repository holds no hook, no pointer to another place, and a configuration of plain values.

    One inside of a known repository may point to that, as a linked worktree does, and name its own worktree.
    """
    if not stat.S_ISDIR(os.lstat(repository).st_mode):
        return False
    inner = any(repository.startswith(f"{folder}/") for folder in known)
    pointer = os.path.join(repository, "commondir")
    if os.path.lexists(pointer) and not (inner and _pointed(pointer) in known):
        return False
    # A submodule's own submodules are judged by the `.git` that names them.
    unwanted = ("config.worktree",) if inner else ("config.worktree", "modules")
    if any(os.path.lexists(os.path.join(repository, name)) for name in unwanted):
        return False
    hooks = os.path.join(repository, "hooks")
    if os.path.islink(hooks) or (
        os.path.isdir(hooks) and any(not name.endswith(".sample") for name in os.listdir(hooks))
    ):
        return False
    config = os.path.join(repository, "config")
    if not os.path.lexists(config):
        return True
    text = _text(config)
    return text is not None and all(_is_plain(line, inner) for line in text.split("\n"))


def _is_plain(line: str, inner: bool) -> bool:
    if line.endswith("\\") or "ext::" in line:
        return False
    return bool(_HARMLESS.fullmatch(line) or (inner and _HARMLESS_INNER.fullmatch(line)))


def _pointed(pointer: str) -> str | None:
    text = _text(pointer)
    if text is None or "\0" in text:
        return None
    # No other sign is cut off: to git a blank at the end is a part of the name.
    return os.path.realpath(os.path.join(os.path.dirname(pointer), text.rstrip("\r\n")))


def _text(path: str) -> str | None:
    """Return the text of a small regular file."""
    info = os.lstat(path)
    if not stat.S_ISREG(info.st_mode) or info.st_size > _CONFIG_BYTES_MAX:
        return None
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
