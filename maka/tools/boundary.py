"""Where file tools may go: the workspace, by real path. Dots, links and absolute paths are followed, then judged.

Laws:
- A path is resolved as the kernel would (links first, then dots) and must lie inside the real workspace.
- Files are then opened step by step from a descriptor of the workspace's root, never following a link: a folder that
  is swapped for a link between the check and the use makes the call fail, not escape.
- Opening never blocks: a pipe or a device is refused without waiting for it.
"""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress

from msgspec import Struct

from maka.contracts.limits import PATH_BYTES_MAX

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PathError(Exception):
    """A path that can't be used; the message is for the model and says what to do."""


class Place(Struct, frozen=True, kw_only=True):
    """A path inside the workspace: `root` and `real` have no links, `parts` lead from one to the other."""

    root: str
    real: str
    parts: tuple[str, ...]
    shown: str

    @property
    def is_root(self) -> bool:
        return not self.parts


def locate(cwd: str, path: str) -> Place:
    """Resolve what a model calls a path. Raises PathError for one that is unusable or lies outside the workspace."""
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
    root = os.path.realpath(cwd)
    real = os.path.realpath(os.path.join(root, path))
    if real != root and not real.startswith(root.rstrip("/") + "/"):
        raise PathError(f"{path} is outside the workspace (it is {real}); only paths inside {root} can be used")
    inner = os.path.relpath(real, root)
    parts = () if inner == "." else tuple(inner.split("/"))
    return Place(root=root, real=real, parts=parts, shown=inner)


@contextmanager
def parent_of(place: Place, *, create: bool = False) -> Generator[int]:
    """Open the folder that holds a place, link by link; with `create`, missing folders are made. Raises PathError."""
    fd = _root(place)
    try:
        for part in place.parts[:-1]:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
            inner = os.open(part, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _root(place: Place) -> int:
    try:
        return os.open(place.root, _FOLDER)
    except OSError as error:
        raise PathError(f"the workspace {place.root} can't be opened: {error.strerror}") from None


@contextmanager
def opened(place: Place, folder: int) -> Generator[tuple[int, os.stat_result]]:
    """Open a regular file for reading, without blocking. Raises PathError, FileNotFoundError and other OSErrors."""
    if place.is_root:
        raise PathError("this is the workspace itself, a directory: use Glob to list files")
    name = place.parts[-1]
    _must_be_file(os.stat(name, dir_fd=folder, follow_symlinks=False), place)
    fd = os.open(name, _READ, dir_fd=folder)
    try:
        info = os.fstat(fd)
        _must_be_file(info, place)
        yield fd, info
    finally:
        os.close(fd)


def _must_be_file(info: os.stat_result, place: Place) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise PathError(f"{place.shown} is a directory: use Glob to list files")
    if stat.S_ISLNK(info.st_mode):
        raise PathError(f"{place.shown} turned into a link while it was opened: try again")
    if not stat.S_ISREG(info.st_mode):
        raise PathError(f"{place.shown} is not a regular file (a pipe, socket or device)")


def explain(error: OSError, place: Place) -> str:
    """Say an operating system's error in a line for the model."""
    if isinstance(error, FileNotFoundError):
        return f"{place.shown} does not exist: use Glob to find the right path"
    if isinstance(error, NotADirectoryError):
        return f"a part of {place.shown} is a file, not a directory"
    return f"{place.shown}: {error.strerror or error}"
