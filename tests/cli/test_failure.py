"""Errors as lines and codes."""

import click
import msgspec
import pytest

from maka.cli.failure import EXIT_CODES, describe, word
from maka.contracts.errors import (
    ExitCode,
    FoldError,
    LedgerDamagedError,
    LedgerFailedError,
    LedgerFullError,
    OutcomeUnknownError,
    Refusal,
    RefusalCode,
    RefusedError,
    StoreHeldError,
    StoreOpenError,
)


@pytest.mark.parametrize(
    ("error", "code", "exit_code"),
    [
        (RefusedError(Refusal(code=RefusalCode.INVALID_INPUT, message="m")), "invalid_input", ExitCode.NOT_READY),
        (RefusedError(Refusal(code=RefusalCode.UNKNOWN_SESSION, message="m")), "unknown_session", ExitCode.NOT_READY),
        (RefusedError(Refusal(code=RefusalCode.SESSION_DAMAGED, message="m")), "session_damaged", ExitCode.DAMAGE),
        (RefusedError(Refusal(code=RefusalCode.LEDGER_FULL, message="m")), "ledger_full", ExitCode.TRY_AGAIN),
        (RefusedError(Refusal(code=RefusalCode.INTERNAL, message="m")), "internal", ExitCode.FAILED),
        (RefusedError(Refusal(code=RefusalCode.NEEDS_ANSWER, message="m")), "needs_answer", ExitCode.NEEDS_ANSWER),
        (OutcomeUnknownError("c-1"), "outcome_unknown", ExitCode.TRY_AGAIN),
        (StoreHeldError("held by process 7"), "store_held", ExitCode.NOT_READY),
        (StoreOpenError("not ours"), "store", ExitCode.NOT_READY),
        (LedgerFullError("no room"), "ledger_full", ExitCode.TRY_AGAIN),
        (LedgerFailedError("unknown"), "ledger_failed", ExitCode.TRY_AGAIN),
        (LedgerDamagedError("bad", session_id="s", position=3), "damage", ExitCode.DAMAGE),
        (FoldError("bad"), "damage", ExitCode.DAMAGE),
        (click.UsageError("no such option"), "usage", ExitCode.NOT_READY),
        (OSError(28, "No space left on device"), "system", ExitCode.FAILED),
        (ZeroDivisionError("division\nby zero"), "internal", ExitCode.FAILED),
    ],
)
def test_every_error_has_one_line_a_word_and_a_code(error: Exception, code: str, exit_code: ExitCode) -> None:
    failure = describe(error)
    assert (failure.code, failure.exit) == (code, exit_code)
    assert "\n" not in failure.message
    assert msgspec.json.decode(msgspec.json.encode(failure.as_json())) == {
        "type": "refused",
        "code": code,
        "message": failure.message,
        "exit": word(exit_code),
    }


def test_a_message_is_a_sentence_and_names_the_remedy_once() -> None:
    assert describe(StoreOpenError("not ours")).message == "not ours."
    assert describe(StoreOpenError("write it like http://h/v1")).message == "write it like http://h/v1"
    known = describe(LedgerDamagedError("position 3: bad: run `maka verify`"))
    assert known.message == "position 3: bad: run `maka verify`."
    assert describe(FoldError("bad")).message == "bad. See maka verify."


def test_help_lists_every_exit_code_with_its_word() -> None:
    listed = {tuple(line.split()[:2]) for line in EXIT_CODES.splitlines() if line[:1] == " "}
    assert listed == {(str(int(code)), word(code)) for code in ExitCode}
