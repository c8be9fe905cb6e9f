"""The table of endings, row by row: one terminal with its class, true settlements, a session that goes on."""

from functools import partial

import pytest

from actors.run import RunActor
from actors.run_types import Purpose, State
from maka.contracts.content import BlobRef, Outcome, RunLimits, SystemNote, Text
from maka.contracts.errors import FailureClass, LedgerFullError
from maka.contracts.limits import ANSWER_CHARS_MAX, BAD_TOOL_ROUNDS_MAX, EVENT_BYTES_MAX, RETRY_TRIES_MAX
from maka.contracts.model_ports import AssembledCall, ErrorKind
from maka.contracts.session_events import ProviderRetry, TextDelta, ToolOutputDelta
from tests.actors.case import Case, asks, kill, then, trouble
from tests.checkers import check_messages
from tests.sim.outside import Said

# -- the rows -----------------------------------------------------------------------------------------------------


def test_last_step_finished_is_completed() -> None:
    record = Case(then(asks("Quick", "File", text="let me look"), Said(text=("all ", "done")))).finish()
    assert (record.status, record.final_text, record.steps) == ("completed", "all done", 2)


@pytest.mark.parametrize(
    "kind", [kind for kind in ErrorKind if kind not in (ErrorKind.CANCELLED, ErrorKind.CONTEXT_OVERFLOW)]
)
def test_h07_a_provider_error_fails_with_its_class_and_keeps_what_was_seen(kind: ErrorKind) -> None:
    case = Case(then(trouble(kind, text=("par", "tial"))))
    record = case.finish()
    assert (record.status, record.failure_class) == ("failed", kind.value)
    texts = [item.event.content for item in case.host.session_facts(case.session_id)]
    kept = [text for text in texts if isinstance(text, Text) and text.interrupted]
    assert [text.text for text in kept] == ["partial"]


def test_a_dead_backend_is_a_missing_terminal_event() -> None:
    case = Case(lambda _: Said(text=("thinking",), hangs=True))
    case.until(lambda: bool(case.shown(TextDelta)))
    kill(case.host, "BackendActor")
    case.host.provider.requests.clear()
    for actor in case.host.world.actors:
        if type(actor).__name__ == "BackendActor":
            actor.actor_ref.tell("anything")
    record = case.finish()
    assert (record.status, record.failure_class) == ("failed", FailureClass.MISSING_TERMINAL_EVENT)


def test_the_step_limit_keeps_the_results_and_says_so() -> None:
    case = Case(lambda _: asks("Quick"), limits=RunLimits(steps_max=3))
    record = case.finish()
    assert (record.status, record.failure_class, record.steps) == ("failed", FailureClass.TOOL_STEP_CAP_REACHED, 3)
    assert case.outcomes() == [Outcome.OK] * 3
    notes = [item.event.content for item in case.host.session_facts(case.session_id)]
    assert [note.note for note in notes if isinstance(note, SystemNote)] == ["step_limit"]


def test_a_deadline_fails_with_its_class() -> None:
    record = Case(lambda _: Said(text=("on and on",), hangs=True), limits=RunLimits(active_s_max=5.0)).finish()
    assert (record.status, record.failure_class) == ("failed", FailureClass.DEADLINE)


def test_a_token_budget_fails_with_its_class_before_the_next_tool() -> None:
    case = Case(lambda _: asks("Quick"), limits=RunLimits(tokens_max=20))
    record = case.finish()
    assert (record.status, record.failure_class) == ("failed", FailureClass.BUDGET)
    assert case.outcomes() == [Outcome.OK, Outcome.NOT_STARTED]


def test_h16_a_model_that_only_calls_what_is_not_there_is_stopped_after_some_rounds() -> None:
    case = Case(lambda _: asks("SearchWeb"))
    record = case.finish()
    assert (record.status, record.failure_class) == ("failed", FailureClass.INVALID_TOOL_CALLS)
    assert case.outcomes() == [Outcome.REFUSED] * BAD_TOOL_ROUNDS_MAX
    result = case.requests()[1].messages[-1].text or ""
    assert "Quick" in result, "the real names go back"


def test_h21_an_overflow_that_nothing_cures_ends_after_a_few_tries() -> None:
    case = Case(lambda _: trouble(ErrorKind.CONTEXT_OVERFLOW), window=4_000)
    record = case.finish()
    assert (record.status, record.failure_class) == ("failed", FailureClass.CONTEXT_OVERFLOW)
    assert len(case.requests()) <= 6


def test_retries_are_bounded_and_shown() -> None:
    case = Case(lambda _: trouble(ErrorKind.NETWORK, retryable=True))
    record = case.finish()
    assert (record.status, record.failure_class) == ("failed", "network")
    assert len(case.requests()) == RETRY_TRIES_MAX
    scheduled = [event for event in case.shown(ProviderRetry) if event.phase == "scheduled"]
    assert [event.delay_ms for event in scheduled[:4]] == [1_125, 2_250, 4_500, 9_000]
    bodies = set(map(repr, case.requests()))
    assert len(bodies) == 1, "a retry sends the same request"


def test_h10_a_call_that_was_cut_is_answered_and_not_run() -> None:
    cut = AssembledCall(provider_id="k", name="File", args=None, raw='{"path": "n.txt', cut=True)
    case = Case(then(Said(calls=(cut,)), Said(text=("I see",))))
    assert case.finish().status == "completed"
    assert case.outcomes() == [Outcome.REFUSED]
    assert case.host.catalog.tools["File"].effects == []


def test_h58_a_call_that_is_longer_than_a_fact_is_answered_and_not_run() -> None:
    long = AssembledCall(provider_id="k", name="File", args={"path": "x" * EVENT_BYTES_MAX}, raw='{"path": "xx')
    small = AssembledCall(provider_id="l", name="Quick", args={"path": "/w/f"}, raw="{}")
    case = Case(then(Said(calls=(long, small)), Said(text=("I see",))))
    assert case.finish().status == "completed"
    assert case.outcomes() == [Outcome.REFUSED, Outcome.OK]
    assert case.host.catalog.tools["File"].effects == []
    assert "at most 1,000,000 are taken" in (case.requests()[1].messages[-2].text or "")


def test_an_answer_that_is_longer_than_a_fact_is_completed_also_where_there_was_no_room_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(then(Said(text=("x" * EVENT_BYTES_MAX, "y"))))
    put, tries = case.host.blobs.put, list[int]()

    def without_room_at_first(data: bytes) -> tuple[BlobRef, bytes | None]:
        tries.append(len(data))
        if len(tries) < 3:
            raise LedgerFullError("no room")
        return put(data)

    monkeypatch.setattr(case.host.blobs, "put", without_room_at_first)
    record = case.finish()
    assert (record.status, tries) == ("completed", [EVENT_BYTES_MAX + 1] * 3)
    texts = [item.event.content for item in case.host.session_facts(case.session_id)]
    (kept,) = [text for text in texts if isinstance(text, Text) and text.whole is not None]
    assert "characters left out" in kept.text
    assert kept.whole is not None
    assert case.host.store.blob(kept.whole.sha256) == ("x" * EVENT_BYTES_MAX + "y").encode()


def test_an_answer_without_an_end_fails_with_its_class() -> None:
    case = Case(then(Said(text=("x" * (ANSWER_CHARS_MAX + 1),), hangs=True)))
    record = case.finish()
    assert (record.status, record.failure_class) == ("failed", FailureClass.ANSWER_TOO_LONG)


@pytest.mark.parametrize("raw", ["[]", "null", "7"])
def test_h17_arguments_that_are_no_object_are_answered_and_the_next_request_is_valid(raw: str) -> None:
    bad = AssembledCall(provider_id="k", name="Quick", args=None, raw=raw)
    case = Case(then(Said(calls=(bad,)), Said(text=("I see",))))
    assert case.finish().status == "completed"
    assert case.outcomes() == [Outcome.REFUSED]
    check_messages(case.requests()[1].messages)


def test_h48_a_tool_that_raises_system_exit_is_a_tool_error() -> None:
    case = Case(then(asks("Raise", "Quick"), Said(text=("I see",))))
    assert case.finish().status == "completed"
    assert sorted(case.outcomes()) == [Outcome.ERROR, Outcome.OK]


def test_a_crashed_tool_actor_is_an_unknown_outcome_and_the_run_goes_on() -> None:
    case = Case(then(asks("Hang"), Said(text=("I see",))))
    case.until(lambda: bool(case.shown(ToolOutputDelta)))
    kill(case.host, "ToolActor")
    for actor in case.host.world.actors:
        if type(actor).__name__ == "ToolActor":
            actor.actor_ref.tell("anything")
    assert case.finish().status == "completed"
    assert case.outcomes() == [Outcome.OUTCOME_UNKNOWN]


def test_a_call_whose_actor_crashes_before_its_turn_is_not_started_and_holds_up_none_after_it() -> None:
    case = Case(then(asks("File", "File", "File"), Said(text=("I see",))))
    case.until(lambda: bool(case.host.effects.started))
    kill(case.host, "ToolActor", 1)
    assert case.finish().status == "completed"
    assert case.outcomes() == [Outcome.NOT_STARTED, Outcome.OK, Outcome.OK]


def state_of(case: Case) -> State:
    (run,) = (actor for actor in case.host.world.actors if isinstance(actor, RunActor))
    return run._state  # pyright: ignore[reportPrivateUsage]


def has_dead(case: Case) -> bool:
    return bool(state_of(case).dead)


def is_dispatching(case: Case) -> bool:
    runs = any(isinstance(actor, RunActor) for actor in case.host.world.actors)
    flight = state_of(case).in_flight if runs else None
    return flight is not None and flight.purpose is Purpose.DISPATCH


@pytest.mark.parametrize("nth", [0, 2])
def test_a_call_whose_actor_crashes_between_its_look_and_its_start_is_not_started(nth: int) -> None:
    """Whether it crashes before its dispatch is durable is a matter of the schedule: so there are some."""
    begun: list[bool] = []
    for seed in range(20):
        case = Case(then(asks("File", "File", "File"), Said(text=("I see",))), seed=seed)
        case.until(partial(is_dispatching, case))
        kill(case.host, "ToolActor", nth)
        case.until(partial(has_dead, case))
        begun.append(any(item.started for item in state_of(case).work))
        assert case.finish().status == "completed"
        assert Outcome.NOT_STARTED in case.outcomes() or begun[-1]
    assert not all(begun), "one at least crashed before"


def test_a_call_whose_actor_cant_begin_is_not_started() -> None:
    case = Case(then(asks("File"), Said(text=("I see",))))
    case.host.world.stillborn.append("ToolActor")
    assert case.finish().status == "completed"
    assert case.outcomes() == [Outcome.NOT_STARTED]
