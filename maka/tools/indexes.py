"""The indexes of repositories, as one walk reads them.

Law: each is read once, and only so much in all, and `is_cut` says where it was more: a command can make any number.
"""

import os
import threading
from collections import OrderedDict
from hashlib import sha256
from math import inf
from time import monotonic

from maka.contracts.limits import INDEX_BYTES_MAX, INDEXES_BYTES_MAX
from maka.tools.git_index import UNREAD, Index, Part, joined, part_of
from maka.tools.identity import regular_bytes

FOREIGN = "not as git writes it: "
"""How it begins in `Index.unread` where all of an index isn't understood."""

_KNOWN_BYTES_MAX = 8 << 20
KNOWN_BYTES_EACH = 200


class Indexes:
    """Reads indexes for one walk, until a moment."""

    def __init__(self, until_s: float = inf, known: "Known | None" = None) -> None:
        self.is_cut = False
        self._until_s = until_s
        self._left = INDEXES_BYTES_MAX
        self._known = known or KNOWN
        self._found: dict[str, Index] = {}

    def of(self, folder: str) -> Index:
        """Read the index in a repository's folder, with the shared part of a split one. Never waits.

        Of what is too much by now nothing is returned.
        """
        if folder in self._found:
            return self._found[folder]
        if self._left <= 0 or monotonic() > self._until_s:
            self.is_cut = True
            return Index()
        index = self._found[folder] = self._read(folder)
        return index

    def _read(self, folder: str) -> Index:
        data = self._content(folder, "index")
        if not data:
            return UNREAD if data is None else Index()
        part = self._known.part(data)
        if part is None:
            return _foreign(data)
        if part.shared is None:
            return Index(part.links, part.unread)
        shared_data = self._content(folder, part.shared)
        if shared_data is None:
            return UNREAD
        shared = part_of(shared_data, is_shared=True) if shared_data else Part()
        index = None if shared is None else joined(part, shared)
        return _foreign(data + shared_data) if index is None else index

    def _content(self, folder: str, name: str) -> bytes | None:
        """Return nothing where there is none, None where it can't be read or is too much."""
        try:
            # git follows a link here.
            data = regular_bytes(os.path.realpath(os.path.join(folder, name)), INDEX_BYTES_MAX)
        except OSError:  # it isn't there, or changes at this moment: then git reads none either
            return b""
        self._left -= INDEX_BYTES_MAX if data is None else len(data)
        return data


class Known:
    """What was read of parts before, by their content: to read one anew takes many times as long.

    Not by their times: those of a file that a process has mapped tell nothing. Any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: OrderedDict[bytes, Part | None] = OrderedDict()
        self._bytes = 0

    def part(self, data: bytes) -> Part | None:
        key = sha256(data).digest()
        with self._lock:
            if key in self._parts:
                self._parts.move_to_end(key)
                return self._parts[key]
        part = part_of(data)
        with self._lock:
            self._bytes += 0 if key in self._parts else _size(part)
            self._parts[key] = part
            while self._bytes > _KNOWN_BYTES_MAX:
                self._bytes -= _size(self._parts.popitem(last=False)[1])
        return part


KNOWN = Known()


def _size(part: Part | None) -> int:
    more = () if part is None else (*part.links, *part.unread, part.replaced, part.nameless)
    return KNOWN_BYTES_EACH + sum(map(len, more))


def _foreign(data: bytes) -> Index:
    return Index(unread=frozenset({f"{FOREIGN}{sha256(data).hexdigest()}"}))
