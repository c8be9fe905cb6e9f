"""What a person allows on a command line: `--boundary` and `--allow`, made real paths before any fact exists."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

import click

from maka.contracts.boundary import Boundary, Expansion, FileEntry, Profile, covers
from maka.contracts.errors import Refusal, RefusalCode, RefusedError

if TYPE_CHECKING:
    from maka.contracts.commands import BoundarySet
    from maka.session_manager import SessionManager

ENTRIES_MAX = 32
PATH_CHARS_MAX = 4_096
F = TypeVar("F", bound="Any")


def boundary_options(function: F) -> F:
    """Add --boundary and --allow to a command."""
    allow = click.option(
        "--allow",
        multiple=True,
        metavar="WHAT",
        help="Widen the boundary beforehand: write:PATH, read:PATH or net. Repeatable.",
    )
    boundary = click.option(
        "--boundary",
        type=click.Choice([profile.value for profile in Profile]),
        help="explore reads the workspace, ask (the default) reads and writes it, bypass has no limits.",
    )
    return boundary(allow(function))


def parse_allowed(words: Sequence[str]) -> Expansion:
    """Return the expansion that --allow asks for. Raises RefusedError for what can't be granted."""
    network = False
    entries: list[FileEntry] = []
    for word in words:
        kind, colon, path = word.partition(":")
        if word == "net":
            network = True
        elif kind == "write" and colon and path:
            entries.append(_entry(path, "write"))
        elif kind == "read" and colon and path:
            entries.append(_entry(path, "read"))
        else:
            _refuse(f"--allow {word[:100]!r} is none of write:PATH, read:PATH and net.")
    unique = tuple(dict.fromkeys(entries))
    if len(unique) > ENTRIES_MAX:
        _refuse(f"--allow names {len(unique)} paths, at most {ENTRIES_MAX} fit: name a folder that holds them.")
    return Expansion(filesystem=unique, network=network)


def _entry(path: str, access: Literal["read", "write"]) -> FileEntry:
    """A folder means everything below it; anything else is one file, which need not be there yet."""
    if "\0" in path:
        _refuse("--allow: a path holds no NUL byte.")
    full = os.path.abspath(os.path.expanduser(path))
    real = os.path.realpath(full)
    try:
        real.encode()
    except UnicodeEncodeError:
        _refuse(f"--allow {path!r}: a path that isn't UTF-8 can't be recorded; rename it.")
    if len(real) > PATH_CHARS_MAX:
        _refuse(f"--allow: a path has at most {PATH_CHARS_MAX:,} characters.")
    if os.path.isdir(real):
        return FileEntry(path=real, access=access, scope="subtree")
    if path.endswith("/") or not os.path.isdir(os.path.dirname(real)):
        _refuse(f"--allow {path}: there is no such folder; create it first.")
    return FileEntry(path=real, access=access, scope="exact")


def widen(
    manager: "SessionManager",
    session_id: str,
    *,
    profile: str | None,
    grants: Expansion,
    scope: Literal["session", "workspace"] = "session",
) -> "BoundarySet | None":
    """Change a session's boundary to what was asked for; returns None where it is so already."""
    now = manager.boundary(session_id)
    same = profile is None or profile == now.profile
    if same and (grants == Expansion() or covers(_held(now, scope), grants)):
        return None
    return manager.change_boundary(session_id, profile=profile, grants=grants, scope=scope, client="cli")


def _held(boundary: Boundary, scope: str) -> Expansion:
    """Return what lasts at least as long as a scope."""
    lasting = [grant.expansion for grant in boundary.grants if grant.scope in (scope, "workspace")]
    return Expansion(
        filesystem=tuple(entry for expansion in lasting for entry in expansion.filesystem),
        network=any(expansion.network for expansion in lasting),
    )


def _refuse(message: str) -> NoReturn:
    raise RefusedError(Refusal(code=RefusalCode.INVALID_INPUT, message=message))
