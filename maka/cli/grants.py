"""What a person allows on a command line: `--boundary` and `--allow`, made real paths before any fact exists."""

import os
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

import click

from maka.cli.revealed import revealed
from maka.contracts.boundary import Boundary, Expansion, FileEntry, Profile
from maka.contracts.errors import Refusal, RefusalCode, RefusedError

if TYPE_CHECKING:
    from maka.config import Config
    from maka.contracts.commands import BoundarySet
    from maka.session_manager import SessionManager

F = TypeVar("F", bound="Any")


def boundary_options(function: F) -> F:
    """Add --boundary and --allow to a command."""
    allow = click.option(
        "--allow",
        multiple=True,
        metavar="WHAT",
        help="Widen the boundary beforehand: write:PATH, read:PATH (it is there) or net. Repeatable.",
    )
    boundary = click.option(
        "--boundary",
        type=click.Choice([profile.value for profile in Profile]),
        help="explore reads the workspace, ask (the default) reads and writes it, bypass has no limits.",
    )
    return boundary(allow(function))


def parse_allowed(words: Sequence[str], config: "Config") -> Expansion:
    """Return the expansion that --allow asks for. Raises RefusedError for what can't be granted."""
    if not words:
        return Expansion()
    from maka.adapters import own_files
    from maka.tools.expansion import ExpansionError, normalise
    from maka.tools.policy import Ground

    ground = Ground(own=tuple(map(os.path.realpath, own_files(config))))

    def checked(asked: Expansion, what: str) -> Expansion:
        try:
            return normalise(asked, os.getcwd(), ground)
        except ExpansionError as error:
            # Its first word is for programs.
            _refuse(f"--allow {revealed(what[:200])}: {revealed(str(error).removeprefix(f'{error.reason}: '))}.")
        except OSError as error:
            _refuse(f"--allow {revealed(what[:200])}: {revealed(str(error))}.")

    asked = [(word, _entry(word)) for word in words]
    for word, entry in asked:
        if entry is not None:
            checked(Expansion(filesystem=(entry,)), word)
    entries = tuple(entry for _, entry in asked if entry is not None)
    return checked(Expansion(filesystem=entries, network="net" in words), " ".join(words))


def _entry(word: str) -> FileEntry | None:
    """A folder means everything below it, anything else that one file. What isn't there is neither: nobody could say
    which of the two is meant."""
    kind, _, path = word.partition(":")
    if word == "net":
        return None
    shown = f"--allow {revealed(word[:200])}"
    if kind not in ("read", "write") or not path:
        _refuse(f"{shown} is none of write:PATH, read:PATH and net.")
    access: Literal["read", "write"] = "write" if kind == "write" else "read"
    full = os.path.expanduser(path)
    try:
        full.encode()
        is_folder = stat.S_ISDIR(os.stat(full).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        if full.endswith("/") and os.path.isfile(full.rstrip("/")):
            _refuse(f"{shown}: this is a file, and only a folder's name ends in a slash; leave the slash away.")
        _refuse(
            f"{shown}: there is nothing at {revealed(os.path.realpath(full)[:1_000])}. Make it first (mkdir -p for a "
            "folder, touch for a file), or allow the folder that it will be made in."
        )
    except OSError as error:
        _refuse(f"{shown}: {error.strerror}.")
    except ValueError:  # bytes that are no text, or a NUL
        _refuse(f"{shown}: this is no path in UTF-8; name another one.")
    return FileEntry(path=path, access=access, scope="subtree" if is_folder else "exact")


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
    if same and _is_held(grants, now, scope):
        return None
    return manager.change_boundary(session_id, profile=profile, grants=grants, scope=scope, client="cli")


def _is_held(grants: Expansion, boundary: Boundary, scope: str) -> bool:
    """Say whether each was granted as such for as long: what a wider one holds it may not open, such as a secret."""
    lasting = [grant.expansion for grant in boundary.grants if grant.scope in (scope, "workspace")]
    held = {entry for expansion in lasting for entry in expansion.filesystem}
    return held.issuperset(grants.filesystem) and (
        not grants.network or any(expansion.network for expansion in lasting)
    )


def _refuse(message: str) -> NoReturn:
    raise RefusedError(Refusal(code=RefusalCode.INVALID_INPUT, message=message))
