"""A program: gives up root and runs commands by Bash, as a host does for a person who isn't root.

`python -m tests.tools.nobody SANDBOX WORKSPACE SECRET COMMAND…` prints a JSON list of each command's outcome and text.
The command `write PATH` is a call of Write.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from maka.contracts.process_ports import Launch
from maka.contracts.sandbox_ports import Sandbox, SandboxPolicy
from maka.edges.bubblewrap import find_bubblewrap
from maka.edges.io_loop import IoLoop
from maka.edges.landlock import Landlock, abi, find_wall, program
from maka.edges.processes import AsyncProcesses
from maka.tools.policy import Ground
from tests.tools.conftest import make_tools
from tests.tools.harness import CHILD_ENV, Bench, boundary

NOBODY = 65534


class Open:
    """A sandbox that holds nothing: what is put right afterwards has to do without one."""

    name = "open"
    missing = None
    closes_beside_hidden = False

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy, env: Mapping[str, str]) -> Launch:
        del policy, env
        return Launch(argv=argv)


def sandbox_of(name: str) -> Sandbox | str:
    """Become nobody; return a sandbox that works then, or why there is none. What it needs is read before."""
    # Not the interpreter of this program: another user may have no way to it.
    python = shutil.which("python3", path=CHILD_ENV["PATH"])
    wall, shim = None if python is None else find_wall(python, "/usr"), program("landlock_shim")
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    if name == "open":
        return Open()
    if name == "bubblewrap":
        return find_bubblewrap(wall=lambda: wall)
    if python is None or abi() == 0:
        return "Landlock, or a python3 that everyone may run, is missing"
    return Landlock(abi(), python, shim, os.uname().machine, mounts=name == "landlock")


def main(name: str, workspace: str, secret: str, *commands: str) -> None:
    """Run commands one after another, each in a call of its own."""
    sandbox = sandbox_of(name)
    if isinstance(sandbox, str):
        print(json.dumps(sandbox))
        return
    loop = IoLoop.start()
    tools = make_tools(AsyncProcesses(loop), sandbox=sandbox, ground=Ground(secrets=(secret,)), rg_path=None)
    bench = Bench(tools, Path(workspace), boundary(Path(workspace)))
    results = [
        bench.run("Write", path=command.removeprefix("write "), content="x")
        if command.startswith("write ")
        else bench.run("Bash", command=command)
        for command in commands
    ]
    print(json.dumps([(result.outcome, result.text) for result in results]))
    loop.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
