"""Stops, in every phase and against a ledger without room: one receipt, one source, and the session goes on."""

from collections.abc import Callable

import pytest

from maka.contracts.content import Outcome, Text
from maka.contracts.errors import Refusal, RefusalCode
from maka.contracts.model_ports import ErrorKind
from maka.contracts.session_events import ProviderRetry, TextDelta, ToolOutputDelta
from tests.actors.case import Case, Script, asks, receipt_of, stop, then, trouble
from tests.sim.checkers import Checker
from tests.sim.outside import Said

# -- stops, in every phase ----------------------------------------------------------------------------------------


PHASES: dict[str, tuple[Script, Callable[[Case], bool]]] = {
    "at once": (lambda _: Said(hangs=True), lambda case: True),
    "before the first byte": (lambda _: Said(hangs=True), lambda case: bool(case.requests())),
    "in mid-stream": (lambda _: Said(text=("so far",), hangs=True), lambda case: bool(case.shown(TextDelta))),
    "in a retry wait": (
        lambda _: trouble(ErrorKind.RATE_LIMIT, retryable=True),
        lambda case: bool(case.shown(ProviderRetry)),
    ),
    "in a tool": (lambda _: asks("Hang"), lambda case: bool(case.shown(ToolOutputDelta))),
    "in a tool that never ends": (lambda _: asks("Deaf", "Quick"), lambda case: bool(case.shown(ToolOutputDelta))),
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("seed", range(5))
def test_a_stop_ends_the_run_in_every_phase(phase: str, seed: int) -> None:
    script, reached = PHASES[phase]
    case = Case(script, seed=seed)
    case.until(lambda: reached(case))
    reply = stop(case)
    record = case.finish()
    assert (record.status, record.abort_source) == ("aborted", "test.button")
    receipt = receipt_of(reply)
    assert (receipt.run_id, receipt.status, receipt.abort_source) == (record.run_id, "aborted", "test.button")
    sent = len(case.requests())
    case.host.provider.script = then(Said(text=("fine",)))
    case.host.send(case.session_id, "go on")
    case.host.world.run()
    Checker(case.host).settled()
    assert len(case.requests()) == sent + 1, "the session goes on with exactly one request"


def test_h20_a_stop_in_a_retry_wait_needs_no_time_and_sends_nothing_more() -> None:
    case = Case(lambda _: trouble(ErrorKind.RATE_LIMIT, retryable=True))
    case.until(lambda: bool(case.shown(ProviderRetry)))
    before_s, sent = case.host.world.now_s, len(case.requests())
    reply = stop(case)
    case.until(lambda: reply.value is not None)
    assert case.host.world.now_s == before_s
    case.finish()
    assert len(case.requests()) == sent


def test_h24_complete_after_stop() -> None:
    """Whatever the provider still says after the stop was handled is in neither log nor projection."""
    for seed in range(30):
        case = Case(lambda _: Said(text=("a", "b", "c")), seed=seed)
        case.until(lambda case=case: bool(case.shown(TextDelta)))  # type: ignore[misc]
        reply = stop(case)
        record = case.finish()
        receipt = receipt_of(reply)
        assert record.status == receipt.status
        if record.status == "aborted":
            facts = [item.event for item in case.host.session_facts(case.session_id)]
            model = [event.content.text for event in facts if isinstance(event.content, Text) and event.role == "model"]
            assert model == ["".join(event.text for event in case.shown(TextDelta))]


def test_h25_twenty_stops_at_once_are_one_ending_with_one_source() -> None:
    for seed in range(10):
        case = Case(lambda _: Said(text=("so far",), hangs=True), seed=seed)
        case.until(lambda case=case: bool(case.shown(TextDelta)))  # type: ignore[misc]
        replies = [stop(case, f"button.{number}") for number in range(20)]
        record = case.finish()
        receipts = [receipt_of(reply) for reply in replies]
        ended = {receipt for receipt in map(repr, receipts) if "aborted" in receipt}
        assert len(ended) == 1
        assert record.abort_source == "button.0"


def test_what_was_seen_before_a_stop_is_in_the_next_history() -> None:
    case = Case(then(Said(text=("the answer ", "is"), hangs=True), Said(text=("fine",))))
    case.until(lambda: len(case.shown(TextDelta)) == 2)
    stop(case)
    case.finish()
    case.host.send(case.session_id, "go on")
    case.host.world.run()
    assert [message.text for message in case.requests()[-1].messages] == ["do it", "the answer is", "go on"]


def test_a_stop_in_a_step_of_many_calls_says_of_each_what_is_true() -> None:
    case = Case(lambda _: asks("Quick", "Hang", "Deaf", "SearchWeb"))
    case.until(lambda: len(case.shown(ToolOutputDelta)) == 2 and Outcome.OK in case.outcomes())
    receipt = stop(case)
    case.finish()
    assert sorted(case.outcomes()) == sorted([Outcome.OK, Outcome.REFUSED, Outcome.ABORTED, Outcome.OUTCOME_UNKNOWN])
    told = {call.name: call.outcome for call in receipt_of(receipt).calls}
    assert told == {"Hang": "aborted", "Deaf": "outcome_unknown"}


# -- a ledger without room ----------------------------------------------------------------------------------------


def test_h23_a_stop_that_cannot_be_stored_says_so_and_can_be_repeated() -> None:
    case = Case(lambda _: Said(text=("so far",), hangs=True))
    case.until(lambda: bool(case.shown(TextDelta)))
    case.host.store.full = True
    first = stop(case, "first")
    case.until(lambda: first.value is not None)
    assert isinstance(first.value, Refusal)
    assert first.value.code is RefusalCode.LEDGER_FULL
    case.host.store.full = False
    second = stop(case, "second")
    record = case.finish()
    assert record.abort_source == "first", "the first source stays"
    assert receipt_of(second).abort_source == "first"


def test_h38_a_full_ledger_ends_the_run_as_soon_as_there_is_room_and_takes_no_new_one() -> None:
    case = Case(then(asks("Hang"), Said(text=("never",))))
    case.until(lambda: bool(case.shown(ToolOutputDelta)))
    case.host.store.full = True
    other = case.host.create()
    case.until(lambda: other.value is not None)
    assert isinstance(other.value, Refusal)
    case.host.store.full = False
    case.host.world.run(until=lambda: case.host.store.has_room() and len(case.requests()) > 5, steps_max=400)
    stop(case)
    case.finish()
    again = case.host.create()
    case.host.world.run()
    assert not isinstance(again.value, Refusal)


def test_a_completed_run_that_cannot_be_stored_is_completed_when_there_is_room() -> None:
    case = Case(lambda _: Said(text=("all done",)))
    case.until(lambda: bool(case.shown(TextDelta)))
    case.host.store.full = True
    case.host.world.run(steps_max=300, until=lambda: len(case.host.world.trace) > 200)
    case.host.store.full = False
    record = case.finish()
    assert (record.status, record.final_text) == ("completed", "all done")
    texts = [item.event.content for item in case.host.session_facts(case.session_id)]
    assert not any(isinstance(text, Text) and text.interrupted for text in texts)
