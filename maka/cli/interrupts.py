"""Signals: Ctrl-C, TERM and HUP ask for one stop of the run; a second one kills what still runs and leaves at once.

A handler only wakes a thread of its own through a pipe: the interrupted main thread may hold any lock, so nothing that
could need one is called from it.
"""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

from maka.cli.output import note
from maka.contracts.commands import StopReceipt
from maka.contracts.errors import CLI_INTERRUPT, ExitCode

CLI_TERMINATED = "cli.terminated"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ABANDON_S = 1.0
_ARMED = 0
"""A byte that no signal sends: look whether a stop is owed."""


class Interrupts:
    """While entered, this process's signals become stops. Enter it on the main thread, outside of the host."""

    def __init__(self, leave: Callable[[int], None] = os._exit) -> None:
        self.source: str | None = None
        self.receipt: StopReceipt | None = None
        self.error: Exception | None = None
        self.answered = threading.Event()
        self._leave = leave
        self._stop: Callable[[str], StopReceipt] | None = None
        self._abandon: Callable[[], None] = _nothing
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._thread = threading.Thread(target=self._watch, name="maka-interrupts", daemon=True)
        self._handlers: dict[signal.Signals, object] = {}
        self._old_fd = -1

    def __enter__(self) -> Self:
        self._thread.start()
        self._old_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                self._handlers[number] = signal.signal(number, _wake)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        signal.set_wakeup_fd(self._old_fd)
        os.close(self._write)
        self._thread.join()
        os.close(self._read)

    def arm(self, stop: Callable[[str], StopReceipt], abandon: Callable[[], None]) -> None:
        """Say how to stop, and what to do before leaving at once; a signal that came before is served now.

        Both are called on other threads than this one; `abandon` has ABANDON_S.
        """
        self._stop, self._abandon = stop, abandon
        os.write(self._write, bytes([_ARMED]))

    def stop(self, source: str) -> None:
        """Ask for the same stop as a signal does, for a reason of the command's own; any thread."""
        if self.source is None:
            self.source = source
            os.write(self._write, bytes([_ARMED]))

    def exit_code(self) -> ExitCode:
        """Return the code of a process that leaves for what was asked."""
        return ExitCode.INTERRUPTED if self.source == CLI_INTERRUPT else ExitCode.STOPPED

    def _watch(self) -> None:
        while data := os.read(self._read, 1):
            if data[0] in _SIGNALS:
                self._signalled(data[0])
            if self.source is not None and self._stop is not None and not self.answered.is_set():
                self._serve(self._stop, self.source)

    def _signalled(self, number: int) -> None:
        if self.source is not None:
            killing = threading.Thread(target=self._abandon, name="maka-abandon", daemon=True)
            killing.start()
            killing.join(ABANDON_S)
            self._leave(self.exit_code())
        self.source = CLI_INTERRUPT if number == signal.SIGINT else CLI_TERMINATED
        note("Stopping ... (once more leaves at once)")

    def _serve(self, stop: Callable[[str], StopReceipt], source: str) -> None:
        # On a thread of its own, so that a second signal is seen while this one waits for its answer.
        self._stop = None
        threading.Thread(target=self._ask, args=(stop, source), name="maka-stop", daemon=True).start()

    def _ask(self, stop: Callable[[str], StopReceipt], source: str) -> None:
        try:
            self.receipt = stop(source)
        except Exception as error:
            self.error = error
        self.answered.set()


def _nothing() -> None:
    """Abandon nothing: there is no host yet."""


def _wake(number: int, frame: FrameType | None) -> None:
    """Do nothing: the byte in the wake-up pipe is the message."""
