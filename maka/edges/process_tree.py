"""What the kernel knows of processes: who is alive, and who was brought about by a call. Linux `/proc`, else nothing.

Laws: a pid alone names nobody, since it is reused; a pid with its start time does. A zombie counts as dead: whoever
should reap it may never do so. Where there is no `/proc`, answers are empty and only whole groups can be signalled.

A call's processes are found by what they can't all shed at once: a mark in the environment that each inherits, the
group and session of the leader, descent from anyone found, and the writing end of the call's output pipes. Not found is
a process that was orphaned, began a session of its own, let go of its output, and was started with another environment
(or hides it, as setuid programs and key agents do).
"""

import os
import time
from collections.abc import Iterable, Sequence

from msgspec import Struct

from maka.contracts.actions import ProcessIdentity
from maka.edges.proc_files import PROC, pids, read_file, read_stat

MARK_VARIABLE = "MAKA_CALL"
EXEC_S = 0.002


class Stat(Struct, frozen=True, kw_only=True):
    """One line of `/proc/PID/stat`, as far as it is needed. `start_ticks` counts clock ticks since boot.

    `resident_pages` counts pages that others share, and those of files, too.
    """

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int
    threads: int = 1
    resident_pages: int = 0


def stat_of(pid: int) -> Stat | None:
    """Return what is known of a pid now; None where there is no such process."""
    # The command's name stands in parentheses and may hold anything, so fields count from the last one.
    fields = read_stat(pid).rpartition(b")")[2].split()
    if not fields:
        return None
    return Stat(
        pid=pid,
        state=fields[0].decode(),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
        threads=int(fields[17]),
        resident_pages=int(fields[21]),
    )


def boot_id() -> str:
    """Return the id of this boot, empty where it can't be known."""
    return (read_file(f"{PROC}/sys/kernel/random/boot_id") or b"").decode().strip()


def identity_of(pid: int, mark: str | None = None) -> ProcessIdentity:
    """Name a process that leads its own group, and the mark that its environment holds."""
    stat = stat_of(pid)
    start_ticks = stat.start_ticks if stat else 0
    return ProcessIdentity(pid=pid, group=pid, start_ticks=start_ticks, boot_id=boot_id(), mark=mark)


def is_alive(stat: Stat) -> bool:
    """Say whether this very process still runs."""
    now = stat_of(stat.pid)
    return now is not None and now.start_ticks == stat.start_ticks and now.state not in "ZX"


class Table:
    """All processes as they were when this was made. Reads all of `/proc`: not for the I/O thread.

    `is_restless` says that one went before it could be looked at, so that what it left behind may be missing here.
    """

    def __init__(self) -> None:
        read = map(stat_of, pids())
        self._stats = {stat.pid: stat for stat in read if stat is not None}
        self._marks: dict[int, bytes] = {}
        self.is_restless = False
        self._own = os.getpid()
        self._spared = self._line_of(self._own)

    def related(self, leader: ProcessIdentity, pipes: Sequence[int] = ()) -> list[Stat]:
        """Return the living processes that a group's leader is or has brought about, as far as they can be found.

        `pipes` are inodes. This process, and those that it descends from, are never among them: a host may have been
        started by what an earlier one left behind.
        """
        # Nobody is older than who began him; this also leaves most of `/proc` unread.
        stats = [
            stat
            for stat in self._stats.values()
            if stat.start_ticks >= leader.start_ticks and stat.pid not in self._spared
        ]
        found = {stat.pid: stat for stat in stats if leader.mark and self._has(stat.pid, leader.mark)}
        if self._is_ours(leader, found.values()):
            found.update((stat.pid, stat) for stat in stats if leader.pid in (stat.pid, stat.group, stat.session))
        for stat in stats if pipes else ():
            # Our own children may have inherited a pipe in the moment between its making and their exec.
            if stat.pid not in found and stat.parent != self._own and _writes_to(stat.pid, pipes):
                found[stat.pid] = stat
        grew = True
        while grew:
            children = [stat for stat in stats if stat.parent in found and stat.pid not in found]
            found.update((stat.pid, stat) for stat in children)
            grew = bool(children)
        return [stat for stat in found.values() if stat.state not in "ZX"]

    def _is_ours(self, leader: ProcessIdentity, marked: Iterable[Stat]) -> bool:
        """Say whether the leader's number still names its group and session.

        It does while the leader is there, were it as a zombie, and while a marked one is in them: a number isn't
        given away before its group and session are empty.
        """
        now = self._stats.get(leader.pid)
        if now is not None:
            return now.start_ticks == leader.start_ticks
        return any(leader.pid in (stat.group, stat.session) for stat in marked)

    def _line_of(self, pid: int) -> frozenset[int]:
        line: set[int] = set()
        while pid in self._stats and pid not in line:
            line.add(pid)
            pid = self._stats[pid].parent
        return frozenset(line)

    def _has(self, pid: int, mark: str) -> bool:
        if pid not in self._marks:
            path = f"{PROC}/{pid}/environ"
            environ = read_file(path)
            self.is_restless = self.is_restless or (environ is None and stat_of(pid) is None)
            if environ == b"":
                # Either it has none, or it is just becoming another program, and has none for that moment.
                time.sleep(EXEC_S)
                environ = read_file(path)
            start = f"{MARK_VARIABLE}=".encode()
            entries = (environ or b"").split(b"\0")
            self._marks[pid] = next((entry for entry in entries if entry.startswith(start)), b"")
        return mark.encode() in self._marks[pid]


def related(leader: ProcessIdentity, pipes: Sequence[int] = ()) -> list[Stat]:
    """Do as `Table.related`, with a table made now."""
    return Table().related(leader, pipes)


def _writes_to(pid: int, pipes: Sequence[int]) -> bool:
    names = {f"pipe:[{inode}]" for inode in pipes}
    try:
        for fd in os.listdir(f"{PROC}/{pid}/fd"):
            if os.readlink(f"{PROC}/{pid}/fd/{fd}") not in names:
                continue
            with open(f"{PROC}/{pid}/fdinfo/{fd}") as file:
                flags = next((line.split()[1] for line in file if line.startswith("flags:")), "0")
            if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                return True
    except OSError:  # gone meanwhile, or another user's
        return False
    return False
