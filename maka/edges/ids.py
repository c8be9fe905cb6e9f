"""Minting of ids: UUIDv7 that grow in the order of minting, also when the wall clock steps back."""

import threading
from uuid import UUID

import uuid_utils


class UuidSource:
    """An `ids.IdSource` for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def __call__(self) -> str:
        with self._lock:
            # After a step back the next number is taken. The low 62 bits are random, so a carry into the bits that
            # say "UUIDv7" would need a run of 2**61 ids or a chance of the same size.
            self._last = max(uuid_utils.uuid7().int, self._last + 1)
            return str(UUID(int=self._last))
