"""What a person sees of a session: its turns with words, tool activity, notices and their ending.

The view as of event N is the fold through position N, no more. A finished turn is built once and kept; the facts of
an open one are an append-only sequence that is built when it is looked at.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.content import FunctionCall, FunctionResponse, InvocationOpened
from maka.contracts.errors import FoldError
from maka.contracts.events import Committed, is_terminal
from maka.contracts.ids import CallId, InvocationId, MessageId, SessionId
from projections import session_index
from projections.chunks import Chunks
from projections.log_order import LogOrder, advance
from projections.session_index import Header
from projections.turn_view import TurnView, build_turn


class WaitingMessage(Struct, frozen=True, kw_only=True, rename="camel"):
    """A message in the queue."""

    message_id: MessageId
    position: int
    ts: int
    text: str


class SessionView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A session as of `position`: its header, its turns in the order of opening, the messages that wait."""

    session_id: SessionId
    position: int
    header: Header
    turns: tuple[TurnView, ...]
    queue: tuple[WaitingMessage, ...]


class OpenTurn(Struct, frozen=True, kw_only=True):
    """A run without a terminal: its facts and the calls that have no response."""

    facts: Chunks[Committed]
    calls: frozenset[CallId] = frozenset()


class ViewState(Struct, frozen=True, kw_only=True):
    """What the view is made from."""

    order: LogOrder
    header: Header
    turns: Chunks[TurnView] = Chunks()
    open: Mapping[InvocationId, OpenTurn] = {}
    queue: tuple[WaitingMessage, ...] = ()


def project(items: Iterable[Committed], state: ViewState | None = None) -> ViewState | None:
    """Fold a session's facts, control stream and runs, in order of position."""
    for item in items:
        state = fold(state, item)
    return state


def fold(state: ViewState | None, item: Committed) -> ViewState:
    """Take in one fact of the session. Raises FoldError on a log that breaks a rule."""
    event = item.event
    order = advance(state.order if state is not None else None, item)
    header = session_index.fold(state.header if state is not None else None, item)
    if state is None:
        return ViewState(order=order, header=header)
    waiting_before, state = state.header.untaken, replace(state, order=order, header=header)
    if header.untaken is not waiting_before:
        state = _queued(state, item)
    if event.run_id is None or event.partial:
        return state
    if isinstance(event.content, InvocationOpened):
        facts: Chunks[Committed] = Chunks()
        return replace(state, open={**state.open, event.invocation_id: OpenTurn(facts=facts.append(item))})
    turn = _grown(state.open[event.invocation_id], item)
    if not is_terminal(event):
        return replace(state, open={**state.open, event.invocation_id: turn})
    if turn.calls:
        raise FoldError(f"position {item.position}: run {event.run_id} ended with {len(turn.calls)} open calls")
    others = {key: other for key, other in state.open.items() if key != event.invocation_id}
    return replace(state, turns=state.turns.append(build_turn(turn.facts)), open=others)


def _queued(state: ViewState, item: Committed) -> ViewState:
    """Keep the queue as the header has it: in the order of queueing, without what was taken or retracted."""
    event = item.event
    untaken = state.header.untaken
    queue = tuple(waiting for waiting in state.queue if waiting.message_id in untaken)
    if event.actions is not None and (queued := event.actions.message_queued) is not None:
        message = WaitingMessage(message_id=MessageId(event.id), position=item.position, ts=event.ts, text=queued.text)
        queue = (*queue, message)
    return replace(state, queue=queue)


def _grown(turn: OpenTurn, item: Committed) -> OpenTurn:
    event, calls = item.event, turn.calls
    match event.content:
        case FunctionCall():
            calls = calls | {CallId(event.id)}
        case FunctionResponse(call_id=call_id):
            if call_id not in calls:
                raise FoldError(f"position {item.position}: a response to {call_id}, which isn't an open call")
            calls = calls - {call_id}
        case _:
            pass
    return OpenTurn(facts=turn.facts.append(item), calls=calls)


def view(state: ViewState) -> SessionView:
    """Return the view as of the state's position."""
    turns = sorted((*state.turns, *(build_turn(live.facts) for live in state.open.values())), key=_opened)
    return SessionView(
        session_id=state.header.session_id,
        position=state.order.position,
        header=state.header,
        turns=tuple(turns),
        queue=state.queue,
    )


def _opened(turn: TurnView) -> int:
    return turn.position
