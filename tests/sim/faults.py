"""A store with faults: commits that are refused, lost, or kept without anybody hearing of it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from maka.contracts.content import BlobRef
from maka.contracts.errors import LedgerError, LedgerFailedError, LedgerFullError
from maka.contracts.limits import MAP_BYTES_MAX
from maka.contracts.ports import Append, AppendResult, BlobWriter, PutPartial
from maka.storage.blobs import FileBlobs
from maka.storage.ledger import LmdbLedger
from maka.storage.memory import MemoryBlobs, MemoryLedger, MemoryState

CommitFault = Literal["refuse", "die_lost", "die_kept", "sync_lost", "sync_kept"]
"""No room; the process dies before the commit, or after it; the sync fails, and the bytes are lost, or durable."""


class PowerCutError(Exception):
    """The process is gone in the middle of a commit."""


class FaultyLedger:
    """A store with a choice of faults: the memory twin, or, with `root`, the real one.

    `next` is what befalls the next commit, `faults` what befalls the one of a number (from 1); `before` may raise for
    a commit, given its number. `full` refuses all.
    """

    def __init__(
        self,
        state: MemoryState | None = None,
        *,
        blobs: "FaultyBlobs | None" = None,
        root: Path | None = None,
        map_bytes: int = MAP_BYTES_MAX,
    ) -> None:
        self.root, self._blobs, self._map_bytes = root, blobs, map_bytes
        memory = None if blobs is None else blobs.memory
        inner: MemoryLedger | LmdbLedger
        inner = MemoryLedger(state, blobs=memory) if root is None else LmdbLedger.open(root, map_bytes=map_bytes)
        self.inner = inner
        self.head, self.tail, self.open_work = inner.head, inner.tail, inner.open_work
        self.read_stream, self.read_positions = inner.read_stream, inner.read_positions
        self.read_session, self.iter_session = inner.read_session, inner.iter_session
        self.header_of, self.header_bytes = inner.header_of, inner.header_bytes
        self.last_number = inner.last_number
        self.command, self.partials, self.blob = inner.command, inner.partials, inner.blob
        self.commits = 0
        self.before: Callable[[int], None] | None = None
        self.faults: dict[int, CommitFault] = {}
        self.next: CommitFault | None = None
        self.full = False
        self.cut = False
        self.failed = False
        self.closed = False

    def again(self) -> "FaultyLedger":
        """Return the store as a new process finds it; faults don't outlive the old one, a lack of room does."""
        if isinstance(self.inner, MemoryLedger):
            successor = FaultyLedger(self.inner.snapshot(), blobs=self._blobs)
        else:
            self.inner.close()
            successor = FaultyLedger(blobs=self._blobs, root=self.root, map_bytes=self._map_bytes)
        successor.full = self.full
        return successor

    def commit(self, appends: Sequence[Append], partials: Sequence[PutPartial] = ()) -> list[AppendResult]:
        assert not self.closed, "a commit to a closed store"
        self.commits += 1
        if self.failed:
            raise LedgerFailedError("the ledger takes no writes: a sync failed")
        if self.full:
            raise LedgerFullError("no room")
        if self.before is not None:
            self.before(self.commits)
        fault, self.next = self.faults.pop(self.commits, self.next), None
        if fault is None:
            return self.inner.commit(appends, partials)
        if fault == "refuse":
            raise LedgerFullError("no room")
        if fault.endswith("_kept"):
            self.inner.commit(appends, partials)
        if fault.startswith("sync"):
            self.failed = True
            raise LedgerFailedError("the sync failed")
        self.cut = True
        raise PowerCutError("planted: the process died at a commit")

    def has_room(self) -> bool:
        return not self.full and not self.failed and self.inner.has_room()

    def close(self) -> None:
        self.closed = True  # what it holds is looked at until the next start


class FlakyReader:
    """What actors read through: a store of which the next `failing` reads fail, as where no reader slot is left."""

    def __init__(self, store: FaultyLedger) -> None:
        self._store = store
        self.failing = 0

    def __getattr__(self, name: str) -> Any:
        def read(*args: Any, **options: Any) -> Any:
            if self.failing:
                self.failing -= 1
                raise LedgerError("planted: it can't be read")
            return getattr(self._store, name)(*args, **options)

        return read


class FaultyBlobs:
    """Values, in memory or beside a real store, that find no room while `full`."""

    def __init__(self, root: Path | None = None) -> None:
        self.memory = MemoryBlobs()
        self._inner: BlobWriter = self.memory if root is None else FileBlobs(root)
        self.full = False

    def put(self, data: bytes) -> tuple[BlobRef, bytes | None]:
        if self.full:
            raise LedgerFullError("no room for a value")
        return self._inner.put(data)


def fail_commit(number: int, error: Exception) -> Callable[[int], None]:
    """Return a fault for `FaultyLedger.before`: the commit of that number raises."""

    def before(count: int) -> None:
        if count == number:
            raise error

    return before
