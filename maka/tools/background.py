"""The table of background shells: those of one host that live, or whose end isn't recorded yet.

Laws: a shell whose start is, or may be, a fact stays until its end is recorded. At most BACKGROUND_PROCESSES_MAX of
them in a host: one more is refused before anything is spawned.
"""

import threading
from collections.abc import Callable

from maka.contracts.background_ports import ShellEnd
from maka.contracts.ids import CallId, SessionId
from maka.contracts.limits import BACKGROUND_PROCESSES_MAX
from maka.contracts.process_ports import Processes, ProcessSpec
from maka.contracts.tool_ports import ToolListener
from maka.tools.background_shell import BackgroundShell, Order
from maka.tools.results import error, no_effect
from maka.tools.shell_watch import Watch


class BackgroundTable:
    """The shells of one host. Implements `BackgroundShells`; every method may be called from any thread."""

    def __init__(self, shells_max: int = BACKGROUND_PROCESSES_MAX) -> None:
        self._lock = threading.Lock()
        self._shells_max = shells_max
        self._shells: dict[CallId, BackgroundShell] = {}
        self._forgotten: set[SessionId] = set()
        self._is_closed = False
        self._changed: Callable[[SessionId], object] = _nobody_listens
        self._watch = Watch()

    # -- for tools ------------------------------------------------------------------------------------------------

    def start(
        self, order: Order, listener: ToolListener, processes: Processes, spec: ProcessSpec
    ) -> Callable[[], None]:
        """Start a shell and return its call's cancel function. Beyond the bound nothing is spawned."""
        shell = BackgroundShell(order, listener, self.ended)
        with self._lock:
            refusal = self._refusal()
            if refusal is None:
                self._shells[order.call_id] = shell
        if refusal is not None:
            listener.ended(error(refusal))
            return no_effect
        if order.look is not None:
            self._watch.add(shell)
        return shell.start(processes, spec)

    def find(self, call_id: CallId) -> BackgroundShell | None:
        """Return a shell that lives, or whose end isn't recorded yet."""
        with self._lock:
            return self._shells.get(call_id)

    def ended(self, shell: BackgroundShell) -> None:
        """Take note that a shell has ended, or that it is decided whether its start is a fact."""
        order = shell.order
        with self._lock:
            if shell.must_be_recorded and order.session_id not in self._forgotten:
                self._shells[order.call_id] = shell
            elif not shell.is_undecided:
                self._shells.pop(order.call_id, None)
        self._watch.wake()
        self._changed(order.session_id)

    def _refusal(self) -> str | None:
        if self._is_closed:
            return "Maka is shutting down: nothing was started."
        if len(self._shells) >= self._shells_max:
            return (
                f"{self._shells_max} background processes live already, those of other sessions included, and that is "
                "all that there may be: nothing was started. Wait until one ends, or end one with stop_background."
            )
        return None

    # -- for actors -----------------------------------------------------------------------------------------------

    def listen(self, changed: Callable[[SessionId], object]) -> None:
        self._changed = changed

    def _of(self, session_id: SessionId | None = None) -> list[BackgroundShell]:
        with self._lock:
            shells = list(self._shells.values())
        return [shell for shell in shells if session_id in (None, shell.order.session_id)]

    # Shells are asked outside of the lock: each has its own.
    def unrecorded(self, session_id: SessionId) -> tuple[ShellEnd, ...]:
        ends = (shell.end for shell in self._of(session_id) if shell.must_be_recorded)
        return tuple(end for end in ends if end is not None)

    def recorded(self, call_id: CallId) -> None:
        with self._lock:
            shell = self._shells.pop(call_id, None)
        if shell is not None:
            self._changed(shell.order.session_id)

    def forget(self, session_id: SessionId) -> None:
        with self._lock:
            self._forgotten.add(session_id)
        for shell in self._of(session_id):
            if shell.end is not None:
                self.ended(shell)

    def stop(self, session_id: SessionId, by: str, call_id: CallId | None = None) -> bool:
        found = [shell for shell in self._of(session_id) if call_id in (None, shell.order.call_id)]
        for shell in found:
            shell.stop(by)
        return bool(found)

    def close(self, by: str) -> None:
        with self._lock:
            self._is_closed = True
        for shell in self._of():
            shell.stop(by)

    def is_empty(self) -> bool:
        with self._lock:
            return not self._shells


def _nobody_listens(session_id: SessionId) -> None:
    return
