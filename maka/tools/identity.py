"""Which thing of a file system stands under a name, and what it holds.

Law: what is made anew is another thing, also where the file system gives it the number of one that is gone.
"""

import ctypes
import os
import stat
from hashlib import sha256

from msgspec import Struct

CONTENT_BYTES_MAX = 256 << 10
_ENTRIES_MAX = 256
_HANDLE_BYTES_MAX = 128
_HERE = -100
SAMPLE = ".sample"


class Identity(Struct, frozen=True):
    """A thing of a file system. `handle` tells it from an earlier one of the same number, where the system can."""

    device: int
    inode: int
    is_link: bool
    handle: bytes = b""


def identity_of(path: str) -> Identity | None:
    """Return which thing stands under a name now, None where nothing does."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return Identity(info.st_dev, info.st_ino, stat.S_ISLNK(info.st_mode), _handle_of(path))


class Content(Struct, frozen=True):
    """What stands under a name: kind and mode in one, and a digest. `data` are a file's bytes where those are kept."""

    mode: int
    digest: bytes
    owner: tuple[int, int]
    data: bytes | None = None

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)


def content_of(path: str, *, keep: bool = False) -> Content | None:
    """Return what stands under a name, None where it is too much, can't be read, or changes at this moment.

    Of a folder that is all below it but git's samples of hooks, which never run.
    """
    try:
        info = os.lstat(path)
        mode, owner = info.st_mode, (info.st_uid, info.st_gid)
        if stat.S_ISDIR(mode):
            digest = _digest(path)
            return None if digest is None else Content(mode, digest, owner)
        data = os.fsencode(os.readlink(path)) if stat.S_ISLNK(mode) else regular_bytes(path)
    except OSError:
        return None
    return None if data is None else Content(mode, sha256(data).digest(), owner, data if keep else None)


def is_at(path: str, fd: int) -> bool:
    """Say whether what was opened stands at a real path: a link on the way would have been followed.

    Where the system has no way to tell it isn't said.
    """
    try:
        return os.readlink(f"/proc/self/fd/{fd}") == path
    except OSError:
        return not os.path.isdir("/proc/self/fd")


def regular_bytes(path: str, most: int = CONTENT_BYTES_MAX) -> bytes | None:
    """Return what a regular file holds, None where that is more, or it is none. Never waits. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        with open(fd, "rb", closefd=False) as file:
            data = file.read(most + 1)
    finally:
        os.close(fd)
    return data if len(data) <= most else None


def _digest(folder: str) -> bytes | None:
    found: list[tuple[bytes, int, bytes]] = []
    left = CONTENT_BYTES_MAX
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            paths = [entry.path for entry in entries if not entry.name.endswith(SAMPLE)]
        for path in paths:
            info = os.lstat(path)
            data: bytes | None = b""
            if stat.S_ISDIR(info.st_mode):
                waiting.append(path)
            elif stat.S_ISLNK(info.st_mode):
                data = os.fsencode(os.readlink(path))
            else:
                data = regular_bytes(path)
            if data is None or len(found) == _ENTRIES_MAX or (left := left - len(data)) < 0:
                return None
            found.append((os.fsencode(path[len(folder) :]), info.st_mode, data))
    digest = sha256()
    for one in sorted(found):
        digest.update(repr(one).encode())
    return digest.digest()


def _handle_of(path: str) -> bytes:
    """Return by which the file system would know a thing again: its number, and how often that was given."""
    if _HANDLES is None:
        return b""
    buffer = ctypes.create_string_buffer(8 + _HANDLE_BYTES_MAX)
    size = ctypes.c_uint.from_buffer(buffer)
    size.value = _HANDLE_BYTES_MAX
    failed = _HANDLES(_HERE, os.fsencode(path), buffer, ctypes.byref(ctypes.c_int()), 0)
    return b"" if failed else buffer.raw[8 : 8 + size.value]


_HANDLES = getattr(ctypes.CDLL(None), "name_to_handle_at", None)
