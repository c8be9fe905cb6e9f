"""One background shell: a process that outlives the call that began it.

Laws:
- The gate opens only when the fact of the start is durable. A stop before that runs nothing; after it no stop of the
  call or its run touches the process.
- Whatever comes first, a process that was named to somebody is told to have ended, once it has.
- Memory is bounded whatever it prints.
"""

import threading
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from maka.contracts.actions import ProcessIdentity
from maka.contracts.background_ports import ShellEnd
from maka.contracts.content import Outcome
from maka.contracts.ids import CallId, SessionId
from maka.contracts.limits import BACKGROUND_OUTPUT_BYTES_MAX
from maka.contracts.masks import NO_MASKS, Masks
from maka.contracts.process_ports import ProcessEnd, Processes, ProcessHandle, ProcessSpec
from maka.contracts.tool_ports import Handover, ProcessFact, ToolListener, ToolResult
from maka.tools.output import CommandOutput
from maka.tools.results import error
from maka.tools.settler import Later, at_once

_BY_SANDBOX = "the sandbox"

Settle = Callable[[ProcessEnd, str], str | None]
"""Puts right what a command left, given its end and its text, and returns what to say about it."""


class Order(Struct, frozen=True, kw_only=True):
    """What a shell is to be. `look` is called every SHELL_LOOK_S while it lives, where there is something to watch.

    It says whether the shell has to end. `settle` is called where `later` does work.
    """

    call_id: CallId
    session_id: SessionId
    command: str
    settle: Settle
    later: Later = at_once
    look: Callable[[], bool] | None = None
    masks: Masks = NO_MASKS


class Glance(Struct, frozen=True, kw_only=True):
    """A shell as it is: its text within the model's bounds, and how it ended, None while it lives."""

    text: str
    end: ShellEnd | None


class BackgroundShell:
    """One shell, from its order to its recorded end. Listens to its process; `cancel` is the call's.

    `on_end` is told when it has ended, and when it is decided whether its start is a fact.
    """

    def __init__(self, order: Order, listener: ToolListener, on_end: "Callable[[BackgroundShell], None]") -> None:
        self.order = order
        self.end: ShellEnd | None = None
        self._on_end = on_end
        self._listener = listener
        self._lock = threading.Lock()
        self._output = CommandOutput(_shown_to_nobody, order.masks, BACKGROUND_OUTPUT_BYTES_MAX // 2)
        self._handle: ProcessHandle | None = None
        self._process: ProcessIdentity | None = None
        self._handover: Handover | None = None
        self._cancelled = False
        self._by: str | None = None
        self._has_said = False
        self._looking = threading.Lock()
        self._has_settled = False
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

    def look(self) -> None:
        """Put right what it does meanwhile, and end it where that is the only way."""
        must_end = False
        with self._looking:
            if self.must_be_looked_after and self.order.look is not None and self._is_handed_over:
                with suppress(Exception):  # a bug of ours must not keep others from being looked after
                    must_end = self.order.look()
        if must_end:
            self.stop(_BY_SANDBOX)

    @property
    def must_be_looked_after(self) -> bool:
        """Say whether it may still do something that has to be put right."""
        return not self._has_settled

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
        if end.cause == "not_started":
            self._over(end, None)
        else:
            self._order_settling(end, text)

    # -- its end, where `later` does work -------------------------------------------------------------------------

    def _order_settling(self, end: ProcessEnd, text: str) -> None:
        def settle() -> None:
            with self._looking:  # a look under way may take as long
                note = self._settled(end, text)
            self._over(end, note)

        self.order.later(settle)

    def _over(self, end: ProcessEnd, note: str | None) -> None:
        """Know its end, and tell everyone."""
        self._has_settled = True
        with self._lock:
            if self._process is not None:
                self.end = self._end_of(end, self._process, note)
            waiting, self._waiting = self._waiting, []
        self._say(self._never_begun())
        self._on_end(self)
        for then in waiting:
            assert self.end is not None, "only a shell that was named is waited for"
            then(self.end)

    def _settled(self, end: ProcessEnd, text: str) -> str | None:
        try:
            return self.order.settle(end, text)
        except BaseException as bug:  # of ours, SystemExit included; its end has to become a fact all the same
            return f"Maka failed at putting right what it did ({type(bug).__name__}): look at it"

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
            self._on_end(self)

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


def _begun(shell_id: str | None, process: ProcessIdentity | None) -> ToolResult:
    pid = "" if process is None else f" (pid {process.pid})"
    text = (
        f"Running in the background as {shell_id}{pid}. check_background with this id shows what it has printed and "
        "whether it has ended; stop_background ends it. It goes on when this run ends, and ends when Maka leaves."
    )
    return ToolResult(outcome=Outcome.OK, text=text)


def _shown_to_nobody(stream: str, text: str) -> None:
    return
