"""What the benchmarks print alike: the machine, and times as shares of a whole."""

import os
import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median


def machine(folder: Path | None = None) -> str:
    """Return one line about what the figures were measured on, with the cost of one fsync in a folder."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"machine: {cores} cores{load}, {system}, a write of 4 KiB and its fsync {fsync_ms(folder):.2f} ms"


def fsync_ms(folder: Path | None = None, rounds: int = 50) -> float:
    """Return the median time in ms of a write of 4 KiB that is made durable."""
    times: list[float] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(rounds):
            started = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - started)
    return median(times) * 1e3


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share (0 to 1) of the values lies; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
