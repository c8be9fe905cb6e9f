"""Follow one run to its end, or until it waits for a person alone: its events to a view, its record from the ledger."""

from collections.abc import Callable
from typing import Protocol, Self

from msgspec import Struct

from maka.cli.interrupts import Interrupts
from maka.cli.waits import Parked, parked_run
from maka.contracts.commands import MessageAccepted
from maka.contracts.errors import ExitCode, FoldError, LedgerFailedError
from maka.contracts.ids import MessageId, RunId, SessionId
from maka.contracts.ports import LedgerReader
from maka.contracts.session_events import (
    Abort,
    Complete,
    RunEnded,
    RunParked,
    RunStarted,
    SandboxBoundaryRequest,
    SessionEvent,
    UserQuestionAsked,
)
from maka.session_reads import read_header
from maka.subscription import SubscriptionLostError
from projections import run_record
from projections.inbox import PendingWait

POLL_S = 0.25
"""How soon a failed stop is noticed; events themselves come at once."""
OPENING_EVENTS_MAX = 8


class Events(Protocol):
    """The part of a subscription that following needs."""

    def get(self, timeout_s: float | None = None) -> SessionEvent | None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


Request = SandboxBoundaryRequest | UserQuestionAsked


class Left(Struct, frozen=True, kw_only=True):
    """A run that was left waiting for a person. `ahead` says that it isn't ours: our message waits behind it.

    All events through `position` were told. That of the run's own newest fact may be an earlier one.
    """

    parked: Parked
    ahead: bool
    position: int

    def record(self) -> RunParked:
        parked = self.parked
        pending = tuple(wait.id for wait in parked.waits)
        return RunParked(
            run_id=parked.run_id,
            session_id=parked.session_id,
            pending=pending,
            boundary=parked.boundary,
            position=self.position,
        )


class View(Protocol):
    """Where a run's events are shown."""

    def event(self, event: SessionEvent) -> None: ...

    def ended(self, ended: RunEnded) -> None: ...

    def left(self, left: Left) -> None: ...


class Asks(Protocol):
    """What is done when our run asks a person."""

    @property
    def leaves(self) -> bool:
        """Say whether to leave the run once it waits for a person alone."""
        ...

    def asked(self, request: Request) -> None:
        """Deal with a request that was just shown."""
        ...

    def found(self, wait: PendingWait) -> None:
        """Deal with a request that was open before we came."""
        ...


class Unfinished(Exception):
    """The command ends before its run does; the message in the queue, or the record, stays."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Follower:
    """Follows one run; used by one thread.

    `failed` says whether the ledger has. `subscribe` opens a subscription after a position. It is called before the
    message is sent, and again whenever events came faster than they could be shown: what is durable comes again, so
    nothing of the record is missed.
    """

    def __init__(
        self,
        subscribe: Callable[[int], Events],
        failed: Callable[[], bool],
        reader: LedgerReader,
        view: View,
        interrupts: Interrupts,
        asks: Asks,
    ) -> None:
        self._subscribe = subscribe
        self._failed = failed
        self._reader = reader
        self._view = view
        self._interrupts = interrupts
        self._asks = asks

    def follow(self, send: Callable[[], MessageAccepted], after_position: int) -> RunEnded | Left:
        """Send a message, show the events of the run that takes it, and return the run's record.

        Returns a `Left` where nothing goes on without a person. Raises Unfinished when a stop got no answer, or met
        the run before ours.
        """
        accepted: MessageAccepted | None = None
        position = after_position
        run_id: RunId | None = None
        while True:
            with self._subscribe(position) as events:
                if accepted is None:
                    accepted = send()
                    run_id = accepted.run_id
                    self._found(accepted.session_id, run_id, position)
                try:
                    while True:
                        event = events.get(POLL_S)
                        _check_stop(self._interrupts, taken=run_id is not None)
                        if event is None:
                            self._check_ledger()
                            continue
                        position = event.position or position
                        run_id = run_id or self._taker(event, accepted.message_id)
                        if self._show(event, run_id):
                            return record_of(self._reader, event.session_id, position)
                        is_shown = event.position is not None and position >= accepted.position
                        if is_shown and (left := self._left(event.session_id, run_id, position)):
                            return left
                except SubscriptionLostError:
                    continue

    def _check_ledger(self) -> None:
        # Nothing more will come: nobody is answered once a commit's outcome is unknown.
        if self._failed():
            raise LedgerFailedError("The ledger failed at a commit; start again to see what is durable.")

    def _show(self, event: SessionEvent, run_id: RunId | None) -> bool:
        """Show an event of the session or of our run; say whether it ended our run."""
        if event.run_id is not None and event.run_id != run_id:
            return False
        self._view.event(event)
        if isinstance(event, Request) and run_id is not None:
            self._asks.asked(event)
        return isinstance(event, Complete | Abort) and event.position is not None

    def _found(self, session_id: SessionId, run_id: RunId | None, position: int) -> None:
        """Deal with what our run waited for already, as of a position: what comes after it is an event of its own."""
        parked = parked_run(self._reader, session_id)
        if parked is not None and parked.run_id == run_id:
            for wait in parked.waits:
                if wait.position <= position:
                    self._asks.found(wait)

    def _left(self, session_id: SessionId, run_id: RunId | None, position: int) -> Left | None:
        """Say whether nothing goes on without a person: in our run, or in the one that our message waits behind.

        The ledger is ahead of the events: nothing is left before all that it waits for was shown.
        """
        if run_id is not None and not self._asks.leaves:
            return None
        parked = parked_run(self._reader, session_id)
        if parked is None or any(wait.position > position for wait in parked.waits):
            return None
        return Left(parked=parked, ahead=parked.run_id != run_id, position=position)

    def _taker(self, event: SessionEvent, message_id: MessageId | None) -> RunId | None:
        """Return the run that has just begun if its first append took our message."""
        if not isinstance(event, RunStarted) or event.position is None or message_id is None:
            return None
        opening = self._reader.read_session(event.session_id, event.position - 1, OPENING_EVENTS_MAX)
        taken = any(item.event.refs is not None and item.event.refs.message_id == message_id for item in opening)
        return event.run_id if taken else None


def _check_stop(interrupts: Interrupts, *, taken: bool) -> None:
    if not interrupts.answered.is_set():
        return
    if interrupts.error is not None:
        raise Unfinished(f"The stop got no answer: {interrupts.error}", interrupts.exit_code())
    if not taken:
        message = "The message stays in the queue and runs when the session is next used."
        raise Unfinished(message, interrupts.exit_code())


def record_of(reader: LedgerReader, session_id: SessionId, terminal_position: int) -> RunEnded:
    """Fold the record of the run that ended at a position, with its session's profile."""
    (terminal,) = reader.read_session(session_id, terminal_position - 1, 1)
    folded, after_seq = None, 0
    while items := reader.read_stream(terminal.event.invocation_id, after_seq):
        folded = run_record.project(items, folded)
        after_seq = items[-1].seq
    if folded is None:
        raise FoldError(f"the run that ends at position {terminal_position} has no facts")
    return run_record.run_ended(run_record.record(folded), read_header(reader, session_id).boundary)
