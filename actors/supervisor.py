"""Children, death notices and restart intensity: what becomes of an actor that died, decided in one place.

Laws: a dead run's children are cancelled and waited for, at most 3 s, before its run is closed, so that the verdict
comes after the last effect; a dead session is read again from the ledger, its runs live on, but not more than a few
times a minute; a death that nobody reported is noticed by the second sweep that finds it.
"""

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from actors.address import Address
from actors.base import Log
from actors.messages import ChildStarted, OrphansDue, RunStarted, ToKernel
from actors.messages_ledger import CloseRun, ToLedger
from actors.messages_run import ToRun
from maka.contracts.ids import InvocationId, RunId, SessionId
from maka.contracts.limits import SESSION_RELOADS_MAX, SESSION_RELOADS_WINDOW_S, SETTLE_WAIT_S
from maka.contracts.ports import Clock, Timers

LOOK_EVERY_S = 0.05


class LiveRun(Struct):
    """A run's actor and the children that it has started. `waited_until_s` is set once it has died."""

    session_id: SessionId
    address: Address[ToRun]
    children: list[ChildStarted] = []
    waited_until_s: float | None = None


class Supervisor:
    """KernelActor's table of runs; used on its thread alone."""

    def __init__(
        self, log: Log, clock: Clock, timers: Timers, kernel: Callable[[], Address[ToKernel]], ledger: Address[ToLedger]
    ) -> None:
        self._log = log
        self._clock = clock
        self._timers = timers
        self._kernel = kernel
        self._ledger = ledger
        self.runs: dict[RunId, LiveRun] = {}
        self._crashes: dict[SessionId, deque[float]] = {}
        self._suspects: set[RunId] = set()

    def started(self, message: RunStarted) -> None:
        self.runs[message.run_id] = LiveRun(message.session_id, message.run)

    def child_started(self, message: ChildStarted) -> None:
        run = self.runs.get(message.run_id)
        if run is not None:
            run.children = [each for each in run.children if each.child.is_alive()]
            run.children.append(message)

    def runs_of(self, session_id: SessionId) -> tuple[tuple[RunId, Address[ToRun]], ...]:
        """Return a session's runs that are alive."""
        alive = ((run_id, run) for run_id, run in self.runs.items() if run.waited_until_s is None)
        return tuple((run_id, run.address) for run_id, run in alive if run.session_id == session_id)

    def finished(self, run_id: RunId) -> None:
        self.runs.pop(run_id, None)

    def run_died(self, session_id: SessionId, run_id: RunId, reason: str) -> None:
        """End its children, wait for them, then close the run.

        Its own clean-up has told them already, unless it died without a word; telling them twice does no harm.
        """
        run = self.runs.get(run_id)
        if run is None or run.waited_until_s is not None:
            return
        self._log.error("run_died", session_id=session_id, run_id=run_id, error_kind=reason)
        run.waited_until_s = self._clock.monotonic_s() + SETTLE_WAIT_S
        for each in run.children:
            if each.cancel is None:
                each.child.stop()
            else:
                each.child.tell(each.cancel)
        self.look_after(run_id)

    def look_after(self, run_id: RunId) -> None:
        """Close a dead run if its children are gone or the wait is over; else look again soon."""
        run = self.runs.get(run_id)
        if run is None or run.waited_until_s is None:
            return
        left = [each for each in run.children if each.child.is_alive()]
        if left and self._clock.monotonic_s() < run.waited_until_s:
            kernel = self._kernel()

            def fire() -> None:
                kernel.tell(OrphansDue(run_id=run_id))

            self._timers.after(LOOK_EVERY_S, fire)
            return
        if left:
            self._log.error("children_left", run_id=run_id, count=len(left))
        self.close(run.session_id, run_id)

    def close(self, session_id: SessionId, run_id: RunId) -> None:
        """Let the ledger end a run that has no actor any more."""
        self._ledger.tell(
            CloseRun(
                session_id=session_id,
                invocation_id=InvocationId(run_id),
                reason="actor_crashed",
                to=self._kernel(),
            )
        )

    def may_reload(self, session_id: SessionId) -> bool:
        """Count a session's crash, and say whether it may be tried again."""
        now_s = self._clock.monotonic_s()
        crashes = self._crashes.setdefault(session_id, deque())
        crashes.append(now_s)
        while crashes and crashes[0] < now_s - SESSION_RELOADS_WINDOW_S:
            crashes.popleft()
        return len(crashes) <= SESSION_RELOADS_MAX

    def give_up(self, session_id: SessionId) -> None:
        """End a session's runs: it crashes too often for them to be served."""
        for run_id, address in self.runs_of(session_id):
            address.stop()  # its clean-up cancels what it runs
            self.run_died(session_id, run_id, "its session crashes too often")

    def sweep(self) -> list[tuple[SessionId, RunId]]:
        """Return runs whose actors are gone without a word, at the second look."""
        gone = {
            run_id for run_id, run in self.runs.items() if run.waited_until_s is None and not run.address.is_alive()
        }
        found, self._suspects = gone & self._suspects, gone
        return [(self.runs[run_id].session_id, run_id) for run_id in sorted(found)]

    def stop_all(self) -> None:
        """End every run's actor without an append: nothing can be made durable any more."""
        for run in self.runs.values():
            run.address.stop()
        self.runs = {}
