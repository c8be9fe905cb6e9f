"""Stores for tests: both implementations behind one fixture, and a way to start them again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from maka.contracts.ports import BlobWriter, LedgerStore
from maka.storage.blobs import FileBlobs
from maka.storage.ledger import LmdbLedger
from maka.storage.memory import MemoryBlobs, MemoryLedger
from maka.storage.root import acquire_root
from projections.append_rules import Limits


class Bench(Protocol):
    """One store under test, with what a contract needs beside the port."""

    @property
    def store(self) -> LedgerStore: ...

    @property
    def blobs(self) -> BlobWriter: ...

    def restart(self, limits: Limits | None = None) -> LedgerStore:
        """End the process as far as the store can tell, and begin again on what is committed."""
        ...

    def close(self) -> None: ...


class DiskBench:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = acquire_root(root)
        self.store = LmdbLedger.open(root)
        self.blobs = FileBlobs(root)

    def restart(self, limits: Limits | None = None) -> LmdbLedger:
        self.close()
        self._lock = acquire_root(self.root)
        self.store = LmdbLedger.open(self.root, limits=limits)
        return self.store

    def close(self) -> None:
        self.store.close()
        self._lock.close()


class MemoryBench:
    def __init__(self) -> None:
        self.blobs = MemoryBlobs()
        self.store = MemoryLedger(blobs=self.blobs)

    def restart(self, limits: Limits | None = None) -> MemoryLedger:
        self.store = MemoryLedger(self.store.snapshot(), blobs=self.blobs, limits=limits)
        return self.store

    def close(self) -> None:
        self.store.close()


@pytest.fixture(params=["lmdb", "memory"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made: Bench = DiskBench(tmp_path / "state") if request.param == "lmdb" else MemoryBench()
    yield made
    made.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DiskBench]:
    made = DiskBench(tmp_path / "state")
    yield made
    made.close()
