"""How fast concurrent runs append through LedgerActor, each waiting for its acknowledgement, beside SQLite.

Part (b) of the append figures. Four ways, in turns, so that whatever else the machine does falls on all of them:
  ledger            the real LedgerActor on LMDB; the runs have no threads, they answer on its own
  ledger, threads   the same, and each run is an actor with a mailbox and a thread, as in life
  sqlite each       SQLite, write-ahead log, synchronous=FULL; a connection and a thread for each run
  sqlite one        the same, with one writer thread that batches as LedgerActor does; the runs have no threads
The ledger checks its rules, hashes, keeps its indexes and publishes to a ProjectionActor; SQLite keeps one table.
"""

import argparse
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import structlog
from msgspec import Struct

from actors.address import Address
from actors.ledger import LedgerActor
from actors.messages_ledger import Follow, ToLedger
from actors.projection import ProjectionActor
from bench import _sqlite
from bench._report import fsync_ms, machine, quantile
from bench._world import Run, runs
from bench._writers import Go, LightWriter, Window, WriterActor, to_ledger
from maka.contracts.ports import Append
from maka.edges.clock import SystemClock
from maka.edges.ids import UuidSource
from maka.edges.timers import ThreadTimers
from maka.storage.blobs import FileBlobs
from maka.storage.environment import acquire_root
from maka.storage.ledger import LmdbLedger

CONCURRENCY = (1, 16, 128, 1_000)
OURS = ("ledger", "ledger, threads")
GOAL_AT = 128
GOAL_RATIO, GOAL_P99_MS = 10.0, 50.0
LOG: Any = structlog.wrap_logger(structlog.PrintLogger(), wrapper_class=structlog.make_filtering_bound_logger(30))


class Sample(Struct, frozen=True):
    """One window: how many events, in how many seconds, and how long each waited."""

    events: int
    seconds: float
    waits_s: list[float]


def sample_of(window: Window) -> Sample:
    window.wait()
    return Sample(len(window.waits_s), window.seconds, window.waits_s)


class Ledger:
    """A LedgerActor over LMDB, followed by a ProjectionActor."""

    def __init__(self, root: Path) -> None:
        acquire_root(root).close()
        self._timers = ThreadTimers.start()
        store = LmdbLedger.open(root)
        parts = (store, FileBlobs(root), SystemClock(), self._timers, UuidSource(), LOG.error)
        self._ref = LedgerActor.start(LOG, None, *parts)
        self._feed = ProjectionActor.start(LOG, None, store)
        self.address: Address[ToLedger] = Address(self._ref)
        self.address.tell(Follow(to=Address(self._feed)))
        self._numbers = count(1)

    def close(self) -> None:
        self._ref.stop()
        self._feed.stop()
        self._timers.close()

    def begun(self, number: int) -> list[Run]:
        """Return new runs, each open in the ledger."""
        made = [run for _ in range(number) for run in runs(1, next(self._numbers))]
        opening = Window(number, 0.0)
        for run in made:
            session, invocation = run.begin()
            send = to_ledger(self.address)
            send(session, LightWriter(run, Window(1, 0.0), send))
            send(invocation, LightWriter(run, opening, send))
        opening.wait()
        return made

    def light(self, number: int, seconds: float) -> Sample:
        made = self.begun(number)
        window, send = Window(number, seconds), to_ledger(self.address)
        for writer in [LightWriter(run, window, send) for run in made]:
            writer.begin()
        return sample_of(window)

    def threads(self, number: int, seconds: float) -> Sample:
        refs = [WriterActor.start(LOG, run, self.address) for run in self.begun(number)]
        window = Window(number, seconds)
        for ref in refs:
            ref.tell(Go(window=window))
        sample = sample_of(window)
        for ref in refs:
            ref.stop()
        return sample


class Sqlite:
    """The two ways of SQLite; a store for each."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "each.sqlite"
        self._batches = _sqlite.BatchWriter(folder / "one.sqlite")
        self._connections: list[sqlite3.Connection] = []

    def close(self) -> None:
        self._batches.close()
        for connection in self._connections:
            connection.close()

    def each(self, number: int, seconds: float) -> Sample:
        while len(self._connections) < number:
            self._connections.append(_sqlite.connect(self._path))
        window = Window(number, seconds)
        threads = [
            threading.Thread(target=_sqlite.write_alone, args=(connection, run, window))
            for connection, run in zip(self._connections, runs(number), strict=False)
        ]
        for thread in threads:
            thread.start()
        sample = sample_of(window)
        for thread in threads:
            thread.join()
        return sample

    def one(self, number: int, seconds: float) -> Sample:
        window = Window(number, seconds)

        def send(append: Append, writer: LightWriter) -> None:
            self._batches.send(append, writer)

        for writer in [LightWriter(run, window, send) for run in runs(number)]:
            writer.begin()
        return sample_of(window)


def measure(folder: Path, number: int, rounds: int, seconds: float) -> dict[str, list[Sample]]:
    """Measure the four ways in turns, on new stores."""
    ledger, sqlite = Ledger(folder / "ledger"), Sqlite(folder)
    ways: dict[str, Callable[[int, float], Sample]] = {
        "ledger": ledger.light,
        "ledger, threads": ledger.threads,
        "sqlite each": sqlite.each,
        "sqlite one": sqlite.one,
    }
    try:
        samples: dict[str, list[Sample]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                samples[name].append(way(number, seconds))
        return samples
    finally:
        ledger.close()
        sqlite.close()


def report(number: int, samples: dict[str, list[Sample]], flush_ms: float) -> None:
    print(f"(b) {number:,} concurrent run{'s' * (number > 1)}, each waiting for its acknowledgement")
    rates: dict[str, float] = {}
    late_ms: dict[str, float] = {}
    for name, taken in samples.items():
        waits = [wait for sample in taken for wait in sample.waits_s]
        rates[name] = median(sample.events / sample.seconds for sample in taken)
        p50, late_ms[name] = quantile(waits, 0.5) * 1e3, quantile(waits, 0.99) * 1e3
        print(f"    {name:16} {rates[name]:9,.0f} events/s   p50 {p50:8.2f} ms   p99 {late_ms[name]:9.2f} ms")
    for name in OURS:
        each, one = rates[name] / rates["sqlite each"], rates[name] / rates["sqlite one"]
        print(f"    {name} / sqlite each {each:.2f}x, / sqlite one {one:.2f}x")
    if number == GOAL_AT:
        for name in OURS:
            each = rates[name] / rates["sqlite each"]
            ratio, late = met(each >= GOAL_RATIO), met(late_ms[name] < GOAL_P99_MS)
            print(f"    {name}: goal {GOAL_RATIO:.0f}x of sqlite each {ratio}, p99 under {GOAL_P99_MS:.0f} ms {late}")
        print(
            f"    Only `sqlite each` flushes per event ({flush_ms:.2f} ms here): a slower disk makes the ratio larger."
        )
    if number == 1 and rates["ledger"] < rates["sqlite each"]:
        print("    One run alone is slower than SQLite: the ledger gains from batches, and one run makes none.")


def met(reached: bool) -> str:
    return "met" if reached else "missed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="*", default=CONCURRENCY, help="numbers of concurrent runs")
    parser.add_argument("--rounds", type=int, default=3, help="windows that each figure is the median of")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a window")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure (default: the temporary folder)")
    options = parser.parse_args()
    flush_ms = fsync_ms(options.dir)
    print(machine(options.dir))
    for number in options.runs:
        folder = Path(tempfile.mkdtemp(prefix="maka-bench-", dir=options.dir))
        try:
            report(number, measure(folder, number, options.rounds, options.seconds), flush_ms)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
