"""Refusals, failure classes and exit codes: the words in which Maka says no.

A caller's mistake is a `Refusal` (a reply, never an exception), a failure of the outside world is an event with a
`FailureClass`, a bug is an AssertionError. A refusal's message says what to do; of a failure it says what happened, and
whoever shows it knows by the class what to do.
"""

from enum import IntEnum, StrEnum

from msgspec import Struct

from maka.contracts.events import Status


class RefusalCode(StrEnum):
    """Why something was not done."""

    # append
    IDENTITY_CONFLICT = "identity_conflict"
    APPEND_CONFLICT = "append_conflict"
    UNKNOWN_SESSION = "unknown_session"
    RUN_SEALED = "run_sealed"
    MESSAGE_TAKEN = "message_taken"
    MISSING_BLOB = "missing_blob"
    PAIRING_VIOLATION = "pairing_violation"
    LIMIT_EXCEEDED = "limit_exceeded"
    COMMAND_CONFLICT = "command_conflict"
    INVALID_EVENT = "invalid_event"
    LEDGER_FULL = "ledger_full"
    LEDGER_CLOSED = "ledger_closed"
    # commands
    UNKNOWN_RUN = "unknown_run"
    INVALID_INPUT = "invalid_input"
    SESSION_ARCHIVED = "session_archived"
    SESSION_DAMAGED = "session_damaged"
    QUEUE_FULL = "queue_full"
    SESSION_BUSY = "session_busy"
    NEEDS_ANSWER = "needs_answer"
    NOT_READY = "not_ready"
    SHUTTING_DOWN = "shutting_down"
    NOT_RUNNING = "not_running"
    WAIT_CLOSED = "wait_closed"
    INTERNAL = "internal"
    OUTCOME_UNKNOWN = "outcome_unknown"


class Refusal(Struct, frozen=True, kw_only=True, tag_field="type", tag="refused"):
    """A typed no: nothing was changed, but for OUTCOME_UNKNOWN. `message` is one line that says what to do."""

    code: RefusalCode
    message: str


class RefusedError(Exception):
    """A `Refusal` raised at the facade, where no actor is waiting for a reply."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class OutcomeUnknownError(Exception):
    """No answer came in time. It may have happened: the command id, sent again, tells."""

    def __init__(self, command_id: str) -> None:
        super().__init__(f"no answer in time to command {command_id}; send it again with the same id to learn")
        self.command_id = command_id


class NoLaunchError(Exception):
    """A command can't be started in its sandbox, for a reason that is told as it is."""


class LedgerError(Exception):
    """Base of what can go wrong with the store itself."""


class LedgerFullError(LedgerError):
    """No room: the batch was aborted and nothing of it is stored."""


class LedgerFailedError(LedgerError):
    """A commit failed in a way that leaves its outcome unknown: the process must stop and read what is durable."""


class LedgerDamagedError(LedgerError):
    """Stored bytes that break a rule; names the session and the position."""

    def __init__(self, message: str, *, session_id: str | None = None, position: int | None = None) -> None:
        super().__init__(message)
        self.session_id = session_id
        self.position = position


class StoreOpenError(LedgerError):
    """The state root can't be opened: not ours, newer, held by someone else, or not writable."""


class StoreHeldError(StoreOpenError):
    """Another process owns the state root."""


class FoldError(ValueError):
    """A log that breaks a rule of the ledger was given to a fold."""


class FailureClass(StrEnum):
    """Why a run failed; also the `code` of its error content."""

    AUTH = "auth"
    BILLING = "billing"
    RATE_LIMIT = "rate_limit"
    CONTEXT_OVERFLOW = "context_overflow"
    NETWORK = "network"
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    TIMEOUT = "timeout"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    EMPTY_ANSWER = "empty_answer"
    INCOMPLETE_ANSWER = "incomplete_answer"
    ANSWER_TOO_LONG = "answer_too_long"
    INVALID_TOOL_CALLS = "invalid_tool_calls"
    TOOL_STEP_CAP_REACHED = "tool_step_cap_reached"
    DEADLINE = "deadline"
    BUDGET = "budget"
    RUN_LIMIT_REACHED = "run_limit_reached"
    LEDGER_UNAVAILABLE = "ledger_unavailable"
    MISSING_TERMINAL_EVENT = "missing_terminal_event"
    INTERRUPTED_TOOL = "interrupted_tool"
    APP_RESTARTED = "app_restarted"
    ACTOR_CRASHED = "actor_crashed"


class ExitCode(IntEnum):
    """Exit codes of the command line; the lower-case names are the words in JSON."""

    COMPLETED = 0
    FAILED = 1
    NOT_READY = 2
    DAMAGE = 3
    NEEDS_ANSWER = 4
    LIMIT = 5
    STOPPED = 6
    TRY_AGAIN = 75
    INTERRUPTED = 130


_LIMITS = {
    FailureClass.CONTEXT_OVERFLOW,
    FailureClass.TOOL_STEP_CAP_REACHED,
    FailureClass.DEADLINE,
    FailureClass.BUDGET,
    FailureClass.RUN_LIMIT_REACHED,
}
_PASSING = {
    FailureClass.RATE_LIMIT,
    FailureClass.NETWORK,
    FailureClass.PROVIDER_UNAVAILABLE,
    FailureClass.TIMEOUT,
    FailureClass.LEDGER_UNAVAILABLE,
}
CLI_INTERRUPT = "cli.interrupt"
CLI_ON_ASK = "cli.on_ask"
"""The source of a stop, and the client of an answer, that `--on-ask` gave in a person's place."""


def exit_code(status: Status, failure_class: str | None, abort_source: str | None) -> ExitCode:
    """Decide the exit code of a run from its terminal fact."""
    if status is Status.COMPLETED:
        return ExitCode.COMPLETED
    if status in (Status.ABORTED, Status.CANCELLED):
        if abort_source == CLI_ON_ASK:
            return ExitCode.FAILED
        return ExitCode.INTERRUPTED if abort_source == CLI_INTERRUPT else ExitCode.STOPPED
    if failure_class in _LIMITS:
        return ExitCode.LIMIT
    if failure_class in _PASSING:
        return ExitCode.TRY_AGAIN
    if failure_class == FailureClass.AUTH:
        return ExitCode.NOT_READY
    return ExitCode.FAILED
