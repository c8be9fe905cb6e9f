"""PURE: what a boundary allows of a path, and what a sandboxed process may touch.

Laws:
- All paths are absolute and real. Of the permissions that hold a path the one with the longest base counts, and it must
  reach past every barrier: a barrier is a path that no permission above it opens.
- Barriers are Maka's own files (only a bypass opens them), secrets, and, for writing, what runs or is obeyed later
  outside of every sandbox: a grant opens those if it names them or something inside of them.
- A profile's bypass has no barrier.
"""

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

from msgspec import Struct

from maka.contracts.boundary import Boundary, Expansion, FileEntry, Profile
from maka.contracts.sandbox_ports import SandboxPolicy
from maka.contracts.tool_ports import BoundaryNeed

_KERNELS = ("/proc", "/sys", "/dev")
Access = Literal["read", "write"]

PROTECTED_NAMES = frozenset({".envrc", ".vscode", ".idea", "AGENTS.md", "CLAUDE.md"})
"""Names that are obeyed, or run, by programs outside of the sandbox; they hold at any depth."""

ASIDE = ".maka-aside"
"""What stands at the end of the name of what was moved aside, before a number."""

GIT_PROTECTED = frozenset({"hooks", "config", "config.worktree", "commondir", "gitdir", "remotes", "branches"})
"""Names inside a repository's own folder that decide what git runs, or where it looks for that."""


class Ground(Struct, frozen=True, kw_only=True):
    """What a machine has that isn't anyone's workspace: `own` are Maka's files, `secrets` are a person's.

    `programs` are folders that must stay readable where a sandbox has an empty folder, such as /tmp, of its own; `code`
    is what runs as Maka: to be read, and in a workspace that holds it not to be written; `searched` are the folders of
    PATH. All paths are real, but those
    of `own_names` and `secret_names`, by which `own` and `secrets` were found: a link among them may lead elsewhere by
    now (`survey.as_now`).
    """

    own: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()
    own_names: tuple[str, ...] = ()
    secret_names: tuple[str, ...] = ()


class Found(Struct, frozen=True, kw_only=True):
    """What a survey found in and around a workspace. `hidden` are folders, `hidden_files` files; all that exists but
    `absent`, secrets that may come where a session can't write.

    `git` are repositories' folders outside of the workspace that a commit in it has to write; `protected` lies within
    what is writable, `pinned` are the folders in it that hold something protected and must stay where they are, and
    `mounts` are where other file systems begin in it. `missing` are granted entries that aren't there as granted.
    """

    protected: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    git: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    hidden_files: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    missing: tuple[FileEntry, ...] = ()


class _Permission(Struct, frozen=True):
    base: str
    access: Access
    subtree: bool


def is_under(path: str, base: str) -> bool:
    """Say whether a path is another one or lies inside of it."""
    return path == base or path.startswith(base.rstrip("/") + "/")


def innermost(path: str, bases: AbstractSet[str]) -> str | None:
    """Return which of some absolute paths is nearest above another one, or is it. Takes no longer for many."""
    return next((one for one in above(path) if one in bases), None)


def above(path: str) -> Iterator[str]:
    """Yield an absolute path and the folders above it, from the innermost."""
    yield path
    while path not in ("/", ""):
        path = os.path.dirname(path)
        yield path


def protected_in(path: str) -> str | None:
    """Return the innermost protected element among a path and the folders above it, by name alone."""
    parts = path.split("/")
    git: int | None = None
    last: int | None = None
    for at, part in enumerate(parts):
        named = part in PROTECTED_NAMES or (git is not None and part in GIT_PROTECTED)
        # A `.git` that is itself written is a file that says where the repository is.
        if named or (part == ".git" and at == len(parts) - 1):
            last = at
        if part == ".git":
            git = at
    return None if last is None else "/".join(parts[: last + 1])


def judge(
    boundary: Boundary, path: str, access: Access, ground: Ground, led_to: AbstractSet[str] = frozenset()
) -> BoundaryNeed | None:
    """Return what a path lacks to be read or written, None where nothing does.

    `led_to` are paths that something protected leads to: they are as protected as that.
    """
    if boundary.profile is Profile.BYPASS:
        return None
    if any(is_under(path, own) for own in ground.own):
        return BoundaryNeed(expansion=None, reason=f"{path} belongs to Maka itself")
    barrier, why = _barrier(path, access, ground, led_to)
    for permission in _permissions(boundary):
        allowed = permission.access == "write" or access == "read"
        holds = is_under(path, permission.base) if permission.subtree else path == permission.base
        if allowed and holds and len(permission.base.rstrip("/")) >= len(barrier):
            return None
    if not why:
        reads_only = access == "write" and is_under(path, boundary.workspace)
        why = "this session may only read its workspace" if reads_only else "it is outside the workspace"
    return BoundaryNeed(expansion=needed(path, access), reason=why)


def writes_but_for_barriers(boundary: Boundary, path: str, ground: Ground) -> bool:
    """Say whether a path lies in what may be written as a whole, whatever barrier may hold it there."""
    if any(is_under(path, own) for own in ground.own):
        return False
    whole = (one.base for one in _permissions(boundary) if one.subtree and one.access == "write")
    return any(is_under(path, base) for base in whole)


def covers(boundary: Boundary, path: str, access: Access, ground: Ground | None = None) -> bool:
    """Say whether a boundary allows to read or write a path."""
    return judge(boundary, path, access, ground or Ground()) is None


def needed(path: str, access: Access, scope: Literal["exact", "subtree"] = "exact") -> Expansion:
    """Return the smallest expansion that would allow it."""
    return Expansion(filesystem=(FileEntry(path=path, access=access, scope=scope),))


def all_needed(paths: Iterable[str]) -> Expansion:
    """Return what would allow each of these to be written."""
    return Expansion(filesystem=tuple(entry for path in paths for entry in needed(path, "write").filesystem))


def made_by_a_person(folder: str, reason: str) -> BoundaryNeed:
    """Return what a folder needs that is to be made in a broad one: it can be granted only once it is there."""
    path = shlex.quote(folder)
    instead = (
        f"Use a folder inside the workspace, or tell the person what to do: make it (mkdir -p {path}) and allow it "
        f"(--allow write:{path}, of maka run or maka rules)."
    )
    return BoundaryNeed(expansion=None, reason=reason, instead=instead)


def allowed_by_a_person(
    folder: str, reason: str, *, first: str = "Change the file with Edit or Write, which ask for it alone"
) -> BoundaryNeed:
    """Return what a command needs that makes or removes names in a broad folder; `first` is what helps without that."""
    instead = (
        f"{first}, or tell the person what to do: do it themselves, or allow the folder "
        f"(--allow write:{shlex.quote(folder)}, of maka run or maka rules)."
    )
    return BoundaryNeed(expansion=None, reason=reason, instead=instead)


def is_kernels(path: str) -> bool:
    """Say whether a path is the kernel's, of which a sandbox has its own: no expansion opens that."""
    return any(is_under(path, one) for one in _KERNELS) and not is_under(path, "/dev/shm")


def barrier_of(path: str, access: Access, ground: Ground) -> str:
    """Return the path that no permission above it opens, nothing where there is none."""
    return _barrier(path, access, ground, frozenset())[0]


def _barrier(path: str, access: Access, ground: Ground, led_to: AbstractSet[str]) -> tuple[str, str]:
    barrier, why = "", ""
    for secret in ground.secrets:
        if is_under(path, secret) and len(secret) > len(barrier):
            barrier, why = secret, "it is where secrets are kept"
    named = protected_in(path) if access == "write" else None
    if named is not None and len(named) > len(barrier):
        barrier, why = named, f"{named.rpartition('/')[2]} takes effect later outside of the sandbox"
    led = innermost(path, led_to) if access == "write" else None
    if led is not None and len(led) > len(barrier):
        barrier, why = led, "it takes effect later outside of the sandbox: a protected name leads to it"
    return barrier, why


def _permissions(boundary: Boundary) -> Iterator[_Permission]:
    if boundary.workspace:
        access: Access = "read" if boundary.profile is Profile.EXPLORE else "write"
        yield _Permission(boundary.workspace, access, True)
    for entry in entries(boundary):
        yield _Permission(entry.path, entry.access, entry.scope == "subtree")


def entries(boundary: Boundary) -> tuple[FileEntry, ...]:
    """Return every filesystem entry that was granted."""
    return tuple(entry for grant in boundary.grants for entry in grant.expansion.filesystem)


def sandbox_policy(boundary: Boundary, cwd: str, found: Found, ground: Ground) -> SandboxPolicy:
    """Return what a command may touch. Of the granted paths only those are named that `found` says are there.

    An entry is left out by itself: a path granted as one file, and as the folder that it is now, is open.
    """
    writes = boundary.profile is Profile.ASK
    granted = [entry for entry in entries(boundary) if entry not in found.missing]
    writable = [boundary.workspace, *found.git] if writes else []
    writable += [entry.path for entry in granted if entry.access == "write"]
    readable = [] if writes else [boundary.workspace]
    below = (*found.hidden, *found.hidden_files)
    # What can be written anyway needs no reading, unless it was hidden there.
    readable += [
        entry.path
        for entry in granted
        if entry.access == "read"
        and (any(is_under(entry.path, one) for one in below) or not any(is_under(entry.path, one) for one in writable))
    ]
    own = [path for path in (*writable, *readable) if not any(is_under(path, one) for one in ground.own)]
    kept = frozenset(own)
    hidden = [path for path in below if path not in kept]

    def is_gone(path: str) -> bool:
        """Say whether what hides something else hides this, too, and nothing is shown in between."""
        outer = [one for one in hidden if one != path and is_under(path, one)]
        return any(not any(is_under(path, one) and is_under(one, base) for one in own) for base in outer)

    programs = [path for path in ground.programs if not any(is_under(path, one) for one in writable)]
    protected = [path for path in found.protected if path not in writable]
    others = (*protected, *hidden, *(path for path in readable if path in kept))
    return SandboxPolicy(
        cwd=cwd,
        writable=_outermost([path for path in writable if path in kept], others, found.pinned),
        readable=_once([*programs, *(path for path in readable if path in kept and path not in writable)]),
        protected=_once(protected),
        pinned=_once([path for path in found.pinned if path not in (*writable, *hidden) and not is_gone(path)]),
        hidden=_once([path for path in found.hidden if path in hidden and not is_gone(path)]),
        hidden_files=_once([path for path in found.hidden_files if path in hidden and not is_gone(path)]),
        absent=found.absent,
        mounts=found.mounts,
        network=boundary.network,
    )


def _outermost(writable: Sequence[str], others: Sequence[str], pinned: Sequence[str]) -> tuple[str, ...]:
    """Leave out what another one holds already: nobody could replace or remove what is a mount of its own.

    What has others in between, or inside, has to be named by itself.
    """

    def is_held(path: str) -> bool:
        base = max((one for one in writable if one != path and is_under(path, one)), key=len, default=None)
        if base is None or any(is_under(one, path) for one in (*others, *pinned)):
            return False
        return not any(is_under(path, other) and is_under(other, base) for other in others)

    return tuple(path for path in dict.fromkeys(writable) if not is_held(path))


def _once(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))
