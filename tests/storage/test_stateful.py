"""Random histories, many of them wrong: the disk store, its twin in memory and a plain list agree at every step."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from maka.contracts.content import FunctionResponse, Outcome
from maka.contracts.events import Refs, RuntimeEvent, Status
from maka.contracts.ids import InvocationId, MessageId
from maka.contracts.ports import Append, Appended, PutPartial
from maka.storage.ledger import LmdbLedger
from maka.storage.memory import MemoryBlobs, MemoryLedger
from maka.storage.root import acquire_root
from maka.storage.verify import verify
from projections.append_rules import Limits
from tests.storage.facts import BLOBS, Facts, append, caused, command

LIMITS = Limits(events_max=16, untaken_max=2, calls_max=3)
RARE = ["ask", "answer", "close", "take", "queue", "retract", "end", "stray"]
ACTS = ["text", "call", "dispatch", "respond"] * 2 + RARE
PICK = st.integers(0, 3)


class Stores(RuleBasedStateMachine):
    """`log` is the plain list: what was acknowledged, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="maka-test-"))
        self.lock = acquire_root(self.root)
        self.disk = LmdbLedger.open(self.root, limits=LIMITS)
        self.blobs = MemoryBlobs()
        self.twin = MemoryLedger(blobs=self.blobs, limits=LIMITS)
        self.log: list[tuple[int, RuntimeEvent]] = []
        self.worlds: list[Facts] = []
        self.made: dict[str, list[RuntimeEvent]] = {"call": [], "ask": [], "queue": []}
        self.pending: list[Append] = []
        self.done: list[Append] = []

    def seq_of(self, invocation_id: InvocationId) -> int:
        """The seq that comes of it if all that is pending is admitted."""
        stored = sum(event.invocation_id == invocation_id for _, event in self.log)
        groups = [group for item in self.pending for group in item.groups]
        return stored + sum(len(group.drafts) for group in groups if group.invocation_id == invocation_id)

    def make(self, facts: Facts, act: str, pick: int) -> RuntimeEvent:
        def chosen(kind: str) -> RuntimeEvent:
            known = self.made[kind]
            return known[-1 - pick % len(known)] if known else facts.text()

        match act:
            case "dispatch":
                return facts.dispatch(chosen("call"))
            case "respond":
                return facts.response(chosen("call"), (Outcome.OK, Outcome.ABORTED)[pick % 2])
            case "answer":
                return facts.answer(chosen("ask"))
            case "close":
                return facts.wait_closed(chosen("ask"))
            case "take":
                return facts.user(refs=Refs(message_id=MessageId(chosen("queue").id)))
            case "retract":
                return facts.retracted(chosen("queue"))
            case "end":
                return facts.terminal((Status.COMPLETED, Status.FAILED, Status.ABORTED, Status.STREAMING)[pick])
            case "stray":
                return self.worlds[pick % len(self.worlds)].text()
            case _:
                makers: dict[str, Callable[[], RuntimeEvent]] = {
                    "text": facts.text,
                    "call": facts.call,
                    "queue": facts.queued,
                    "ask": lambda: facts.question(chosen("call")),
                }
                event = makers[act]()
                self.made.setdefault(act, []).append(event)
                return event

    @initialize(sessions=st.integers(1, 3))
    def begin(self, sessions: int) -> None:
        for number in range(sessions):
            facts = Facts((number + 1) * 10_000)
            self.worlds.append(facts)
            self.pending += [facts.opened(), facts.started()]
        self.flush([])

    @rule(pick=PICK, fresh=st.booleans(), known=st.booleans())
    def begin_run(self, pick: int, fresh: bool, known: bool) -> None:
        facts = self.worlds[pick % len(self.worlds)]
        if fresh:
            facts.run()
        item = facts.started() if known else Facts(90_000 + len(self.log)).started()
        self.pending.append(item)

    @rule(data=st.data(), pick=PICK, settle=st.booleans(), off=st.sampled_from([0] * 12 + [1]), now=st.booleans())
    def act(self, data: st.DataObject, pick: int, settle: bool, off: int, now: bool) -> None:
        facts = self.worlds[pick % len(self.worlds)]
        acts = data.draw(st.lists(st.sampled_from(ACTS), min_size=1, max_size=4))
        events = [self.make(facts, act, data.draw(PICK)) for act in acts]
        by_stream: dict[InvocationId, list[RuntimeEvent]] = {}
        for event in events:
            by_stream.setdefault(event.invocation_id, []).append(event)
        groups = [(self.seq_of(stream) + off, made) for stream, made in by_stream.items()]
        self.pending.append(append(*groups, settlement=settle))
        if now:
            self.flush([])

    @rule(pick=PICK, word=st.sampled_from(["c1", "c2"]), digest=st.sampled_from(["h1", "h1", "h2"]))
    def act_on_command(self, pick: int, word: str, digest: str) -> None:
        facts = self.worlds[pick % len(self.worlds)]
        events = caused([facts.control(), facts.queued()], word, digest)
        key = command(facts.session, word, digest)
        self.pending.append(append((self.seq_of(facts.control_id), events), command=key))

    @precondition(lambda self: self.done)
    @rule(pick=PICK, cut=st.booleans())
    def retry(self, pick: int, cut: bool) -> None:
        item = self.done[-1 - pick % len(self.done)]
        self.pending.append(Append(groups=item.groups[:1], blobs=BLOBS) if cut else item)

    @rule(data=st.data(), pick=PICK)
    def commit(self, data: st.DataObject, pick: int) -> None:
        self.flush([self.piece(data) for _ in range(pick)])

    def flush(self, partials: list[PutPartial]) -> None:
        batch, self.pending = self.pending, []
        results = self.disk.commit(batch, partials)
        assert results == self.twin.commit(batch, partials)
        for item, result in zip(batch, results, strict=True):
            if isinstance(result, Appended) and not result.known:
                self.take(item, result)
                self.done.append(item)

    def piece(self, data: st.DataObject) -> PutPartial:
        facts = self.worlds[data.draw(PICK) % len(self.worlds)]
        known = self.made.get("text", [])
        stream = known[-1 - data.draw(PICK) % len(known)] if known else facts.text()
        text, offset, generation = data.draw(st.tuples(st.sampled_from(["", "ab", "é"]), PICK, st.integers(1, 2)))
        return PutPartial(
            session_id=facts.session,
            invocation_id=facts.invocation,
            stream_id=stream.id,
            kind="text",
            generation=generation,
            offset=offset,
            text=text,
        )

    def take(self, item: Append, result: Appended) -> None:
        events = [draft.event for group in item.groups for draft in group.drafts]
        assert [position for position, _ in result.places] == [len(self.log) + 1 + n for n in range(len(events))]
        for event, (_, seq) in zip(events, result.places, strict=True):
            assert seq == 1 + sum(other.invocation_id == event.invocation_id for _, other in self.log)
            self.log.append((seq, event))

    @rule()
    def restart(self) -> None:
        self.disk.close()
        self.disk = LmdbLedger.open(self.root, limits=LIMITS)
        self.twin = MemoryLedger(self.twin.snapshot(), blobs=self.blobs, limits=LIMITS)

    @invariant()
    def both_tell_the_same(self) -> None:
        disk, twin = self.disk, self.twin
        assert disk.head() == twin.head() and disk.open_work() == twin.open_work()
        assert disk.header_bytes() == twin.header_bytes()
        facts = disk.read_positions()
        assert facts == twin.read_positions()
        assert [(fact.seq, fact.event) for fact in facts] == self.log
        for world in self.worlds:
            assert disk.read_session(world.session) == twin.read_session(world.session)
            assert disk.tail(world.invocation) == twin.tail(world.invocation)
            assert disk.partials(world.invocation) == twin.partials(world.invocation)

    @invariant()
    def the_log_is_lawful(self) -> None:
        """Laws 2 and 4, counted without any of the rules' code."""
        for invocation_id in {event.invocation_id for _, event in self.log}:
            events = [event for _, event in self.log if event.invocation_id == invocation_id]
            assert all(event.status is None for event in events[:-1])
            assert len(events) <= LIMITS.events_max or events[0].run_id is None
            answers = Counter(e.content.call_id for e in events if isinstance(e.content, FunctionResponse))
            assert all(number == 1 for number in answers.values())

    def teardown(self) -> None:
        assert verify(self.disk.reader).problems == ()
        self.disk.close()
        self.lock.close()
        shutil.rmtree(self.root)


def run(examples: int, steps: int) -> None:
    machine: Any = Stores
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=steps))


def test_both_stores_and_a_list_agree() -> None:
    run(examples=15, steps=30)


@pytest.mark.slow
def test_both_stores_and_a_list_agree_for_longer() -> None:
    run(examples=300, steps=60)
