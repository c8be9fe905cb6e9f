"""One thread that looks at what the trees of all running calls use, and ends one that uses too much.

Laws:
- What counts is used by the whole tree, wherever its processes went (`process_tree` finds them): their number, threads
  included, and their memory: what they filled, each shared page once, pages of files not at all.
- A look costs a share of a processor's time that is bounded (TOOL_WATCH_SHARE_MAX): the longer it takes, the rarer it
  is. So the bounds can be passed between two looks, by what a tree can fill or start in that time.
- The tree is killed on the look that found it, since a tree that grows without end leaves no time for more.

A control group would be exact; but making one takes a right that a person's program seldom has. The thread lives while
there is something to look at. Where there is no `/proc`, nothing is seen and nothing ended.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence

from maka.contracts.actions import ProcessIdentity
from maka.contracts.limits import TOOL_WATCH_EVERY_S, TOOL_WATCH_SHARE_MAX
from maka.contracts.tool_limits import LimitMet, ToolLimits
from maka.edges.proc_files import PROC, read_file
from maka.edges.process_end import kill
from maka.edges.process_tree import Stat, Table

MIB = 1 << 20
_COUNTED = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")

Met = Callable[[LimitMet], None]
"""Told which bound was met, just before the tree is killed; called on the thread."""


class TreeWatch:
    """Watches trees. `begin` and what it returns may be called from any thread, and return at once."""

    def __init__(self, limits: ToolLimits) -> None:
        self._limits = limits
        self._changed = threading.Condition()
        self._watched: dict[ProcessIdentity, Met] = {}
        self._is_running = False

    def begin(self, leader: ProcessIdentity, met: Met) -> Callable[[], None]:
        """Watch a leader's tree until the returned function is called, or a bound is met."""
        if not (self._limits.memory_max_mib or self._limits.processes_max):
            return lambda: None
        with self._changed:
            self._watched[leader] = met
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="maka-watch", daemon=True).start()
        return lambda: self._end(leader)

    def _end(self, leader: ProcessIdentity) -> None:
        with self._changed:
            self._watched.pop(leader, None)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._watched:
                    self._is_running = False
                    return
                watched = dict(self._watched)
            started_s = time.thread_time()
            self._look(watched)
            cost_s = time.thread_time() - started_s
            pause_s = max(TOOL_WATCH_EVERY_S, cost_s / TOOL_WATCH_SHARE_MAX)
            with self._changed:
                self._changed.wait_for(lambda: not self._watched, pause_s)

    def _look(self, watched: dict[ProcessIdentity, Met]) -> None:
        table = Table()
        for leader, met in watched.items():
            found = table.related(leader)
            limit = exceeded(found, self._limits)
            if limit is not None:
                self._end(leader)
                met(limit)
                kill(leader.group, found)


def exceeded(found: Sequence[Stat], limits: ToolLimits) -> LimitMet | None:
    """Return the bound that these processes exceed together."""
    tasks = sum(stat.threads for stat in found)
    if limits.processes_max and tasks > limits.processes_max:
        return LimitMet(name="processes_max", used=tasks, allowed=limits.processes_max)
    allowed = limits.memory_max_mib or 0
    # Resident pages cost nothing to know, and are never fewer than what counts, but for what was swapped out.
    if not allowed or sum(stat.resident_pages for stat in found) * os.sysconf("SC_PAGE_SIZE") <= allowed * MIB:
        return None
    used = sum(map(filled_bytes, found)) // MIB
    return LimitMet(name="memory_max_mib", used=used, allowed=allowed) if used > allowed else None


def filled_bytes(stat: Stat) -> int:
    """Return the memory that a process filled, with its part of what it shares; its resident pages if that is hidden.

    An empty answer is that of a process that has just ended.
    """
    said = read_file(f"{PROC}/{stat.pid}/smaps_rollup")
    if said is None:
        return stat.resident_pages * os.sysconf("SC_PAGE_SIZE")
    sizes = {field[0]: int(field[1]) * 1024 for line in said.splitlines() if (field := line.split())[-1:] == [b"kB"]}
    if _COUNTED[0] not in sizes:  # before Linux 5.6 pages of files weren't told apart
        return sizes.get(b"Pss:", 0)
    return sum(sizes.get(name, 0) for name in _COUNTED)
