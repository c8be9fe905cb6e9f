"""Laws of every fold: total on valid logs, and the same from a snapshot as from the beginning."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maka.contracts.errors import FoldError
from maka.contracts.events import Committed
from maka.contracts.model_ports import ChatMessage, ChatRequest, ModelProfile
from maka.edges.chat_request import encode_request
from maka.edges.scripted_rules import Strictness, complaint
from projections import (
    artifacts,
    background,
    changes,
    files_seen,
    model_history,
    run_record,
    run_state,
    session_index,
    session_view,
    usage,
)
from projections.history_items import sent_name
from tests.checkers import NAME_PATTERN, check_endings, check_messages
from tests.strategies import cut_logs, session_logs

PROFILE = ModelProfile(name="p", base_url="http://127.0.0.1:1", model="m")
Fold = Callable[[Any, Committed], Any]

SESSION_FOLDS: dict[str, Fold] = {
    "session_index": session_index.fold,
    "files_seen": files_seen.fold,
    "model_history": model_history.fold,
    "session_view": session_view.fold,
    "usage": usage.fold,
    "changes": changes.fold,
    "artifacts": artifacts.fold,
    "background": background.fold,
}
RUN_FOLDS: dict[str, Fold] = {"run_state": run_state.fold, "run_record": run_record.fold}


def fold_all(fold: Fold, items: list[Committed], state: Any = None) -> Any:
    for item in items:
        state = fold(state, item)
    return state


@given(cut_logs())
@settings(max_examples=200)
def test_a_snapshot_continues_as_the_whole(data: tuple[list[Committed], int]) -> None:
    items, at = data
    for name, fold in SESSION_FOLDS.items():
        half = fold_all(fold, items[:at])
        again = fold_all(fold, items[:at])
        assert fold_all(fold, items[at:], half) == fold_all(fold, items), name
        assert half == again, f"{name}: a state changed when it was folded on from"


@given(session_logs())
@settings(max_examples=100)
def test_a_run_continues_from_a_snapshot_too(items: list[Committed]) -> None:
    for invocation_id in {item.event.invocation_id for item in items if item.event.run_id is not None}:
        own = [item for item in items if item.event.invocation_id == invocation_id]
        for name, fold in RUN_FOLDS.items():
            half = fold_all(fold, own[: len(own) // 2])
            assert fold_all(fold, own[len(own) // 2 :], half) == fold_all(fold, own), name


@given(session_logs())
@settings(max_examples=200)
def test_every_history_is_one_that_a_strict_provider_takes(items: list[Committed]) -> None:
    check_endings(items)
    history = model_history.project(items)
    assert history is not None
    for level in range(5):
        for keeps in (False, True):
            rendered = model_history.render(
                history,
                level=level,
                through_position=history.position,
                keeps_reasoning=keeps,
                budget=3_000,
                open_calls="leave_out",
            )
            check_messages(rendered.messages)
            # As it is sent: a person speaks next.
            sent = (*rendered.messages, ChatMessage(role="user", text="go on"))
            body = encode_request(PROFILE, ChatRequest(system="be brief", messages=sent))
            assert complaint(msgspec.json.decode(body), Strictness()) is None
            assert rendered.chars == sum(
                len(message.text or "")
                + len(message.reasoning or "")
                + sum(len(call.name) + len(call.arguments) for call in message.calls)
                for message in rendered.messages
            )


@given(st.text())
@settings(max_examples=300)
def test_h16_any_name_of_a_tool_is_sent_as_one_that_providers_take(name: str) -> None:
    sent = sent_name(name)
    assert re.fullmatch(NAME_PATTERN, sent)
    assert sent_name(sent) == sent
    if re.fullmatch(NAME_PATTERN, name):
        assert sent == name


@given(session_logs(), st.integers(0, 4), st.integers(0, 100))
@settings(max_examples=200)
def test_what_was_sent_stays_the_same_while_the_window_stands(items: list[Committed], level: int, share: int) -> None:
    """A request's messages are a prefix of each later one's, for the same level and position."""
    cuts = [at for at, item in enumerate(items, 1) if item.event.actions and item.event.actions.model_request]
    for at in cuts[:2]:
        before, after = model_history.project(items[:at]), model_history.project(items)
        assert before is not None
        assert after is not None
        options: dict[str, Any] = {
            "level": level,
            "through_position": before.position * share // 100,
            "keeps_reasoning": True,
            "budget": 500,
        }
        sent = model_history.render(before, **options).messages
        assert model_history.render(after, open_calls="leave_out", **options).messages[: len(sent)] == sent


@given(session_logs(), st.integers(0, 10_000))
@settings(max_examples=100)
def test_a_log_with_a_fact_missing_or_twice_is_refused(items: list[Committed], place: int) -> None:
    """The last fact of a stream may be missing, as it may not have been written yet; any other leaves a gap."""
    at = place % len(items)
    invocation_id = items[at].event.invocation_id
    last = max(index for index, item in enumerate(items) if item.event.invocation_id == invocation_id)
    for name in ("model_history", "session_view", "usage"):
        with pytest.raises(FoldError):
            fold_all(SESSION_FOLDS[name], [*items[: at + 1], items[at], *items[at + 1 :]])
        if at != last:
            with pytest.raises(FoldError):
                fold_all(SESSION_FOLDS[name], [*items[:at], *items[at + 1 :]])


@given(session_logs())
@settings(max_examples=30)
def test_headers_come_back_from_their_bytes(items: list[Committed]) -> None:
    header = session_index.project(items)
    assert header is not None
    assert session_index.decode(session_index.encode(header)) == header


@given(session_logs())
@settings(max_examples=100)
def test_views_agree_on_how_runs_stand(items: list[Committed]) -> None:
    """Whether a run has ended is its terminal's word, in every projection."""
    state = session_view.project(items)
    assert state is not None
    shown = session_view.view(state)
    open_turns = [turn for turn in shown.turns if turn.status in ("opening", "running", "parked")]
    assert [turn.run_id for turn in open_turns] == list(shown.header.open_runs)
    for turn in shown.turns:
        own = [item for item in items if item.event.run_id == turn.run_id]
        fact = run_state.classify(own)
        assert (fact is None) == (turn in open_turns)
        if fact is not None:
            assert (turn.status, turn.failure_class, turn.abort_source) == (
                fact.status,
                fact.failure_class,
                fact.abort_source,
            )
        assert turn.duration_ms >= 0
