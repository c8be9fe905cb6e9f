"""What the next model call may see: a session's facts as Chat Completions messages.

Seen are the user's and the model's words, calls and their results; partial, hidden and system facts, usage and errors
are not. One assistant message per step, then one tool message per call, in call order, right behind it, wherever the
responses stand in the log. No message is empty. Nothing is invented and nothing repaired: pairing is what the append
guarantees, and a log that breaks it raises FoldError.

A finished turn is built once and kept; the facts of an open one are an append-only sequence and are built when a
request is rendered, so that folding one more fact costs the same at any length.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.actions import Actions
from maka.contracts.content import FunctionCall, FunctionResponse, InvocationOpened, Route, Text, Thinking
from maka.contracts.errors import FoldError
from maka.contracts.events import Committed, is_terminal
from maka.contracts.ids import CallId, InvocationId, RunId, SessionId
from maka.contracts.model_ports import ChatMessage
from projections.chunks import Chunks
from projections.history_items import Turn, arguments_text, build, is_request, is_visible, sent_name
from projections.history_messages import Messages, carried
from projections.log_order import LogOrder, advance
from projections.window import Estimate, Window, abridge

PROJECTOR_VERSION = 2
"""Recorded with each request: which rules made its messages."""


class OpenTurn(Struct, frozen=True, gc=False, kw_only=True):
    """A run without a terminal: its visible facts and requests. `calls` maps open calls to their visibility."""

    run_id: RunId
    position: int
    route: Route
    facts: Chunks[Committed] = Chunks()
    calls: Mapping[CallId, bool] = {}

    def turn(self) -> Turn:
        """Return the turn as it is now."""
        return Turn(run_id=self.run_id, position=self.position, route=self.route, items=build(self.facts))


class History(Struct, frozen=True, gc=False, kw_only=True):
    """A session's history as of a position.

    `window` is the newest request's and never goes back. `chars` counts all visible characters so far;
    `request_chars` those before the newest request; `reported` are the newest known input tokens, the characters
    before their request and its window.
    """

    order: LogOrder
    turns: Chunks[Turn] = Chunks()
    open: Mapping[InvocationId, OpenTurn] = {}
    window: Window = Window()
    chars: int = 0
    request_chars: int = 0
    reported: tuple[int, int, Window] | None = None

    @property
    def session_id(self) -> SessionId:
        return self.order.session_id

    @property
    def position(self) -> int:
        return self.order.position

    def all_turns(self) -> list[Turn]:
        """Return every turn in the order of opening, open ones as they are now."""
        return sorted((*self.turns, *(live.turn() for live in self.open.values())), key=lambda turn: turn.position)

    def estimate(self) -> Estimate | None:
        """Return what the next request can be estimated from; None where the window rose since tokens were known."""
        if self.reported is None or self.reported[2] != self.window:
            return None
        tokens, chars, _ = self.reported
        return Estimate(input_tokens=tokens, chars_since=self.chars - chars)


class Rendered(Struct, frozen=True, kw_only=True):
    """Messages for a request; `chars` is the length of all that they carry, `losses` what the log has beyond them."""

    messages: tuple[ChatMessage, ...]
    chars: int
    losses: tuple[str, ...] = ()


def project(items: Iterable[Committed], state: History | None = None) -> History | None:
    """Fold a session's facts, control stream and runs, in order of position."""
    for item in items:
        state = fold(state, item)
    return state


def fold(state: History | None, item: Committed) -> History:
    """Take in one fact of the session. Raises FoldError on a log that breaks a rule."""
    event = item.event
    order = advance(state.order if state is not None else None, item)
    if state is None:
        return History(order=order)
    if event.run_id is None or event.partial:
        return replace(state, order=order)
    if isinstance(event.content, InvocationOpened):
        opened = OpenTurn(run_id=event.run_id, position=item.position, route=event.content.route)
        return replace(state, order=order, open={**state.open, event.invocation_id: opened})
    if event.actions is not None:
        state = _requested(state, event.actions)
    turn = state.open[event.invocation_id]
    taken, chars = _take(turn, item)
    turns, live = state.turns, state.open
    if event.status is not None and is_terminal(event):
        if taken.calls:
            raise FoldError(f"position {item.position}: run {turn.run_id} ended with {len(taken.calls)} open calls")
        turns = turns.append(taken.turn())
        live = {key: other for key, other in live.items() if key != event.invocation_id}
    elif taken is not turn:
        live = {**live, event.invocation_id: taken}
    return replace(state, order=order, turns=turns, open=live, chars=state.chars + chars)


def _requested(state: History, actions: Actions) -> History:
    if (request := actions.model_request) is not None:
        window = max(state.window, Window(request.window_level, request.window_position))
        return replace(state, window=window, request_chars=state.chars)
    if (usage := actions.token_usage) is not None:
        return replace(state, reported=(usage.input, state.request_chars, state.window))
    return state


def _take(turn: OpenTurn, item: Committed) -> tuple[OpenTurn, int]:
    """Return the turn with a fact that its history needs, the turn itself where it needs none, and its characters."""
    event, content = item.event, item.event.content
    visible, calls, chars = is_visible(event), turn.calls, 0
    if isinstance(content, FunctionCall):
        calls = {**calls, CallId(event.id): visible}
        chars = len(sent_name(content.name)) + len(arguments_text(content))
    elif isinstance(content, FunctionResponse):
        if content.call_id not in calls:
            raise FoldError(f"position {item.position}: a response to {content.call_id}, which isn't an open call")
        # A response is seen where its call is: a pair is never torn.
        visible, chars = calls[content.call_id], len(content.result)
        calls = {call_id: seen for call_id, seen in calls.items() if call_id != content.call_id}
    elif isinstance(content, Text):
        chars = len(content.text)
    elif not isinstance(content, Thinking):
        visible = False
    if visible or is_request(event):
        return replace(turn, facts=turn.facts.append(item), calls=calls), chars if visible else 0
    return (turn if calls is turn.calls else replace(turn, calls=calls)), 0


def render(
    history: History,
    *,
    level: int,
    through_position: int,
    keeps_reasoning: bool,
    route: Route | None = None,
    budget: int | None = None,
    open_calls: Literal["refuse", "leave_out"] = "refuse",
) -> Rendered:
    """Return the messages of the next request.

    `level` holds through `through_position`; `budget` bounds the characters that level 4 keeps. Thinking is sent
    back where `keeps_reasoning`, and only to the provider and model of `route` that thought it. A call without its
    response raises FoldError, since no request may carry one; `leave_out` shows such a history without it.
    """
    for live in history.open.values():
        if open_calls == "refuse" and any(live.calls.values()):
            raise FoldError(f"run {live.run_id} has {len(live.calls)} open calls: no request can be made now")
    turns, thinking_lost = carried(history.all_turns(), keeps_reasoning=keeps_reasoning, route=route)
    messages = Messages(turns)
    for turn in abridge(turns, Window(level, through_position), budget):
        for each in turn.items:
            messages.add(each)
    counted = (
        ("thinking_left_out", thinking_lost),
        ("call_ids_replaced", messages.ids_replaced),
        ("window_level", level),
    )
    losses = tuple(f"{word}: {count}" for word, count in counted if count)
    return Rendered(messages=tuple(messages.items), chars=messages.chars, losses=losses)
