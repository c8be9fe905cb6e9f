"""The contract of both stores: bad input, limits, open work."""

from typing import Any

import pytest
from msgspec.structs import replace

from maka.contracts.actions import Actions, ProcessEnded, ProcessIdentity, ProcessStarted
from maka.contracts.content import Outcome
from maka.contracts.errors import RefusalCode
from maka.contracts.events import Status
from maka.contracts.ids import CallId, CommandId, InvocationId, SessionId
from maka.contracts.limits import EVENT_BYTES_MAX
from maka.contracts.ports import (
    Appended,
    OpenWork,
)
from projections.append_rules import Limits
from tests.storage.conftest import Bench
from tests.storage.facts import BLOBS, Facts, append, begun, code_of, one, uuid


@pytest.mark.parametrize(
    "change",
    [
        {"partial": True},
        {"status": Status.STREAMING},
        {"status": Status.CANCELLED},
        {"id": ""},
        {"id": "a" * 512},
        {"id": "x/\0"},
        {"id": uuid(1).upper() + "A"},
    ],
    ids=str,
)
def test_facts_that_no_log_holds_are_invalid(bench: Bench, change: dict[str, Any]) -> None:
    facts = begun(bench.store)
    assert code_of(one(bench.store, append((2, [facts.text(**change)])))) is RefusalCode.INVALID_EVENT
    assert bench.store.head().position == 3


@pytest.mark.parametrize("bad", ["", "a" * 512, "a/b\0c", "0" * 36])
def test_h42_key_too_long_key_order(bench: Bench, bad: str) -> None:
    facts = Facts()
    facts.session = SessionId(bad)
    assert code_of(one(bench.store, facts.opened())) is RefusalCode.INVALID_EVENT
    assert bench.store.read_session(SessionId(bad)) == [] and bench.store.header_of(SessionId(bad)) is None
    assert bench.store.read_stream(InvocationId(bad)) == [] and bench.store.partials(InvocationId(bad)) == []
    assert bench.store.tail(InvocationId(bad)) is None and bench.store.command(bad, CommandId(bad)) is None
    good = begun(bench.store)
    for field in ("invocation", "run_id", "turn"):
        good.run()
        setattr(good, field, bad)
        assert code_of(one(bench.store, good.started())) is RefusalCode.INVALID_EVENT
    good.run()
    events = [good.opening(), *(good.text(str(number)) for number in range(300))]
    one(bench.store, append((0, events), blobs=BLOBS))
    assert [item.event for item in bench.store.read_stream(good.invocation)] == events


def test_h76_clock_steps_back(bench: Bench) -> None:
    facts = begun(bench.store)
    texts = [facts.text(str(ts), ts=ts) for ts in (5_000, 6_000, 1_000, 2_000)]
    one(bench.store, append((2, texts[:2])))
    one(bench.restart(), append((4, texts[2:])))
    assert [item.event for item in bench.store.read_stream(facts.invocation, 2)] == texts
    assert [item.event.ts for item in bench.store.read_session(facts.session, 3)] == [5_000, 6_000, 1_000, 2_000]


def test_an_event_is_bounded(bench: Bench) -> None:
    facts = begun(bench.store)
    assert code_of(one(bench.store, append((2, [facts.text("x" * EVENT_BYTES_MAX)])))) is RefusalCode.INVALID_EVENT


def test_room_to_settle_is_kept_for_settlements(bench: Bench) -> None:
    store = bench.restart(Limits(events_max=9))
    facts = begun(store)
    call = facts.call()
    # 4 events, an open call: 4 + 2 + 3 = 9 is just within.
    assert isinstance(one(store, append((2, [facts.text(), call]))), Appended)
    assert code_of(one(store, append((4, [facts.dispatch(call)])))) is RefusalCode.LIMIT_EXCEEDED
    end = [facts.response(call, Outcome.ABORTED), facts.terminal(Status.ABORTED)]
    assert (
        code_of(
            one(
                store,
                append(
                    (
                        4,
                        [facts.text()],
                    ),
                    settlement=True,
                ),
            )
        )
        is RefusalCode.LIMIT_EXCEEDED
    )
    assert isinstance(one(store, append((4, [facts.text(), *end]), settlement=True)), Appended)


def test_a_settlement_is_bounded(bench: Bench) -> None:
    store = bench.restart(Limits(settlement_bytes_max=1_000))
    facts = begun(store)
    big = append((2, [facts.text("x" * 1_000), facts.terminal()]), settlement=True)
    assert code_of(one(store, big)) is RefusalCode.LIMIT_EXCEEDED
    assert isinstance(one(store, append((2, [facts.text(), facts.terminal()]), settlement=True)), Appended)


def test_a_runs_bytes_are_bounded(bench: Bench) -> None:
    store = bench.restart(Limits(run_bytes_max=6_000, settlement_bytes_max=2_000))
    facts = begun(store)
    assert code_of(one(store, append((2, [facts.text("x" * 4_000)])))) is RefusalCode.LIMIT_EXCEEDED
    assert isinstance(one(store, append((2, [facts.text("x" * 1_000)]))), Appended)


def test_open_calls_are_bounded(bench: Bench) -> None:
    store = bench.restart(Limits(calls_max=2))
    facts = begun(store)
    assert code_of(one(store, append((2, [facts.call(), facts.call(), facts.call()])))) is RefusalCode.LIMIT_EXCEEDED


def test_control_streams_have_no_event_limit(bench: Bench) -> None:
    store = bench.restart(Limits(events_max=3))
    facts = Facts()
    one(store, facts.opened())
    assert isinstance(one(store, append((1, [facts.control() for _ in range(10)]))), Appended)


def test_live_background_processes_are_open_work_and_bounded(bench: Bench) -> None:
    store = bench.restart(Limits(processes_max=1))
    facts = Facts()
    process = ProcessIdentity(pid=7, group=7, start_ticks=1, boot_id="b")
    started = ProcessStarted(call_id=CallId(uuid(9)), process=process, command="sleep", background=True)
    ended = ProcessEnded(call_id=CallId(uuid(9)), process=process, how="exited")
    one(store, facts.opened())
    one(store, append((1, [facts.control(actions=Actions(process_started=started))])))
    assert store.open_work() == [OpenWork(facts.session, facts.control_id, None, 2)]
    other = replace(started, process=replace(process, pid=8))
    second = append((2, [facts.control(actions=Actions(process_started=other))]))
    assert code_of(one(store, second)) is RefusalCode.LIMIT_EXCEEDED
    one(store, append((2, [facts.control(actions=Actions(process_ended=ended))])))
    assert store.open_work() == []


def test_a_background_process_ends_once_after_its_start_and_in_the_control_stream_alone(bench: Bench) -> None:
    store, facts = bench.store, Facts()
    process = ProcessIdentity(pid=7, group=7, start_ticks=1, boot_id="b")
    started = ProcessStarted(call_id=CallId(uuid(9)), process=process, command="sleep", background=True)
    ended = ProcessEnded(call_id=CallId(uuid(9)), process=process, how="exited")
    start, end = Actions(process_started=started), Actions(process_ended=ended)
    one(store, facts.opened())
    one(store, append((1, [facts.control(actions=start)])))
    twice = append((2, [facts.control(actions=start)]))
    assert code_of(one(store, twice)) is RefusalCode.PAIRING_VIOLATION
    foreground = Actions(process_started=replace(started, background=False, process=replace(process, pid=8)))
    assert code_of(one(store, append((2, [facts.control(actions=foreground)])))) is RefusalCode.INVALID_EVENT
    both = append((2, [facts.control(actions=end), facts.control(actions=end)]))
    assert code_of(one(store, both)) is RefusalCode.PAIRING_VIOLATION
    one(store, append((2, [facts.control(actions=end)])))
    again = append((3, [facts.control(actions=end)]))
    assert code_of(one(store, again)) is RefusalCode.PAIRING_VIOLATION


@pytest.mark.parametrize("act", ["start", "end"])
def test_a_run_has_no_facts_of_background_processes(bench: Bench, act: str) -> None:
    store, facts = bench.store, Facts()
    process = ProcessIdentity(pid=7, group=7, start_ticks=1, boot_id="b")
    call_id = CallId(uuid(9))
    started = ProcessStarted(call_id=call_id, process=process, command="sleep", background=True)
    ended = ProcessEnded(call_id=call_id, process=process, how="exited")
    actions = Actions(process_started=started) if act == "start" else Actions(process_ended=ended)
    one(store, facts.opened())
    facts.run()
    run = append((0, [facts.opening(), facts.fact(actions=actions)]), blobs=BLOBS)
    assert code_of(one(store, run)) is RefusalCode.INVALID_EVENT


def test_a_control_stream_is_open_work_from_its_first_waiting_message(bench: Bench) -> None:
    facts = Facts()
    first, second = facts.queued(), facts.queued()
    bench.store.commit(
        [facts.opened(), append((1, [first])), append((2, [second])), append((3, [facts.retracted(first)]))]
    )
    assert bench.restart().open_work() == [OpenWork(facts.session, facts.control_id, None, 2)]
    one(bench.store, append((4, [facts.retracted(second)])))
    assert bench.store.open_work() == []


def test_open_work_is_each_run_without_a_terminal(bench: Bench) -> None:
    facts = begun(bench.store)
    first = OpenWork(facts.session, facts.invocation, facts.run_id, 2)
    assert bench.store.open_work() == [first]
    ended = append((2, [facts.terminal()]))
    facts.run()
    one(bench.store, facts.started())
    second = OpenWork(facts.session, facts.invocation, facts.run_id, 4)
    assert bench.store.open_work() == [first, second]
    one(bench.store, ended)
    assert bench.restart().open_work() == [second]
