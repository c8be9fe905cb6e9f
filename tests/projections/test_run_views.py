"""A run's state and record, tokens, files and headers, by example."""

from typing import Any

import pytest

from maka.contracts.actions import Actions, BoundaryChanged, BoundaryRequest, FileSeen, SessionChanged, StateDelta
from maka.contracts.boundary import Expansion
from maka.contracts.codec import CodecError
from maka.contracts.content import Outcome, Route
from maka.contracts.errors import FoldError
from maka.contracts.events import Status
from maka.contracts.ids import CallId
from maka.contracts.limits import TITLE_CHARS_MAX
from maka.contracts.session_events import Usage
from projections import files_seen, run_record, run_state, session_index, usage
from projections.run_record import RunRecord
from projections.run_state import Phase
from projections.session_index import Header, SessionStatus
from tests.builders import RunLog, SessionLog, log


def record_of(run: RunLog) -> RunRecord:
    state = run_record.project(run.log.of(run))
    assert state is not None
    return run_record.record(state)


def header_of(session: SessionLog) -> Header:
    header = session_index.project(session)
    assert header is not None
    return header


def phase_of(run: RunLog) -> Phase:
    state = run_state.project(run.log.of(run))
    assert state is not None
    return state.phase


def test_phases_of_a_run() -> None:
    session = log()
    run = session.run()
    assert phase_of(run) is Phase.OPENING
    run.request()
    call = run.call("AskUser")
    assert phase_of(run) is Phase.RUNNING
    wait = run.ask(call)
    assert phase_of(run) is Phase.PARKED
    assert header_of(session).status is SessionStatus.WAITING
    assert header_of(session).waiting == (wait,)
    run.unwait(wait)
    assert phase_of(run) is Phase.RUNNING
    run.answer(call, outcome=Outcome.ABORTED)
    run.abort()
    assert phase_of(run) is Phase.ENDED
    assert header_of(session).last_abort_source == "cli.interrupt"


@pytest.mark.parametrize(
    ("status", "delta"),
    [(Status.FAILED, {}), (Status.ABORTED, {}), (Status.FAILED, {"abort_source": "x"})],
    ids=["failed without class", "aborted without source", "the wrong one"],
)
def test_a_terminal_says_why(status: Status, delta: dict[str, Any]) -> None:
    session = log()
    run = session.run()
    run.end(status, **delta)
    with pytest.raises(FoldError):
        run_state.classify(session.of(run))


def test_a_foreign_cancelled_reads_as_aborted_and_two_terminals_are_none() -> None:
    session = log()
    run = session.run()
    assert run_state.classify(session.of(run)) is None
    run.end(Status.CANCELLED, abort_source="elsewhere")
    fact = run_state.classify(session.of(run))
    assert fact is not None
    assert fact.status is Status.ABORTED
    run.complete()
    with pytest.raises(FoldError, match="second terminal"):
        run_state.classify(session.of(run))
    with pytest.raises(FoldError, match="another run"):
        run_state.classify(session.items)


@pytest.mark.parametrize("broken", ["dispatch twice", "dispatch of nothing", "close of nothing", "open wait"])
def test_a_broken_run_is_refused(broken: str) -> None:
    session = log()
    run = session.run()
    run.request()
    call = run.call()
    if broken == "dispatch twice":
        run.dispatch(call)
        run.dispatch(call)
    elif broken == "dispatch of nothing":
        run.dispatch(CallId(session.ids()))
    elif broken == "close of nothing":
        run.unwait(run.log.items[0].event.id)
    else:
        run.ask(call)
        run.answer(call, outcome=Outcome.ABORTED)
        run.complete()
    with pytest.raises(FoldError):
        run_state.project(session.of(run))


def test_the_record_of_a_run() -> None:
    session = log()
    run = session.run()
    run.request()
    run.text("I'll write.")
    run.usage(100, 10, cached_input=40)
    one, two, three = run.call("Write"), run.call("Edit"), run.call("Edit")
    for call, path in ((one, "/w/a"), (two, "/w/a"), (three, "/w/b")):
        run.dispatch(call)
        run.change(call, path)
    assert record_of(run).files_changed == ("/w/a", "/w/b")
    assert record_of(run).open_calls == (one, two, three)
    run.answer(one)
    run.answer(two)
    run.answer(three, "it failed", Outcome.ERROR)
    run.request()
    run.text("Done.")
    run.usage(200, 20)
    run.complete()
    record = record_of(run)
    assert record.status == "completed"
    assert record.final_text == "Done."
    assert record.steps == 2
    assert record.tools == {"Write": 1, "Edit": 2}
    assert record.files_changed == ("/w/a",), "a change whose call reports an error isn't one"
    assert record.usage == Usage(input=300, output=30)
    ended = run_record.run_ended(record, "ask")
    assert (ended.exit, ended.position, ended.usage) == ("completed", session.position, record.usage)


def test_the_final_text_is_that_of_the_last_step() -> None:
    session = log()
    run = session.run()
    run.request()
    run.text("I'll look.")
    call = run.call()
    run.answer(call, outcome=Outcome.NOT_STARTED)
    run.request()
    run.fail("network")
    record = record_of(run)
    assert record.final_text == ""
    assert record.error == "it failed"
    assert run_record.run_ended(record, "ask").exit == "try_again"


def test_a_run_that_has_not_ended_has_no_closing_line() -> None:
    session = log()
    run = session.run()
    with pytest.raises(FoldError):
        run_record.run_ended(record_of(run), "ask")


def test_usage_is_absent_rather_than_understated() -> None:
    session = log()
    known = session.run(route=Route(profile="p", provider="x", model="one"))
    known.request()
    known.request(attempt=2, same_step=True)
    known.usage(10, 1, reasoning=1)
    known.complete()
    never = session.run()
    never.fail("auth")
    silent = session.run(route=Route(profile="p", provider="x", model="two"))
    silent.request()
    call = silent.call()
    silent.answer(call, outcome=Outcome.NOT_STARTED)
    silent.request()
    silent.usage(20, 2)
    silent.complete()
    state = usage.project(session)
    assert state is not None
    totals = usage.totals(state)
    assert [run.usage for run in totals.runs] == [Usage(input=10, output=1, reasoning=1), Usage(), Usage()]
    assert totals.models == {"one": Usage(input=10, output=1, reasoning=1), "two": Usage()}
    assert totals.usage == Usage()
    assert record_of(silent).usage == Usage()
    assert record_of(never).usage == Usage()


def test_usage_is_unknown_while_a_step_has_told_nothing() -> None:
    session = log()
    run = session.run()
    run.request()
    run.usage(10, 1)
    assert record_of(run).usage == Usage(input=10, output=1)
    run.request()
    assert record_of(run).usage == Usage()
    run.usage(20, 2)
    assert record_of(run).usage == Usage(input=30, output=3)


def test_h76_durations_are_never_negative() -> None:
    session = log()
    run = session.run()
    session.now_ms -= 3_600_000
    run.request()
    assert record_of(run).duration_ms == 0
    run.end(Status.COMPLETED, duration_ms=-4)
    assert record_of(run).duration_ms == 0
    header = header_of(session)
    assert header.activity_ts > session.now_ms, "activity doesn't step back"


def test_files_seen_are_those_of_responses() -> None:
    session = log()
    run = session.run()
    run.request()
    for path, sha in (("/w/a", "1" * 64), ("/w/b", "2" * 64), ("/w/a", "3" * 64)):
        call = run.call()
        run.dispatch(call)
        run.change(call, "/w/c")
        run.answer(call, seen=FileSeen(path=path, sha256=sha))
    state = files_seen.project(session)
    assert state is not None
    assert state.files == {"/w/a": "3" * 64, "/w/b": "2" * 64}


def test_a_header_follows_its_session() -> None:
    session = log(number=12)
    assert header_of(session).title is None
    first = session.queue("one")
    second = session.queue("two")
    assert header_of(session).status is SessionStatus.QUEUED
    session.retract(first)
    run = session.run("\n  Find the bug\tnow \nplease", message_id=second)
    header = header_of(session)
    assert (header.status, header.untaken, header.title) == (SessionStatus.RUNNING, (), "Find the bug now")
    assert header.last_status is None
    run.fail("network")
    session.control(actions=Actions(session_changed=SessionChanged(title="t" * 500, archived=True)))
    for revision in (1, 2, 3):
        session.control(actions=Actions(boundary_changed=BoundaryChanged(profile="full", revision=revision)))
    header = header_of(session)
    assert (header.status, header.last_status, header.last_failure_class) == (
        SessionStatus.IDLE,
        Status.FAILED,
        "network",
    )
    assert (header.archived, header.boundary, header.boundary_revision) == (True, "full", 3)
    assert header.title is not None
    assert len(header.title) == TITLE_CHARS_MAX
    assert (header.number, header.run_count, header.position) == (12, 1, session.position)


def test_a_boundary_request_waits_too() -> None:
    session = log()
    run = session.run()
    call = run.call("RequestBoundary")
    request = BoundaryRequest(call_id=call, expansion=Expansion(), justification="needed")
    wait = run.add(actions=Actions(state_delta=StateDelta(boundary_request=request)))
    assert header_of(session).waiting == (wait,)
    assert header_of(session).status is SessionStatus.WAITING


def test_bytes_that_are_no_header_are_refused() -> None:
    with pytest.raises(CodecError, match="rebuild"):
        session_index.decode(b'{"sessionId":"x"}')


@pytest.mark.parametrize("broken", ["foreign", "position", "unopened", "taken twice", "no opening"])
def test_a_header_refuses_what_it_can_see_is_broken(broken: str) -> None:
    session = log()
    message = session.queue("hello")
    run = session.run("hello", message_id=message)
    items = list(session.items)
    if broken == "foreign":
        items.append(log(prefix=9).items[0])
    elif broken == "position":
        items.append(items[-1])
    elif broken == "unopened":
        run.complete()
        run.text("late")
        items = session.items
    elif broken == "taken twice":
        run.user("hello", message)
        items = session.items
    else:
        items = items[1:]
    with pytest.raises(FoldError):
        session_index.project(items)
