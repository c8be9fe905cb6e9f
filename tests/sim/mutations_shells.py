"""Planted bugs of background shells. See `mutations`."""
# pyright: reportPrivateUsage=false

from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from actors import recovery, session_background
from maka.contracts.actions import ProcessIdentity
from maka.tools import background, background_shell
from projections import recovery_verdict
from projections.recovery_verdict import ORPHANS_ENDED, Verdict
from tests.sim.mutations import always, swap

OwnShells = session_background.OwnShells
Shell = background_shell.BackgroundShell


def begin_before_durable(stack: ExitStack) -> None:
    """The gate opens as soon as there is one."""

    def waiting(shell: Any, process: ProcessIdentity) -> None:
        old(shell, process)
        shell._handle.release()

    old = swap(stack, Shell, "waiting", waiting)


def write_no_end(stack: ExitStack) -> None:
    """What has ended is nobody's business."""
    swap(stack, OwnShells, "ends", always(None))


def forget_what_was_stopped_on_its_way(stack: ExitStack) -> None:
    """A start whose call was stopped before it was durable is taken for one that never was."""
    old: Any = Shell.must_be_recorded

    def must_be_recorded(shell: Any) -> bool:
        return bool(old.fget(shell)) and not shell._cancelled

    swap(stack, Shell, "must_be_recorded", property(must_be_recorded))


def forget_what_is_unclear(stack: ExitStack) -> None:
    """A start of which nobody knows whether it is durable is taken for one that never was."""
    old: Any = Shell.must_be_recorded

    def must_be_recorded(shell: Any) -> bool:
        return bool(old.fget(shell)) and not shell._handover.unclear

    swap(stack, Shell, "must_be_recorded", property(must_be_recorded))


def report_no_orphans(stack: ExitStack) -> None:
    """What a dead owner left is killed, and the facts still call it live."""
    swap(stack, recovery_verdict, "_orphans", always(Verdict(name=ORPHANS_ENDED)))


def leave_orphans_alive(stack: ExitStack) -> None:
    """Nobody looks for what a dead owner left in the background."""

    def inventory(reader: Any, log: Any) -> Any:
        found = old(reader, log)
        return replace(found, control=tuple(replace(left, processes=()) for left in found.control))

    old = swap(stack, recovery, "take_inventory", inventory)


def shut_down_around_them(stack: ExitStack) -> None:
    """A shutdown waits for nobody's background."""
    swap(stack, background.BackgroundTable, "close", always(None))
    swap(stack, background.BackgroundTable, "is_empty", always(True))
