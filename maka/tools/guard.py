"""What a sandbox can't hold while a command runs, put right when it has ended: protected names that weren't there.

A file that doesn't exist can't be mounted read-only, and a link can be replaced. So their state is remembered before a
command, and what has appeared under such a name is moved aside afterwards, never deleted. Laws:
- A new repository may stay if nothing in it would make git run anything.
- What a folder hides that a command closed to us isn't taken for missing: the folder is opened.
"""

import os
import secrets
import stat
import threading
import time
import weakref
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from maka.tools.before import Before
from maka.tools.closed import held, open_again, there
from maka.tools.identity import Content
from maka.tools.made import Made
from maka.tools.new_repository import is_harmless
from maka.tools.policy import ASIDE
from maka.tools.repositories import decisive_name

_TRIES = 5
_UNSETTLED_MAX = 20


class Guard:
    """Remembers paths at its making; `guards` are those of other commands that may run at the same time."""

    def __init__(self, paths: Sequence[str], guards: "Guards") -> None:
        self.before: dict[str, str | None] = {}
        self._made = guards.made
        self.is_over = False
        self.stuck: set[str] = set()
        guards.begin(self, paths)

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
        self._running: weakref.WeakSet[Before] = weakref.WeakSet()
        self._unsettled: list[Before] = []

    def enter(self, before: Before) -> list[Before]:
        """Count one more command; return those that run, to which each is added that begins before it is ready."""
        with self._lock:
            running = [other for other in self._running if not other.is_over]
            for other in running:
                if not other.is_ready:
                    other.others.append(before)
            self._running.add(before)
            return [*running, *self._unsettled]

    def is_granted(self, path: str) -> bool:
        """Say whether a command that runs now may change a protected path."""
        with self._lock:
            running = [other for other in self._running if other.is_ready and not other.is_over]
        return any(not other.holds(path) for other in running)

    def keep(self, before: Before) -> None:
        """Keep what an ended command began with, of which not all could be looked at: a later one's end does."""
        before.ended_ns = time.time_ns()
        with self._lock:
            self._unsettled = [*self._unsettled[1 - _UNSETTLED_MAX :], before]

    def settled(self, before: Before) -> None:
        """Forget those that were kept for a command at whose end all could be looked at."""
        with self._lock:
            self._unsettled = [other for other in self._unsettled if other not in before.others]

    def begin(self, guard: Guard, paths: Sequence[str]) -> None:
        """Give it the state of each path from before all commands that run now, of which it is one from then on."""
        with self._lock:
            known: dict[str, str | None] = {}
            for other in self._live:
                known.update({} if other.is_over else other.before)
            guard.before = {path: known[path] if path in known else _state(path) for path in paths}
            self._live.add(guard)


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
        return _differs(path, before)
    except OSError:  # it changes at this moment
        return True


def _differs(path: str, before: str | None) -> bool:
    new_repository = before is None and os.path.basename(path) == ".git"
    state = _state(path)
    # What is gone is gone: a person may take away a link, and no sandbox holds one.
    return state not in (before, None) and not (new_repository and is_surely_harmless(path))


def _put_right_once(path: str, before: str | None) -> bool:
    if not _differs(path, before):
        return False
    if os.path.lexists(path):
        _move_aside(path)
    if before:
        with suppress(OSError), held(os.path.dirname(path)) as folder:
            os.symlink(before, os.path.basename(path), dir_fd=folder)
    return True


def _move_aside(path: str) -> None:
    """Rename what stands there, in its own folder: that may be swapped by another command at this moment."""
    name = os.path.basename(path)
    with held(os.path.dirname(path)) as folder:
        free = (f"{name}{ASIDE}-{number}" for number in range(1, 100))
        aside = next((one for one in free if not _is_in(folder, one)), f"{name}{ASIDE}-{secrets.token_hex(8)}")
        try:
            os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        except PermissionError:  # the command may have taken away our own right to the folder
            own = f"/proc/self/fd/{folder}"
            mode = stat.S_IMODE(os.fstat(folder).st_mode)
            os.chmod(own, mode | stat.S_IRWXU)
            try:
                os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                os.chmod(own, mode)


def _is_in(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def put_repositories_right(
    known: Collection[str], new: Mapping[str, str | None], roots: Collection[str]
) -> tuple[list[str], bool]:
    """Move aside what makes a repository of a folder that was none, unless git would run nothing for it.

    Return what was moved, and whether all of them still were where they had been seen.

    `new` names each `.git`, bare repository and submodule that has come with its folder; `known` are the folders of
    those from before, of which a new worktree or submodule may be one.
    """
    moved: list[str] = []
    all_there = True
    whole = frozenset((*known, *(folder for folder in new.values() if folder is not None)))
    for path, repository in new.items():
        name = decisive_name(path)
        try:
            os.lstat(name)
            if repository is None or not is_surely_harmless(repository, whole, roots):
                _move_aside(name)
                moved.append(name)
        except OSError:
            all_there = False
    return moved, all_there


def is_surely_harmless(repository: str, whole: Collection[str] = (), roots: Collection[str] = ()) -> bool:
    """Say so of a new repository. Raises FileNotFoundError where it goes meanwhile."""
    try:
        return is_harmless(repository, whole, roots)
    except FileNotFoundError:
        raise
    except Exception:  # a fault of ours, too: what can't be judged must not shield itself and all else
        return False


def put_back(path: str, was: Content) -> bool:
    """Move aside what stands there; where it was a file, make that again. Say whether that could be done."""
    name = os.path.basename(path)
    try:
        _move_aside(path)
        if was.data is None:
            return True
        with held(os.path.dirname(path)) as folder:
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
            with os.fdopen(fd, "wb") as file:
                file.write(was.data)
                with suppress(PermissionError):  # who isn't root makes files of its own alone
                    os.fchown(fd, *was.owner)
                os.fchmod(fd, stat.S_IMODE(was.mode))
    except OSError:
        return False
    return True


def put_aside(planted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Move aside what was planted; return what was moved, and what could not be."""
    moved: list[str] = []
    stuck: list[str] = []
    for path in planted:
        try:
            _move_aside(path)
            moved.append(path)
        except FileNotFoundError:  # it went by itself
            pass
        except OSError:
            stuck.append(path)
    return moved, stuck
