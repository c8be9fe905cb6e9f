"""What a session asks to be allowed, brought into the one form in which it may become a fact.

Laws: paths are real and absolute before any fact exists; a subtree is a directory that is there, an exact path is none;
what another entry covers is dropped; the bounds hold for the form that came in and for the one that goes out.
"""

import os
from typing import Literal

import msgspec
from msgspec.structs import replace

from maka.contracts.boundary import Boundary, Expansion, FileEntry, Grant, covers
from maka.contracts.limits import EXPANSION_BYTES_MAX, EXPANSION_ENTRIES_MAX, EXPANSION_PATH_CHARS_MAX
from maka.tools.boundary import PathError, lacks, led_in, resolved
from maka.tools.policy import Ground, barrier_of, is_kernels, is_under

Reason = Literal[
    "invalid_expansion",
    "empty_expansion",
    "too_many_entries",
    "invalid_entry",
    "invalid_path",
    "path_too_long",
    "payload_too_large",
    "requires_bypass",
]


class ExpansionError(Exception):
    """An expansion that can't be asked for; `reason` is its word, the message says what to do."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason: Reason = reason


def expansion_of(raw: object) -> Expansion:
    """Read an expansion as it came from outside. Raises ExpansionError."""
    try:
        if len(msgspec.json.encode(raw)) > EXPANSION_BYTES_MAX:
            raise ExpansionError("payload_too_large", f"an expansion has at most {EXPANSION_BYTES_MAX} bytes")
        return msgspec.convert(raw, Expansion)
    except (msgspec.ValidationError, UnicodeEncodeError, TypeError) as error:
        raise ExpansionError("invalid_expansion", str(error)) from None


def normalise(expansion: Expansion, cwd: str, ground: Ground) -> Expansion:
    """Return the same permissions with real paths, none twice. `~/` is the home folder. Raises ExpansionError."""
    if not expansion.filesystem and not expansion.network:
        raise ExpansionError("empty_expansion", "name a path, or the network")
    if len(expansion.filesystem) > EXPANSION_ENTRIES_MAX:
        raise ExpansionError("too_many_entries", f"an expansion has at most {EXPANSION_ENTRIES_MAX} entries")
    kept: list[FileEntry] = []
    for entry in (_real(entry, cwd, ground) for entry in expansion.filesystem):
        if not _is_covered(entry, kept, ground):
            kept = [*(one for one in kept if not _is_covered(one, [entry], ground)), entry]
    found = Expansion(filesystem=tuple(kept), network=expansion.network)
    if len(msgspec.json.encode(found)) > EXPANSION_BYTES_MAX:
        raise ExpansionError("payload_too_large", f"an expansion has at most {EXPANSION_BYTES_MAX} bytes")
    return found


def lacking(expansion: Expansion, boundary: Boundary, ground: Ground) -> Expansion:
    """Return what of a normalised expansion the boundary doesn't allow yet: nothing else has to be asked for.

    Of a folder granted once more no barrier in it would open either. Raises PermissionError where a folder is closed.
    """
    led = (
        led_in(boundary, ground) if any(entry.access == "write" for entry in expansion.filesystem) else frozenset[str]()
    )
    below = replace(boundary, grants=tuple(map(_of_folders, boundary.grants)))

    def is_lacking(entry: FileEntry) -> bool:
        # A path that was granted alone may be a folder by now: nothing below it was.
        its = boundary if entry.scope == "exact" else below
        return lacks(its, entry.path, entry.access, ground, led) is not None

    return Expansion(
        filesystem=tuple(filter(is_lacking, expansion.filesystem)),
        network=expansion.network and not boundary.network,
    )


def _of_folders(grant: Grant) -> Grant:
    whole = tuple(entry for entry in grant.expansion.filesystem if entry.scope == "subtree")
    return replace(grant, expansion=replace(grant.expansion, filesystem=whole))


def _is_covered(entry: FileEntry, by: list[FileEntry], ground: Ground) -> bool:
    """Say so: what a barrier holds is opened by no entry above that."""
    barrier = barrier_of(entry.path, entry.access, ground)
    within = tuple(one for one in by if not barrier or is_under(one.path, barrier))
    return covers(Expansion(filesystem=within), Expansion(filesystem=(entry,)))


def _real(entry: FileEntry, cwd: str, ground: Ground) -> FileEntry:
    if len(entry.path) > EXPANSION_PATH_CHARS_MAX:
        raise ExpansionError("path_too_long", f"a path has at most {EXPANSION_PATH_CHARS_MAX} characters")
    try:
        real = resolved(os.path.expanduser(entry.path), cwd)
    except PathError as error:
        raise ExpansionError("invalid_path", str(error)) from None
    if len(real) > EXPANSION_PATH_CHARS_MAX:
        raise ExpansionError("path_too_long", f"{entry.path} is really longer than {EXPANSION_PATH_CHARS_MAX}")
    folder = os.path.isdir(real)
    if entry.scope == "subtree" and not folder:
        raise ExpansionError("invalid_entry", f"{real} is no directory that is there: name one, or give scope exact")
    if entry.scope == "exact" and folder:
        raise ExpansionError("invalid_entry", f"{real} is a directory: give scope subtree, or name a file")
    if any(is_under(real, own) for own in ground.own):
        raise ExpansionError("requires_bypass", f"{real} belongs to Maka itself")
    if is_kernels(real):
        raise ExpansionError(
            "requires_bypass", f"{real} is the kernel's, and a sandbox has its own: name another place"
        )
    if real == "/" and entry.access == "write":
        raise ExpansionError("requires_bypass", "all of the machine can't be granted: name a directory")
    return FileEntry(path=real, access=entry.access, scope=entry.scope)
