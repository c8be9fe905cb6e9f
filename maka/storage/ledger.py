"""The LMDB ledger: one writer, one transaction per batch, acknowledged means fsynced.

Laws: rows are staged by `Batch` and put at the end; tails, headers and the chain head in memory are swapped in only
after the commit; a full store stores nothing of a batch; any other failed commit closes the ledger for writing, since
what is durable is then known only to the next start.
"""

import secrets
import threading
from collections.abc import Sequence
from pathlib import Path

import lmdb

from maka.contracts.errors import LedgerError, LedgerFailedError, LedgerFullError, Refusal, RefusalCode, StoreOpenError
from maka.contracts.limits import FREE_BYTES_MIN, MAP_BYTES_MAX, READERS_MAX
from maka.contracts.ports import Append, AppendResult, LedgerHead, PutPartial
from maka.storage.batch import Batch
from maka.storage.environment import (
    EPOCH,
    PROBE,
    SCHEMA,
    STORE_ID,
    Snapshot,
    free_bytes,
    open_databases,
    open_environment,
    write_error,
)
from maka.storage.keys import STORE_SCHEMA, number
from maka.storage.reader import LmdbReader
from maka.storage.standing import Cache, CommittedRows
from maka.storage.writes import write_batch, write_partials
from projections.append_rules import Limits

__all__ = ["LmdbLedger", "LmdbReader"]

CACHED_MAX = 8_192
MAP_RESERVE_SHARE = 4
FREE_BYTES_LAST = FREE_BYTES_MIN // 4
"""Free disk space that is left to settlements: a run that goes on must not take from all the room to end them."""


class LmdbLedger:
    """The LedgerStore on disk. Reads from any thread; `commit`, `has_room` and `close` from one at a time."""

    def __init__(self, reader: LmdbReader, limits: Limits) -> None:
        self.reader = reader
        self.head, self.tail, self.open_work = reader.head, reader.tail, reader.open_work
        self.read_stream, self.read_positions = reader.read_stream, reader.read_positions
        self.read_session, self.iter_session = reader.read_session, reader.iter_session
        self.header_of, self.header_bytes = reader.header_of, reader.header_bytes
        self.last_number = reader.last_number
        self.command, self.partials, self.blob = reader.command, reader.partials, reader.blob
        self._environment = reader.environment
        self._databases = reader.databases
        self._root = reader.root
        self._limits = limits
        self._cache = Cache(CACHED_MAX)
        self._writing = threading.Lock()
        self._failure: str | None = None
        map_bytes, page_bytes = self._environment.info()["map_size"], self._environment.stat()["psize"]
        reserve_bytes = min(FREE_BYTES_MIN, map_bytes // MAP_RESERVE_SHARE)
        self._pages_max = (map_bytes - reserve_bytes) // page_bytes
        self._head: LedgerHead = reader.head()
        self._epoch = 0
        self._epoch = self._begin_epoch()

    @classmethod
    def open(
        cls,
        root: Path,
        *,
        map_bytes: int = MAP_BYTES_MAX,
        readers_max: int = READERS_MAX,
        limits: Limits | None = None,
    ) -> "LmdbLedger":
        """Open the ledger of a root that the caller owns, made where it is new, and begin an owner epoch.

        Raises StoreOpenError where it can't be opened, and LedgerFullError where there is no room to begin.
        """
        environment = open_environment(root, write=True, map_bytes=map_bytes, readers_max=readers_max)
        try:
            databases = open_databases(root, environment, write=True)
            return cls(LmdbReader(root, environment, databases), limits or Limits())
        except BaseException:
            environment.close()
            raise

    @property
    def epoch(self) -> int:
        """The number of this start among all starts of the store."""
        return self._epoch

    def commit(self, appends: Sequence[Append], partials: Sequence[PutPartial] = ()) -> list[AppendResult]:
        """Store a batch as `LedgerStore.commit` says.

        Near the end of the map or the disk, ordinary appends are refused with `ledger_full` and partials dropped, so
        that settlements still fit.
        """
        if not self._writing.acquire(blocking=False):
            raise AssertionError("the ledger has one writer, and it is at work")
        try:
            return self._commit(appends, partials)
        finally:
            self._writing.release()

    def has_room(self) -> bool:
        """Probe whether runs may start: free disk, free map, and a write of the probe succeeds."""
        if self._failure is not None or self._lacks_room(FREE_BYTES_MIN) is not None:
            return False
        with self._writing:
            try:
                transaction = self._begin()
                transaction.put(PROBE, number(self._head.position), db=self._databases.meta)
                self._finish(transaction)
            except LedgerError:
                return False
            return True

    def close(self) -> None:
        """Close the store; idempotent."""
        self._failure = "it was closed"
        self.reader.close()

    def _commit(self, appends: Sequence[Append], partials: Sequence[PutPartial]) -> list[AppendResult]:
        transaction = self._begin()
        try:
            standing = CommittedRows(self._root, transaction, self._databases, self._cache)
            batch = Batch(standing, self._head, self._epoch, self._limits)
            low = self._lacks_room(FREE_BYTES_LAST)
            results = [batch.add(append) if low is None or append.settlement else low for append in appends]
            if batch.events:
                write_batch(transaction, self._databases, batch, standing, self._epoch)
            wrote = low is None and write_partials(transaction, self._databases, batch, partials)
        except lmdb.Error as error:
            transaction.abort()
            raise self._failed(error) from None
        except BaseException:
            transaction.abort()
            raise
        if batch.events or wrote:
            self._finish(transaction)
            self._head = batch.head
            self._cache.swap_in(batch.tails, batch.headers)
        else:
            transaction.abort()
        return results

    def _begin(self) -> Snapshot:
        if self._failure is not None:
            raise LedgerFailedError(f"the ledger takes no writes: {self._failure}")
        try:
            transaction = self._environment.begin(write=True)
        except lmdb.Error as error:
            raise self._failed(error) from None
        if self._epoch and transaction.get(EPOCH, db=self._databases.meta) != number(self._epoch):
            transaction.abort()
            self._failure = "another process has taken the store over"
            raise LedgerFailedError(f"the ledger takes no writes: {self._failure}: stop one of the two")
        return transaction

    def _finish(self, transaction: Snapshot) -> None:
        try:
            transaction.commit()
        except lmdb.Error as error:
            raise self._failed(error) from None

    def _failed(self, error: lmdb.Error) -> LedgerError:
        try:
            stored_nothing = self.reader.head() == self._head
        except LedgerError:
            stored_nothing = False
        failure = write_error(self._root, error, stored_nothing=stored_nothing)
        if isinstance(failure, LedgerFailedError):
            self._failure = str(failure)
        return failure

    def _lacks_room(self, bytes_min: int) -> Refusal | None:
        """Say what is short: the map, or the disk, where less than `bytes_min` are free."""
        if self._environment.info()["last_pgno"] > self._pages_max:
            size = self._environment.info()["map_size"] >> 20
            why = f"its map of {size:,} MiB is used up: give the process more address space, then start maka anew"
        elif (free := free_bytes(self._root)) < bytes_min:
            missing = (FREE_BYTES_MIN - free) >> 20
            why = f"the disk of {self._root} has {free >> 20} MiB left: free {missing} MiB more, then try again"
        else:
            return None
        return Refusal(code=RefusalCode.LEDGER_FULL, message=f"the ledger is almost full: {why}")

    def _begin_epoch(self) -> int:
        """Begin this start's epoch, and the store where it is new; both in one commit."""
        meta = self._databases.meta
        try:
            transaction = self._begin()
            epoch = int.from_bytes(transaction.get(EPOCH, db=meta) or b"", "big") + 1
            transaction.put(SCHEMA, number(STORE_SCHEMA), db=meta)
            transaction.put(STORE_ID, secrets.token_bytes(16), db=meta, overwrite=False)
            transaction.put(EPOCH, number(epoch), db=meta)
            self._finish(transaction)
        except LedgerFullError:
            raise
        except LedgerError as error:
            raise StoreOpenError(f"can't begin to write to the store in {self._root}: {error}") from None
        return epoch
