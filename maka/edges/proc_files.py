"""Reads of `/proc` that keep the GIL.

`os` gives the GIL back around each call, and listing a directory does so for each name. Among a hundred busy threads
it takes ten times as long to get it back as such a call takes, and a look at all processes is hundreds of calls.

Law: only what the kernel answers at once is read with the GIL kept. `stat` is; `environ`, for which a stuck process
can keep its reader waiting, is not.
"""

import ctypes
import os
from functools import cache
from typing import Any

PROC = "/proc"
_READ_BYTES = 64 << 10
_STAT_BYTES = 4 << 10
_NAME_AT, _LENGTH_AT = 19, 16


@cache
def _libc() -> Any:
    return ctypes.PyDLL(None, use_errno=True)


def pids() -> list[int]:
    """Return the numbers of all processes that are visible; none where there is no `/proc`."""
    try:
        fd = os.open(PROC, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return [int(name) for name in _names(fd) if name.isdigit()]
    finally:
        os.close(fd)


def _names(fd: int) -> list[str]:
    try:
        getdents = _libc().getdents64
    except (AttributeError, OSError):
        return os.listdir(fd)
    buffer, names = ctypes.create_string_buffer(_READ_BYTES), list[str]()
    while (size := getdents(fd, buffer, _READ_BYTES)) > 0:
        data, at = buffer.raw[:size], 0
        while at < size:
            # struct linux_dirent64, the same on every architecture: inode, offset, length of the entry, type, name.
            length = int.from_bytes(data[at + _LENGTH_AT : at + _LENGTH_AT + 2], "little")
            names.append(data[at + _NAME_AT : at + length].split(b"\0", 1)[0].decode("utf-8", "replace"))
            at += length
    return names


def read_stat(pid: int) -> bytes:
    """Return `/proc/PID/stat`, nothing where there is no such process."""
    libc = _libc()
    fd = libc.open(f"{PROC}/{pid}/stat".encode(), os.O_RDONLY | os.O_CLOEXEC)
    if fd < 0:
        return b""
    buffer = ctypes.create_string_buffer(_STAT_BYTES)
    size = libc.read(fd, buffer, _STAT_BYTES)
    libc.close(fd)
    return buffer.raw[: max(size, 0)]


def read_file(path: str) -> bytes | None:
    """Return what a file of `/proc` says, None where it is gone or another user's. Gives the GIL back meanwhile."""
    # Not `open`: its buffers and checks double the time.
    data = b""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        while piece := os.read(fd, _READ_BYTES):
            data += piece
    except OSError:
        return None
    finally:
        os.close(fd)
    return data
