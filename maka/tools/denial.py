"""PURE: what a sandbox probably denied, judged by what the names in an output are. A likely reason, never a proof.

Laws:
- What is named is what the same thing needs, or needs first: for a name that comes or goes that is its folder, but for
  a protected name in a writable folder that name alone.
- Whoever writes the output could lead to what is named. So little is named at once, never a broad folder (but the path
  in it that was denied, which Write can make then, unless it was to be a folder), and something hidden only where the
  command itself has its name.
- What no expansion opens is said to need a bypass; what the person couldn't do either isn't the sandbox's doing.
"""

import os.path
from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec.structs import replace

from maka.contracts.boundary import Expansion, FileEntry, covers
from maka.contracts.tool_ports import BoundaryNeed
from maka.tools.denial_words import Said
from maka.tools.policy import Access, all_needed, allowed_by_a_person, is_kernels, made_by_a_person, needed

Kind = Literal["folder", "other", "missing"]

LIKELY = "likely, as the command's output reads"
NAME_ALONE = (
    "likely, as the command's output reads; a folder that it would need is too broad to be asked for, so only the path "
    "in it is: a command still can't make, replace or remove a name there, but once this is allowed Write can write it"
)
OWN_LOOPBACK = (
    "likely, as the command's output reads: it has no network, and loopback is its own, so only a server of the same "
    "command could have answered"
)
NO_UNIX_SOCKETS = (
    "likely, as the command's output reads: a command can make no unix socket but a connected pair; where bubblewrap "
    "is the sandbox, a person can let it ([tools] unix_sockets = true in config.toml)"
)
FOLDER_ALONE = "likely, as the command's output reads; {} was to be a folder, and the one around it is too broad"
NAME_THERE = (
    "likely, as the command's output reads; it makes, replaces or removes a name in {}, which is too broad to be asked "
    "for"
)
PASSING = "likely, as the command's output reads; it makes a file of its own in {}, which is too broad to be asked for"
_CLOSED = (
    "likely: {} holds something protected or hidden, and this sandbox closes such a folder for names that come or go "
    "(Write makes files there, where the boundary allows it)"
)
_STAYS = "likely: the sandbox holds {} in its place"
_APART = "likely: nothing is renamed or linked across the sandbox's mounts, {} among them; copy it instead"
_KERNEL = "likely: {} is the kernel's"
_ALL = "likely: all of the machine can't be granted"
ENTRIES_MAX = 3
ANY_NAME = ".maka-new"
"""A name that isn't protected."""


class Sight(Protocol):
    """What is there, outside of the sandbox, and what it was told. All paths are absolute."""

    def kind(self, path: str) -> Kind:
        """Say what a path is; a link is what it leads to."""
        ...

    def real(self, path: str, *, last: bool) -> str:
        """Return where a path leads, a `last` link followed or not."""
        ...

    def lacks(self, path: str, access: Access) -> BoundaryNeed | None:
        """Return what the boundary lacks for a real path."""
        ...

    def is_hidden(self, path: str, *, is_gone: bool) -> bool:
        """Say whether a command can't read it, or, where it `is_gone`, doesn't even see it."""
        ...

    def is_named(self, path: str) -> bool:
        """Say whether the command's own words have the last part of a path."""
        ...

    def is_broad(self, folder: str) -> bool:
        """Say whether a folder holds too much to be opened for what an output says."""
        ...

    def could(self, path: str, access: Access) -> bool:
        """Say whether the person could do it, without any sandbox."""
        ...

    def would_close(self, folder: str, *, is_mountless: bool) -> bool:
        """Say whether no name could come or go in a folder, were it granted.

        `is_mountless` says that the denial was none by a mount.
        """
        ...

    def is_pinned(self, path: str) -> bool:
        """Say whether a folder is held in its place."""
        ...

    def held(self, folder: str) -> Sequence[str]:
        """Return what lies below a folder and has fewer rights than it."""
        ...

    def mounts(self, folder: str) -> Sequence[str]:
        """Return the protected files right in a folder that the command names."""
        ...

    def base(self, path: str) -> str | None:
        """Return the mount that a writable path lies in."""
        ...


def likely(said: Sequence[Said], bases: Sequence[str], sight: Sight) -> BoundaryNeed | None:
    """Return what a command seems to have lacked of files, None where its words don't say.

    `bases` are folders that its relative names may begin at, the likeliest first.
    """
    entries: list[FileEntry] = []
    reason = LIKELY
    for one in said:
        for need in _needs(one, bases, sight):
            if need.expansion is None:
                return need
            for entry in need.expansion.filesystem:
                so_far = Expansion(filesystem=tuple(entries))
                if len(entries) < ENTRIES_MAX and not covers(so_far, Expansion(filesystem=(entry,))):
                    entries.append(entry)
                    reason = need.reason if need.reason != LIKELY else reason
    kept = [one for one in entries if not _is_in_another(one, entries)]
    return BoundaryNeed(expansion=Expansion(filesystem=tuple(kept)), reason=reason) if kept else None


def _is_in_another(entry: FileEntry, entries: list[FileEntry]) -> bool:
    others = Expansion(filesystem=tuple(one for one in entries if one is not entry))
    return covers(others, Expansion(filesystem=(entry,)))


def _needs(said: Said, bases: Sequence[str], sight: Sight) -> list[BoundaryNeed]:
    """Return what a line's names lack: of one that was to go from place to place all of them, else the first."""
    if said.why == "apart":
        return _apart(said, bases, sight)
    if said.source:
        of_source = replace(said, names=(said.source,), sure=1, reads=True, moves=False, makes=False, source="")
        if needs := _needs(of_source, bases, sight):
            return needs
    both = said.moves or said.why == "busy"
    found: list[BoundaryNeed] = []
    for at, name in enumerate(said.names):
        if found and not (both and at < said.sure):
            break
        for base in bases:
            path = os.path.normpath(os.path.join(base, name))
            if (need := _need(path, said, sight, is_sure=at < said.sure)) is not None:
                found.append(need)
                break
    return found


def _need(path: str, said: Said, sight: Sight, *, is_sure: bool) -> BoundaryNeed | None:
    moves = said.moves or said.why == "busy"
    place = sight.real(path, last=not moves)
    is_folder = said.folder
    # Who makes folders on the way names what was to be in them.
    while is_sure and said.makes and sight.kind(os.path.dirname(place)) == "missing":
        place, is_folder = os.path.dirname(place), True
        if os.path.dirname(place) == "/":
            return None
    kind = sight.kind(place)
    if not place or (kind == "missing" and sight.kind(os.path.dirname(place)) != "folder"):
        return None
    is_gone = said.why == "missing"
    if is_gone and (kind == "missing" or not sight.is_hidden(place, is_gone=True)):
        return None
    if is_gone or (said.why == "denied" and not (moves or said.makes) and sight.is_hidden(place, is_gone=False)):
        return None if kind == "missing" else _granted(place, kind, "read", sight)
    if said.reads:
        return None  # all else can be read, as far as its mode lets
    # To write what may be written is denied by nothing: then it was the name that had to go.
    if moves or kind == "missing" or sight.lacks(place, "write") is None:
        return _for_a_name(place, kind, said, sight, is_folder=is_folder and kind == "missing")
    return _granted(place, kind, "write", sight)


def _for_a_name(place: str, kind: Kind, said: Said, sight: Sight, *, is_folder: bool) -> BoundaryNeed | None:
    """Return what lacks for a name to come, as a folder or not, or to go."""
    folder = os.path.dirname(place)
    own = sight.lacks(place, "write")
    if own is not None and own.expansion is None:
        return own
    if sight.lacks(os.path.join(folder, ANY_NAME), "write") is not None:
        if sight.is_broad(folder):
            return _in_a_broad_folder(place, kind, said, sight, is_folder=is_folder)
        would_close = sight.would_close(folder, is_mountless=said.why == "denied")
        return _bypass(_CLOSED, folder) if would_close else _granted(folder, "folder", "write", sight)
    # A folder is closed where no mount can hold one thing in it: none but that is denied for the sake of a mode.
    if said.why == "denied" and any(one != place for one in sight.held(folder)):
        return _bypass(_CLOSED, folder) if sight.could(folder, "write") else None
    if kind == "missing" and said.why != "busy":
        return None
    if sight.is_pinned(place):
        return _bypass(_STAYS, place)
    if own is not None:
        return _granted(place, kind, "write", sight)
    # A new file was to replace another one, which goes unnamed.
    its = [one for one in sight.mounts(folder) if sight.lacks(one, "write") is not None] if said.why == "busy" else []
    return BoundaryNeed(expansion=all_needed(its), reason=LIKELY) if its else None


def _granted(path: str, kind: Kind, access: Access, sight: Sight) -> BoundaryNeed | None:
    """Return the expansion that opens a path, or say that none does; None where nothing of it is closed."""
    need = sight.lacks(path, access)
    if need is None or not sight.could(path, access):
        return None
    if need.expansion is None:
        return need
    if path == "/" and access == "write":
        return BoundaryNeed(expansion=None, reason=_ALL)
    if is_kernels(path):
        return _bypass(_KERNEL, path)
    if _is_secret(path, access, sight) or (kind == "folder" and sight.is_broad(path)):
        return None
    return BoundaryNeed(expansion=needed(path, access, "subtree" if kind == "folder" else "exact"), reason=LIKELY)


def _in_a_broad_folder(place: str, kind: Kind, said: Said, sight: Sight, *, is_folder: bool) -> BoundaryNeed | None:
    """Return what opens one file in a folder that is too broad to be named itself, or what a person can do instead."""
    folder = os.path.dirname(place)
    if is_kernels(place):
        return _bypass(_KERNEL, place)
    if _is_secret(place, "write", sight) or not sight.could(folder, "write"):
        return None
    if kind == "missing" and said.passing:
        return allowed_by_a_person(folder, PASSING.format(folder))
    if is_folder:
        return made_by_a_person(place, FOLDER_ALONE.format(place))
    if kind != "missing" or said.link:
        return allowed_by_a_person(folder, NAME_THERE.format(folder), first=f"Do without it for {place}")
    if sight.lacks(place, "write") is None:
        return allowed_by_a_person(folder, NAME_THERE.format(folder))
    return BoundaryNeed(expansion=needed(place, "write"), reason=NAME_ALONE)


def _is_secret(path: str, access: Access, sight: Sight) -> bool:
    """Say whether a path is hidden, and the command's own words don't have its name."""
    return sight.is_hidden(path, is_gone=access == "read") and not sight.is_named(path)


def _apart(said: Said, bases: Sequence[str], sight: Sight) -> list[BoundaryNeed]:
    """Say that two places are mounts by themselves, or one of them is closed, as both stay whatever is granted."""
    for base in bases:
        places = [sight.real(os.path.join(base, name), last=False) for name in said.names[: max(said.sure, 1)]]
        if not all(place and sight.kind(os.path.dirname(place)) == "folder" for place in places):
            continue
        closed = [place for place in places if sight.lacks(place, "write") is not None]
        if closed or len({sight.base(place) for place in places}) > 1:
            return [_bypass(_APART, (closed or places)[-1])]
    return []


def _bypass(reason: str, path: str) -> BoundaryNeed:
    return BoundaryNeed(expansion=None, reason=reason.format(path))
