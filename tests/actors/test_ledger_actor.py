"""LedgerActor: the batch is the mailbox, nobody hears of a fact before it is durable, and a full store lives on."""

from typing import Any

import pytest

from actors.ledger import LedgerActor
from actors.messages_ledger import (
    AppendDone,
    AppendFacts,
    Barrier,
    BarrierPassed,
    CloseRun,
    Follow,
    Published,
    PutPartialText,
    RunClosed,
)
from maka.contracts.codec import drafts
from maka.contracts.content import SessionOpened
from maka.contracts.errors import LedgerFailedError, Refusal, RefusalCode
from maka.contracts.events import Author, Role, RuntimeEvent
from maka.contracts.ids import EventId, InvocationId, SessionId
from maka.contracts.limits import BATCH_EVENTS_MAX, PARTIALS_HOLD_S
from maka.contracts.ports import Append, Appended, Group, PutPartial
from maka.storage.memory import MemoryBlobs
from tests.sim.host import QUIET, FaultyLedger, LedgerFullError, fail_commit
from tests.sim.world import World
from tests.storage.facts import Facts


class Heard:
    """An address that keeps what it is told, and how far the store was then."""

    def __init__(self, store: FaultyLedger) -> None:
        self._store = store
        self.messages: list[Any] = []
        self.heads: list[int] = []

    def tell(self, message: Any) -> bool:
        self.messages.append(message)
        self.heads.append(self._store.head().position)
        return True

    def of(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.messages if isinstance(message, kind)]


class Bench:
    """A LedgerActor in a world of its own."""

    def __init__(self) -> None:
        self.world = World(1)
        self.store = FaultyLedger()
        self.fatal: list[str] = []
        world = self.world
        self.address = world.spawn(
            LedgerActor, QUIET, None, self.store, MemoryBlobs(), world, world, world.next_id, self.fatal.append
        )
        self.writer: Any = Heard(self.store)

    def session(self, tag: int) -> AppendFacts:
        """Return an append that makes a session."""
        session_id = SessionId(self.world.next_id())
        event = RuntimeEvent(
            id=EventId(self.world.next_id()),
            session_id=session_id,
            invocation_id=InvocationId(session_id),
            ts=1,
            role=Role.SYSTEM,
            author=Author.HOST,
            content=SessionOpened(number=tag, cwd="/w", real_cwd="/w"),
        )
        append = Append(groups=(Group(InvocationId(session_id), 0, drafts([event])),))
        return AppendFacts(append=append, to=self.writer, tag=tag)

    def run(self) -> None:
        self.world.run()


def test_what_waits_in_the_mailbox_is_one_commit() -> None:
    bench = Bench()
    for tag in range(1, 51):
        bench.address.tell(bench.session(tag))
    bench.run()
    assert bench.store.commits == 1
    assert [done.tag for done in bench.writer.of(AppendDone)] == list(range(1, 51))
    assert set(bench.writer.heads) == {50}, "acknowledged means durable"


def test_a_batch_is_bounded() -> None:
    bench = Bench()
    for tag in range(1, BATCH_EVENTS_MAX + 11):
        bench.address.tell(bench.session(tag))
    bench.run()
    assert bench.store.commits == 2


def test_any_other_message_commits_first() -> None:
    bench = Bench()
    bench.address.tell(bench.session(1))
    bench.address.tell(Barrier(to=bench.writer))
    bench.address.tell(bench.session(2))
    bench.run()
    assert [type(message) for message in bench.writer.messages] == [AppendDone, BarrierPassed, AppendDone]
    assert bench.writer.heads == [1, 1, 2]


def test_runs_that_are_closed_at_once_are_one_commit() -> None:
    bench = Bench()
    runs = [Facts(100 * number) for number in range(10_000, 10_009)]
    bench.store.commit([append for facts in runs for append in (facts.opened(), facts.started())])
    before = bench.store.commits
    for facts in (*runs, runs[0]):
        close = CloseRun(
            session_id=facts.session, invocation_id=facts.invocation, reason="app_restarted", to=bench.writer
        )
        bench.address.tell(close)
    bench.run()
    assert bench.store.commits == before + 1, "closing one twice commits first, and adds nothing"
    verdicts = [closed.verdict for closed in bench.writer.of(RunClosed)]
    assert (verdicts.count("already_ended"), len(verdicts)) == (1, 10)
    tails = [bench.store.tail(facts.invocation) for facts in runs]
    assert all(tail is not None and tail.sealed for tail in tails)


def test_partials_wait_a_moment_for_a_batch_to_go_with() -> None:
    bench = Bench()
    facts = Facts()
    bench.store.commit([facts.opened(), facts.started()])
    before = bench.store.commits

    def piece(offset: int) -> PutPartialText:
        stream = EventId("01900000-0000-7000-8000-00000000ffff")
        put = PutPartial(
            session_id=facts.session,
            invocation_id=facts.invocation,
            stream_id=stream,
            kind="text",
            generation=1,
            offset=offset,
            text="abc",
        )
        return PutPartialText(partial=put)

    began_s = bench.world.now_s
    bench.address.tell(piece(0))
    bench.world.step()
    assert bench.store.commits == before
    bench.address.tell(piece(3))
    bench.world.run(until=lambda: bench.store.commits > before)
    assert bench.world.now_s >= began_s + PARTIALS_HOLD_S
    bench.address.tell(piece(6))
    bench.address.tell(bench.session(1))
    bench.world.step()
    bench.world.step()
    assert bench.store.commits == before + 2, "an append takes them along at once"
    bench.run()
    assert bench.store.commits == before + 2
    assert [partial.text for partial in bench.store.partials(facts.invocation)] == ["abc" * 3]


def test_a_refused_append_answers_its_sender_alone() -> None:
    bench = Bench()
    good, bad = bench.session(1), bench.session(2)
    group = bad.append.groups[0]
    wrong = Append(groups=(Group(group.invocation_id, 7, group.drafts),))
    bench.address.tell(good)
    bench.address.tell(AppendFacts(append=wrong, to=bench.writer, tag=2))
    bench.address.tell(bench.session(3))
    bench.run()
    results = {done.tag: done.result for done in bench.writer.of(AppendDone)}
    assert isinstance(results[1], Appended)
    assert isinstance(results[3], Appended)
    assert isinstance(results[2], Refusal)
    assert results[2].code is RefusalCode.APPEND_CONFLICT


def test_followers_hear_of_facts_before_their_writer_does() -> None:
    bench = Bench()
    order: list[str] = []

    class Follower:
        def tell(self, message: Any) -> bool:
            order.append(type(message).__name__)
            return True

    class Writer:
        def tell(self, message: Any) -> bool:
            order.append(type(message).__name__)
            return True

    follower: Any = Follower()
    writer: Any = Writer()
    bench.address.tell(Follow(to=follower))
    message = bench.session(1)
    bench.address.tell(AppendFacts(append=message.append, to=writer, tag=1))
    bench.run()
    assert order == [Published.__name__, AppendDone.__name__]


def test_a_repeated_append_is_not_published_again() -> None:
    bench = Bench()
    follower: Any = Heard(bench.store)
    bench.address.tell(Follow(to=follower))
    message = bench.session(1)
    bench.address.tell(message)
    bench.run()
    bench.address.tell(message)
    bench.run()
    assert len(follower.of(Published)) == 1
    first, second = (done.result for done in bench.writer.of(AppendDone))
    assert first.places == second.places
    assert second.known


def test_a_full_store_refuses_keeps_nothing_and_opens_again() -> None:
    bench = Bench()
    bench.store.before = fail_commit(1, LedgerFullError("no room"))
    bench.address.tell(bench.session(1))
    bench.world.step()
    bench.world.step()
    assert bench.writer.of(AppendDone)[0].result.code is RefusalCode.LEDGER_FULL
    assert bench.store.head().position == 0
    bench.run()  # the probe finds room
    bench.address.tell(bench.session(2))
    bench.run()
    assert isinstance(bench.writer.of(AppendDone)[1].result, Appended)


def test_the_door_stays_closed_to_new_runs_until_the_probe_succeeds() -> None:
    bench = Bench()
    bench.store.full = True
    bench.address.tell(bench.session(1))
    bench.world.run(until=lambda: bool(bench.writer.of(AppendDone)))
    tried = bench.store.commits
    bench.address.tell(bench.session(2))
    bench.world.run(until=lambda: len(bench.writer.of(AppendDone)) == 2)
    assert bench.store.commits == tried, "it isn't even tried"


def test_a_commit_of_unknown_outcome_answers_nobody_and_is_fatal() -> None:
    bench = Bench()
    bench.store.before = fail_commit(1, LedgerFailedError("EIO at sync"))
    bench.address.tell(bench.session(1))
    bench.run()
    assert bench.fatal == ["EIO at sync"]
    assert bench.writer.messages == []
    assert not bench.address.tell(bench.session(2)), "nothing is written after it"


def test_a_stop_finishes_the_batch_first() -> None:
    bench = Bench()
    bench.address.tell(bench.session(1))
    bench.address.stop()
    bench.run()
    assert bench.store.head().position == 1
    assert len(bench.writer.of(AppendDone)) == 1


@pytest.mark.parametrize("invocation", ["01900000-0000-7000-8000-00000000ffff"])
def test_h36_a_run_whose_facts_are_gone_cannot_be_closed_and_the_ledger_goes_on(invocation: str) -> None:
    bench = Bench()
    close = CloseRun(
        session_id=SessionId(invocation),
        invocation_id=InvocationId(invocation),
        reason="actor_crashed",
        to=bench.writer,
    )
    bench.address.tell(close)
    bench.run()
    assert [closed.verdict for closed in bench.writer.of(RunClosed)] == ["damaged"]
    assert bench.address.is_alive()
