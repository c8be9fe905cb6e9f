"""A tool call that is one process: named in the ledger before it runs, and ended by a stop at any moment.

Laws: the gate opens only after the commit. A stop before that runs nothing. `finish` is called at most once, with the
process's end and after all output; where nothing began the call is answered without it.
"""

import threading
from collections.abc import Callable

from maka.contracts.actions import ProcessIdentity
from maka.contracts.content import Outcome
from maka.contracts.process_ports import ProcessEnd, Processes, ProcessHandle, ProcessSpec
from maka.contracts.tool_ports import ProcessFact, ToolListener, ToolResult
from maka.tools.results import error
from maka.tools.settler import Later, at_once

Output = Callable[[str, bytes], None]
Finish = Callable[[ProcessEnd], ToolResult]


class SpawnedCall:
    """Ties a process to a call. `output` is called on the I/O thread, and `finish` where `later` does work."""

    def __init__(
        self, listener: ToolListener, command: str, output: Output, finish: Finish, later: Later = at_once
    ) -> None:
        self._listener = listener
        self._command = command
        self._output = output
        self._finish = finish
        self._later = later
        self._lock = threading.Lock()
        self._handle: ProcessHandle | None = None
        self._granted: bool | None = None
        self._cancelled = False

    def start(self, processes: Processes, spec: ProcessSpec) -> Callable[[], None]:
        """Spawn; returns the cancel function."""
        handle = processes.spawn(spec, self)
        with self._lock:
            self._handle = handle
        self._steer()
        return self.cancel

    def cancel(self) -> None:
        """End the process, or the call before there is one. Any thread, any number of times."""
        self._cancelled = True
        self._steer()

    def cancel_process(self) -> None:
        """End the process since it has said enough: that isn't a stop."""
        with self._lock:
            handle = self._handle
        if handle is not None:
            handle.cancel()

    def _decided(self, granted: bool) -> None:
        self._granted = granted
        self._steer()

    def _steer(self) -> None:
        """Pass on what is known: the process may report before `spawn` has returned its handle."""
        with self._lock:
            handle = self._handle
        if handle is None:
            return
        if self._cancelled or self._granted is False:
            handle.cancel()
        elif self._granted:
            handle.release()

    def waiting(self, process: ProcessIdentity) -> None:
        self._listener.commit(ProcessFact(process=process, command=self._command), self._decided)

    def output(self, stream: str, data: bytes) -> None:
        self._output(stream, data)

    def failed(self, message: str) -> None:
        self._listener.ended(error(message))

    def ended(self, end: ProcessEnd) -> None:
        if end.cause == "not_started" and not end.survivors:
            if self._cancelled:
                result = ToolResult(outcome=Outcome.ABORTED, text="Stopped before the command began; nothing was run.")
            else:
                why = "was not recorded" if self._granted is False else "ended before the command began"
                result = ToolResult(outcome=Outcome.NOT_STARTED, text=f"The process {why}, so nothing was run.")
            self._listener.ended(result)
        else:
            self._later(lambda: self._listener.ended(self._finished(end)))

    def _finished(self, end: ProcessEnd) -> ToolResult:
        try:
            return self._finish(end)
        except BaseException as bug:  # of ours; a call that is never answered would hold its run for ever
            text = f"The process has ended, and then Maka failed ({type(bug).__name__}): look at what it did."
            return ToolResult(outcome=Outcome.OUTCOME_UNKNOWN, text=text)
