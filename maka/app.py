"""The composition root: the only file that knows everything. Start in order, ready, run, stop in reverse.

Two hosts on two state roots live in one process; nothing here touches signals, global logging or other actors.
"""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Self

import pykka

from actors.address import Address, OneShot
from actors.base import Log, MakaActor
from actors.kernel import KernelActor
from actors.ledger import LedgerActor
from actors.messages import LedgerDied, Recover, Shutdown, Sweep, ToKernel
from actors.messages_ledger import Follow, ToFeed, ToLedger
from actors.projection import ProjectionActor
from actors.troupe import Patience, Troupe
from maka.adapters import Providers, files_now, make_ports, normaliser
from maka.config import Config, known_secrets
from maka.contracts.errors import LedgerFailedError, Refusal, RefusalCode, RefusedError
from maka.contracts.limits import FEED_RESTARTS_MAX, RECOVERY_TIMEOUT_S, SHUTDOWN_TIMEOUT_S, SWEEP_EVERY_S
from maka.contracts.model_ports import Provider
from maka.contracts.ports import LedgerReader
from maka.edges.clock import SystemClock
from maka.edges.ids import UuidSource
from maka.edges.io_loop import IoLoop
from maka.edges.logs import LogFile, make_logger
from maka.edges.processes import AsyncProcesses
from maka.edges.secrets import Secrets
from maka.edges.timers import ThreadTimers
from maka.session_manager import SessionManager
from maka.session_reads import SessionReads
from maka.storage.blobs import FileBlobs
from maka.storage.ledger import LmdbLedger
from maka.storage.reader import LmdbReader
from maka.storage.root import acquire_root, is_owned, unusable
from maka.tools.settler import Settler

LEDGER_STOP_TIMEOUT_S = 5.0
"""Beside SHUTDOWN_TIMEOUT_S: the store isn't closed under a commit."""
FAILED = "the ledger failed; start again to see what is durable"


@dataclass(frozen=True)
class Host:
    """A running Maka over one state root. `failed` is set when the ledger failed and the process must leave.

    `abandon` kills what the tools run, at once and unrecorded: for a process that leaves now, instead of `close`. The
    next start tells of it as of a crash.
    """

    manager: SessionManager
    reader: LedgerReader
    recovered_runs: int
    failed: Event
    abandon: Callable[[], None]
    _closing: ExitStack

    def close(self) -> None:
        """Stop every run, then everything else in reverse order of its start. Idempotent.

        Raises LedgerFailedError where the ledger had failed: what is durable is read at the next start.
        """
        self._closing.close()
        if self.failed.is_set():
            raise LedgerFailedError(FAILED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_host(config: Config) -> Host:
    """Take the state root, start everything, recover, and return when commands are taken.

    Raises StoreHeldError where another process owns the root, StoreOpenError where it can't be opened.
    """
    with ExitStack() as stack:
        lock = acquire_root(config.state_root)
        stack.callback(lock.close)
        # Before anything else is made here: a root that holds a file but no store isn't taken for ours.
        store = LmdbLedger.open(config.state_root)
        stack.callback(store.close)
        secrets = Secrets(known_secrets(config))
        sink = _open_log(config.state_root)
        stack.callback(sink.close)
        log = make_logger(sink, secrets.redact, config.log_level)
        patience = Patience(SHUTDOWN_TIMEOUT_S)
        settler = _settler(stack, log, patience)
        io = IoLoop.start()
        stack.callback(lambda: io.close(patience.left_s()))
        timers = ThreadTimers.start()
        stack.callback(timers.close)
        failed = Event()
        blobs = FileBlobs(config.state_root)
        over: list[Address[ToKernel]] = []

        def fatal(reason: str) -> None:
            log.error("ledger_failed", error_kind=reason)
            failed.set()
            for kernel in over:
                kernel.tell(LedgerDied(reason=reason))

        clock, ids = SystemClock(), UuidSource()
        writer = (log, fatal, store, blobs, clock, timers, ids, fatal, config.waits_keep)
        ledger: Address[ToLedger] = _start(stack, lambda: LEDGER_STOP_TIMEOUT_S, LedgerActor, *writer)
        troupe = Troupe()
        processes = AsyncProcesses(io, config.tool_limits)
        providers = Providers(config.profiles, io, secrets)
        ports = make_ports(config, log, processes, timers, store, blobs, providers, troupe, secrets, settler)
        feed = _start_feed(stack, log, store, patience)
        ledger.tell(Follow(to=feed))
        stack.callback(_stop_troupe, troupe, log, patience)
        kernel: Address[ToKernel] = _start(stack, patience.left_s, KernelActor, ports, fatal, ledger, feed)
        over.append(kernel)
        recovered = _recover(kernel, failed)
        _sweep(timers, kernel)
        stack.callback(_shut_down, kernel, failed, log, patience)
        reads = reads_of(config, store)
        manager = SessionManager(kernel, feed, reads, ports.ids, failed=failed.is_set, normalise=normaliser(config))
        return Host(manager, store, recovered, failed, processes.kill_all, stack.pop_all())


def _settler(stack: ExitStack, log: Log, patience: Patience) -> Settler:
    """Return what puts right what commands left; to be made before the I/O thread, which orders the last of it."""
    settler = Settler(lambda bug: log.error("settling_failed", error_kind=type(bug).__name__))

    # What isn't done in time is left to a thread of no weight.
    def wait() -> None:
        if not settler.wait(patience.left_s()):
            log.warning("settling_not_finished")

    stack.callback(wait)
    return settler


def is_running(config: Config) -> bool:
    """Say whether a living Maka owns the state root: a run that is open without one was interrupted."""
    return is_owned(config.state_root)


def _open_log(root: Path) -> LogFile:
    try:
        return LogFile.open(root / "maka.log")
    except OSError as error:
        raise unusable(root, error) from None


def open_reader(config: Config) -> LmdbReader:
    """Open the store for reading, beside a running owner or without one. Raises StoreOpenError."""
    return LmdbReader.open(config.state_root)


def reads_of(config: Config, reader: LedgerReader) -> SessionReads:
    """Return what can be asked of the sessions that a reader sees, and of the files as they are."""
    return SessionReads(reader, files_now(config))


@contextmanager
def open_provider(config: Config, name: str) -> Generator[Provider]:
    """Open one profile's provider alone, without a store."""
    io = IoLoop.start()
    try:
        yield Providers(config.profiles, io, Secrets())(name)
    finally:
        io.close()


def _start_feed(stack: ExitStack, log: Log, store: LmdbLedger, patience: Patience) -> Address[ToFeed]:
    """Start the feed, with a successor for each one that crashes: its readers come again, and no run notices."""
    refs: list[pykka.ActorRef[ProjectionActor]] = []

    def died(reason: str) -> None:
        if len(refs) > FEED_RESTARTS_MAX:
            log.error("feed_given_up", error_kind=reason)
            return
        refs.append(ProjectionActor.start(log, died, store))
        feed.move_to(Address(refs[-1]))

    refs.append(ProjectionActor.start(log, died, store))
    feed: Address[ToFeed] = Address(refs[-1])
    stack.callback(lambda: _stop(refs[-1], patience.left_s))
    return feed


def _sweep(timers: ThreadTimers, kernel: Address[ToKernel]) -> None:
    """Let the kernel look for silent deaths, for as long as it lives."""

    def tick() -> None:
        if kernel.tell(Sweep()):
            timers.after(SWEEP_EVERY_S, tick)

    timers.after(SWEEP_EVERY_S, tick)


def _start(stack: ExitStack, left_s: Callable[[], float], actor: type[MakaActor[Any]], *args: Any) -> Address[Any]:
    """Start an actor whose stop, bounded in time, is part of closing."""
    ref = actor.start(*args)
    stack.callback(_stop, ref, left_s)
    return Address(ref)


def _stop(ref: pykka.ActorRef[Any], left_s: Callable[[], float]) -> None:
    try:
        ref.stop(block=True, timeout=left_s())
    except (pykka.ActorDeadError, pykka.Timeout):
        return


def _stop_troupe(troupe: Troupe, log: Log, patience: Patience) -> None:
    left = troupe.stop_all(patience.left_s())
    if left:
        log.error("actors_left", count=left)


def _recover(kernel: Address[ToKernel], failed: Event) -> int:
    reply: OneShot[int] = OneShot()
    kernel.tell(Recover(reply=reply))
    recovered = reply.wait_unless(failed.is_set, RECOVERY_TIMEOUT_S)
    if recovered is None and failed.is_set():
        raise LedgerFailedError(FAILED)
    if recovered is None:
        words = "recovery did not end; look at maka.log in the state root"
        raise RefusedError(Refusal(code=RefusalCode.NOT_READY, message=words))
    return recovered


def _shut_down(kernel: Address[ToKernel], failed: Event, log: Log, patience: Patience) -> None:
    reply: OneShot[bool] = OneShot()
    if failed.is_set() or not kernel.tell(Shutdown(reply=reply)):
        return
    if reply.wait(patience.left_s()) is None:
        log.error("shutdown_incomplete", timeout_s=SHUTDOWN_TIMEOUT_S)
