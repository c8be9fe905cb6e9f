"""Follow one run to its end: its events to a view, its record from the ledger."""

from typing import Protocol

from maka.cli.interrupts import Interrupts
from maka.contracts.commands import MessageAccepted
from maka.contracts.errors import ExitCode, FoldError, Refusal, RefusalCode, RefusedError
from maka.contracts.ids import MessageId, RunId, SessionId
from maka.contracts.ports import LedgerReader
from maka.contracts.session_events import Abort, Complete, RunEnded, RunStarted, SessionEvent
from projections import run_record

POLL_S = 0.25
"""How soon a failed stop is noticed; events themselves come at once."""
OPENING_EVENTS_MAX = 8


class Events(Protocol):
    """The part of a subscription that following needs."""

    def get(self, timeout_s: float | None = None) -> SessionEvent | None: ...


class View(Protocol):
    """Where a run's events are shown."""

    def event(self, event: SessionEvent) -> None: ...

    def ended(self, ended: RunEnded) -> None: ...


class Unfinished(Exception):
    """The command ends before its run does; the message in the queue, or the record, stays."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def follow_run(
    events: Events, reader: LedgerReader, accepted: MessageAccepted, view: View, interrupts: Interrupts
) -> RunEnded:
    """Show the events of the run that took a message and return the run's record.

    A message that waits in the queue is followed to the run that takes it. Raises Unfinished when a stop got no
    answer, or met the run before ours.
    """
    run_id = accepted.run_id
    while True:
        event = _next(events)
        _check_stop(interrupts, taken=run_id is not None)
        if event is None:
            continue
        if run_id is None and accepted.message_id is not None and isinstance(event, RunStarted):
            run_id = _taker(reader, event, accepted.message_id)
        if event.run_id is not None and event.run_id != run_id:
            continue
        view.event(event)
        if isinstance(event, Complete | Abort) and event.position is not None:
            return record_of(reader, event.session_id, event.position)


def _next(events: Events) -> SessionEvent | None:
    try:
        return events.get(POLL_S)
    except StopIteration:
        message = "Maka is shutting down. What is recorded stays: see maka show."
        raise RefusedError(Refusal(code=RefusalCode.SHUTTING_DOWN, message=message)) from None


def _check_stop(interrupts: Interrupts, *, taken: bool) -> None:
    if not interrupts.answered.is_set():
        return
    if interrupts.error is not None:
        raise Unfinished(f"The stop got no answer: {interrupts.error}", interrupts.exit_code())
    if not taken:
        message = "The message stays in the queue and runs when the session is next used."
        raise Unfinished(message, interrupts.exit_code())


def _taker(reader: LedgerReader, started: RunStarted, message_id: MessageId) -> RunId | None:
    """Return the run that has just begun if its first append took our message."""
    if started.position is None:
        return None
    opening = reader.read_session(started.session_id, started.position - 1, OPENING_EVENTS_MAX)
    taken = any(item.event.refs is not None and item.event.refs.message_id == message_id for item in opening)
    return started.run_id if taken else None


def record_of(reader: LedgerReader, session_id: SessionId, terminal_position: int) -> RunEnded:
    """Fold the record of the run that ended at a position."""
    (terminal,) = reader.read_session(session_id, terminal_position - 1, 1)
    folded, after_seq = None, 0
    while items := reader.read_stream(terminal.event.invocation_id, after_seq):
        folded = run_record.project(items, folded)
        after_seq = items[-1].seq
    if folded is None:
        raise FoldError(f"the run that ends at position {terminal_position} has no facts")
    return run_record.run_ended(run_record.record(folded))
