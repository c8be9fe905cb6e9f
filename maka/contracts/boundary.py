"""A session's boundary: what its tools may touch, as profile, grants and revision.

Laws: what isn't granted isn't allowed; every grant names the fact that it came from; a revision counts each change.
`bypass` is a person's choice alone. Paths are absolute and real: links were resolved before any fact existed.
"""

from enum import StrEnum
from typing import Literal

from maka.contracts.ids import EventId, RunId
from maka.contracts.shape import Shape

Scope = Literal["once", "session", "workspace"]


class Profile(StrEnum):
    """`explore` reads the workspace, `ask` reads and writes it, `bypass` has no limits."""

    EXPLORE = "explore"
    ASK = "ask"
    BYPASS = "bypass"


class FileEntry(Shape, frozen=True, kw_only=True):
    """One filesystem permission."""

    path: str
    access: Literal["read", "write"]
    scope: Literal["exact", "subtree"]


class Expansion(Shape, frozen=True, kw_only=True):
    """A widening of a session's boundary."""

    filesystem: tuple[FileEntry, ...] = ()
    network: bool = False


def covers(wide: Expansion, narrow: Expansion) -> bool:
    """Say whether one expansion allows all that another one does, by paths alone: they are real and absolute."""
    if narrow.network and not wide.network:
        return False
    return all(any(_entry_covers(one, each) for one in wide.filesystem) for each in narrow.filesystem)


def _entry_covers(wide: FileEntry, narrow: FileEntry) -> bool:
    if narrow.access == "write" and wide.access != "write":
        return False
    if wide.scope == "exact":
        return narrow.scope == "exact" and wide.path == narrow.path
    return narrow.path == wide.path or narrow.path.startswith(wide.path.rstrip("/") + "/")


class CarriedGrant(Shape, frozen=True, kw_only=True):
    """A grant to a workspace, copied into a later session of it; `origin` is the fact that made it."""

    origin: EventId
    expansion: Expansion


class Grant(Shape, frozen=True, kw_only=True):
    """A widening, and the fact that made it. `once` holds for the run that asked; `workspace` goes on to later
    sessions of the same real directory."""

    origin: EventId
    scope: Scope
    expansion: Expansion
    run_id: RunId | None = None


class Boundary(Shape, frozen=True, kw_only=True):
    """What a call may touch, as of a revision."""

    profile: Profile = Profile.ASK
    revision: int = 0
    grants: tuple[Grant, ...] = ()
    workspace: str = ""

    @property
    def network(self) -> bool:
        """Say whether the network is open."""
        return self.profile is Profile.BYPASS or any(grant.expansion.network for grant in self.grants)
