"""Writers that wait: each sends its next event when its last one is acknowledged, until a window of time is over.

Every writer makes and encodes its events itself, inside the window, as a run does.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, assert_never

from actors.address import Address
from actors.base import Log, MakaActor
from actors.messages_ledger import AppendDone, AppendFacts, Message, ToLedger
from bench._world import Run
from maka.contracts.ports import Append, Appended


class Window:
    """A measured time: open until it is over, and closed when every writer has its last acknowledgement."""

    def __init__(self, writers: int, seconds: float) -> None:
        self.waits_s: list[float] = []
        self.seconds = 0.0
        self._left = writers
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._started_s = time.perf_counter()
        self._until_s = self._started_s + seconds

    def note(self, sent_s: float) -> bool:
        """Note one acknowledgement; say whether the writer goes on. One that doesn't leaves with this call."""
        now_s = time.perf_counter()
        self.waits_s.append(now_s - sent_s)
        if now_s < self._until_s:
            return True
        with self._lock:
            self._left -= 1
            if not self._left:
                self.seconds = now_s - self._started_s
                self._done.set()
        return False

    def wait(self) -> None:
        """Wait until the last writer has left."""
        self._done.wait()


class Acknowledged(Protocol):
    """Whoever is told that an append is durable."""

    def acknowledged(self) -> None: ...


class LightWriter:
    """A run as a ledger sees it, without a thread: what it does, it does on the thread that acknowledges."""

    def __init__(self, run: Run, window: Window, send: Callable[[Append, "LightWriter"], object]) -> None:
        self._run = run
        self._window = window
        self._send = send
        self._sent_s = 0.0

    def begin(self) -> None:
        append = self._run.texts()
        self._sent_s = time.perf_counter()
        self._send(append, self)

    def acknowledged(self) -> None:
        if self._window.note(self._sent_s):
            self.begin()

    def tell(self, message: AppendDone) -> bool:
        """Take LedgerActor's answer, in place of an address."""
        assert isinstance(message.result, Appended), message.result
        self.acknowledged()
        return True


class Go(Message, frozen=True):
    """Begin to write into this window."""

    window: Window


class WriterActor(MakaActor[Go | AppendDone]):
    """A run with a mailbox and a thread of its own, as a RunActor has them."""

    def __init__(self, log: Log, run: Run, ledger: Address[ToLedger]) -> None:
        super().__init__(log)
        self._run = run
        self._ledger = ledger
        self._window: Window | None = None
        self._sent_s = 0.0

    def receive(self, message: Go | AppendDone) -> None:
        match message:
            case Go(window=window):
                self._window = window
                self._append()
            case AppendDone(result=result):
                assert isinstance(result, Appended), result
                assert self._window is not None
                if self._window.note(self._sent_s):
                    self._append()
            case _:
                assert_never(message)

    def _append(self) -> None:
        append = self._run.texts()
        self._sent_s = time.perf_counter()
        self._ledger.tell(AppendFacts(append=append, to=self.address, tag=0))


def to_ledger(ledger: Address[ToLedger]) -> Callable[[Append, LightWriter], object]:
    """Return how a light writer sends to LedgerActor."""

    def send(append: Append, writer: LightWriter) -> None:
        to: Any = writer
        ledger.tell(AppendFacts(append=append, to=to, tag=0))

    return send
