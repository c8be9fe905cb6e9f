"""How long a start takes to be ready after a crash: 100 open runs beside 10,000 closed sessions, against them alone.

Ready is when `open_host` returns: every open run is closed and commands are taken. Each start is made on a fresh copy
of the store, since it leaves nothing open for the next one.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from bench._report import machine
from bench._world import runs
from maka.app import open_host
from maka.config import Config
from maka.contracts.ports import Append, Appended
from maka.storage.ledger import LmdbLedger
from maka.storage.root import DATA_FILE, LEDGER_DIR, acquire_root

APPENDS_A_COMMIT = 256
TEXTS_EACH = 4
RATIO_GOAL = 1.2


def build(root: Path, closed: int, open_runs: int) -> None:
    """Make a store as a killed owner leaves it: closed sessions with a run each, then open runs."""
    acquire_root(root).close()
    store = LmdbLedger.open(root)
    appends: list[Append] = []
    for run in runs(closed):
        appends += [*run.begin(), run.texts(TEXTS_EACH), run.end()]
    for run in runs(open_runs, closed + 1):
        appends += [*run.begin(), run.texts(TEXTS_EACH)]
    for start in range(0, len(appends), APPENDS_A_COMMIT):
        results = store.commit(appends[start : start + APPENDS_A_COMMIT])
        assert all(isinstance(result, Appended) for result in results)
    store.close()


def start_s(built: Path, folder: Path, open_runs: int) -> float:
    """Start on a copy of a store, and return how long it took to be ready."""
    root = folder / "copy"
    shutil.copytree(built, root)
    with (root / LEDGER_DIR / DATA_FILE).open("rb+") as data:
        os.fsync(data.fileno())  # or the start's first commit would pay for the copying
    config = Config(
        state_root=root, config_file=folder / "config.toml", config_dir=folder, profiles={}, child_env={"PATH": ""}
    )
    started = time.perf_counter()
    host = open_host(config)
    took = time.perf_counter() - started
    assert host.recovered_runs == open_runs, f"{host.recovered_runs} of {open_runs} runs were closed"
    host.close()
    shutil.rmtree(root)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--closed", type=int, default=10_000, help="closed sessions")
    parser.add_argument("--open", type=int, default=100, help="open runs")
    parser.add_argument("--rounds", type=int, default=9, help="starts that each figure is the median of")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure (default: the temporary folder)")
    options = parser.parse_args()
    print(machine(options.dir))
    with tempfile.TemporaryDirectory(prefix="maka-bench-", dir=options.dir) as name:
        folder = Path(name)
        few, many = folder / "few", folder / "many"
        build(few, 0, options.open)
        build(many, options.closed, options.open)
        start_s(few, folder, options.open)  # reads what every start reads
        times: dict[Path, list[float]] = {few: [], many: []}
        # In turn, so that whatever else the machine does falls on both.
        for _ in range(options.rounds):
            for built, taken in times.items():
                taken.append(start_s(built, folder, options.open))
        base, full = (statistics.median(taken) for taken in times.values())
        ratio = full / base
        print(f"ready with {options.open} open runs alone: {base * 1e3:.0f} ms (median of {options.rounds})")
        goal = f"goal {RATIO_GOAL}x" + ("" if ratio <= RATIO_GOAL else " MISSED")
        print(f"beside {options.closed:,} closed sessions: {full * 1e3:.0f} ms, {ratio:.2f}x ({goal})")


if __name__ == "__main__":
    main()
