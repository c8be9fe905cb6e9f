"""Where file tools may go, by real path: what the session's boundary allows, and nothing that turns into a link.

Laws:
- A path is resolved as the kernel would (links first, then dots), and what it really is must be allowed.
- Files are then opened step by step from the root folder's descriptor, never following a link: a folder that is
  swapped for a link between the check and the use makes the call fail, not escape.
- Opening never blocks: a pipe or a device is refused without waiting for it.
"""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct

from maka.contracts.boundary import Boundary, Profile
from maka.contracts.content import Outcome
from maka.contracts.limits import PATH_BYTES_MAX
from maka.contracts.tool_ports import BoundaryNeed, ToolEnv, ToolResult
from maka.tools.broad import is_broad
from maka.tools.policy import Access, Ground, is_under, judge, made_by_a_person, needed, writes_but_for_barriers
from maka.tools.repositories import would_make
from maka.tools.survey import as_now, led_to, protected_paths
from maka.tools.walk import Walk

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Only Linux can hold a folder that it isn't allowed to list.
_STEP = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


class PathError(Exception):
    """A path that can't be used. `said` is what is so, for people, too; the message adds what the model is to do."""

    def __init__(self, said: str, hint: str = "") -> None:
        super().__init__(f"{said}: {hint}" if hint else said)
        self.said = said

    @property
    def result(self) -> ToolResult:
        """The call's result."""
        return ToolResult(outcome=Outcome.ERROR, text=str(self))


class OutsideError(PathError):
    """A path that the session's boundary doesn't allow; `need` is what would."""

    def __init__(self, need: BoundaryNeed, what: str) -> None:
        super().__init__(refusal_text(need, what))
        self.need = need

    @property
    def result(self) -> ToolResult:
        return ToolResult(outcome=Outcome.REFUSED, text=str(self), need=self.need)


class Place(Struct, frozen=True, kw_only=True):
    """A path that may be used: `real` has no links, `parts` lead to it from the root folder, `root` is the workspace.

    `shown` is relative to the workspace, or absolute where the path lies outside of it.
    """

    root: str
    real: str
    parts: tuple[str, ...]
    shown: str

    @property
    def is_root(self) -> bool:
        return self.real == self.root


def refusal_text(need: BoundaryNeed, what: str) -> str:
    """Return a refusal as the model reads it: one line of JSON, then what to do."""
    if need.instead:
        head = {"error": "no_expansion", "reason": need.reason}
        then = f"No expansion of the boundary allows this, so don't ask for one. {need.instead}"
    elif need.expansion is None:
        head = {"error": "requires_bypass", "reason": need.reason}
        then = "No expansion of the boundary allows this; only a person can, by giving the session the profile bypass."
    else:
        expansion = msgspec.to_builtins(need.expansion)
        head = {"error": "sandbox_boundary_required", "reason": need.reason, "expansion": expansion}
        then = "Do without it, or ask for exactly this expansion with request_sandbox_boundary and then call again."
    return f"{what}\n{msgspec.json.encode(head).decode()}\n{then}"


def all_the_same_text(need: BoundaryNeed) -> str:
    """Say what a call that ended well has probably lacked for a part of it, as the model reads it."""
    head = f"The command ended well, but the sandbox has probably denied a part of it ({need.reason})."
    if need.expansion is None:
        return f"{head} No expansion of the boundary allows that. {need.instead}".rstrip()
    expansion = msgspec.json.encode(need.expansion).decode()
    return f"{head} If that part matters, ask for this expansion with request_sandbox_boundary:\n{expansion}"


def no_sandbox(missing: str, what: str) -> ToolResult:
    """Refuse what runs inside of a sandbox only, where there is none: `missing` says why and what to install."""
    need = BoundaryNeed(expansion=None, reason=missing)
    text = refusal_text(need, f"{what}: there is no sandbox on this machine.")
    return ToolResult(outcome=Outcome.REFUSED, text=text, need=need)


def closed_text(path: str) -> str:
    """Say what to do about what its own user can't look into, though it may hold, or name, something protected."""
    return f"{path} can't be read, and it decides what is protected here: a person has to open it (chmod u+rwX)"


def boundary_of(env: ToolEnv) -> Boundary:
    """Return a call's boundary; where it names no workspace, that is the call's directory."""
    if env.boundary.workspace:
        return env.boundary
    return msgspec.structs.replace(env.boundary, workspace=os.path.realpath(env.cwd))


def locate(env: ToolEnv, path: str, access: Access, ground: Ground) -> Place:
    """Resolve what a model calls a path. Raises PathError for one that is unusable, OutsideError for one too far."""
    boundary, ground = boundary_of(env), as_now(ground)
    real = resolved(path, env.cwd)
    root = boundary.workspace
    if not os.path.isdir(root):
        raise PathError(
            f"the working directory {root} does not exist (any more): create it again, or start a session elsewhere"
        )
    try:
        led = led_in(boundary, ground) if access == "write" else frozenset[str]()
    except PermissionError as closed:
        raise PathError(f"nothing was written: {closed_text(str(closed.filename))}") from None
    if (need := lacks(boundary, real, access, ground, led)) is not None:
        if need.expansion is not None and access == "write":
            _may_make_folders(boundary, path, real, ground, broad_only=True)
        if need.expansion is not None and os.path.isdir(real):
            need = BoundaryNeed(expansion=needed(real, access, "subtree"), reason=need.reason)
        raise OutsideError(need, _too_far(path, real, access, root))
    if access == "write":
        _may_make_folders(boundary, path, real, ground)
    shown = os.path.relpath(real, root) if is_under(real, root) else real
    return Place(root=root, real=real, parts=tuple(part for part in real.split("/") if part), shown=shown)


def led_in(boundary: Boundary, ground: Ground) -> frozenset[str]:
    """Return what protected names lead to in what can be written. Raises PermissionError where one is closed."""
    if boundary.profile is Profile.BYPASS:
        return frozenset()
    return led_to(seen := Walk(boundary), protected_paths(seen, ground))


def lacks(boundary: Boundary, real: str, access: Access, ground: Ground, led: frozenset[str]) -> BoundaryNeed | None:
    """Return what the boundary lacks for a real path. For writing, `led` are what protected names lead to."""
    if access == "write" and boundary.profile is not Profile.BYPASS and would_make(real) is not None:
        led |= {real}
    return judge(boundary, real, access, ground, led)


def _too_far(path: str, real: str, access: Access, root: str) -> str:
    where = "is inside" if is_under(real, root) else "is outside"
    return (
        f"{path} can't be {'read' if access == 'read' else 'changed'}: it is {real}, which {where} the workspace {root}"
    )


def _may_make_folders(boundary: Boundary, path: str, real: str, ground: Ground, *, broad_only: bool = False) -> None:
    """Refuse a file whose missing folders would lie where only the file itself was granted.

    Where but for a barrier all can be written, the grant of the file by its name makes its folders, too.
    """
    folder = os.path.dirname(real)
    missing = ""
    while not os.path.lexists(folder):
        missing, folder = folder, os.path.dirname(folder)
    if not missing or writes_but_for_barriers(boundary, missing, ground):
        return
    if (need := judge(boundary, missing, "write", ground)) is not None:
        if need.expansion is not None and is_broad(folder, boundary.workspace, ground):
            reason = f"its folder {missing} is missing, and {folder} is too broad to be asked for"
            raise OutsideError(made_by_a_person(missing, reason), _too_far(path, real, "write", boundary.workspace))
        if broad_only:
            return
        wider = BoundaryNeed(expansion=need.expansion and needed(folder, "write", "subtree"), reason=need.reason)
        raise OutsideError(wider, _too_far(path, missing, "write", boundary.workspace))


def refused(env: ToolEnv, path: str, access: Access, ground: Ground) -> ToolResult | None:
    """Return why a path can't be used, as `locate` sees it; None where it can."""
    try:
        locate(env, path, access, ground)
    except PathError as refusal:
        return refusal.result
    return None


def resolved(path: str, cwd: str) -> str:
    """Return the real path, links and dots followed as the kernel would. Raises PathError for what is no path."""
    if "\0" in path:
        raise PathError("the path holds a NUL byte: give a plain path")
    if not path:
        raise PathError("the path is empty: give a path relative to the workspace")
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise PathError("the path holds characters that can't be encoded") from None
    if size > PATH_BYTES_MAX or any(len(os.fsencode(part)) > 255 for part in path.split("/")):
        raise PathError(f"the path is too long ({size} bytes)")
    try:
        return os.path.realpath(os.path.join(os.path.realpath(cwd), path))
    except OSError as error:  # a link that was there is gone before it was read
        raise PathError(f"path_changed: {path} changed while it was looked at ({error.strerror}): try again") from None


@contextmanager
def parent_of(place: Place, *, create: bool = False) -> Generator[int]:
    """Open the folder that holds a place, step by step; with `create`, missing folders are made. Raises PathError."""
    steps = place.parts[:-1]
    fd = os.open("/", _STEP if steps else _FOLDER)
    try:
        for at, part in enumerate(steps):
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
            try:
                inner = os.open(part, _FOLDER if at == len(steps) - 1 else _STEP, dir_fd=fd)
            except NotADirectoryError:
                raise _changed_or_no_folder(place, part, fd) from None
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _changed_or_no_folder(place: Place, part: str, fd: int) -> OSError | PathError:
    with suppress(OSError):
        if stat.S_ISLNK(os.stat(part, dir_fd=fd, follow_symlinks=False).st_mode):
            return PathError(f"path_changed: {part} in {place.shown} turned into a link while it was opened: try again")
    return NotADirectoryError(f"{part} is no directory")


@contextmanager
def opened(place: Place, folder: int) -> Generator[tuple[int, os.stat_result]]:
    """Open a regular file for reading, without blocking. Raises PathError, FileNotFoundError and other OSErrors."""
    if place.is_root or not place.parts:
        raise PathError("this is the workspace itself, a directory", "use Glob to list files")
    name = place.parts[-1]
    before = os.stat(name, dir_fd=folder, follow_symlinks=False)
    _must_be_file(before, place)
    try:
        fd = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link isn't followed, and it wasn't one just now
            raise _turned_into_link(place) from None
        raise
    try:
        info = os.fstat(fd)
        _must_be_file(info, place)
        if (before.st_dev, before.st_ino) != (info.st_dev, info.st_ino):
            raise PathError(f"path_changed: {place.shown} was replaced while it was opened: try again")
        yield fd, info
    finally:
        os.close(fd)


def _must_be_file(info: os.stat_result, place: Place) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise PathError(f"{place.shown} is a directory", "use Glob to list files")
    if stat.S_ISLNK(info.st_mode):
        raise _turned_into_link(place)
    if not stat.S_ISREG(info.st_mode):
        raise PathError(f"{place.shown} is not a regular file (a pipe, socket or device)")


def _turned_into_link(place: Place) -> PathError:
    return PathError(f"path_changed: {place.shown} turned into a link while it was opened: try again")


def explain(error: OSError, place: Place) -> str:
    """Say an operating system's error in a line for the model."""
    if isinstance(error, FileNotFoundError):
        return f"{place.shown} does not exist: use Glob to find the right path"
    if isinstance(error, NotADirectoryError):
        return f"a part of {place.shown} is a file, not a directory"
    return f"{place.shown}: {error.strerror or error}"
