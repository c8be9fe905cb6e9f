"""What a sandbox costs a command beyond itself: made, walls and all, until it has ended. Times are in ms."""

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path

from bench._report import machine, quantile
from maka.contracts.boundary import Boundary
from maka.contracts.process_ports import Launch
from maka.contracts.sandbox_ports import Sandbox, SandboxPolicy
from maka.edges.bubblewrap import find_bubblewrap
from maka.edges.inputs import opened
from maka.edges.landlock import find_landlock
from maka.tools.guard import Guards
from maka.tools.inside import Inside
from maka.tools.survey import ground_of

TRUE = ("/bin/true",)
ALONE, WALLED = "bubblewrap alone", "bubblewrap with Landlock"
RATIO_GOAL = 5.0


def command_ms(launch: Launch) -> float:
    """Return the time of one process, from its start to its end."""
    started = time.perf_counter()
    with opened(launch.argv, launch.inputs) as (argv, fds):
        done = subprocess.run(argv, check=False, env={}, cwd="/", stdin=subprocess.DEVNULL, pass_fds=fds)
    assert done.returncode == 0, done
    return (time.perf_counter() - started) * 1e3


def looks_ms(workspace: str) -> tuple[SandboxPolicy, float]:
    """Return what a command may touch, and the time of the looks before it and after it."""
    ground = ground_of(str(Path.home()), (), os.environ.get("PATH", ""))
    started = time.perf_counter()
    inside = Inside(Boundary(workspace=workspace), ground, Guards())
    policy = inside.policy(workspace)
    inside.verdict("", failed=False)
    return policy, (time.perf_counter() - started) * 1e3


def boxes() -> dict[str, Sandbox]:
    """Return the sandboxes that work here."""
    found = {
        ALONE: find_bubblewrap(wall=lambda: None),
        WALLED: find_bubblewrap(),
        "Landlock": find_landlock(),
        "Landlock without mounts": find_landlock(mounts=False),
    }
    return {name: box for name, box in found.items() if not isinstance(box, str)}


def main() -> None:
    """Print the figures; what is compared takes turns, so that all meet the same machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = range(parser.parse_args().rounds)
    print(machine())
    with tempfile.TemporaryDirectory(prefix="maka-bench-") as folder:
        workspace = os.path.realpath(folder)
        policy, _ = looks_ms(workspace)
        show("the looks at an empty folder", [looks_ms(workspace)[1] for _ in rounds])
        launches = {"no sandbox": Launch(argv=TRUE)}
        launches |= {name: box.wrap(TRUE, policy, {}) for name, box in boxes().items()}
        times: dict[str, list[float]] = {name: [] for name in launches}
        for _ in rounds:
            for name, launch in launches.items():
                times[name].append(command_ms(launch))
    for name, its in times.items():
        show(name, its)
    if ALONE in times and WALLED in times:
        change = quantile(times[WALLED], 0.5) / quantile(times[ALONE], 0.5)
        print(f"    the second wall costs {change:.2f} times bubblewrap's median (goal {RATIO_GOAL:g})")


def show(name: str, times: list[float]) -> None:
    print(f"{name:<28} p50 {quantile(times, 0.5):7.3f} ms   p99 {quantile(times, 0.99):7.3f} ms")


if __name__ == "__main__":
    main()
