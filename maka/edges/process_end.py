"""How processes are ended: signals that reach those that were found, and the trees of a dead owner.

Laws: who is signalled was looked at just before, by pid and start time, and through a pidfd where the system has them,
so that a number that was given to someone else is never hit. TERM goes to each process once. KILL goes to the group as
a whole too, while one that was found lives in it: so a tree ends that forks faster than it can be listed.
"""

import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from maka.contracts.actions import ProcessIdentity
from maka.contracts.limits import KILL_GRACE_S, TERM_GRACE_S
from maka.edges.process_tree import PROC, Stat, Table, boot_id, is_alive

POLL_S = 0.02


class Signalled:
    """One call's processes, and who of them has had TERM."""

    def __init__(self, leader: ProcessIdentity) -> None:
        self._group = leader.group
        self._told: set[tuple[int, int]] = set()

    def send(self, found: Iterable[Stat], number: signal.Signals) -> None:
        """Send TERM to those that haven't had it, or KILL to all and their group. `found` must be fresh."""
        if number == signal.SIGKILL or not os.path.isdir(PROC):
            self._send_group(found, number)
        for stat in found:
            who = (stat.pid, stat.start_ticks)
            if number == signal.SIGKILL or who not in self._told:
                _send_one(stat, number)
            self._told.add(who)

    def _send_group(self, found: Iterable[Stat], number: signal.Signals) -> None:
        # A host that was started in a dead owner's call may be a member itself.
        if self._group == os.getpgrp():
            return
        if not os.path.isdir(PROC) or any(stat.group == self._group and is_alive(stat) for stat in found):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, number)


def _send_one(stat: Stat, number: signal.Signals) -> None:
    try:
        pidfd = os.pidfd_open(stat.pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # no Linux, a container without it, or no descriptor left
        if is_alive(stat):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(stat.pid, number)
        return
    try:
        # Looked at after the opening: had the number been given away, then before it, and it shows.
        if is_alive(stat):
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(pidfd, number)
    finally:
        os.close(pidfd)


def end_left_over(given: Sequence[ProcessIdentity]) -> list[ProcessIdentity]:
    """End what a dead owner's calls left, all at once; return those of which something was left and nothing is now.

    Of a call whose leader has ended, only a process that bears its mark proves that the group is still the call's: one
    that was recorded without a mark is left alone then. Blocks up to 3 s.
    """
    boot = boot_id()
    ours = {one: Signalled(one) for one in given if boot and one.boot_id == boot}
    left = _left(ours)
    known = tuple(left)
    for number, grace_s in ((signal.SIGTERM, TERM_GRACE_S), (signal.SIGKILL, KILL_GRACE_S)):
        deadline = time.monotonic() + grace_s
        while left and time.monotonic() < deadline:
            for one, found in left.items():
                ours[one].send(found, number)
            time.sleep(POLL_S)
            left = _left(left)
    return [one for one in known if one not in left]


def _left(ours: Iterable[ProcessIdentity]) -> dict[ProcessIdentity, list[Stat]]:
    table = Table()
    return {one: found for one in ours if (found := table.related(one))}
