"""What a stop did, in words for a person."""

import pytest

from maka.cli.words import receipt_lines
from maka.contracts.commands import StoppedCall, StopReceipt
from maka.contracts.ids import CallId, RunId, SessionId


@pytest.mark.parametrize(
    ("name", "outcome", "tells"),
    [("Bash", "outcome_unknown", True), ("Bash", "aborted", False), ("Write", "outcome_unknown", False)],
)
def test_a_stop_tells_what_was_not_put_right(name: str, outcome: str, tells: bool) -> None:
    call = StoppedCall(call_id=CallId("c"), name=name, outcome=outcome)
    receipt = StopReceipt(session_id=SessionId("s"), run_id=RunId("r"), status="aborted", calls=(call,))
    lines = receipt_lines(receipt)
    assert lines[1] == f"  {name}: {outcome}"
    assert ("put right" in "".join(lines[2:])) is tells
