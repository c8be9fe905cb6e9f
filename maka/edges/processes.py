"""The port of processes: starts children behind their gates on the I/O thread, and ends those of a dead owner.

Law: at most SPAWNS_PER_TICK_MAX children are made in one turn of the loop (a spawn holds the thread for about a
millisecond), so that streams keep flowing while a hundred runs start their tools.
"""

import asyncio
from collections.abc import Sequence

from maka.contracts.actions import ProcessIdentity
from maka.contracts.limits import SPAWNS_PER_TICK_MAX
from maka.contracts.process_ports import ProcessHandle, ProcessListener, ProcessSpec
from maka.contracts.tool_limits import ToolLimits
from maka.edges.child_process import ChildProcess, Io, Trees
from maka.edges.process_end import end_left_over, kill
from maka.edges.process_tree import Table
from maka.edges.spawn_bounds import resolved

KILL_ALL_LOOKS = 5


class AsyncProcesses:
    """Implements `Processes` on an I/O thread. `limits` bound each process with all that it starts."""

    def __init__(self, io: Io, limits: ToolLimits | None = None) -> None:
        self._io = io
        self._trees = Trees(resolved(limits or ToolLimits()))
        self._children: set[ChildProcess] = set()
        self._spawned_this_turn = 0

    def spawn(self, spec: ProcessSpec, listener: ProcessListener) -> ProcessHandle:
        """Start a process behind its gate. Any thread; returns at once, all else comes through the listener."""
        child = ChildProcess(self._io, self._trees, spec, listener)
        self._io.submit(self._run(child), child.done)
        return child

    def kill_left_over(self, found: Sequence[ProcessIdentity]) -> list[ProcessIdentity]:
        """End what is left of recorded processes. Blocks up to 3 s: not for the I/O thread."""
        return end_left_over(found)

    def kill_all(self) -> None:
        """Send KILL to every child and all that it brought about, for a process that leaves without waiting.

        Any thread. Looks a few times, since what forks meanwhile escapes one look.
        """
        for _ in range(KILL_ALL_LOOKS):
            table, found = Table(), False
            for child in tuple(self._children):
                if child.identity is not None and (alive := table.related(child.identity)):
                    kill(child.identity.group, alive)
                    found = True
            if not found:
                return

    async def _run(self, child: ChildProcess) -> None:
        while self._spawned_this_turn >= SPAWNS_PER_TICK_MAX:
            await asyncio.sleep(0)
        if not self._spawned_this_turn:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._spawned_this_turn += 1
        self._children.add(child)
        try:
            await child.run()
        finally:
            self._children.discard(child)

    def _next_turn(self) -> None:
        self._spawned_this_turn = 0
