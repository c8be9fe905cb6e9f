"""What went wrong, as an exit code, a word and one line that says what to do."""

import click
from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.errors import (
    ExitCode,
    FoldError,
    LedgerDamagedError,
    LedgerError,
    LedgerFailedError,
    LedgerFullError,
    OutcomeUnknownError,
    Refusal,
    RefusalCode,
    RefusedError,
    StoreHeldError,
)

_TRY_AGAIN = frozenset(
    {
        RefusalCode.LEDGER_FULL,
        RefusalCode.LEDGER_CLOSED,
        RefusalCode.SHUTTING_DOWN,
        RefusalCode.QUEUE_FULL,
        RefusalCode.SESSION_BUSY,
    }
)
EXIT_CODES = """\b
Exit codes (in JSON, the words):
    0  completed    the run, or the command, did what was asked
    1  failed       the run failed
    2  not_ready    a usage error, or something isn't set up
    3  damage       the store breaks a rule: see maka verify
    4  needs_answer the run waits for a person
    5  limit        a limit of steps, time or size ended the run
    6  stopped      someone else stopped the run
   75  try_again    trouble that may pass: provider, network, disk
  130  interrupted  Ctrl-C; a second one leaves at once
"""


class Refused(Struct, frozen=True, kw_only=True, tag_field="type", tag="refused"):
    """The JSON line of a command that could not be done. `exit` is the exit code's word."""

    code: str
    message: str
    exit: str


class Failure(Struct, frozen=True, kw_only=True):
    """An error as the command line tells it."""

    code: str
    message: str
    exit: ExitCode

    def as_json(self) -> Refused:
        return Refused(code=self.code, message=self.message, exit=word(self.exit))


def word(exit_code: ExitCode) -> str:
    """Return an exit code's word in JSON."""
    return exit_code.name.lower()


def describe(error: Exception) -> Failure:
    """Say what an error means to whoever typed the command; the message is a sentence, or more."""
    failure = _describe(error)
    return replace(failure, message=sentence(failure.message))


def sentence(message: str) -> str:
    """Return a message on one line and with its full stop; one that ends with a place is left, to be copied."""
    message = " ".join(message.split())
    closed = message.endswith((".", "!", "?", "…", ":")) or "/" in message.rpartition(" ")[2]
    return message if closed else f"{message}."


def _describe(error: Exception) -> Failure:
    match error:
        case click.ClickException():
            return Failure(code="usage", message=_usage(error), exit=ExitCode.NOT_READY)
        case RefusedError():
            return _refusal(error.refusal)
        case OutcomeUnknownError():
            return Failure(code="outcome_unknown", message=str(error), exit=ExitCode.TRY_AGAIN)
        case LedgerError():
            return _ledger(error)
        case FoldError():
            return Failure(code="damage", message=_see_verify(str(error)), exit=ExitCode.DAMAGE)
        case OSError():
            where = f" ({error.filename})" if error.filename is not None else ""
            return Failure(code="system", message=f"{error.strerror or error}{where}", exit=ExitCode.FAILED)
        case _:
            message = f"A bug of Maka: {type(error).__name__}: {error}. MAKA_DEBUG=1 shows where."
            return Failure(code="internal", message=" ".join(message.split()), exit=ExitCode.FAILED)


def _see_verify(message: str) -> str:
    return message if "maka verify" in message else f"{message.rstrip('.')}. See maka verify."


def _usage(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f" See {context.command_path} --help." if context is not None else ""
    return " ".join(error.format_message().split()) + hint


def _refusal(refusal: Refusal) -> Failure:
    exits = {
        RefusalCode.SESSION_DAMAGED: ExitCode.DAMAGE,
        RefusalCode.INTERNAL: ExitCode.FAILED,
        RefusalCode.WAIT_CLOSED: ExitCode.FAILED,
        RefusalCode.NEEDS_ANSWER: ExitCode.NEEDS_ANSWER,
    }
    usual = ExitCode.TRY_AGAIN if refusal.code in _TRY_AGAIN else ExitCode.NOT_READY
    return Failure(code=refusal.code, message=refusal.message, exit=exits.get(refusal.code, usual))


def _ledger(error: LedgerError) -> Failure:
    message = str(error)
    match error:
        case LedgerDamagedError():
            where = f" (session {error.session_id})" if error.session_id else ""
            return Failure(code="damage", message=_see_verify(f"{message}{where}"), exit=ExitCode.DAMAGE)
        case LedgerFullError():
            return Failure(code="ledger_full", message=message, exit=ExitCode.TRY_AGAIN)
        case LedgerFailedError():
            return Failure(code="ledger_failed", message=message, exit=ExitCode.TRY_AGAIN)
        case StoreHeldError():
            return Failure(code="store_held", message=message, exit=ExitCode.NOT_READY)
        case _:
            return Failure(code="store", message=message, exit=ExitCode.NOT_READY)
