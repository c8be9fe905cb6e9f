"""What the kernel knows of processes: who is alive, who belongs to a group, who left it. Linux `/proc`, else nothing.

Laws: a pid alone names nobody, since it is reused; a pid with its start time does. A zombie counts as dead: whoever
should reap it may never do so. Where there is no `/proc`, answers are empty and only whole groups can be signalled.
"""

import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec import Struct

from maka.contracts.actions import ProcessIdentity
from maka.contracts.limits import KILL_GRACE_S, TERM_GRACE_S

PROC = "/proc"
POLL_S = 0.02


class Stat(Struct, frozen=True, kw_only=True):
    """One line of `/proc/PID/stat`, as far as it is needed. `start_ticks` counts clock ticks since boot."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int


def stat_of(pid: int) -> Stat | None:
    """Return what is known of a pid now; None where there is no such process."""
    try:
        with open(f"{PROC}/{pid}/stat", "rb") as file:
            # The command's name stands in parentheses and may hold anything, so fields count from the last one.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return Stat(
        pid=pid,
        state=fields[0].decode(),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
    )


def boot_id() -> str:
    """Return the id of this boot, empty where it can't be known."""
    try:
        with open(f"{PROC}/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def identity_of(pid: int) -> ProcessIdentity:
    """Name a process that leads its own group."""
    stat = stat_of(pid)
    return ProcessIdentity(pid=pid, group=pid, start_ticks=stat.start_ticks if stat else 0, boot_id=boot_id())


def is_alive(stat: Stat) -> bool:
    """Say whether this very process still runs."""
    now = stat_of(stat.pid)
    return now is not None and now.start_ticks == stat.start_ticks and now.state not in "ZX"


def related(leader: ProcessIdentity, pipes: Sequence[int] = ()) -> list[Stat]:
    """Return the living processes that a group's leader is or has brought about, as far as they can be found.

    Found are members of its group and session, their descendants, and, since a process may leave all of these,
    whoever can write into one of `pipes` (inodes). Reads all of `/proc`: not for the I/O thread.
    """
    stats = _all()
    found = {stat.pid: stat for stat in stats if leader.pid in (stat.pid, stat.group, stat.session)}
    if leader.pid in found and found[leader.pid].start_ticks != leader.start_ticks:
        found = {}  # the number was given to someone else: this group isn't ours
    grew = True
    while grew:
        children = [stat for stat in stats if stat.parent in found and stat.pid not in found]
        found.update((stat.pid, stat) for stat in children)
        grew = bool(children)
    own = os.getpid()
    for stat in stats if pipes else ():
        # Our own children may have inherited a pipe in the moment between its making and their exec.
        if stat.pid not in found and own not in (stat.pid, stat.parent) and _writes_to(stat.pid, pipes):
            found[stat.pid] = stat
    return [stat for stat in found.values() if stat.state not in "ZX"]


def _all() -> list[Stat]:
    try:
        names = os.listdir(PROC)
    except OSError:
        return []
    stats = [stat_of(int(name)) for name in names if name.isdigit()]
    return [stat for stat in stats if stat is not None]


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


def send(leader: int, known: Iterable[Stat], number: signal.Signals) -> None:
    """Signal the leader's group as a whole, and one by one those that left it. `known` must be fresh."""
    living = [stat for stat in known if is_alive(stat)]
    if any(stat.group == leader for stat in living) or not os.path.isdir(PROC):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, number)
    for stat in living:
        if stat.group != leader:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(stat.pid, number)


def kill_groups(found: Sequence[ProcessIdentity]) -> list[ProcessIdentity]:
    """End the groups that still are what was recorded, and return those that are gone now. Blocks up to 3 s.

    A group whose leader has ended is left alone: its number may be someone else's by now.
    """
    boot = boot_id()
    same = [one for one in found if boot and one.boot_id == boot and _is_leader(one)]
    known = {one: related(one) for one in same}
    for number, grace_s in ((signal.SIGTERM, TERM_GRACE_S), (signal.SIGKILL, KILL_GRACE_S)):
        for one, stats in known.items():
            send(one.group, stats, number)
        deadline = time.monotonic() + grace_s
        while any(is_alive(stat) for stats in known.values() for stat in stats) and time.monotonic() < deadline:
            time.sleep(POLL_S)
    return [one for one, stats in known.items() if not any(is_alive(stat) for stat in stats)]


def _is_leader(one: ProcessIdentity) -> bool:
    stat = stat_of(one.pid)
    return stat is not None and stat.start_ticks == one.start_ticks and stat.group == one.group
