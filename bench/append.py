"""How fast the ledger appends, beside raw LMDB, and when it is large.

(a) A batch of 128 events from 128 runs, each waiting for its own acknowledgement, against LMDB puts of the very same
rows with the same commit. Encoding is outside both, the commit inside both.
(c) The same batch, and one event alone, on a ledger of 1,000,000 events against an empty one.
Part (b), through actors, is `append_actors.py`.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lmdb

from bench._report import fsync_ms, machine
from bench._world import Run, runs
from maka.contracts.ports import Append, Appended
from maka.storage.batch import Batch
from maka.storage.environment import Databases, acquire_root
from maka.storage.ledger import LmdbLedger
from maka.storage.standing import Cache, CommittedRows
from maka.storage.writes import write_batch
from projections.append_rules import Limits

BATCH = 128
Rows = list[tuple[str, bytes, bytes]]


class Recorder:
    """A write transaction that keeps what is put through it, so that raw LMDB can be given the same rows."""

    def __init__(self, transaction: Any, names: dict[int, str], database: str = "") -> None:
        self._transaction = transaction
        self._names = names
        self._database = database
        self.rows: Rows = []

    def cursor(self, database: Any) -> "Recorder":
        made = Recorder(self._transaction, self._names, self._names[id(database)])
        made.rows = self.rows
        return made

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None: ...

    def putmulti(self, rows: list[tuple[bytes, bytes]], **_: Any) -> tuple[int, int]:
        self.rows += ((self._database, key, value) for key, value in rows)
        return len(rows), len(rows)

    def put(self, key: bytes, value: bytes, *, db: Any, **_: Any) -> None:
        self.rows.append((self._names[id(db)], key, value))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)


def rows_of(store: LmdbLedger, appends: list[Append]) -> Rows:
    """The rows that a batch will put, found without putting them."""
    reader = store.reader
    names = {id(getattr(reader.databases, name)): name for name in Databases.__struct_fields__}
    with reader.environment.begin() as transaction:
        standing = CommittedRows(reader.root, transaction, reader.databases, Cache(1))
        batch = Batch(standing, store.head(), store.epoch, Limits())
        assert all(isinstance(batch.add(append), Appended) for append in appends)
        recorder: Any = Recorder(transaction, names)
        write_batch(recorder, reader.databases, batch, standing, store.epoch)
    rows: Rows = recorder.rows
    return rows


class Raw:
    """LMDB by itself, with the same databases."""

    def __init__(self, folder: Path) -> None:
        self.environment = lmdb.open(str(folder), map_size=1 << 40, max_dbs=16)
        self.databases = {name: self.environment.open_db(name.encode()) for name in Databases.__struct_fields__}

    def put(self, rows: Rows) -> None:
        with self.environment.begin(write=True) as transaction:
            for name, key, value in rows:
                transaction.put(key, value, db=self.databases[name])

    def put_multi(self, rows: Rows) -> None:
        with self.environment.begin(write=True) as transaction:
            for name, database in self.databases.items():
                with transaction.cursor(database) as cursor:
                    cursor.putmulti([(key, value) for row, key, value in rows if row == name])


def timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def opened(root: Path) -> LmdbLedger:
    acquire_root(root).close()
    return LmdbLedger.open(root)


def begin(store: LmdbLedger, worlds: list[Run]) -> None:
    store.commit([append for run in worlds for append in run.begin()])


def part_a(folder: Path, batches: int) -> None:
    store, raw, multi = opened(folder / "a"), Raw(folder / "raw"), Raw(folder / "multi")
    worlds = runs(BATCH)
    begin(store, worlds)
    times: dict[str, list[float]] = {"ledger": [], "put": [], "putmulti": []}
    row_count = row_bytes = 0
    for _ in range(batches + 5):
        appends = [run.texts() for run in worlds]
        rows = rows_of(store, appends)
        row_count, row_bytes = len(rows), sum(len(key) + len(value) for _, key, value in rows)
        times["ledger"].append(timed(partial(store.commit, appends)))
        times["put"].append(timed(partial(raw.put, rows)))
        times["putmulti"].append(timed(partial(multi.put_multi, rows)))
    ms = {name: statistics.median(values[5:]) * 1e3 for name, values in times.items()}
    total = {name: sum(values[5:]) for name, values in times.items()}
    print(
        f"(a) one batch of {BATCH} events from {BATCH} runs, {row_count} rows, {row_bytes / 1024:.0f} KiB, n={batches}"
    )
    for name, value in ms.items():
        print(f"    {name:9} median {value:6.2f} ms/batch   {BATCH / value * 1e3:8,.0f} events/s")
    print(f"    ledger / raw puts of the same bytes: {ms['ledger'] / ms['put']:.2f}x (median; target 2.5x)")
    by_total, by_multi = total["ledger"] / total["put"], ms["ledger"] / ms["putmulti"]
    print(f"    by total time {by_total:.2f}x; against putmulti {by_multi:.2f}x")


def written_bytes() -> int:
    """Bytes that this process has handed to the system to write; 0 where the system doesn't say."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("wchar")), 0)


class Figures:
    """Commit times in ms and bytes written, of one kind of batch on one ledger."""

    def __init__(self, store: LmdbLedger, worlds: list[Run]) -> None:
        self._store = store
        self._worlds = worlds
        self._times: list[float] = []
        self._bytes = 0

    def commit(self) -> None:
        appends = [run.texts() for run in self._worlds]
        before = written_bytes()
        self._times.append(timed(lambda: self._store.commit(appends)))
        self._bytes += written_bytes() - before

    @property
    def ms(self) -> float:
        return statistics.median(self._times) * 1e3

    @property
    def bytes_each(self) -> float:
        return self._bytes / len(self._times) / len(self._worlds)


def fill(store: LmdbLedger, events: int) -> None:
    """Build a large store quickly: runs of 1,000 events, 2,000 to a commit, in sessions of their own."""
    number = 1
    while store.head().position < events:
        worlds = runs(4, number)
        begin(store, worlds)
        number += len(worlds)
        for _ in range(2):
            store.commit([run.texts(500) for run in worlds])


def part_c(folder: Path, batches: int, events: int) -> None:
    empty, large = opened(folder / "empty"), opened(folder / "large")
    took = timed(lambda: fill(large, events))
    size = (folder / "large" / "ledger" / "data.mdb").stat().st_size
    position = large.head().position
    rate, each = position / took, size / position
    print(f"(c) {position:,} events built in {took:.0f} s: {rate:,.0f} events/s, {each:.0f} bytes of file each")
    for label, count in ((f"{BATCH} events from {BATCH} runs", BATCH), ("one event alone", 1)):
        figures: list[Figures] = []
        for store in (empty, large):
            worlds = runs(count, 10_000_000)
            begin(store, worlds)
            figures.append(Figures(store, worlds))
        # In turn, so that whatever else the machine does falls on both. A disk that is busy with something else adds
        # the same to both and hides their difference, so a bare flush is timed in the same turns.
        flushes: list[float] = []
        for _ in range(batches):
            for figure in figures:
                figure.commit()
            flushes.append(fsync_ms(folder, 1))
        base, full = figures
        flush_ms = statistics.median(flushes)
        print(f"    {label}: {full.ms:.2f} ms, empty {base.ms:.2f} ms: {full.ms / base.ms:.2f}x (median; target 2x)")
        print(f"      bytes written per event: {full.bytes_each:,.0f}, empty {base.bytes_each:,.0f}")
        print(f"      a flush alone meanwhile: {flush_ms:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["a", "c"], help="measure one part only")
    parser.add_argument("--batches", type=int, default=200, help="batches that each figure is measured over")
    parser.add_argument("--events", type=int, default=1_000_000, help="size of the large ledger in part c")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure (default: the temporary folder)")
    options = parser.parse_args()
    print(machine(options.dir))
    folder = Path(tempfile.mkdtemp(prefix="maka-bench-", dir=options.dir))
    try:
        if options.part != "c":
            part_a(folder, options.batches)
        if options.part != "a":
            part_c(folder, options.batches, options.events)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
