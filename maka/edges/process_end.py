"""How processes are ended: TERM, a grace, KILL, a grace, each until nobody of the call's tree is found any more.

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
from maka.edges.proc_files import PROC
from maka.edges.process_tree import Stat, Table, boot_id, is_alive

EMPTY_LOOKS_MAX = 8
"""One that forks and leaves, again and again, is between two numbers at many looks: nobody is gone who may be that."""
FIRST_POLL_S = 0.001
POLL_S = 0.02


class Ending:
    """The end of one call's tree, step by step; any number of them go on side by side on one thread."""

    def __init__(self, leader: ProcessIdentity, pipes: Sequence[int] = (), grace_s: float = TERM_GRACE_S) -> None:
        self.leader = leader
        self.was_found = False
        self.survivors: tuple[int, ...] = ()
        self._pipes = pipes
        self._kill_at_s = time.monotonic() + grace_s
        self._over_at_s = self._kill_at_s + KILL_GRACE_S
        self._killing = False
        self._known: list[Stat] = []
        self._empty_looks = 0
        self._told: set[tuple[int, int]] = set()

    def must_look(self) -> bool:
        """Say whether it is time for a step: those known so far are gone, or the grace is over."""
        now_s = time.monotonic()
        is_late = now_s >= self._over_at_s or (not self._killing and now_s >= self._kill_at_s)
        return is_late or not any(is_alive(stat) for stat in self._known)

    def step(self, table: Table) -> bool:
        """Signal those that are found; says whether the end has come: nobody is, or no grace is left."""
        found, now_s = table.related(self.leader, self._pipes), time.monotonic()
        is_late = self._killing and now_s >= self._over_at_s
        self._killing = now_s >= self._kill_at_s
        self._empty_looks = 0 if found else self._empty_looks + 1
        if not found and (not table.is_restless or self._empty_looks == EMPTY_LOOKS_MAX):
            return True
        self._known = found or self._known
        if is_late:
            self.survivors = tuple(stat.pid for stat in self._known)
            return True
        if not found:
            return False
        self.was_found = True
        if self._killing:
            kill(self.leader.group, self._known)
        else:
            self._terminate()
        return False

    def _terminate(self) -> None:
        for stat in self._known:
            who = (stat.pid, stat.start_ticks)
            if who not in self._told:
                _send(stat, signal.SIGTERM)
                if stat.state in "Tt":
                    _send(stat, signal.SIGCONT)  # a stopped one handles nothing before
            self._told.add(who)
        if not os.path.isdir(PROC):
            _send_group(self.leader.group, signal.SIGTERM)


def kill(group: int, found: Iterable[Stat]) -> None:
    """Send KILL to those that were found just now, and to the group where one of them lives in it."""
    # A host that was started in a dead owner's call may be a member itself.
    if group != os.getpgrp() and any(stat.group == group and is_alive(stat) for stat in found):
        _send_group(group, signal.SIGKILL)
    for stat in found:
        _send(stat, signal.SIGKILL)


def _send_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _send(stat: Stat, number: signal.Signals) -> None:
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


def step_all(endings: Iterable[Ending]) -> list[Ending]:
    """Take the steps that are due, on one look at all processes; returns those that are over."""
    due = [ending for ending in endings if ending.must_look()]
    if not due:
        return []
    table = Table()
    return [ending for ending in due if ending.step(table)]


def end_left_over(given: Sequence[ProcessIdentity]) -> list[ProcessIdentity]:
    """End what a dead owner's calls left, all at once; return those of which something was left and nothing is now.

    Of a call whose leader has ended, only a process that bears its mark proves that the group is still the call's: one
    that was recorded without a mark is left alone then. Blocks up to 3 s.
    """
    boot = boot_id()
    endings = [Ending(one) for one in given if boot and one.boot_id == boot]
    left, pause_s = list(endings), FIRST_POLL_S
    while left:
        over = step_all(left)
        left = [ending for ending in left if ending not in over]
        if left:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, POLL_S)
    return [ending.leader for ending in endings if ending.was_found and not ending.survivors]
