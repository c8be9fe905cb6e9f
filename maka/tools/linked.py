"""The repositories that indexes name: git goes into each of them, also where nobody looks otherwise."""

import os
from collections import deque
from collections.abc import Sequence

from maka.tools.indexes import Indexes
from maka.tools.policy import is_under
from maka.tools.repositories import common_of, real_of, repository_at, worktrees_of

Place = tuple[str, str, str | None]
"""A root, what in it has a protected name or is a repository, and the folder of that repository."""

_LINKED_MAX = 10_000


class Linked:
    """Follows the indexes of some places, those of all worktrees among them that can be written, until a moment."""

    def __init__(self, places: Sequence[Place], roots: Sequence[str], writable: Sequence[str], until_s: float) -> None:
        self.places: list[Place] = []
        """What was found beyond those."""
        self.unread: set[tuple[str, str]] = set()
        """Repositories whose index nobody but git understands, each with what in it."""
        self.is_cut = False
        """Says whether there was more than is looked at."""
        self._roots = roots
        self._writable = writable
        self._indexes = Indexes(until_s)
        self._commons: set[str] = set()
        self._met = {path for _, path, _ in places}
        self._left = _LINKED_MAX
        self._follow(deque(one for _, path, its in places if its is not None for one in self._indexes_of(path, its)))

    def _follow(self, waiting: deque[tuple[str, str]]) -> None:
        read: set[tuple[str, str]] = set()
        while waiting:
            worktree, folder = waiting.popleft()
            if (worktree, folder) in read:
                continue
            read.add((worktree, folder))
            for place in self._named_by(worktree, folder):
                self.places.append(place)
                _, path, its = place
                waiting += [] if its is None else self._indexes_of(path, its)

    def _named_by(self, worktree: str, folder: str) -> list[Place]:
        index = self._indexes.of(folder)
        self.unread.update((folder, one) for one in index.unread)
        self.is_cut = self.is_cut or self._indexes.is_cut or len(index.links) > self._left
        found: list[Place] = []
        for link in index.links[: self._left]:
            self._left -= 1
            path = os.path.join(real_of(os.path.join(worktree, link)), ".git")
            root = next((root for root in self._roots if is_under(path, root)), None)
            if root is not None and path not in self._met and os.path.lexists(path):
                self._met.add(path)
                found.append((root, path, repository_at(path)))
        return found

    def _indexes_of(self, path: str, its: str) -> list[tuple[str, str]]:
        """Return a worktree, and once each other one of its repository whose index can be written, with its folder."""
        own = [(os.path.dirname(path), its)] if os.path.basename(path) == ".git" else []
        common = common_of(its)
        is_new = common not in self._commons and any(is_under(common, one) for one in self._writable)
        self._commons.add(common)
        return own + (worktrees_of(common) if is_new else [])
