"""A walk through the folders that a session may write to: which repositories and protected names are there.

Laws:
- It is bounded (SURVEY_FOLDERS_MAX folders of each root, SURVEY_DEPTH_MAX levels); what lies deeper keeps no protection
  from commands. What was there and wasn't looked into is nobody's planting.
- A folder of ours that is closed to us may hold anything, and a command can open it: it is named in `closed`.
"""

import os
import re
from collections.abc import Iterator
from functools import cached_property

from maka.contracts.boundary import Boundary, Profile
from maka.contracts.limits import SURVEY_AFTER_FOLDERS_MAX, SURVEY_DEPTH_MAX, SURVEY_FOLDERS_MAX
from maka.tools.closed import is_closed
from maka.tools.identity import identity_of
from maka.tools.policy import ASIDE, PROTECTED_NAMES, entries, is_under
from maka.tools.repositories import (
    common_of,
    git_names,
    is_bare,
    kinds_in,
    modules_of,
    named_by_config,
    repository_of,
    shared_repository,
)

_ASIDE = re.compile(rf"({'|'.join(map(re.escape, ('.git', *PROTECTED_NAMES)))}){re.escape(ASIDE)}-[0-9a-f]+")
"""What was moved aside is nobody's state from before, wherever it goes from there."""

_PASSED_OVER = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__", "target", ".tox", ".mypy_cache"})


class Walk:
    """What lies in the folders that a session may write to: walked once, and asked as often as needed."""

    def __init__(self, boundary: Boundary, folders_max: int | None = None) -> None:
        self.boundary = boundary
        self._folders_max = SURVEY_FOLDERS_MAX if folders_max is None else folders_max
        self._beyond: set[str] = set()
        asks = boundary.profile is Profile.ASK
        granted = [entry.path for entry in entries(boundary) if entry.access == "write" and os.path.isdir(entry.path)]
        self.roots: tuple[str, ...] = (*([boundary.workspace] if asks else []), *granted)
        self.git = shared_repository(boundary.workspace) if asks else ()
        self.closed: list[str] = []
        """Folders of ours that can't be looked into."""
        self.is_torn = False
        """Says whether a folder was moved away before it was looked into: it may be where the walk has been already."""
        self.places = [(root, path, _repository_at(path)) for root in self.roots for path in self._named(root)]
        self.folders = {its: identity_of(its) for _, _, its in self.places if its is not None}
        self._broken = {path: identity_of(path) for path, its in self.repositories.items() if its is None}
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
        """By which what is outside of each repository's control decides what git runs in it, as far as it is named."""
        found: dict[str, list[str]] = {}
        for path, its in self.repositories.items():
            if its is not None:
                inside = any(is_under(its, root) for root in self.roots)
                shared = [one for one in dict.fromkeys((its, common_of(its))) if inside]
                own = [name for folder in shared for name in git_names(folder)]
                worktree = os.path.dirname(path) if os.path.basename(path) == ".git" else path
                found[path] = own + named_by_config(its, worktree)
        return found

    @cached_property
    def shared_names(self) -> list[str]:
        """The same of the repository outside. Other worktrees of it are other people's."""
        return [name for repository in self.git for name in git_names(repository, worktrees=False)]

    def after(self) -> "Walk":
        """Walk again: further, since what was made meanwhile is to be seen behind all else that was made."""
        return Walk(self.boundary, SURVEY_AFTER_FOLDERS_MAX)

    def new_repositories(self, now: "Walk") -> dict[str, str | None]:
        """Return the repositories that have come meanwhile, as `repositories` does; those that were moved haven't."""
        known, broken = set(self.folders.values()), set(self._broken.values())
        new = {
            path: its
            for path, its in now.repositories.items()
            if (now.folders.get(its) not in known if its is not None else now._broken.get(path) not in broken)
            and self.saw(path)
        }
        seen = {*self.git, *self.folders, *new.values()} - {None}
        modules = set(now.modules) - set(self.modules)
        return {**new, **{path: path for path in modules if any(path.startswith(f"{its}/") for its in seen)}}

    def forget(self, path: str, its: str | None) -> None:
        """Take a repository for one that isn't from before, given as `repositories` does."""
        if its is None:
            self._broken.pop(path, None)
        else:
            self.folders.pop(its, None)
        self.modules = [module for module in self.modules if module != path]

    def saw(self, path: str) -> bool:
        """Say whether a path that wasn't there would have been missed: where nobody looked nothing is."""
        if any(is_under(path, closed) for closed in self.closed):
            return False
        while path not in self._beyond:
            if path in self.roots or path == "/":
                return True
            path = os.path.dirname(path)
        return False

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
        """Yield what has a protected name, and repositories' `.git`, the upper levels first.

        A link leads to a folder that is passed over otherwise, and whoever enters it sees the link's name.
        """
        level, count = [root], 0
        met = {root}
        for _ in range(SURVEY_DEPTH_MAX):
            below: list[str] = []
            for folder in level:
                count += 1
                if count > self._folders_max:
                    self._beyond.add(folder)
                    continue
                if is_closed(folder):
                    self.closed.append(folder)
                    continue
                names = kinds_in(folder)
                self.is_torn = self.is_torn or os.path.islink(folder) or not os.path.isdir(folder)
                if is_bare([name for name, _ in names]):
                    yield folder
                for name, kind in names:
                    path = os.path.join(folder, name)
                    if name in PROTECTED_NAMES or name == ".git":
                        yield path
                    elif kind == "folder" and name not in _PASSED_OVER and _ASIDE.fullmatch(name) is None:
                        below.append(path)
                    elif kind == "link" and (led := _folder_in(path, root)) is not None:
                        below.append(led)
            level = [path for path in dict.fromkeys(below) if path not in met]
            met.update(level)
        self._beyond.update(level)


def _folder_in(link: str, root: str) -> str | None:
    """Return the real folder that a link leads to, where that lies in a root."""
    try:
        real = os.path.realpath(link)
    except OSError:  # it changes at this moment
        return None
    return real if is_under(real, root) and os.path.isdir(real) else None


def _repository_at(path: str) -> str | None:
    try:
        return None if os.path.basename(path) in PROTECTED_NAMES else repository_of(path)
    except OSError:  # it changes at this moment
        return None
