"""Damage below the records: pages, the file's length, the head. One clear error, never a killed process."""

import subprocess
import sys
from pathlib import Path

import pytest

from maka.contracts.errors import LedgerDamagedError, LedgerError
from maka.storage.environment import HEAD
from maka.storage.rebuild import rebuild
from maka.storage.root import DATA_FILE, LEDGER_DIR, has_store
from tests.storage.conftest import DiskBench
from tests.storage.facts import Facts

PAGE_BYTES = 4_096
VERIFY = """
import sys
from pathlib import Path
from maka.contracts.errors import LedgerDamagedError
from maka.storage.reader import LmdbReader
from maka.storage.verify import verify
try:
    sys.exit(0 if verify(LmdbReader.open(Path(sys.argv[1]))).ok else 3)
except LedgerDamagedError:
    sys.exit(3)
"""


@pytest.fixture
def data(disk: DiskBench) -> Path:
    """The file of a closed store with some 100 pages of facts."""
    for seed in range(40):
        facts = Facts(1_000 * (seed + 1))
        disk.store.commit([facts.opened(), facts.started()])
    disk.close()
    return disk.root / LEDGER_DIR / DATA_FILE


def verdict(root: Path) -> int:
    """Verify in a process of its own, which damage may kill."""
    return subprocess.run([sys.executable, "-P", "-c", VERIFY, str(root)], check=False).returncode


def test_a_file_that_was_cut_short_is_damage(data: Path, disk: DiskBench) -> None:
    assert verdict(disk.root) == 0
    with data.open("r+b") as file:
        file.truncate(8 * PAGE_BYTES)
    assert verdict(disk.root) == 3


def test_a_page_of_zeros_is_damage_or_unused(data: Path, disk: DiskBench) -> None:
    whole = data.read_bytes()
    verdicts: list[int] = []
    for place in range(2 * PAGE_BYTES, len(whole), 5 * PAGE_BYTES):
        data.write_bytes(whole[:place] + bytes(PAGE_BYTES) + whole[place + PAGE_BYTES :])
        verdicts.append(verdict(disk.root))
    assert set(verdicts) == {0, 3}


def test_a_rebuild_says_that_the_file_is_damaged(data: Path, disk: DiskBench) -> None:
    with data.open("r+b") as file:
        file.seek(2 * PAGE_BYTES)
        file.write(bytes(data.stat().st_size - 2 * PAGE_BYTES))
    with pytest.raises(LedgerDamagedError):
        rebuild(disk.root)


def test_a_head_that_says_nothing_is_damage(disk: DiskBench) -> None:
    reader = disk.store.reader
    with reader.environment.begin(write=True) as transaction:
        transaction.put(HEAD, b"x", db=reader.databases.meta)
    for read in (reader.head, reader.read_positions):
        with pytest.raises(LedgerDamagedError):
            read()


def test_a_rebuild_without_a_head_drops_nothing(disk: DiskBench) -> None:
    facts = Facts(1)
    disk.store.commit([facts.opened(), facts.started()])
    reader = disk.store.reader
    with reader.environment.begin(write=True) as transaction:
        transaction.delete(HEAD, db=reader.databases.meta)
    disk.close()
    with pytest.raises(LedgerDamagedError, match="head is lost"):
        rebuild(disk.root)
    assert disk.restart().header_bytes()


def test_a_closed_store_is_no_damage(disk: DiskBench) -> None:
    disk.store.close()
    with pytest.raises(LedgerError) as closed:
        disk.store.head()
    assert not isinstance(closed.value, LedgerDamagedError)


def test_a_file_without_a_byte_is_no_store(data: Path, disk: DiskBench) -> None:
    data.write_bytes(b"")
    assert not has_store(disk.root)
