"""The contract of both stores: order, identity, retries, all or nothing."""

from typing import Any

import pytest

from maka.contracts.codec import draft, drafts
from maka.contracts.errors import RefusalCode
from maka.contracts.events import Status
from maka.contracts.ids import InvocationId, SessionId
from maka.contracts.ports import (
    Append,
    Appended,
    Group,
    StreamTail,
)
from maka.storage.keys import GENESIS, chained, event_key
from projections import session_index
from tests.storage.conftest import Bench
from tests.storage.facts import BLOBS, Facts, append, begun, code_of, one, uuid


def test_an_empty_store(bench: Bench) -> None:
    store = bench.store
    assert store.head() == GENESIS
    assert store.read_positions() == [] and store.open_work() == [] and store.header_bytes() == []
    assert store.tail(InvocationId(uuid(1))) is None
    assert store.has_room()


def test_what_was_committed_is_read_back_in_every_order(bench: Bench) -> None:
    store = bench.store
    facts = begun(store)
    first, other = facts.text("a"), Facts(first=1000)
    assert one(store, append((2, [first]))) == Appended(((4, 3),))
    assert store.commit([other.opened(), other.started()])[1] == Appended(((6, 1), (7, 2)))
    run = store.read_stream(facts.invocation)
    assert [(item.position, item.seq) for item in run] == [(2, 1), (3, 2), (4, 3)]
    assert run[2].event == first
    assert [item.position for item in store.read_session(facts.session)] == [1, 2, 3, 4]
    assert [item.position for item in store.iter_session(facts.session, 2)] == [3, 4]
    assert [item.position for item in store.read_positions()] == [1, 2, 3, 4, 5, 6, 7]
    assert [item.position for item in store.read_positions(3, 2)] == [4, 5]
    assert [item.seq for item in store.read_stream(facts.invocation, 1, 1)] == [2]
    assert (
        store.read_stream(facts.invocation, 9) == store.read_session(facts.session, 9) == store.read_positions(9) == []
    )
    assert [item.position for item in store.read_positions(-5, 1)] == [1]
    assert store.read_session(facts.session, -5, 1) == store.read_session(facts.session, 0, 1)
    assert store.read_stream(facts.invocation, -5, 1) == store.read_stream(facts.invocation, 0, 1)
    assert store.tail(facts.invocation) == StreamTail(3, 4, False)
    assert store.head().position == 7


def test_a_restart_changes_nothing_that_is_read(bench: Bench) -> None:
    facts = begun(bench.store)
    before = (bench.store.head(), bench.store.read_positions(), bench.store.header_bytes(), bench.store.open_work())
    store = bench.restart()
    assert (store.head(), store.read_positions(), store.header_bytes(), store.open_work()) == before
    assert one(store, append((2, [facts.text()]))) == Appended(((4, 3),))


def test_the_chain_covers_place_owner_and_payload(bench: Bench) -> None:
    facts = Facts()
    event = facts.session_opened()
    one(bench.store, append((0, [event])))
    key = event_key(bytes.fromhex(facts.session.replace("-", "")), 1)
    first = chained(GENESIS.hash, 1, key, 1, draft(event).digest)
    assert bench.store.head().hash == first
    renamed = facts.control()
    one(bench.restart(), append((1, [renamed])))
    assert bench.store.head().hash == chained(first, 2, key[:16] + bytes(7) + b"\2", 2, draft(renamed).digest)


def test_an_exact_retry_is_a_success_with_the_stored_places(bench: Bench) -> None:
    facts = begun(bench.store)
    item = append((2, [facts.text("a"), facts.terminal()]))
    assert one(bench.store, item) == Appended(((4, 3), (5, 4)))
    assert one(bench.store, item) == Appended(((4, 3), (5, 4)), known=True)
    assert one(bench.restart(), item) == Appended(((4, 3), (5, 4)), known=True)
    assert bench.store.head().position == 5


def test_a_retry_within_one_batch_is_known(bench: Bench) -> None:
    facts = begun(bench.store)
    item = append((2, [facts.text()]))
    assert bench.store.commit([item, item]) == [Appended(((4, 3),)), Appended(((4, 3),), known=True)]


def test_ids_that_mean_something_else_are_an_identity_conflict(bench: Bench) -> None:
    facts = begun(bench.store)
    first, second = facts.text("a"), facts.text("b")
    one(bench.store, append((2, [first])))
    other_payload = facts.text("c", id=first.id)
    for events in ([other_payload], [first, second], [second, first]):
        assert code_of(one(bench.store, append((3, events)))) is RefusalCode.IDENTITY_CONFLICT
    assert code_of(one(bench.store, append((3, [second, second])))) is RefusalCode.IDENTITY_CONFLICT
    assert bench.store.head().position == 4


def test_the_expected_seq_must_be_the_tail(bench: Bench) -> None:
    facts = begun(bench.store)
    for seq in (0, 1, 3, -1):
        assert code_of(one(bench.store, append((seq, [facts.text()])))) is RefusalCode.APPEND_CONFLICT
    assert code_of(one(bench.store, append((1, [Facts(500).session_opened()])))) is RefusalCode.APPEND_CONFLICT


def test_the_first_fact_is_the_opening_and_the_only_one(bench: Bench) -> None:
    facts = begun(bench.store)
    assert code_of(one(bench.store, append((2, [facts.opening()]), blobs=BLOBS))) is RefusalCode.IDENTITY_CONFLICT
    assert code_of(one(bench.store, append((1, [facts.session_opened()])))) is RefusalCode.IDENTITY_CONFLICT
    facts.run()
    assert code_of(one(bench.store, append((0, [facts.text()])))) is RefusalCode.IDENTITY_CONFLICT
    assert code_of(one(bench.store, append((0, [Facts(500).control()])))) is RefusalCode.IDENTITY_CONFLICT


@pytest.mark.parametrize("field", ["session_id", "turn_id", "run_id", "no_run", "no_turn"])
def test_the_identity_is_that_of_the_opening(bench: Bench, field: str) -> None:
    facts = begun(bench.store)
    change: dict[str, Any] = {"no_run": {"run_id": None}, "no_turn": {"turn_id": None}}.get(field, {field: uuid(777)})
    assert code_of(one(bench.store, append((2, [facts.text(**change)])))) is RefusalCode.IDENTITY_CONFLICT


def test_a_run_has_one_invocation(bench: Bench) -> None:
    facts = begun(bench.store)
    run_id = facts.run_id
    facts.run()
    facts.run_id = run_id
    assert code_of(one(bench.store, facts.started())) is RefusalCode.IDENTITY_CONFLICT
    assert code_of(one(bench.restart(), facts.started())) is RefusalCode.IDENTITY_CONFLICT


def test_a_group_holds_events_of_its_invocation(bench: Bench) -> None:
    facts = begun(bench.store)
    item = Append(groups=(Group(facts.control_id, 1, drafts([facts.text()])),))
    assert code_of(one(bench.store, item)) is RefusalCode.IDENTITY_CONFLICT


def test_a_run_needs_its_session(bench: Bench) -> None:
    facts = begun(bench.store)
    stranger = Facts(500)
    assert code_of(one(bench.store, stranger.started())) is RefusalCode.UNKNOWN_SESSION
    stranger.session = SessionId(facts.invocation)
    assert code_of(one(bench.store, stranger.started())) is RefusalCode.UNKNOWN_SESSION


def test_a_session_and_its_run_may_begin_in_one_append(bench: Bench) -> None:
    facts = Facts()
    item = append((0, [facts.session_opened()]), (0, [facts.opening()]), blobs=BLOBS)
    assert one(bench.store, item) == Appended(((1, 1), (2, 1)))


def test_nothing_comes_after_a_terminal(bench: Bench) -> None:
    facts = begun(bench.store)
    one(bench.store, append((2, [facts.terminal()])))
    for events in ([facts.text()], [facts.terminal(Status.ABORTED)]):
        assert code_of(one(bench.store, append((3, events)))) is RefusalCode.RUN_SEALED
    assert code_of(one(bench.restart(), append((3, [facts.text()])))) is RefusalCode.RUN_SEALED
    facts.run()
    one(bench.store, facts.started())
    assert code_of(one(bench.store, append((2, [facts.terminal(), facts.text()])))) is RefusalCode.RUN_SEALED


def test_an_append_is_all_or_nothing_and_a_refused_one_touches_no_other(bench: Bench) -> None:
    facts = begun(bench.store)
    bad = append((2, [facts.text("lost"), facts.terminal(), facts.text()]))
    good = append((2, [facts.text("kept")]))
    results = bench.store.commit([bad, good])
    assert code_of(results[0]) is RefusalCode.RUN_SEALED
    assert results[1] == Appended(((4, 3),))
    assert [item.event for item in bench.store.read_stream(facts.invocation, 2)] == [good.groups[0].drafts[0].event]


def test_groups_get_contiguous_positions_in_their_order(bench: Bench) -> None:
    facts = begun(bench.store)
    item = append((2, [facts.text(), facts.text()]), (1, [facts.control()]))
    assert one(bench.store, item) == Appended(((4, 3), (5, 4), (6, 2)))


def test_the_shape_of_an_append_is_bounded(bench: Bench) -> None:
    facts = begun(bench.store)
    assert code_of(one(bench.store, Append(groups=()))) is RefusalCode.INVALID_EVENT
    assert code_of(one(bench.store, Append(groups=(Group(facts.invocation, 2, ()),)))) is RefusalCode.INVALID_EVENT
    twice = append((2, [facts.text()]), (3, [facts.text()]))
    assert code_of(one(bench.store, twice)) is RefusalCode.INVALID_EVENT
    many = append(*((0, [Facts(1000 * n).session_opened()]) for n in range(1, 6)))
    assert code_of(one(bench.store, many)) is RefusalCode.LIMIT_EXCEEDED


def test_streams_and_sessions_are_listed_in_header_bytes(bench: Bench) -> None:
    facts = begun(bench.store)
    other = Facts(500)
    one(bench.store, other.opened())
    headers = [session_index.decode(data) for data in bench.store.header_bytes()]
    assert [header.session_id for header in headers] == [facts.session, other.session]
    folded = session_index.project(bench.store.read_session(facts.session))
    data = bench.store.header_of(facts.session)
    assert data is not None and session_index.decode(data) == folded
    assert bench.store.header_of(SessionId(uuid(9999))) is None
