"""What a person sees of a session: its turns with words, tool activity, notices and their ending.

The view as of event N is the fold through position N, no more. A finished turn is built once and kept; the facts of
an open one are an append-only sequence that is built when it is looked at.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.content import FunctionCall, FunctionResponse
from maka.contracts.errors import FoldError
from maka.contracts.events import Committed, is_terminal
from maka.contracts.ids import CallId, InvocationId, MessageId, SessionId
from projections import background, session_index
from projections.background import Background, Shell
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
    """A session as of `position`: its header, its turns in the order of opening, the messages that wait.

    `background` are its shells that outlive runs, ended ones too, in the order of their starts.
    """

    session_id: SessionId
    position: int
    header: Header
    turns: tuple[TurnView, ...]
    queue: tuple[WaitingMessage, ...]
    background: tuple[Shell, ...] = ()


class OpenTurn(Struct, frozen=True, gc=False, kw_only=True):
    """A run without a terminal: the profile that it began with, its facts, and the calls that have no response."""

    boundary: str
    facts: Chunks[Committed] = Chunks()
    calls: frozenset[CallId] = frozenset()


Queue = tuple[WaitingMessage, ...]


class ViewState(Struct, frozen=True, gc=False, kw_only=True):
    """What the view is made from."""

    order: LogOrder
    header: Header
    turns: Chunks[TurnView] = Chunks()
    open: Mapping[InvocationId, OpenTurn] = {}
    queue: Queue = ()
    background: Background = Background()


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
        return ViewState(order=order, header=header, background=background.fold(None, item))
    queue = state.queue if header.untaken is state.header.untaken else _queued(state.queue, header, item)
    turns, live = state.turns, state.open
    if event.run_id is not None and not event.partial:
        turn = _grown(live.get(event.invocation_id) or OpenTurn(boundary=header.boundary), item)
        if is_terminal(event):
            live = {key: other for key, other in live.items() if key != event.invocation_id}
            turns = turns.append(_finished(turn, item))
        else:
            live = {**live, event.invocation_id: turn}
    shells = state.background if event.run_id is not None else background.fold(state.background, item)
    return ViewState(order=order, header=header, turns=turns, open=live, queue=queue, background=shells)


def _finished(turn: OpenTurn, item: Committed) -> TurnView:
    if turn.calls:
        raise FoldError(f"position {item.position}: run {item.event.run_id} ended with {len(turn.calls)} open calls")
    return build_turn(turn.facts, turn.boundary)


def _queued(queue: Queue, header: Header, item: Committed) -> Queue:
    """Keep the queue as the header has it: in the order of queueing, without what was taken or retracted."""
    event = item.event
    queue = tuple(waiting for waiting in queue if waiting.message_id in header.untaken)
    if event.actions is None or (queued := event.actions.message_queued) is None:
        return queue
    message = WaitingMessage(message_id=MessageId(event.id), position=item.position, ts=event.ts, text=queued.text)
    return (*queue, message)


def _grown(turn: OpenTurn, item: Committed) -> OpenTurn:
    content, calls = item.event.content, turn.calls
    if isinstance(content, FunctionCall):
        calls = calls | {CallId(item.event.id)}
    elif isinstance(content, FunctionResponse):
        if content.call_id not in calls:
            raise FoldError(f"position {item.position}: a response to {content.call_id}, which isn't an open call")
        calls = calls - {content.call_id}
    return replace(turn, facts=turn.facts.append(item), calls=calls)


def view(state: ViewState) -> SessionView:
    """Return the view as of the state's position."""
    turns = sorted(
        (*state.turns, *(build_turn(live.facts, live.boundary) for live in state.open.values())), key=_opened
    )
    return SessionView(
        session_id=state.header.session_id,
        position=state.order.position,
        header=state.header,
        turns=tuple(turns),
        queue=state.queue,
        background=tuple(background.shells(state.background)),
    )


def _opened(turn: TurnView) -> int:
    return turn.position
