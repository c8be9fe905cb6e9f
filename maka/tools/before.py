"""What stood in the folders of a command before it ran, and what of that is another thing afterwards.

Laws:
- What another command has made that still runs is nobody's state from before: whichever ends last finds it.
- What moved with its folder hasn't come. Nor has what stands in its old folder: there a sandbox holds the name, and
  what replaces it is judged by itself. Nor has what holds exactly what stood there.
"""

import os
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from maka.contracts.boundary import Boundary
from maka.tools.identity import Content, Identity, content_of, identity_of
from maka.tools.made import Made
from maka.tools.policy import PROTECTED_NAMES, Ground, is_under, judge
from maka.tools.repositories import decisive_name
from maka.tools.survey import led_to, protected_paths
from maka.tools.walk import Walk


class Standing(Struct, frozen=True):
    """What stands under a protected name, and in which folder. A link is watched by its name, whatever it leads to."""

    its: Identity
    above: Identity | None
    content: Content | None = None


def standing(seen: Walk, protected: Sequence[str]) -> dict[str, Standing]:
    """Return what is protected now, by its names and by its real paths."""
    names = (path for _, path, _ in seen.places if os.path.basename(path) in PROTECTED_NAMES)
    found: dict[str, Standing] = {}
    for path in (*names, *protected):
        if path not in found and (its := identity_of(path)) is not None:
            found[path] = Standing(its, identity_of(os.path.dirname(path)), content_of(path))
    return found


class Before:
    """Made before a command starts. `others` says which commands run already, and counts this one from then on."""

    def __init__(
        self, boundary: Boundary, ground: Ground, made: Made, others: "Callable[[Before], Sequence[Before]]"
    ) -> None:
        self.is_over = False
        self._boundary = boundary
        self._ground = ground
        self._made = made
        self._is_ready = False
        earlier = others(self)
        self.walk = Walk(boundary)
        self.protected = protected_paths(self.walk, ground)
        self._led_to = led_to(self.walk, self.protected)
        self.standing = standing(self.walk, self.protected)
        self.decisive = {path for _, path, _ in self.walk.places if os.path.basename(path) == ".git"}
        """What says which programs git runs."""
        self.decisive.update(self.walk.decisive)
        for other in earlier:
            other._take_from(self)
        self._known = {one.its for one in self.standing.values() if not one.its.is_link}
        self._is_ready = True

    def holds(self, path: str) -> bool:
        """Say whether a name isn't the command's to make: what was granted by its name may come and go."""
        return judge(self._boundary, path, "write", self._ground, self._led_to) is not None

    def grants(self, path: str) -> bool:
        """Say whether a name was granted as such, not with all of its surroundings."""
        return judge(self._boundary, path, "write", self._ground, (path,)) is None

    def come(self, now: Mapping[str, Standing]) -> list[str]:
        """Return what has come to be protected meanwhile."""
        return [
            path
            for path, one in now.items()
            if one.its not in self._known and self.walk.saw(path) and not self._stood_there(path, one)
        ]

    def _stood_there(self, path: str, one: Standing) -> bool:
        was = self.standing.get(path)
        return was is not None and (was.above == one.above or is_same(was.content, one.content))

    def stands_in_place(self, path: str) -> bool:
        """Say whether something protected stood there, in the same folder."""
        was = self.standing.get(path)
        return was is not None and was.above == identity_of(os.path.dirname(path))

    def renewed(self, now: Mapping[str, Standing]) -> list[str]:
        """Return what stands in its old folder anew: the kernel gives up a mount over a file that is replaced."""
        both = ((path, self.standing[path], one) for path, one in now.items() if path in self.standing)
        return [path for path, old, new in both if old.its != new.its and old.above == new.above]

    def accept(self, path: str, now: Standing) -> None:
        """Take what stands there now for what stood there before."""
        self.standing[path] = now
        self._known.add(now.its)

    def is_as_it_was(self) -> bool:
        """Say whether no protected name is another thing by now. Looks at names alone; one may be gone."""
        return all(identity_of(path) in (None, one.its) for path, one in self.standing.items())

    def _take_from(self, later: "Before") -> None:
        """Take out of what a later command found what has come since this one began."""
        if not self._is_ready:  # its command had not begun when all was looked at
            return
        for path in self.come(later.standing):
            inside = any(is_under(path, root) for root in self.walk.roots)
            if inside and self.holds(path) and not self._made.holds(path):
                del later.standing[path]
        for path, its in self.walk.new_repositories(later.walk).items():
            inside = any(is_under(path, root) for root in self.walk.roots)
            if inside and not self.grants(decisive_name(path)):
                later.walk.forget(path, its)


def is_same(old: Content | None, new: Content | None) -> bool:
    """Say whether both are known, and the same."""
    return old is not None and old == new
