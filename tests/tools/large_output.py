"""One command in a process that did nothing before: what came of it, and how much memory it took.

`python -m tests.tools.large_output SANDBOX WORKSPACE COMMAND` prints it as JSON. The peak of a process that runs other
tests would hide what this one takes, and one that a child inherits would too: so it isn't asked of `getrusage`.
"""

import json
import sys
from pathlib import Path
from typing import Any

from maka.contracts.boundary import Profile
from maka.edges.io_loop import IoLoop
from maka.edges.processes import AsyncProcesses
from tests.tools.conftest import SANDBOXES, make_tools
from tests.tools.harness import Bench, boundary


def main(name: str, workspace: str, command: str) -> None:
    """Run it after another one, which takes what every first command does."""
    loop, folder = IoLoop.start(), Path(workspace)
    profile = Profile.ASK if name in SANDBOXES else Profile.BYPASS
    sandbox = SANDBOXES[name]() if name in SANDBOXES else None
    bench = Bench(make_tools(AsyncProcesses(loop), sandbox=sandbox), folder, boundary(folder, profile))
    bench.run("Bash", command="seq 100000")
    before = peak_bytes()
    recorder = bench.begin("Bash", command=command)
    result = recorder.wait()
    said: dict[str, Any] = {
        "grown": peak_bytes() - before,
        "outcome": result.outcome,
        "text": result.text,
        "whole": None if result.whole is None else [len(result.whole), b"bytes were dropped here" in result.whole],
        "shown": recorder.shown(),
        "longest": max((len(text) for _, text in recorder.outputs), default=0),
    }
    loop.close()
    print(json.dumps(said))


def peak_bytes() -> int:
    """Return the most memory that this program has had at once, since it was begun."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) << 10


if __name__ == "__main__":
    main(*sys.argv[1:])
