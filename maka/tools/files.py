"""Changing a file: whole or not at all, and only if it is still what was looked at.

Laws:
- The new content goes to a temp file beside the target, is fsynced, and takes the target's place by one rename: after
  a crash or on a full disk the old file is whole, and so are its mode and, where allowed, its owner.
- A file that changed since it was looked at is left as it is, and so is one whose folder was swapped: the device and
  inode of both are compared before the rename, and the path is walked once more after it.
- Changes of one file take turns, in the order in which they come here. Which of a step's calls comes first isn't left
  to its threads: each says by its `turn_of` what it is about, and its run starts it after those before it.
"""

import os
import stat
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from maka.contracts.content import Outcome
from maka.contracts.ids import SessionId
from maka.contracts.limits import FILES_REMEMBERED_MAX
from maka.contracts.masks import NO_MASKS, Masks
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolResult, Turn
from maka.tools.boundary import PathError, Place, explain, opened, parent_of, resolved
from maka.tools.made import Made
from maka.tools.policy import Ground

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class LostError(PathError):
    """A file that was written and then was moved away by someone else: what became of it isn't known."""

    @property
    def result(self) -> ToolResult:
        return ToolResult(outcome=Outcome.OUTCOME_UNKNOWN, text=str(self))


def turn_of(call: ToolCall, env: ToolEnv, *, writes: bool) -> Turn:
    """Return which file a call names, links followed: two names of one file are one turn. Hard links are two files."""
    path = str(call.args["path"])
    try:
        return Turn(path=resolved(path, env.cwd), writes=writes)
    except PathError:  # a link went just now; the call's start judges what is there then, and says so
        return Turn(path=os.path.join(env.cwd, path), writes=writes)


class Before(Struct, frozen=True, kw_only=True):
    """A file as it was looked at; `data` and `info` are None where there is none, `folder` where that isn't there."""

    data: bytes | None
    info: os.stat_result | None
    folder: tuple[int, int] | None = None


def look(place: Place, bytes_max: int) -> Before:
    """Read a file that is to be changed. Raises PathError, also where it isn't writable or larger than `bytes_max`."""
    identity: tuple[int, int] | None = None
    try:
        with parent_of(place) as folder:
            identity = _identity(os.fstat(folder))
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder):
                where = os.path.dirname(place.shown) or "."
                raise PathError(f"{place.shown} can't be changed: the folder {where} is read-only")
            return _looked_at(place, folder, identity, bytes_max)
    except FileNotFoundError:
        return Before(data=None, info=None, folder=identity)
    except OSError as error:
        raise PathError(explain(error, place)) from None


def _looked_at(place: Place, folder: int, identity: tuple[int, int], bytes_max: int) -> Before:
    with opened(place, folder) as (fd, info):
        if not os.access(place.parts[-1], os.W_OK, dir_fd=folder):
            _still_the_same(place, folder, info)  # it goes by the name, which may be a link by now
            raise PathError(f"{place.shown} is read-only", "ask the person, or change its mode first")
        if info.st_size > bytes_max:
            raise PathError(f"{place.shown} has {info.st_size} bytes, which is more than {bytes_max}: too large")
        return Before(data=read_all(fd, info.st_size), info=info, folder=identity)


def read_all(fd: int, size: int) -> bytes:
    """Read a file from where its descriptor stands, at most `size` bytes."""
    pieces: list[bytes] = []
    while size > 0 and (piece := os.read(fd, min(size, 1 << 20))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def replace(place: Place, before: Before, data: bytes, temp_name: str, mode: int | None = None) -> None:
    """Put new content in a file's place. Raises PathError; then the old file is untouched and no temp file is left.

    `mode` holds the permission bits of a file that is new; one that is there keeps its own.
    """
    try:
        with parent_of(place, create=before.info is None) as folder:
            if before.folder not in (None, _identity(os.fstat(folder))):
                raise PathError(
                    f"path_changed: nothing was changed: the folder of {place.shown} was swapped. Try again"
                )
            try:
                written = _write_temp(folder, temp_name, data, before.info, mode)
                _still_the_same(place, folder, before.info)
                os.replace(temp_name, place.parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temp_name, dir_fd=folder)
                raise
            with suppress(OSError):  # some file systems can't; the change itself has happened
                os.fsync(folder)
    except OSError as error:
        raise PathError(f"nothing was changed: {explain(error, place)}") from None
    _must_be_there(place, written)


def remove(place: Place, before: Before) -> None:
    """Remove a file that was looked at. Raises PathError; then it is untouched."""
    try:
        with parent_of(place) as folder:
            if before.folder != _identity(os.fstat(folder)):
                raise PathError(
                    f"path_changed: nothing was changed: the folder of {place.shown} was swapped. Try again"
                )
            _still_the_same(place, folder, before.info)
            os.unlink(place.parts[-1], dir_fd=folder)
            with suppress(OSError):
                os.fsync(folder)
    except OSError as error:
        raise PathError(f"nothing was changed: {explain(error, place)}") from None


def _must_be_there(place: Place, written: tuple[int, int]) -> None:
    """Walk to the file once more. Raises LostError where something else stands there now."""
    try:
        with parent_of(place) as folder:
            found = _identity(os.stat(place.parts[-1], dir_fd=folder, follow_symlinks=False))
    except (OSError, PathError):
        found = None
    if found != written:
        raise LostError(f"path_changed: {place.shown} was written, but isn't there any more: something moved it. Look")


def _identity(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino


def _write_temp(folder: int, name: str, data: bytes, like: os.stat_result | None, mode: int | None) -> tuple[int, int]:
    fd = os.open(name, _NEW, 0o666 if mode is None else 0o600, dir_fd=folder)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if like is not None:
            if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
                with suppress(OSError):
                    os.fchown(fd, like.st_uid, like.st_gid)
            # As the kernel does at a write: what runs with another's rights doesn't get a new content.
            os.fchmod(fd, stat.S_IMODE(like.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))
        elif mode is not None:
            os.fchmod(fd, mode & 0o777)
        os.fsync(fd)
        return _identity(os.fstat(fd))
    finally:
        os.close(fd)


def _still_the_same(place: Place, folder: int, before: os.stat_result | None) -> None:
    try:
        now: os.stat_result | None = os.stat(place.parts[-1], dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        now = None
    if _stamp(now) != _stamp(before):
        words = f"path_changed: nothing was changed: {place.shown} was changed by someone else meanwhile. Read it again"
        raise PathError(words)


def _stamp(info: os.stat_result | None) -> tuple[int, ...] | None:
    if info is None:
        return None
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


class FileTurns:
    """Whose turn it is to change a file, and what each session last wrote there. Any thread.

    `ground` is what no session may touch without being granted it; `masks` knows what no session may see; `made` is
    what was changed of that which commands may not.
    """

    def __init__(self, ground: Ground, masks: Masks = NO_MASKS) -> None:
        self.ground = ground
        self.masks = masks
        self.made = Made()
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._written: OrderedDict[tuple[SessionId, str], str] = OrderedDict()

    def take(self, path: str, begin: Callable[[], None]) -> None:
        """Call `begin` when the file is free: now, or later on the thread of whoever leaves it."""
        with self._lock:
            queue = self._waiting.get(path)
            if queue is not None:
                queue.append(begin)
                return
            self._waiting[path] = deque()
        begin()

    def leave(self, path: str) -> None:
        """End one's turn; the next one begins."""
        with self._lock:
            queue = self._waiting[path]
            if not queue:
                del self._waiting[path]
                return
            begin = queue.popleft()
        begin()

    def wrote(self, session: SessionId, path: str, sha256: str) -> None:
        """Remember a session's own change: calls of one step all carry what was seen before the step."""
        with self._lock:
            self._written[session, path] = sha256
            self._written.move_to_end((session, path))
            if len(self._written) > FILES_REMEMBERED_MAX:
                self._written.popitem(last=False)

    def last_written(self, session: SessionId, path: str) -> str | None:
        with self._lock:
            return self._written.get((session, path))
