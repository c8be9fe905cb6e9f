"""A walk through the folders that a session may write to: which repositories and protected names are there.

Laws:
- It is bounded (SURVEY_FOLDERS_MAX folders of each root, SURVEY_DEPTH_MAX levels); what lies deeper keeps no protection
  from commands. What wasn't looked at before is nobody's planting.
- A folder of ours that is closed to us may hold anything, and a command can open it: it is named in `closed`.
"""

import os
import stat
from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct

from maka.contracts.boundary import Boundary, Profile
from maka.contracts.limits import SURVEY_AFTER_FOLDERS_MAX, SURVEY_DEPTH_MAX, SURVEY_FOLDERS_MAX
from maka.tools.closed import is_closed
from maka.tools.policy import PROTECTED_NAMES, entries, is_under
from maka.tools.repositories import (
    git_names,
    is_bare,
    listed,
    modules_of,
    named_by_config,
    repository_of,
    shared_repository,
)

_PASSED_OVER = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__", "target", ".tox", ".mypy_cache"})


class Identity(Struct, frozen=True):
    """Which thing of a file system stands under a name."""

    device: int
    inode: int
    is_link: bool


class Walk:
    """What lies in the folders that a session may write to: walked once, and asked as often as needed."""

    def __init__(self, boundary: Boundary, folders_max: int | None = None) -> None:
        self.boundary = boundary
        self._folders_max = SURVEY_FOLDERS_MAX if folders_max is None else folders_max
        self._folders: set[str] = set()
        self._is_whole = True
        asks = boundary.profile is Profile.ASK
        granted = [entry.path for entry in entries(boundary) if entry.access == "write" and os.path.isdir(entry.path)]
        self.roots: tuple[str, ...] = (*([boundary.workspace] if asks else []), *granted)
        self.git = shared_repository(boundary.workspace) if asks else ()
        self.closed: list[str] = []
        """Folders of ours that can't be looked into."""
        self.places = [(root, path, _repository_at(path)) for root in self.roots for path in self._named(root)]
        named = ((path, _identity(path)) for _, path, _ in self.places if os.path.basename(path) in PROTECTED_NAMES)
        self._there = {path: identity for path, identity in named if identity is not None}
        self._above = {path: _identity(os.path.dirname(path)) for path in self._there}
        self.modules = self._modules()

    @property
    def writable(self) -> tuple[str, ...]:
        return (*self.roots, *self.git)

    @property
    def repositories(self) -> dict[str, str | None]:
        """Each `.git` and bare repository, with the folder that it stands for."""
        return {path: its for _, path, its in self.places if os.path.basename(path) not in PROTECTED_NAMES}

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """By which each repository that can be written decides what git runs."""
        return {
            path: git_names(its) + named_by_config(its, os.path.dirname(path))
            for path, its in self.repositories.items()
            if its is not None and any(is_under(its, root) for root in self.roots)
        }

    @cached_property
    def shared_names(self) -> list[str]:
        """The same of the repository outside. Other worktrees of it are other people's."""
        return [name for repository in self.git for name in git_names(repository, worktrees=False)]

    def after(self) -> "Walk":
        """Walk again: further, since what was made meanwhile is to be seen behind all else that was made."""
        return Walk(self.boundary, SURVEY_AFTER_FOLDERS_MAX)

    def planted(self, now: "Walk") -> list[str]:
        """Return the protected names that have come meanwhile.

        What moved with its folder hasn't, nor has what stands in its old folder: there a sandbox holds the name, and
        only a person can have put another file under it. Links are watched by their names.
        """
        known = {identity for identity in self._there.values() if not identity.is_link}
        return [
            path
            for path, identity in now._there.items()
            if identity not in known
            and self._saw(os.path.dirname(path))
            and (path not in self._there or self._above[path] != now._above[path])
        ]

    def new_repositories(self, now: "Walk") -> dict[str, str | None]:
        """Return the repositories that have come meanwhile, as `repositories` does."""
        before = self.repositories
        new = {
            path: its
            for path, its in now.repositories.items()
            if (path not in before or before[path] != its)
            and self._saw(os.path.dirname(path) if os.path.basename(path) == ".git" else path)
        }
        seen = {*self.git, *before.values(), *new.values()} - {None}
        modules = set(now.modules) - set(self.modules)
        return {**new, **{path: path for path in modules if any(path.startswith(f"{its}/") for its in seen)}}

    def _saw(self, folder: str) -> bool:
        looked = self._is_whole or folder in self._folders
        return looked and not any(is_under(folder, closed) for closed in self.closed)

    @property
    def decisive(self) -> list[str]:
        """All these names, as far as they can be written."""
        paths = [*(name for names in self.names.values() for name in names), *self.shared_names]
        return [path for path in paths if any(is_under(path, root) for root in self.writable)]

    def _modules(self) -> list[str]:
        """Return the folders of the submodules that can be written; what is closed there comes into `closed`."""
        found: list[str] = []
        for repository in dict.fromkeys((*self.git, *filter(None, self.repositories.values()))):
            try:
                found += modules_of(repository) if any(is_under(repository, one) for one in self.writable) else []
            except PermissionError as closed:
                self.closed.append(str(closed.filename))
        return found

    def _named(self, root: str) -> Iterator[str]:
        """Yield what has a protected name, and repositories' `.git`, the upper levels first; of its device alone."""
        device = _device(root)
        level, count = [root], 0
        for _ in range(SURVEY_DEPTH_MAX):
            below: list[str] = []
            for folder in level:
                count += 1
                if count > self._folders_max:
                    self._is_whole = False
                    return
                if is_closed(folder):
                    self.closed.append(folder)
                    continue
                self._folders.add(folder)
                names = listed(folder)
                if is_bare([name for name, _ in names]):
                    yield folder
                for name, is_folder in names:
                    path = os.path.join(folder, name)
                    if name in PROTECTED_NAMES or name == ".git":
                        if _device(path) == device:
                            yield path
                    elif is_folder and name not in _PASSED_OVER:
                        below.append(path)
            level = below
        self._is_whole = self._is_whole and not level


def _repository_at(path: str) -> str | None:
    try:
        return None if os.path.basename(path) in PROTECTED_NAMES else repository_of(path)
    except OSError:  # it changes at this moment
        return None


def _device(path: str) -> int | None:
    found = _identity(path)
    return None if found is None else found.device


def _identity(path: str) -> Identity | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return Identity(info.st_dev, info.st_ino, stat.S_ISLNK(info.st_mode))
