"""Words that others rely on: exit codes, and the schema of what transports carry."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from maka.contracts.errors import CLI_INTERRUPT, CLI_ON_ASK, ExitCode, FailureClass, exit_code
from maka.contracts.events import Status
from maka.contracts.ids import InvalidIdError, id_bytes, id_text, is_command_id
from maka.contracts.model_ports import ErrorKind
from maka.contracts.session_events import RunEnded, RunParked, SessionEvent

SCHEMA = Path(__file__).parents[1] / "corpus" / "session_events.schema.json"

LIMIT = {"tool_step_cap_reached", "context_overflow", "deadline", "budget", "run_limit_reached"}
TRY_AGAIN = {"rate_limit", "network", "provider_unavailable", "timeout", "ledger_unavailable"}


@pytest.mark.parametrize("failure", list(FailureClass))
def test_exit_codes_of_failures(failure: FailureClass) -> None:
    expected = 1
    if failure.value in LIMIT:
        expected = 5
    elif failure.value in TRY_AGAIN:
        expected = 75
    elif failure.value == "auth":
        expected = 2
    assert exit_code(Status.FAILED, failure, None) == expected
    assert exit_code(Status.FAILED, failure.value, None) == expected


@pytest.mark.parametrize(
    ("status", "failure", "source", "expected"),
    [
        (Status.COMPLETED, None, None, 0),
        (Status.FAILED, None, None, 1),
        (Status.FAILED, "a class of tomorrow", None, 1),
        (Status.ABORTED, None, CLI_INTERRUPT, 130),
        (Status.ABORTED, None, "host.shutdown", 6),
        (Status.ABORTED, "network", None, 6),
        (Status.ABORTED, None, CLI_ON_ASK, 1),
        (Status.CANCELLED, None, CLI_INTERRUPT, 130),
    ],
)
def test_exit_codes(status: Status, failure: str | None, source: str | None, expected: int) -> None:
    assert exit_code(status, failure, source) == expected


def test_the_words_of_exit_codes() -> None:
    assert {code.name.lower(): code.value for code in ExitCode} == {
        "completed": 0,
        "failed": 1,
        "not_ready": 2,
        "damage": 3,
        "needs_answer": 4,
        "limit": 5,
        "stopped": 6,
        "try_again": 75,
        "interrupted": 130,
    }


def test_provider_errors_are_failure_classes() -> None:
    classes = {failure.value for failure in FailureClass}
    assert {kind.value for kind in ErrorKind} - classes == {"cancelled"}


def test_the_schema_of_session_events_is_frozen() -> None:
    """What programs parse. A change here is a change of the product: add, don't rename."""
    kinds: Any = SessionEvent | RunEnded | RunParked
    schema = msgspec.json.encode(msgspec.json.schema(kinds))
    assert msgspec.json.decode(schema) == msgspec.json.decode(SCHEMA.read_bytes())


@pytest.mark.parametrize(
    "bad", ["", "x", "01890A5D-AC96-774B-BCCE-000000000001", "{01890a5d-ac96-774b-bcce-000000000001}"]
)
def test_ids_are_canonical(bad: str) -> None:
    with pytest.raises(InvalidIdError):
        id_bytes(bad)
    good = "01890a5d-ac96-774b-bcce-000000000001"
    assert id_text(id_bytes(good)) == good


@pytest.mark.parametrize(
    ("word", "good"),
    [("a", True), ("cli:1.x-_", True), ("", False), (".a", False), ("a" * 129, False), ("a\n", False), ("ü", False)],
)
def test_command_ids_are_short_printable_words(word: str, good: bool) -> None:
    assert is_command_id(word) is good
