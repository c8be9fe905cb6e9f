"""The LMDB store against the world: full maps and disks, readers that die, two openings, forks, failed commits."""

import gc
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from maka.contracts.errors import (
    LedgerError,
    LedgerFailedError,
    LedgerFullError,
    RefusalCode,
    StoreOpenError,
)
from maka.contracts.events import Status
from maka.contracts.limits import FREE_BYTES_MIN
from maka.contracts.ports import Appended
from maka.storage.environment import free_bytes, snapshot_of, write_error
from maka.storage.ledger import LmdbLedger
from maka.storage.reader import LmdbReader
from maka.storage.root import acquire_root
from maka.storage.verify import verify
from tests.storage.conftest import DiskBench
from tests.storage.facts import Facts, append, begun, code_of, one

READER = """
import os, sys
from pathlib import Path
from maka.storage.reader import LmdbReader
reader = LmdbReader.open(Path(sys.argv[1]))
snapshot = reader.environment.begin()
print("reading", flush=True)
sys.stdin.read()
"""


def test_h38_map_full(tmp_path: Path) -> None:
    """Ordinary appends are refused before the end of the map, and a settlement still fits."""
    acquire_root(tmp_path).close()
    store = LmdbLedger.open(tmp_path, map_bytes=1 << 20)
    facts = begun(store)
    results = [one(store, append((seq, [facts.text("x" * 4_000)]))) for seq in range(2, 400)]
    stored = [result for result in results if isinstance(result, Appended)]
    refused = results[len(stored) :]
    assert 20 < len(stored) < 250
    assert {code_of(result) for result in refused} == {RefusalCode.LEDGER_FULL}
    assert not store.has_room()
    assert len(store.read_stream(facts.invocation)) == len(stored) + 2
    end = append((len(stored) + 2, [facts.text("y" * 1_000), facts.terminal(Status.FAILED)]), settlement=True)
    assert isinstance(one(store, end), Appended)
    assert verify(store.reader).ok
    store.close()


def test_h38_a_batch_over_the_map_stores_nothing(tmp_path: Path) -> None:
    acquire_root(tmp_path).close()
    store = LmdbLedger.open(tmp_path, map_bytes=1 << 20)
    facts = begun(store)
    head = store.head()
    big = append((3, [facts.text("x" * 1_000_000)]))
    with pytest.raises(LedgerFullError):
        store.commit([append((2, [facts.text()])), big])
    assert store.head() == head and store.tail(facts.invocation) is not None
    assert one(store, append((2, [facts.text()]))) == Appended(((4, 3),))
    assert verify(store.reader).ok
    store.close()


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


def test_h41_a_reader_held_open_grows_the_file(disk: DiskBench) -> None:
    """Reads leave no transaction behind, so pages are used again; a transaction held open shows the difference."""
    facts = begun(disk.store)
    data = disk.root / "ledger" / "data.mdb"

    def write(first: int, count: int) -> int:
        before = data.stat().st_size
        for seq in range(first, first + count):
            one(disk.store, append((seq, [facts.text("x" * 100)])))
            pages = disk.store.iter_session(facts.session)
            next(pages)
        return data.stat().st_size - before

    write(2, 50)
    assert write(52, 200) < 300_000
    with snapshot_of(disk.store.reader.environment):
        assert write(252, 200) > 3_000_000


def test_h83_growing_the_map_with_readers_open(tmp_path: Path) -> None:
    """The map is never resized, so a page that is being read survives a full map."""
    acquire_root(tmp_path).close()
    store = LmdbLedger.open(tmp_path, map_bytes=1 << 20)
    facts = begun(store)
    paging = store.iter_session(facts.session)
    assert next(paging).position == 1
    with snapshot_of(store.reader.environment) as snapshot:
        with pytest.raises(LedgerFullError):
            one(store, append((2, [facts.text("x" * 1_000_000)])))
        assert snapshot.stat(store.reader.databases.events)["entries"] == 3
    assert [item.position for item in paging] == [2, 3]
    store.close()


def test_h83_a_map_that_does_not_fit_is_halved(tmp_path: Path) -> None:
    acquire_root(tmp_path).close()
    code = """
import resource, sys
from pathlib import Path
from maka.storage.ledger import LmdbLedger
from tests.storage.facts import begun
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
store = LmdbLedger.open(Path(sys.argv[1]))
begun(store)
print(store.reader.environment.info()["map_size"], store.head().position)
"""
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True)
    size, position = map(int, ended.stdout.split())
    assert 1 << 26 <= size < 2 << 30 and position == 3


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


def test_a_failed_commit_closes_the_ledger_for_writing(tmp_path: Path) -> None:
    """A file-size limit fails the write of data pages: not a full disk, so nobody is told that nothing happened."""
    acquire_root(tmp_path).close()
    store = LmdbLedger.open(tmp_path)
    facts = begun(store)
    limit = (tmp_path / "ledger" / "data.mdb").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        with pytest.raises(LedgerFailedError):
            one(store, append((2, [facts.text("x" * 200_000)])))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    with pytest.raises(LedgerFailedError, match="takes no writes"):
        one(store, append((2, [facts.text()])))
    assert not store.has_room()
    assert store.head().position == 3
    store.close()
    again = LmdbLedger.open(tmp_path)
    assert one(again, append((2, [facts.text()]))) == Appended(((4, 3),))
    assert verify(again.reader).ok
    again.close()


def test_what_a_failed_write_means(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) > FREE_BYTES_MIN
    full = [lmdb.MapFullError("full"), lmdb.DiskError("no space")]
    for error in full:
        assert isinstance(write_error(tmp_path, error, stored_nothing=True), LedgerFullError)
    for stored_nothing in (True, False):
        failed = write_error(tmp_path, lmdb.Error("Input/output error"), stored_nothing=stored_nothing)
        assert isinstance(failed, LedgerFailedError)


def test_a_disk_that_fills_up_shows_as_an_io_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maka.storage.environment.free_bytes", _no_bytes)
    error = lmdb.Error("Input/output error")
    assert isinstance(write_error(tmp_path, error, stored_nothing=True), LedgerFullError)
    assert isinstance(write_error(tmp_path, error, stored_nothing=False), LedgerFailedError)


def test_no_run_starts_on_an_almost_full_disk(disk: DiskBench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert disk.store.has_room()
    monkeypatch.setattr("maka.storage.ledger.free_bytes", _almost_no_bytes)
    assert not disk.store.has_room()


def _no_bytes(root: Path) -> int:
    del root
    return 0


def _almost_no_bytes(root: Path) -> int:
    del root
    return FREE_BYTES_MIN - 1


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


def test_each_start_is_an_epoch_of_its_own(disk: DiskBench) -> None:
    assert disk.store.epoch == 1
    assert disk.restart().epoch == 2


def test_a_batch_of_refusals_writes_nothing(disk: DiskBench) -> None:
    facts = begun(disk.store)
    before = disk.store.reader.environment.info()["last_txnid"]
    disk.store.commit([append((9, [facts.text()]))])
    disk.store.commit([])
    assert disk.store.reader.environment.info()["last_txnid"] == before


def test_the_cache_starts_anew_when_it_is_full(disk: DiskBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maka.storage.ledger.CACHED_MAX", 2)
    store = disk.restart()
    worlds = [Facts(first * 1_000) for first in range(1, 6)]
    for facts in worlds:
        store.commit([facts.opened(), facts.started()])
    for facts in worlds:
        assert isinstance(one(store, append((2, [facts.text()]))), Appended)
    assert verify(store.reader).ok


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
