"""A walk through the folders that a session may write to: which repositories and protected names are there.

Laws:
- It is bounded (SURVEY_FOLDERS_MAX folders of each root, SURVEY_DEPTH_MAX levels); what lies deeper keeps no protection
  from commands. What was there and wasn't looked into is nobody's planting. What may have come is looked for until a
  moment, too, and where that was too much `is_cut` says so: a command can make more than anyone can look at.
- It never leaves the folders that it was asked for: a root that a link leads to by now is none, and of what lies below
  exactly the folder that was named is listed, or nothing.
- A folder of ours that is closed to us may hold anything, and a command can open it: it is named in `closed`.
"""

import os
import re
from collections.abc import Iterator
from functools import cached_property
from math import inf
from time import monotonic

from maka.contracts.boundary import Boundary, Profile
from maka.contracts.limits import SURVEY_AFTER_FOLDERS_MAX, SURVEY_DEPTH_MAX, SURVEY_FOLDERS_MAX
from maka.tools.closed import is_closed
from maka.tools.identity import identity_of
from maka.tools.linked import Linked, Place
from maka.tools.policy import ASIDE, PROTECTED_NAMES, entries, is_under
from maka.tools.repositories import (
    common_of,
    git_names,
    is_bare,
    kinds_exactly_in,
    modules_of,
    named_by_config,
    real_of,
    repository_at,
    shared_repository,
)
from maka.tools.repository_links import links_of

ROOT_BYTES_MAX = 4_096 - 64 - 256
"""Of a root's path: any name in it can then be mounted."""

_ASIDE = re.compile(rf"({'|'.join(map(re.escape, ('.git', *PROTECTED_NAMES)))}){re.escape(ASIDE)}-[0-9a-f]+")
"""What was moved aside is nobody's state from before, wherever it goes from there, nor is what lies in it."""

_PASSED_OVER = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__", "target", ".tox", ".mypy_cache"})


class Walk:
    """What lies in the folders that a session may write to: walked once, and asked as often as needed."""

    def __init__(self, boundary: Boundary, before: "Walk | None" = None, until_s: float = inf) -> None:
        began_s = monotonic()
        self.boundary = boundary
        self._folders_max = SURVEY_FOLDERS_MAX if before is None else SURVEY_AFTER_FOLDERS_MAX
        self._until_s = until_s
        self._beyond: set[str] = set()
        self._led: set[str] = set()
        self._led_anew: set[str] = set()
        self._before = before
        self._modules_in: dict[str, list[str]] = {}
        self._modules_at: set[str] = set()
        asks = boundary.profile is Profile.ASK
        granted = [entry.path for entry in entries(boundary) if entry.access == "write"]
        roots = (*([boundary.workspace] if asks else []), *granted)
        self.roots: tuple[str, ...] = tuple(path for path in roots if _is_itself(path))
        self.git = tuple(filter(_is_itself, shared_repository(boundary.workspace))) if asks else ()
        self.closed: list[str] = []
        """Folders of ours that can't be looked into."""
        self.is_torn = False
        """Says whether a folder was moved away before it was looked into: it may be where the walk has been already."""
        self.is_cut = False
        """Says whether there was more that may have come than could be looked at."""
        self.places: list[Place] = [
            (root, path, None if os.path.basename(path) in PROTECTED_NAMES else repository_at(path))
            for root in self.roots
            for path in self._named(root)
        ]
        linked = Linked(self.places, self.roots, self.writable, until_s)
        self._named_by_index = {path for _, path, _ in linked.places}
        self.places += linked.places
        self.unread = linked.unread
        """Repositories whose index nobody but git understands, each with what in it."""
        self.is_cut = self.is_cut or linked.is_cut
        self.folders = {its: identity_of(its) for _, _, its in self.places if its is not None}
        self._broken = {path: identity_of(path) for path, its in self.repositories.items() if its is None}
        self.modules = self._modules()
        self.links, all_looked_into = links_of((*self._own_folders, *self.modules), until_s)
        """The links inside of repositories."""
        self.is_cut = self.is_cut or not all_looked_into
        self.took_s = monotonic() - began_s

    @property
    def writable(self) -> tuple[str, ...]:
        return (*self.roots, *self.git)

    @cached_property
    def repositories(self) -> dict[str, str | None]:
        """Each `.git` and bare repository, with the folder that it stands for."""
        return {path: its for _, path, its in self.places if os.path.basename(path) not in PROTECTED_NAMES}

    @cached_property
    def worktrees(self) -> dict[str, str]:
        """Each worktree that was seen, with the folder of the repository that it shares."""
        found = ((path, its) for path, its in self.repositories.items() if os.path.basename(path) == ".git")
        return {os.path.dirname(path): common_of(its) for path, its in found if its is not None}

    @cached_property
    def names(self) -> list[str]:
        """By which what is outside of each repository's control decides what git runs in it, as far as it is named."""
        found: list[str] = []
        met: set[str] = set()
        for path, its in self.repositories.items():
            if its is None:
                continue
            inside = any(is_under(its, root) for root in self.roots)
            # What worktrees share is the same for each of them.
            shared = [one for one in dict.fromkeys((its, common_of(its))) if inside and one not in met]
            met.update(shared)
            found += [name for folder in shared for name in git_names(folder, self._modules_of(folder))]
            worktree = os.path.dirname(path) if os.path.basename(path) == ".git" else path
            found += named_by_config(its, worktree)
        return list(dict.fromkeys(found))

    @cached_property
    def shared_names(self) -> list[str]:
        """The same of the repository outside. Other worktrees of it are other people's."""
        return [
            name
            for repository in self.git
            for name in git_names(repository, self._modules_of(repository), worktrees=False)
        ]

    def after(self, until_s: float = inf) -> "Walk":
        """Walk again: further, since what was made meanwhile is to be seen behind all else that was made.

        Where this one didn't look that one needn't. `until_s` is the clock's time at which it ends.
        """
        return Walk(self.boundary, self, until_s)

    def new_repositories(self, now: "Walk") -> dict[str, str | None]:
        """Return the repositories that have come meanwhile, as `repositories` does; those that were moved haven't."""
        known, broken = set(self.folders.values()), set(self._broken.values())
        new = {
            path: its
            for path, its in now.repositories.items()
            if (now.folders.get(its) not in known if its is not None else now._broken.get(path) not in broken)
            and (self.saw(path) or now.leads_to(path))
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
        return [
            path for path in (*self.names, *self.shared_names) if any(is_under(path, root) for root in self.writable)
        ]

    def new_links(self, now: "Walk") -> list[str]:
        """Return the links inside of repositories that have come meanwhile; those that were moved haven't.

        One that was moved aside is nobody's from before, but where it lies.
        """
        known = {its for path, its in self.links.items() if ASIDE not in os.path.basename(path)}
        new = (path for path, its in now.links.items() if its not in known and self.links.get(path) != its)
        return [path for path in new if self.saw(path) or now.leads_to(path)]

    @cached_property
    def _own_folders(self) -> list[str]:
        """Return the folders of repositories that can be written."""
        found = (*self.git, *filter(None, self.repositories.values()))
        return [path for path in dict.fromkeys(found) if any(is_under(path, root) for root in self.writable)]

    def _modules(self) -> list[str]:
        """Return the folders of the submodules that can be written; what is closed there comes into `closed`."""
        found: list[str] = []
        for repository in self._own_folders:
            if monotonic() > self._until_s:
                self.is_cut = True
                break
            try:
                found += self._modules_of(repository)
            except PermissionError as closed:
                self.closed.append(str(closed.filename))
        return found

    def _modules_of(self, repository: str) -> list[str]:
        """Return the folders of its submodules, where a link leads to several repositories' of the first alone.

        What a link leads to that can't be written is nobody's planting. Raises PermissionError.
        """
        if repository not in self._modules_in:
            at = real_of(os.path.join(repository, "modules"))
            is_new = at not in self._modules_at and any(is_under(at, one) for one in self.writable)
            self._modules_in[repository], is_whole = modules_of(repository) if is_new else ([], True)
            self.is_cut = self.is_cut or not is_whole
            self._modules_at.add(at)
        return self._modules_in[repository]

    def _named(self, root: str) -> Iterator[str]:
        """Yield what has a protected name, and repositories' `.git`, the upper levels first.

        A link leads to a folder that is passed over otherwise, and whoever enters it sees the link's name.
        """
        level, count = [root], 0
        met = {root, *(() if self._before is None else self._before._beyond)}
        for _ in range(SURVEY_DEPTH_MAX):
            below: list[str] = []
            for folder in level:
                count += 1
                if count > self._folders_max or monotonic() > self._until_s:
                    self._leave_out(folder)
                    continue
                if is_closed(folder):
                    self.closed.append(folder)
                    continue
                try:
                    names, is_whole = kinds_exactly_in(folder, self._until_s)
                except FileNotFoundError:
                    self.is_torn = True
                    continue
                if not is_whole:
                    self._leave_out(folder)
                if is_bare([name for name, _ in names]):
                    yield folder
                for name, kind in names:
                    path = os.path.join(folder, name)
                    if name in PROTECTED_NAMES or name == ".git":
                        yield path
                    elif kind == "folder" and not self._passes_over(name):
                        below.append(path)
                    elif kind == "link" and (led := _folder_in(path, root)) is not None:
                        self._follow(led, met)
                        below.append(led)
            level = [path for path in dict.fromkeys(below) if path not in met]
            met.update(level)
        self._beyond.update(level)

    def _follow(self, led: str, met: set[str]) -> None:
        """Note where a link leads. What is new leads whoever enters it to what was too deep to be looked at before."""
        self._led.add(led)
        if self._before is not None and led not in self._before._led and not self._before.saw(led):
            self._led_anew.add(led)
            met.discard(led)

    def leads_to(self, path: str) -> bool:
        """Say whether a link has come meanwhile by which one gets there, where nobody looked before."""
        return path in self._named_by_index or any(is_under(path, led) for led in self._led_anew)

    def _passes_over(self, name: str) -> bool:
        return name in _PASSED_OVER or (self._before is None and _ASIDE.fullmatch(name) is not None)

    def _leave_out(self, folder: str) -> None:
        self._beyond.add(folder)
        self.is_cut = True


def _is_itself(folder: str) -> bool:
    """Say whether a path is a folder's own and not too long: a command may have put a link in its place."""
    return len(os.fsencode(folder)) <= ROOT_BYTES_MAX and os.path.isdir(folder) and real_of(folder) == folder


def _folder_in(link: str, root: str) -> str | None:
    """Return the real folder that a link leads to, where that lies in a root."""
    real = real_of(link)
    return real if is_under(real, root) and os.path.isdir(real) else None
