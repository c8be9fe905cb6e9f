"""The append rules by themselves: given a tail, may these facts follow?"""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from maka.contracts.actions import Actions, StateDelta, UserQuestionAnswer
from maka.contracts.content import NEEDS_DISPATCH, Outcome
from maka.contracts.errors import Refusal, RefusalCode
from maka.contracts.events import RuntimeEvent, Status
from maka.contracts.ids import CallId, CommandId, InvocationId
from maka.contracts.ports import Append, KnownCommand
from projections.append_calls import OpenCall
from projections.append_rules import SETTLE_EVENTS, Admitted, Limits, Stored, admit
from projections.append_tail import Tail
from tests.storage.facts import BLOBS, Facts, append


class Nothing:
    """A lookup over a dict of tails; no event, command or blob is stored."""

    def __init__(self) -> None:
        self.tails: dict[InvocationId, Tail] = {}
        self.position = 1

    def tail(self, invocation_id: InvocationId) -> Tail | None:
        return self.tails.get(invocation_id)

    def stored(self, key: bytes) -> Stored | None:
        return None

    def command(self, scope: str, command_id: CommandId) -> KnownCommand | None:
        return None

    def places(self, position: int, count: int) -> tuple[tuple[int, int], ...]:
        return ()

    def blob_size(self, sha256: str) -> int | None:
        return None

    def take(self, item: Append, limits: Limits | None = None) -> Admitted | Refusal:
        """Judge an append, and go on from it where it is admitted."""
        verdict = admit(item, self, self.position, limits or Limits())
        if isinstance(verdict, Admitted):
            self.tails.update(verdict.tails)
            self.position += len(verdict.places)
        return verdict


class Run:
    """A run that was begun, with a call in it; `add` appends to it."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.lookup = Nothing()
        self.lookup.take(self.facts.opened())
        self.lookup.take(self.facts.started())
        self.call = self.facts.call()
        self.call_id = CallId(self.call.id)
        self.add(self.call)

    @property
    def tail(self) -> Tail:
        return self.lookup.tails[self.facts.invocation]

    def add(self, *events: RuntimeEvent, settlement: bool = False, limits: Limits | None = None) -> RefusalCode | None:
        item = append((self.tail.seq, events), settlement=settlement)
        verdict = self.lookup.take(item, limits)
        return verdict.code if isinstance(verdict, Refusal) else None


PAIRING = RefusalCode.PAIRING_VIOLATION
Story = Callable[[Run], Sequence[RuntimeEvent]]

STORIES: dict[str, tuple[RefusalCode | None, Story]] = {
    "dispatch, then response": (None, lambda run: [run.facts.dispatch(run.call), run.facts.response(run.call)]),
    "a response without its call": (PAIRING, lambda run: [run.facts.response(run.facts.call(), Outcome.ABORTED)]),
    "two responses": (
        PAIRING,
        lambda run: [run.facts.response(run.call, Outcome.ABORTED), run.facts.response(run.call, Outcome.REFUSED)],
    ),
    "a dispatch without its call": (PAIRING, lambda run: [run.facts.dispatch(run.facts.call())]),
    "two dispatches": (PAIRING, lambda run: [run.facts.dispatch(run.call), run.facts.dispatch(run.call)]),
    "a dispatch after the response": (
        PAIRING,
        lambda run: [run.facts.response(run.call, Outcome.REFUSED), run.facts.dispatch(run.call)],
    ),
    "a terminal over an open call": (PAIRING, lambda run: [run.facts.terminal()]),
    "a terminal after all is answered": (
        None,
        lambda run: [run.facts.response(run.call, Outcome.NOT_STARTED), run.facts.terminal(Status.FAILED)],
    ),
    "a failure without its class": (
        RefusalCode.INVALID_EVENT,
        lambda run: [run.facts.response(run.call, Outcome.NOT_STARTED), run.facts.fact(status=Status.FAILED)],
    ),
    "a stop without its source": (
        RefusalCode.INVALID_EVENT,
        lambda run: [run.facts.response(run.call, Outcome.NOT_STARTED), run.facts.fact(status=Status.ABORTED)],
    ),
    "a message in a run": (
        RefusalCode.INVALID_EVENT,
        lambda run: [run.facts.fact(actions=run.facts.queued().actions)],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_calls_and_responses_pair(name: str) -> None:
    run = Run()
    expected, story = STORIES[name]
    assert run.add(*story(run)) is expected


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_outcome_that_says_it_ran_needs_a_dispatch(outcome: Outcome) -> None:
    run = Run()
    assert run.add(run.facts.response(run.call, outcome)) is (PAIRING if outcome in NEEDS_DISPATCH else None)
    run = Run()
    run.add(run.facts.dispatch(run.call))
    assert run.tail.calls == {run.call_id: OpenCall(dispatched=True)}
    assert run.add(run.facts.response(run.call, outcome)) is None
    assert run.tail.calls == {}


@pytest.mark.parametrize("kind", ["question", "boundary"])
def test_an_answer_lets_its_call_succeed_in_the_same_append(kind: str) -> None:
    run = Run()
    facts = run.facts
    ask = facts.question(run.call) if kind == "question" else facts.boundary_request(run.call)
    assert run.add(ask) is None
    assert run.tail.waits == {ask.id: run.call_id} and run.tail.calls[run.call_id].interaction
    reply = facts.answer(ask) if kind == "question" else facts.decision(ask)
    assert run.add(facts.response(run.call)) is PAIRING
    assert run.add(reply, facts.response(run.call)) is None
    assert run.tail.waits == {} and run.tail.calls == {}


def test_an_answer_of_an_earlier_append_is_no_result() -> None:
    run = Run()
    ask = run.facts.question(run.call)
    run.add(ask)
    run.add(run.facts.answer(ask))
    assert run.add(run.facts.response(run.call)) is PAIRING
    assert run.add(run.facts.response(run.call, Outcome.ABORTED)) is None


def test_a_closed_wait_is_no_answer_and_closes_once() -> None:
    run = Run()
    ask = run.facts.question(run.call)
    run.add(ask)
    assert run.add(run.facts.wait_closed(ask), run.facts.response(run.call)) is PAIRING
    assert run.add(run.facts.response(run.call, Outcome.ABORTED), run.facts.terminal()) is PAIRING
    end = (run.facts.response(run.call, Outcome.ABORTED), run.facts.wait_closed(ask), run.facts.terminal())
    assert run.add(*end) is None
    assert run.tail.sealed and run.tail.open_since == 0


def test_a_wait_is_answered_once_and_asked_for_an_open_call() -> None:
    run = Run()
    ask = run.facts.question(run.call)
    assert run.add(run.facts.question(run.facts.call())) is PAIRING
    assert run.add(run.facts.answer(ask)) is PAIRING
    assert run.add(ask, run.facts.answer(ask)) is None
    assert run.add(run.facts.answer(ask)) is PAIRING


def test_one_fact_opens_and_closes_at_most_one_wait() -> None:
    run = Run()
    first, second = run.facts.question(run.call), run.facts.boundary_request(run.call)
    assert first.actions is not None and second.actions is not None
    both = replace(first, actions=replace(first.actions, state_delta=second.actions.state_delta))
    assert run.add(both) is RefusalCode.INVALID_EVENT
    run.add(first)
    closing = Actions(
        state_delta=StateDelta(wait_closed=first.id),
        user_question_answer=UserQuestionAnswer(request_id=first.id, answers=()),
    )
    assert run.add(run.facts.fact(actions=closing)) is RefusalCode.INVALID_EVENT


def test_control_streams_hold_no_calls_and_no_end() -> None:
    run = Run()
    facts = run.facts
    for content, actions, status, code in (
        (facts.call().content, None, None, RefusalCode.INVALID_EVENT),
        (None, None, Status.COMPLETED, RefusalCode.INVALID_EVENT),
        (facts.response(run.call).content, None, None, PAIRING),
        (None, facts.dispatch(run.call).actions, None, PAIRING),
        (None, facts.question(run.call).actions, None, PAIRING),
        (None, facts.decision(facts.text()).actions, None, PAIRING),
    ):
        verdict = run.lookup.take(append((1, [facts.control(content, actions=actions, status=status)])))
        assert isinstance(verdict, Refusal) and verdict.code is code


def test_an_opening_is_not_the_end() -> None:
    lookup, facts = Nothing(), Facts()
    lookup.take(facts.opened())
    verdict = lookup.take(append((0, [replace(facts.opening(), status=Status.COMPLETED)]), blobs=BLOBS))
    assert isinstance(verdict, Refusal) and verdict.code is RefusalCode.INVALID_EVENT


@given(st.lists(st.sampled_from(["text", "call", "dispatch", "respond", "ask"]), max_size=30), st.integers(8, 30))
def test_whatever_was_admitted_can_be_settled(acts: list[str], events_max: int) -> None:
    """The room that ordinary appends leave is enough for the widest settlement there is."""
    run, limits = Run(), Limits(events_max=events_max)
    facts = run.facts
    known = {run.call_id: run.call}
    for act in acts:
        calls = [known[call_id] for call_id in run.tail.calls]
        event = facts.text()
        if act == "call":
            event = facts.call()
            known[CallId(event.id)] = event
        elif act == "dispatch" and calls:
            event = facts.dispatch(calls[-1])
        elif act == "respond" and calls:
            event = facts.response(calls[0], Outcome.ABORTED)
        elif act == "ask" and calls:
            event = facts.question(calls[0])
        run.add(event, limits=limits)
    texts = [facts.text() for _ in range(SETTLE_EVENTS - 1)]
    waits = [facts.wait_closed(facts.fact(id=wait)) for wait in run.tail.waits]
    responses = [facts.response(known[call], Outcome.ABORTED) for call in run.tail.calls]
    end = (*texts, *responses, *waits, facts.terminal(Status.ABORTED))
    assert run.add(*end, settlement=True, limits=limits) is None
