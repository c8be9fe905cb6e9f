"""Background shells: processes that outlive the call that began them, held by one table for each host.

Laws:
- The gate opens only when the fact of the start is durable. A stop before that runs nothing; what was handed over is
  the table's from then on, and no stop of its run touches it.
- A shell whose start is, or may be, a fact stays in the table until its end is recorded. It is told once that it ended.
- At most BACKGROUND_PROCESSES_MAX of them in a host: one more is refused before anything is spawned. Memory is bounded
  whatever they print.
"""

import threading
from collections.abc import Callable

from msgspec import Struct

from maka.contracts.actions import ProcessIdentity
from maka.contracts.background_ports import ShellEnd
from maka.contracts.content import Outcome
from maka.contracts.ids import CallId, SessionId
from maka.contracts.limits import BACKGROUND_OUTPUT_BYTES_MAX, BACKGROUND_PROCESSES_MAX
from maka.contracts.tool_ports import (
    Handover,
    ProcessEnd,
    Processes,
    ProcessFact,
    ProcessHandle,
    ProcessSpec,
    ToolListener,
    ToolResult,
)
from maka.tools.output import CommandOutput
from maka.tools.results import error, no_effect

Settle = Callable[[ProcessEnd, str], str | None]
"""Puts right what a command left, given its end and its text, and returns what to say about it."""


class Order(Struct, frozen=True, kw_only=True):
    """What a shell is to be."""

    call_id: CallId
    session_id: SessionId
    command: str
    settle: Settle


class Glance(Struct, frozen=True, kw_only=True):
    """A shell as it is: its text within the model's bounds, and how it ended, None while it lives."""

    text: str
    end: ShellEnd | None


class BackgroundShell:
    """One shell, from its order to its recorded end. Listens to its process; `cancel` is the call's."""

    def __init__(self, table: "BackgroundTable", order: Order, listener: ToolListener) -> None:
        self.order = order
        self.end: ShellEnd | None = None
        self._table = table
        self._listener = listener
        self._lock = threading.Lock()
        self._output = CommandOutput(_shown_to_nobody, BACKGROUND_OUTPUT_BYTES_MAX // 2)
        self._handle: ProcessHandle | None = None
        self._process: ProcessIdentity | None = None
        self._handover: Handover | None = None
        self._cancelled = False
        self._by: str | None = None
        self._has_said = False
        self._waiting: list[Callable[[ShellEnd], None]] = []

    def start(self, processes: Processes, spec: ProcessSpec) -> Callable[[], None]:
        """Spawn; returns the call's cancel function."""
        handle = processes.spawn(spec, self)
        with self._lock:
            self._handle = handle
        self._steer()
        return self.cancel

    def cancel(self) -> None:
        """End the call: before the handover the process ends with it, after it nothing happens."""
        with self._lock:
            self._cancelled = self._cancelled or not self._is_handed_over
        self._steer()

    def stop(self, by: str) -> None:
        """End the shell, whatever it is doing."""
        with self._lock:
            self._by = self._by or by
        self._steer()

    def glance(self) -> Glance:
        """Return what it has printed so far, in short."""
        with self._lock:
            return Glance(text=self._output.for_model()[0], end=self.end)

    def when_ended(self, then: Callable[[ShellEnd], None]) -> None:
        """Call `then` with the end, now if it has come. Any thread."""
        with self._lock:
            end = self.end
            if end is None:
                self._waiting.append(then)
        if end is not None:
            then(end)

    @property
    def must_be_recorded(self) -> bool:
        """Say whether its start is, or may be, a fact."""
        handover = self._handover
        return handover is not None and (handover.shell_id is not None or handover.unclear)

    @property
    def is_undecided(self) -> bool:
        """Say whether somebody was asked for the fact of its start, and hasn't answered."""
        return self._process is not None and self._handover is None

    @property
    def _is_handed_over(self) -> bool:
        return self._handover is not None and self._handover.shell_id is not None

    def _steer(self) -> None:
        """Pass on what is known: the process may report before `spawn` has returned its handle."""
        with self._lock:
            handle, cancelled = self._handle, self._cancelled or self._by is not None
            released = self._is_handed_over and not cancelled
        if handle is None:
            return
        if cancelled:
            handle.cancel()
        elif released:
            handle.release()

    # -- the process, on the I/O thread ---------------------------------------------------------------------------

    def waiting(self, process: ProcessIdentity) -> None:
        with self._lock:
            if self._cancelled or self._by is not None:
                return  # it ends at its gate, and nobody need know
            self._process = process
        fact = ProcessFact(process=process, command=self.order.command, background=True)
        self._listener.keep(fact, self._decided)

    def output(self, stream: str, data: bytes) -> None:
        with self._lock:
            self._output.take(stream, data)

    def failed(self, message: str) -> None:
        self._say(error(message))
        self.ended(ProcessEnd(cause="not_started"))

    def ended(self, end: ProcessEnd) -> None:
        with self._lock:
            self._output.close()
            text = self._output.for_model()[0]
        note = None if end.cause == "not_started" else self.order.settle(end, text)
        with self._lock:
            if self._process is not None:
                self.end = self._end_of(end, self._process, note)
            waiting, self._waiting = self._waiting, []
        self._say(self._never_begun())
        self._table.ended(self)
        for then in waiting:
            assert self.end is not None, "only a shell that was named is waited for"
            then(self.end)

    def _end_of(self, end: ProcessEnd, process: ProcessIdentity, note: str | None) -> ShellEnd:
        how = {"cancelled": "stopped", "exited": "exited" if end.signal is None else "killed"}.get(end.cause, end.cause)
        return ShellEnd(
            call_id=self.order.call_id,
            process=process,
            how=how,
            exit_code=end.exit_code if end.signal is None else 128 + end.signal,
            by=self._by if end.cause in ("cancelled", "not_started") else None,
            output=self._output.kept.whole(),
            note=note,
            survivors=end.survivors,
        )

    # -- the handover, on an actor's thread -----------------------------------------------------------------------

    def _decided(self, handover: Handover) -> None:
        with self._lock:
            if self._handover is not None and not self._handover.unclear:
                return
            self._handover = handover
            lives = handover.shell_id is not None and not self._cancelled and self._by is None and self.end is None
            self._cancelled = self._cancelled or not lives
            has_ended = self.end is not None
        self._steer()
        if lives:
            self._say(_begun(handover.shell_id, self._process))
        if has_ended:
            self._table.ended(self)

    def _say(self, result: ToolResult) -> None:
        """End the call, once."""
        with self._lock:
            has_said, self._has_said = self._has_said, True
        if not has_said:
            self._listener.ended(result)

    def _never_begun(self) -> ToolResult:
        if self._handover is not None and self._handover.refusal:
            text = f"The process was not recorded, so nothing was run: {self._handover.refusal}"
            return ToolResult(outcome=Outcome.NOT_STARTED, text=text)
        if self._cancelled or self._by is not None:
            return ToolResult(outcome=Outcome.ABORTED, text="Stopped before the command began; nothing was run.")
        text = "The process ended before the command began, so nothing was run."
        return ToolResult(outcome=Outcome.NOT_STARTED, text=text)


class BackgroundTable:
    """The shells of one host. Implements `BackgroundShells`; every method may be called from any thread."""

    def __init__(self, shells_max: int = BACKGROUND_PROCESSES_MAX) -> None:
        self._lock = threading.Lock()
        self._shells_max = shells_max
        self._shells: dict[CallId, BackgroundShell] = {}
        self._forgotten: set[SessionId] = set()
        self._is_closed = False
        self._changed: Callable[[SessionId], object] = _nobody_listens

    # -- for tools ------------------------------------------------------------------------------------------------

    def start(
        self, order: Order, listener: ToolListener, processes: Processes, spec: ProcessSpec
    ) -> Callable[[], None]:
        """Start a shell and return its call's cancel function. Beyond the bound nothing is spawned."""
        shell = BackgroundShell(self, order, listener)
        with self._lock:
            refusal = self._refusal()
            if refusal is None:
                self._shells[order.call_id] = shell
        if refusal is not None:
            listener.ended(error(refusal))
            return no_effect
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


def _begun(shell_id: str | None, process: ProcessIdentity | None) -> ToolResult:
    pid = "" if process is None else f" (pid {process.pid})"
    text = (
        f"Running in the background as {shell_id}{pid}. check_background with this id shows what it has printed and "
        "whether it has ended; stop_background ends it. It goes on when this run ends, and ends when Maka leaves."
    )
    return ToolResult(outcome=Outcome.OK, text=text)


def _shown_to_nobody(stream: str, text: str) -> None:
    return


def _nobody_listens(session_id: SessionId) -> None:
    return
