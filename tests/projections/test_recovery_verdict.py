"""Recovery: the table of durable tails and their verdicts, closed in one append, and twice the same as once."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maka.contracts.actions import Recovery
from maka.contracts.content import FunctionResponse, Outcome, Text, Thinking
from maka.contracts.errors import FoldError
from maka.contracts.events import Committed, Status
from maka.contracts.ids import EventId
from maka.contracts.ports import Partial
from projections import model_history, run_state
from projections.recovery_verdict import Verdict, verdict
from tests.builders import Ids, RunLog, log
from tests.checkers import check_endings, check_messages
from tests.strategies import session_logs


def opened(run: RunLog) -> None:
    del run


def asked(run: RunLog) -> None:
    run.request()


def called(run: RunLog) -> None:
    run.request()
    run.call()


def dispatched(run: RunLog) -> None:
    run.request()
    first = run.call()
    run.call()
    run.dispatch(first)


def answered(run: RunLog) -> None:
    run.request()
    call = run.call()
    run.dispatch(call)
    run.answer(call)


def parked(run: RunLog) -> None:
    run.request()
    run.ask(run.call("AskUser"))


def parked_beside_a_call(run: RunLog) -> None:
    parked(run)
    run.call()


TABLE: list[tuple[Callable[[RunLog], None], str, str, list[Outcome]]] = [
    (opened, "run_interrupted", "app_restarted", []),
    (asked, "request_interrupted", "app_restarted", []),
    (called, "call_not_started", "app_restarted", [Outcome.NOT_STARTED]),
    (dispatched, "interrupted_tool", "interrupted_tool", [Outcome.OUTCOME_UNKNOWN, Outcome.NOT_STARTED]),
    (answered, "run_interrupted", "app_restarted", []),
    (parked, "waits_closed", "app_restarted", [Outcome.ABORTED]),
    (parked_beside_a_call, "call_not_started", "app_restarted", [Outcome.ABORTED, Outcome.NOT_STARTED]),
]


@pytest.mark.parametrize(("begin", "name", "failure", "outcomes"), TABLE, ids=[row[0].__name__ for row in TABLE])
def test_each_tail_has_its_verdict(
    begin: Callable[[RunLog], None], name: str, failure: str, outcomes: list[Outcome]
) -> None:
    session = log()
    run = session.run()
    begin(run)
    found = verdict(session.of(run), [], reason="app_restarted", ids=session.ids, now_ms=9)
    assert found.name == name
    assert [e.content.outcome for e in found.events if isinstance(e.content, FunctionResponse)] == outcomes
    for event in found.events:
        session.commit(event)
    fact = run_state.classify(session.of(run))
    assert fact is not None
    assert (fact.status, fact.failure_class) == (Status.FAILED, failure)
    assert fact.recovery == Recovery(reason="app_restarted", verdict=name)
    assert fact.error is not None
    again = verdict(session.of(run), [], reason="app_restarted", ids=session.ids, now_ms=9)
    assert again == Verdict(name="already_ended")


def test_a_parked_run_stays_where_policy_keeps_it() -> None:
    session = log()
    run = session.run()
    parked(run)
    found = verdict(session.of(run), [], reason="app_restarted", ids=session.ids, now_ms=9, waits_keep=True)
    assert found == Verdict(name="parked", keep_parked=True)
    other = session.run()
    parked_beside_a_call(other)
    closed = verdict(session.of(other), [], reason="app_restarted", ids=session.ids, now_ms=9, waits_keep=True)
    assert not closed.keep_parked
    assert closed.events


def test_partial_text_is_kept_under_its_streams_id() -> None:
    session = log()
    run = session.run()
    run.request()
    thought, said = EventId(session.ids()), EventId(session.ids())
    final = run.text("already final")
    partials = [
        Partial(stream_id=said, kind="text", generation=1, text="I was ab"),
        Partial(stream_id=thought, kind="thinking", generation=1, text="so"),
        Partial(stream_id=final, kind="text", generation=1, text="already"),
    ]
    found = verdict(session.of(run), partials, reason="actor_crashed", ids=session.ids, now_ms=9)
    assert [(event.id, event.content) for event in found.events[:2]] == [
        (thought, Thinking(text="so", interrupted=True)),
        (said, Text(text="I was ab", interrupted=True)),
    ]
    assert len(found.events) == 3
    assert found.events[-1].status is Status.FAILED


def test_h76_the_duration_of_a_run_whose_clock_stepped_back() -> None:
    session = log()
    run = session.run()
    session.now_ms -= 3_600_000
    run.request()
    found = verdict(session.of(run), [], reason="app_restarted", ids=session.ids, now_ms=session.now_ms)
    actions = found.events[-1].actions
    assert actions is not None
    assert actions.state_delta is not None
    assert actions.state_delta.duration_ms == 0


def test_a_damaged_or_empty_run_is_not_guessed_about() -> None:
    session = log()
    run = session.run()
    run.request()
    with pytest.raises(FoldError):
        verdict(session.of(run)[1:], [], reason="app_restarted", ids=session.ids, now_ms=9)
    with pytest.raises(FoldError):
        verdict([], [], reason="app_restarted", ids=session.ids, now_ms=9)


@given(session_logs(), st.integers(1, 10_000))
@settings(max_examples=150)
def test_wherever_a_run_is_cut_it_is_closed_and_the_session_goes_on(items: list[Committed], place: int) -> None:
    """Law 4: after a crash at any event the next request is one that a strict provider takes."""
    cut = items[: 1 + place % len(items)]
    ids = Ids(prefix=7)
    position = cut[-1].position
    for invocation_id in dict.fromkeys(item.event.invocation_id for item in cut if item.event.run_id is not None):
        own = [item for item in cut if item.event.invocation_id == invocation_id]
        found = verdict(own, [], reason="app_restarted", ids=ids, now_ms=9)
        for seq, event in enumerate(found.events, own[-1].seq + 1):
            position += 1
            cut.append(Committed(position=position, seq=seq, event=event))
    check_endings(cut)
    history = model_history.project(cut)
    assert history is not None
    assert not history.open
    check_messages(model_history.render(history, level=0, through_position=0, keeps_reasoning=True).messages)
