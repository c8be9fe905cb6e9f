"""The LMDB store among processes: readers that die, owners that are killed, two openings, forks."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from maka.contracts.errors import (
    LedgerError,
    LedgerFailedError,
    StoreOpenError,
)
from maka.contracts.ports import Appended
from maka.storage.ledger import LmdbLedger
from maka.storage.reader import LmdbReader
from maka.storage.root import acquire_root
from maka.storage.verify import verify
from tests.storage.conftest import DiskBench
from tests.storage.facts import Facts, append, begun, one

READER = """
import os, sys
from pathlib import Path
from maka.storage.reader import LmdbReader
reader = LmdbReader.open(Path(sys.argv[1]))
snapshot = reader.environment.begin()
print("reading", flush=True)
sys.stdin.read()
"""


def test_h39_reader_table_full(tmp_path: Path) -> None:
    acquire_root(tmp_path).close()
    store = LmdbLedger.open(tmp_path, readers_max=3)
    facts = begun(store)
    for _ in range(2):
        readers = [
            subprocess.Popen(
                [sys.executable, "-c", READER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for _ in range(3)
        ]
        for reader in readers:
            assert reader.stdout is not None and reader.stdout.readline() == b"reading\n"
        with pytest.raises(LedgerError, match="every reader slot"):
            store.head()
        for reader in readers:
            reader.kill()
            reader.communicate()
        # The slots of the dead are found at the next read.
        assert len(store.read_stream(facts.invocation)) == 2
    store.close()


def test_h40_the_same_store_opened_twice_in_one_process(disk: DiskBench, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(disk.root)
    openings: list[Callable[[Path], object]] = [LmdbLedger.open, LmdbReader.open]
    for opening in openings:
        for root in (disk.root, tmp_path / "link"):
            with pytest.raises(StoreOpenError, match="open in this process already") as refused:
                opening(root)
            assert "\n" not in str(refused.value)
    assert isinstance(one(disk.store, Facts().opened()), Appended)


def test_h84_fork_with_the_store_open(disk: DiskBench) -> None:
    facts = begun(disk.store)
    for number in range(20):
        child = os.fork()
        if child == 0:
            # What an interpreter does as it ends: every object goes, the store's handle too.
            disk.__dict__.clear()
            gc.collect()
            os._exit(0)
        assert isinstance(one(disk.store, append((2 + number, [facts.text()]))), Appended)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    assert verify(disk.store.reader).ok
    with pytest.raises(StoreOpenError, match="in use"):
        acquire_root(disk.root)


def test_h84_a_started_program_inherits_nothing(disk: DiskBench) -> None:
    one(disk.store, Facts().opened())
    ended = subprocess.run(
        [sys.executable, "-c", "import os; [print(os.readlink(f'/proc/self/fd/{n}')) for n in (0, 1, 2, 3, 4, 5, 6, 7)"
         " if os.path.islink(f'/proc/self/fd/{n}')]"],
        check=True,
        capture_output=True,
        close_fds=False,
    )  # fmt: skip
    assert str(disk.root) not in ended.stdout.decode()


def test_a_fork_does_not_keep_the_root(tmp_path: Path) -> None:
    lock = acquire_root(tmp_path)
    go, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(done[1], b"x")
        os.read(go[0], 1)
        os._exit(0)
    os.read(done[0], 1)
    lock.close()
    acquire_root(tmp_path).close()
    os.write(go[1], b"x")
    os.waitpid(child, 0)
    for end in (*go, *done):
        os.close(end)


def test_a_store_that_was_taken_over_is_not_written(disk: DiskBench) -> None:
    """Somebody removed the lock file: the owner epoch shows that there is another writer."""
    facts = begun(disk.store)
    code = (
        "import sys; from pathlib import Path; from maka.storage.ledger import LmdbLedger;"
        "LmdbLedger.open(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(disk.root)], check=True)
    with pytest.raises(LedgerFailedError, match="taken the store over"):
        one(disk.store, append((2, [facts.text()])))


def test_readers_work_beside_an_owner_and_without_one(disk: DiskBench) -> None:
    facts = begun(disk.store)
    code = """
import sys
from pathlib import Path
from maka.storage.reader import LmdbReader
from maka.storage.verify import verify
reader = LmdbReader.open(Path(sys.argv[1]))
print(reader.head().position, len(reader.read_positions()), verify(reader).ok)
"""
    command = [sys.executable, "-c", code, str(disk.root)]
    assert subprocess.run(command, check=True, capture_output=True).stdout.split() == [b"3", b"3", b"True"]
    one(disk.store, append((2, [facts.text()])))
    disk.close()
    assert subprocess.run(command, check=True, capture_output=True).stdout.split() == [b"4", b"4", b"True"]


COMMITTER = """
import sys
from pathlib import Path
from maka.storage.ledger import LmdbLedger
from maka.storage.root import acquire_root
from tests.storage.facts import Facts, append, begun
lock = acquire_root(Path(sys.argv[1]))
store = LmdbLedger.open(Path(sys.argv[1]))
facts = begun(store)
for seq in range(2, 100_000):
    (result,) = store.commit([append((seq, [facts.text("x" * 500)]))])
    print(result.places[-1][0], flush=True)
"""


def test_h37_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", COMMITTER, str(tmp_path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    acknowledged = [int(child.stdout.readline()) for _ in range(50)][-1]
    child.kill()
    rest, _ = child.communicate()
    acknowledged = max([acknowledged, *map(int, rest.split(b"\n")[:-1])])
    acquire_root(tmp_path).close()
    store = LmdbLedger.open(tmp_path)
    head = store.head()
    assert head.position in (acknowledged, acknowledged + 1)
    assert [item.position for item in store.read_positions()] == list(range(1, head.position + 1))
    assert verify(store.reader).ok
    store.close()
