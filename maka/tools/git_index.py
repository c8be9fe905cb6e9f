"""The index of a repository: which folders it names as repositories of their own.

`git status` goes into each of those, wherever it lies, and obeys the settings that it finds there. The format is git's
own (Documentation/gitformat-index): versions 2 to 4, with either hash, and the shared part of a split one.
"""

import os
import struct
from collections.abc import Iterator

from maka.tools.identity import regular_bytes

INDEX_BYTES_MAX = 64 << 20
_SHARED_MAX = 16
_HASHES = (20, 32)
_STAT = struct.Struct(">24xI12x")
_KIND, _LINK = 0o170000, 0o160000
_EXTENDED, _LENGTH = 0x4000, 0xFFF


def links_in(repository: str) -> tuple[list[str], bool]:
    """Return the folders, relative to the worktree, and whether all of the index was read. Never waits."""
    found: list[str] = []
    shared = _shared_in(repository)
    is_whole = len(shared) <= _SHARED_MAX
    for name in ("index", *shared[:_SHARED_MAX]):
        try:
            # git follows a link here.
            data = regular_bytes(os.path.realpath(os.path.join(repository, name)), INDEX_BYTES_MAX)
        except OSError:  # it isn't there, or changes at this moment: then git reads none either
            continue
        if data is None:
            is_whole = False
        else:
            # Which of the hashes a repository has is one of its settings: what the other one makes of it is no folder.
            found += [os.fsdecode(path) for size in _HASHES for path in _links(data, size)]
    return list(dict.fromkeys(found)), is_whole


def _shared_in(repository: str) -> list[str]:
    try:
        return [name for name in os.listdir(repository) if name.startswith("sharedindex.")]
    except OSError:
        return []


def _links(data: bytes, hash_size: int) -> Iterator[bytes]:
    """Yield the paths of its entries of that kind, as far as it can be understood."""
    try:
        yield from (path for mode, path in _entries(data, hash_size) if mode & _KIND == _LINK)
    except (struct.error, IndexError, ValueError):
        return


def _entries(data: bytes, hash_size: int) -> Iterator[tuple[int, bytes]]:
    """Yield each entry's mode and path. Raises struct.error, IndexError or ValueError where it isn't well formed."""
    sign, version, count = struct.unpack_from(">4sII", data)
    if sign != b"DIRC" or version not in (2, 3, 4):
        return
    at, path = 12, b""
    for _ in range(count):
        (mode,) = _STAT.unpack_from(data, at)
        (flags,) = struct.unpack_from(">H", data, name_at := at + _STAT.size + hash_size)
        name_at += 4 if flags & _EXTENDED and version > 2 else 2
        kept = b""
        if version == 4:
            cut, name_at = _varint(data, name_at)
            kept = path[: max(0, len(path) - cut)]
        end = data.index(b"\0", name_at)
        path = kept + data[name_at:end]
        length = flags & _LENGTH if flags & _LENGTH < _LENGTH else end - name_at
        at = end + 1 if version == 4 else at + (name_at - at + length + 8 & ~7)
        yield mode, path


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number as git's offsets are written, and where it ends."""
    value = data[at] & 127
    while data[at] & 128:
        at += 1
        value = (value + 1 << 7) + (data[at] & 127)
    return value, at + 1
