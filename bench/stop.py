"""How long a stop takes: to its durable terminal, and to the end of the run's last effect; and how long a shutdown is.

A run is brought into a phase and stopped there, again and again, alone and while 99 others stream 50 deltas a second
each. The model is in another process. "Terminal" is the time from the call of `stop` to its receipt, which comes after
the commit; "effect" that to the end of the run's connection, as the server sees it, or of its process. `was` counts
what the receipts say the runs were doing.
"""

import argparse
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pykka
from msgspec import Struct

from bench._phases import Live, Runs, config_of, phase_server
from bench._report import machine, quantile
from maka.app import Host, open_host

PHASES = {
    "stream": ("in mid-stream", 50),
    "head": ("before the response head", 50),
    "retry": ("in a retry wait", 50),
    "steps": ("in or between quick steps", 50),
    "tool": ("in a tool that dies on TERM", 150),
}
"""Phase -> words, and the goal for p99 in ms."""
SHUTDOWN_GOAL_S = 5.0


class Figures(Struct, frozen=True):
    """Times in ms of one phase's stops, and what their receipts say."""

    terminal: list[float]
    effect: list[float]
    was: Counter[str]


def stop(host: Host, runs: Runs, live: Live, found: Figures) -> None:
    """Stop one run and take its times."""
    started_ns = time.monotonic_ns()
    receipt = host.manager.stop(live.session_id, "bench")
    found.terminal.append((time.monotonic_ns() - started_ns) / 1e6)
    assert receipt.status == "aborted", receipt
    if over_ns := runs.effects_over_ns(live):
        found.effect.append((over_ns - started_ns) / 1e6)
    found.was[receipt.was] += 1


def measure(host: Host, runs: Runs, phase: str, stops: int) -> Figures:
    """Stop runs in a phase, one after the other, each a little later in its life than the one before."""
    found = Figures([], [], Counter())
    for number in range(stops):
        live = runs.begin(phase)
        time.sleep(number % 10 * 0.003)
        stop(host, runs, live, found)
    return found


def report(words: str, goal_ms: int, found: Figures) -> None:
    for name, times in (("terminal", found.terminal), ("effect", found.effect)):
        if not times:
            continue
        p50, p99, worst = (quantile(times, share) for share in (0.5, 0.99, 1.0))
        goal = "" if p99 < goal_ms else " MISSED"
        print(f"    {words:27} {name:8} p50 {p50:6.1f}, p99 {p99:6.1f} ms (goal {goal_ms}{goal}), worst {worst:6.1f}")
    print(f"    {'':27} was: {', '.join(f'{word} {count}' for word, count in found.was.most_common())}")


def part_stops(folder: Path, phases: list[str], stops: int, others: int) -> None:
    with phase_server() as model, open_host(config_of(folder, model.base_url)) as host:
        runs = Runs(host, model, folder)
        stop(host, runs, runs.begin("stream"), Figures([], [], Counter()))  # imports the client's library
        print(f"{others + 1} concurrent run{'s' * bool(others)}, n={stops}")
        for phase in phases:
            background = [runs.begin("stream") for _ in range(others)]
            words, goal_ms = PHASES[phase]
            report(words, goal_ms, measure(host, runs, phase, stops))
            for live in background:
                host.manager.stop(live.session_id, "bench")


def part_shutdown(folder: Path, phases: tuple[str, ...], live: int) -> None:
    before = set(threading.enumerate())
    with phase_server() as model:
        host = open_host(config_of(folder, model.base_url))
        runs = Runs(host, model, folder)
        for number in range(live):
            runs.begin(phases[number % len(phases)])
        started = time.monotonic()
        host.close()
        took_s = time.monotonic() - started
    left = [thread.name for thread in set(threading.enumerate()) - before if "listen" not in thread.name]
    goal = "" if took_s < SHUTDOWN_GOAL_S else " MISSED"
    print(f"shutdown with {live} live runs ({', '.join(phases)}): {took_s:.2f} s (goal {SHUTDOWN_GOAL_S:g} s{goal})")
    print(f"    actors left {len(pykka.ActorRegistry.get_all())}, threads left {left or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stops", type=int, default=500, help="stops in each phase")
    parser.add_argument("--runs", type=int, nargs="*", default=[1, 100], help="numbers of concurrent runs")
    parser.add_argument("--phases", nargs="*", choices=[*PHASES], default=[*PHASES], help="these phases only")
    parser.add_argument("--live", type=int, default=100, help="runs that a shutdown meets; 0 measures none")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure (default: the temporary folder)")
    options = parser.parse_args()
    print(machine(options.dir))
    with tempfile.TemporaryDirectory(prefix="maka-bench-", dir=options.dir) as name:
        folder = Path(name)
        (folder / "note.txt").write_text("a short file\n")
        for number in options.runs:
            part_stops(folder, options.phases, options.stops, number - 1)
        for phases in (("stream", "tool", "retry", "head"), ("deaf",)) if options.live else ():
            part_shutdown(folder, phases, options.live)


if __name__ == "__main__":
    main()
