"""What stood in the folders of a command before it ran, and what of that is another thing afterwards.

Laws:
- What another command has made that still runs is nobody's state from before: whichever ends last finds it.
- What moved with its folder hasn't come. Nor has what stands in its old folder: there a sandbox holds the name, and
  what replaces it is judged by itself. Nor has what holds exactly what stood there.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct

from maka.contracts.boundary import Boundary
from maka.tools.granted import is_granted
from maka.tools.identity import Content, Identity, content_of, identity_of
from maka.tools.made import Made
from maka.tools.policy import PROTECTED_NAMES, Ground, above, is_under
from maka.tools.repositories import decisive_name
from maka.tools.survey import led_to, protected_paths, real_all
from maka.tools.walk import Walk


class Standing(Struct, frozen=True):
    """What stands under a protected name, and in which folder. A link is watched by its name, whatever it leads to."""

    its: Identity
    above: Identity | None
    content: Content | None


def standing_at(path: str, *, keep: bool = False) -> Standing | None:
    """Return what stands under a name now, None where nothing does. `keep` keeps a file's bytes."""
    its = identity_of(path)
    return None if its is None else Standing(its, identity_of(os.path.dirname(path)), content_of(path, keep=keep))


def names_in(seen: Walk) -> list[str]:
    """Return what has a protected name."""
    return [path for _, path, _ in seen.places if os.path.basename(path) in PROTECTED_NAMES]


def standing(paths: Iterable[str], keep: Collection[str] = ()) -> dict[str, Standing]:
    """Return what stands under some names now; of those in `keep` with the bytes of files."""
    found = ((path, standing_at(path, keep=path in keep)) for path in dict.fromkeys(paths))
    return {path: one for path, one in found if one is not None}


class Before:
    """Made before a command starts. `enter` says which commands run already, and counts this one from then on."""

    def __init__(
        self, boundary: Boundary, ground: Ground, made: Made, enter: "Callable[[Before], list[Before]]"
    ) -> None:
        self.is_over = False
        self.is_ready = False
        self.ended_ns: int | None = None
        """When its command had ended, where not all that this had made could be looked at."""
        self._boundary = boundary
        self._ground = ground
        self._made = made
        self._loose: set[str] = set()
        self.others = enter(self)
        try:
            self._look(boundary)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Count it no more. Of others it forgets: else each command would keep all that ran at the same time before."""
        self.is_over = True
        self.others = []

    def _look(self, boundary: Boundary) -> None:
        self.walk = Walk(boundary)
        self.protected = protected_paths(self.walk, self._ground)
        self._led_to = led_to(self.walk, self.protected)
        self.decisive = {path for _, path, _ in self.walk.places if os.path.basename(path) == ".git"}
        """What says which programs git runs."""
        self.decisive.update(real_all(self.walk.decisive))
        self.standing = standing((*names_in(self.walk), *self.protected), self.decisive)
        for other in self.others:
            other._take_from(self)
        self._known = {one.its for one in self.standing.values() if not one.its.is_link}
        self.is_ready = True

    def holds(self, path: str) -> bool:
        """Say whether a name isn't the command's to make: what was granted by its name may come and go."""
        return not is_granted(self._boundary, path, self._ground, self._led_to)

    def grants(self, path: str) -> bool:
        """Say whether a name was granted as such, not with all of its surroundings."""
        return is_granted(self._boundary, path, self._ground, {path})

    def come(self, now: Mapping[str, Standing], seen: Walk) -> list[str]:
        """Return what has come to be protected meanwhile, as another walk has seen it."""
        return [
            path
            for path, one in now.items()
            if one.its not in self._known
            and (self.walk.saw(path) or seen.leads_to(path))
            and not self._stood_there(path, one)
        ]

    def _stood_there(self, path: str, one: Standing) -> bool:
        was = self.standing.get(path)
        return was is not None and (was.above == one.above or is_same(was.content, one.content))

    def stands_in_place(self, path: str) -> bool:
        """Say whether something protected stood there, in the same folder."""
        was = self.standing.get(path)
        return was is not None and was.above == identity_of(os.path.dirname(path))

    def renewed(self) -> dict[str, Standing]:
        """Return what stands now, in its old folder, under a name where another thing stood.

        The kernel gives up a mount over a file that is replaced: from then on its content alone tells whether it is
        what it was.
        """
        found: dict[str, Standing] = {}
        for path, was in self.standing.items():
            if path not in self._loose and identity_of(path) in (None, was.its):
                continue
            now = standing_at(path, keep=path in self.decisive)
            is_it = now is None or (now.its == was.its and is_same(was.content, now.content))
            if now is not None and not is_it and now.above == was.above:
                found[path] = now
        return found

    def accept(self, path: str, now: Standing) -> None:
        """Take what stands there now for what stood there before: no sandbox holds it any more."""
        self.standing[path] = now
        self._loose.add(path)

    def _take_from(self, later: "Before") -> None:
        """Take out of what another command found what has come since this one began, and give it what was replaced."""
        if not self.is_ready:  # its command had not begun when all was looked at
            return
        inside = [path for path in later.standing if any(is_under(path, root) for root in self.walk.writable)]
        for path in self.come({path: later.standing[path] for path in inside}, later.walk):
            if self.holds(path) and not self._made.holds(path) and self._may_have_made(path):
                del later.standing[path]
        for path in self.decisive.intersection(inside if self.ended_ns is None else ()):
            was, now = self.standing.get(path), later.standing.get(path)
            is_held = was is not None and now is not None and was.its == now.its and path not in self._loose
            if was is not None and now is not None and not is_held and self.holds(path):
                later.standing[path] = Standing(now.its, now.above, was.content)
                later._loose.add(path)
        for path in self.walk.new_links(later.walk):
            if any(is_under(path, root) for root in self.walk.writable) and self._may_have_made(path):
                del later.walk.links[path]
        for path, its in self.walk.new_repositories(later.walk).items():
            name = decisive_name(path)
            inside_too = any(is_under(path, root) for root in self.walk.writable)
            if inside_too and not self.grants(name) and self._may_have_made(name):
                later.walk.forget(path, its)

    def leads_elsewhere(self, path: str) -> bool:
        """Say whether the same thing stands there, in the same folder, and so a link on its way must have changed."""
        was = self.standing.get(path)
        return was is not None and identity_of(path) == was.its and is_same(was.content, content_of(path))

    def is_copy(self, path: str, one: Standing, now: Walk) -> bool:
        """Say whether it is what stands at the same place of another worktree: a new one comes with all of that."""
        for root in above(path):
            if (repository := now.worktrees.get(root)) is None or path == root:
                continue
            others = (other for other, its in self.walk.worktrees.items() if its == repository and other != root)
            there = (self.standing.get(other + path[len(root) :]) for other in others)
            if any(was is not None and is_same(was.content, one.content) for was in there):
                return True
        return False

    def _may_have_made(self, path: str) -> bool:
        """Say whether something may be this command's: what has changed since it ended is someone else's."""
        try:
            return self.ended_ns is None or os.lstat(path).st_ctime_ns <= self.ended_ns
        except OSError:
            return False


def is_same(old: Content | None, new: Content | None) -> bool:
    """Say whether both are known, and the same."""
    return old is not None and new is not None and (old.mode, old.digest) == (new.mode, new.digest)
