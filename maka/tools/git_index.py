"""The index of a repository: which folders it names as repositories of their own.

`git status` goes into each of those, wherever it lies, and obeys the settings that it finds there. The format is git's
own (Documentation/gitformat-index): versions 2 to 4, with either hash, and the shared part of a split one.

Law: what isn't written as git writes it counts as not understood. git may read it otherwise.
"""

import os
import struct
from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from maka.contracts.limits import INDEX_BYTES_MAX

_NAMES_BYTES_MAX = 2 * INDEX_BYTES_MAX
"""Of all names together: in version 4 a few bytes stand for a long one."""

_HASHES = (20, 32)
_STAT = struct.Struct(">24xI12x")
_KIND, _LINK, _FOLDER = 0o170000, 0o160000, 0o040000
_EXTENDED, _LENGTH = 0x4000, 0xFFF


class Index(Struct, frozen=True):
    """What an index says: folders that it names as repositories, relative to the worktree.

    `unread` tells apart what it says otherwise and nobody but git understands; it is equal where that is the same.
    """

    links: tuple[str, ...] = ()
    unread: frozenset[str] = frozenset()


UNREAD = Index(unread=frozenset({"index"}))
"""What is said of one that can't be read."""


class _TooMuchError(Exception):
    """More than is read of one index."""


class _Entry(Struct, frozen=True):
    start: int
    mode: int
    name: bytes
    hash: bytes
    is_fresh: bool
    """Whether nothing of its name is taken from the entry before it."""


class Part(Struct, frozen=True):
    """What the index, or the shared part of a split one, says by itself."""

    links: tuple[str, ...] = ()
    unread: frozenset[str] = frozenset()
    shared: str | None = None
    """The name of the part that it shares with others."""
    replaced: bytes = b""
    nameless: tuple[int, ...] = ()
    """Modes of the entries that replace one of the shared part."""
    names: tuple[bytes, ...] = ()
    """Of a shared part all, in their order."""


def joined(part: Part, shared: Part) -> Index | None:
    """Join a split index: one that replaces another entry has its name there, and its kind here. None as `part_of`."""
    try:
        replaced = _replaced(part.replaced, len(shared.names))
        named = [os.fsdecode(shared.names[place]) for place in replaced]
        links = [name for name, mode in zip(named, part.nameless, strict=True) if mode & _KIND == _LINK]
    except (struct.error, ValueError):
        return None
    return Index(tuple(dict.fromkeys((*part.links, *shared.links, *links))), part.unread | shared.unread)


def part_of(data: bytes, *, is_shared: bool = False) -> Part | None:
    """Return what it says by itself, None where that isn't as git writes it."""
    for hash_size in _HASHES:  # which one it has is a setting of the repository
        try:
            return _understood(data, hash_size, is_shared=is_shared)
        except (struct.error, IndexError, ValueError):
            continue
        except _TooMuchError:
            return Part(unread=UNREAD.unread)
    return None


def _understood(data: bytes, hash_size: int, *, is_shared: bool) -> Part:
    """Raise struct.error, IndexError or ValueError where it isn't as git writes it."""
    entries = list(_entries(data, hash_size))
    end = _end_of(data, entries, hash_size)
    extensions = dict(_extensions(data, end, hash_size))
    _check_offsets(data, end, extensions, entries, hash_size)
    link = extensions.get(b"link")
    nameless = tuple(entry.mode for entry in entries if not entry.name)
    if link is None and nameless:
        raise ValueError("no name")
    if link is not None and (is_shared or len(link) < hash_size):
        raise ValueError("a shared part of a shared part, or of nothing")
    links = (os.fsdecode(entry.name) for entry in entries if entry.mode & _KIND == _LINK and entry.name)
    # A folder that a sparse checkout leaves out stands for all that a commit has there.
    unread = (f"{entry.name!r} {entry.hash.hex()}" for entry in entries if entry.mode & _KIND == _FOLDER)
    return Part(
        links=tuple(dict.fromkeys(links)),
        unread=frozenset(unread),
        shared=None if link is None else f"sharedindex.{link[:hash_size].hex()}",
        replaced=b"" if link is None else link[hash_size:],
        nameless=nameless,
        names=tuple(entry.name for entry in entries) if is_shared else (),
    )


def _replaced(bitmaps: bytes, most: int) -> list[int]:
    """Return the places in the shared part that a split index replaces: set bits of the second of two EWAH bitmaps."""
    if not bitmaps:
        return []
    _, at = _bits(bitmaps, 0, most)
    return _bits(bitmaps, at, most)[0]


def _bits(data: bytes, at: int, most: int) -> tuple[list[int], int]:
    """Return which bits are set, and where the bitmap ends. One with more bits than entries isn't git's."""
    size, count = struct.unpack_from(">II", data, at)
    if size > most:
        raise ValueError("more than the shared part has")
    words = iter(struct.unpack_from(f">{count}Q", data, at + 8))
    found: list[int] = []
    place = 0
    for head in words:
        run, literals = head >> 1 & 0xFFFFFFFF, head >> 33
        if head & 1:
            found += range(place, min(place + 64 * run, size))
        place += 64 * run
        for word in islice(words, literals):
            found += [place + bit for bit in range(64) if word >> bit & 1]
            place += 64
    return [bit for bit in found if bit < size], at + 12 + 8 * count


def _entries(data: bytes, hash_size: int) -> Iterator[_Entry]:
    sign, version, count = struct.unpack_from(">4sII", data)
    if sign != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index")
    at, name, left = 12, b"", _NAMES_BYTES_MAX
    for _ in range(count):
        start = at
        (mode,) = _STAT.unpack_from(data, at)
        hash_at = at + _STAT.size
        (flags,) = struct.unpack_from(">H", data, name_at := hash_at + hash_size)
        if flags & _EXTENDED and version == 2:
            raise ValueError("a flag that this version has not")
        name_at += 4 if flags & _EXTENDED else 2
        kept = b""
        if version == 4:
            cut, name_at = _varint(data, name_at)
            if cut > len(name):
                raise ValueError("less than nothing is kept")
            kept = name[: len(name) - cut]
        end = data.index(b"\0", name_at)
        name = kept + data[name_at:end]
        if (left := left - len(name)) < 0:
            raise _TooMuchError
        if flags & _LENGTH != min(len(name), _LENGTH):
            raise ValueError("a length that isn't the name's")
        at = end + 1
        if version != 4:
            at = start + (end - start + 8 & ~7)
            if data[end:at].strip(b"\0"):
                raise ValueError("no padding")
        yield _Entry(start, mode, name, data[hash_at : hash_at + hash_size], not kept)
    yield _Entry(at, 0, b"", b"", is_fresh=True)


def _end_of(data: bytes, entries: list[_Entry], hash_size: int) -> int:
    """Return where the entries end: the last one only says that."""
    end = entries.pop().start
    if end > len(data) - hash_size:
        raise ValueError("it is cut off")
    return end


def _extensions(data: bytes, at: int, hash_size: int) -> Iterator[tuple[bytes, bytes]]:
    end = len(data) - hash_size
    while at < end:
        sign, size = struct.unpack_from(">4sI", data, at)
        if at + 8 + size > end:
            raise ValueError("it is cut off")
        yield sign, data[at + 8 : at + 8 + size]
        at += 8 + size


def _check_offsets(
    data: bytes, end: int, extensions: dict[bytes, bytes], entries: list[_Entry], hash_size: int
) -> None:
    """Raise ValueError where the tables by which git reads with several threads lead elsewhere than all else."""
    tail = len(data) - 2 * hash_size - 12
    if data[tail : tail + 4] == b"EOIE" and struct.unpack_from(">I", data, tail + 8) != (end,):
        raise ValueError("another end of its entries")
    table = extensions.get(b"IEOT")
    if table is None:
        return
    at = 0
    for offset, count in struct.iter_unpack(">II", table[4:]):
        if at >= len(entries) or entries[at].start != offset or not entries[at].is_fresh:
            raise ValueError("another place of its entries")
        at += count
    if at != len(entries):
        raise ValueError("another number of entries")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number as git's offsets are written, and where it ends."""
    value = data[at] & 127
    while data[at] & 128:
        at += 1
        value = (value + 1 << 7) + (data[at] & 127)
    return value, at + 1
