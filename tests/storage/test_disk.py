"""The LMDB store where the world fails: full maps and disks, and commits that end in an error."""

import resource
import signal
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from maka.contracts.errors import (
    LedgerFailedError,
    LedgerFullError,
    Refusal,
    RefusalCode,
)
from maka.contracts.events import Status
from maka.contracts.limits import FREE_BYTES_MIN
from maka.contracts.ports import Appended, PutPartial
from maka.storage.environment import free_bytes, snapshot_of, write_error
from maka.storage.ledger import LmdbLedger
from maka.storage.root import acquire_root
from maka.storage.verify import verify
from tests.storage.conftest import DiskBench
from tests.storage.facts import Facts, append, begun, code_of, one


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
    assert all(isinstance(result, Refusal) and "map of 1 MiB is used up" in result.message for result in refused)
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
    facts = begun(disk.store)
    monkeypatch.setattr("maka.storage.ledger.free_bytes", _almost_no_bytes)
    assert not disk.store.has_room()
    assert isinstance(one(disk.store, append((2, [facts.text()]))), Appended)


def test_the_last_of_the_disk_is_left_to_settlements(disk: DiskBench, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = begun(disk.store)
    monkeypatch.setattr("maka.storage.ledger.free_bytes", _no_bytes)
    stream = facts.text()
    piece = PutPartial(
        session_id=facts.session,
        invocation_id=facts.invocation,
        stream_id=stream.id,
        kind="text",
        generation=1,
        offset=0,
        text="x",
    )
    (refused,) = disk.store.commit([append((2, [facts.text()]))], [piece])
    assert code_of(refused) is RefusalCode.LEDGER_FULL
    assert disk.store.partials(facts.invocation) == []
    end = append((2, [facts.terminal(Status.FAILED)]), settlement=True)
    assert isinstance(one(disk.store, end), Appended)


def _no_bytes(root: Path) -> int:
    del root
    return 0


def _almost_no_bytes(root: Path) -> int:
    del root
    return FREE_BYTES_MIN - 1


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
