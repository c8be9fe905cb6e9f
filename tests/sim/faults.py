"""The memory twin with faults: commits that are refused, lost, or kept without anybody hearing of it."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from maka.contracts.content import BlobRef
from maka.contracts.errors import LedgerFailedError, LedgerFullError
from maka.contracts.ports import Append, AppendResult, PutPartial
from maka.storage.memory import MemoryBlobs, MemoryLedger

CommitFault = Literal["refuse", "die_lost", "die_kept", "sync_lost", "sync_kept"]
"""No room; the process dies before the commit, or after it; the sync fails, and the bytes are lost, or durable."""


class PowerCutError(Exception):
    """The process is gone in the middle of a commit."""


class FaultyLedger(MemoryLedger):
    """The memory twin with a choice of faults.

    `next` is what befalls the next commit, `faults` what befalls the one of a number (from 1); `before` may raise for
    a commit, given its number. `full` refuses all.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commits = 0
        self.before: Callable[[int], None] | None = None
        self.faults: dict[int, CommitFault] = {}
        self.next: CommitFault | None = None
        self.full = False
        self.cut = False
        self.failed = False
        self.closed = False

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
            return super().commit(appends, partials)
        if fault == "refuse":
            raise LedgerFullError("no room")
        if fault.endswith("_kept"):
            super().commit(appends, partials)
        if fault.startswith("sync"):
            self.failed = True
            raise LedgerFailedError("the sync failed")
        self.cut = True
        raise PowerCutError("planted: the process died at a commit")

    def has_room(self) -> bool:
        return not self.full and not self.failed

    def close(self) -> None:
        self.closed = True


class FaultyBlobs(MemoryBlobs):
    """Values that find no room while `full`."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    def put(self, data: bytes) -> tuple[BlobRef, bytes | None]:
        if self.full:
            raise LedgerFullError("no room for a value")
        return super().put(data)


def fail_commit(number: int, error: Exception) -> Callable[[int], None]:
    """Return a fault for `FaultyLedger.before`: the commit of that number raises."""

    def before(count: int) -> None:
        if count == number:
            raise error

    return before
