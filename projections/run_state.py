"""One run's state by its facts: opening, running, parked or ended; its open calls and waits; its terminal fact.

A run has ended exactly when its terminal is there, and the terminal is the last fact. What the append refuses can't
be folded either: a response without its call, a terminal over open calls, a seq gap raise FoldError.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.actions import Actions, Recovery, ToolDispatch
from maka.contracts.content import Error, FunctionCall, FunctionResponse, Text, Thinking
from maka.contracts.errors import FoldError
from maka.contracts.events import Committed, Refs, Role, RuntimeEvent, Status, is_terminal
from maka.contracts.ids import CallId, EventId, InvocationId, RunId, SessionId, TurnId
from projections.log_order import check_opening, is_opening

_WORDS = (Text, Thinking)


class Phase(StrEnum):
    """`opening`: no model was asked yet. `parked`: nothing but a person's answer is missing."""

    OPENING = "opening"
    RUNNING = "running"
    PARKED = "parked"
    ENDED = "ended"


class TerminalFact(Struct, frozen=True, gc=False, kw_only=True):
    """How a run ended, read from its one terminal. A foreign `cancelled` reads as aborted."""

    run_id: RunId
    status: Status
    failure_class: str | None = None
    abort_source: str | None = None
    stop_reason: str | None = None
    duration_ms: int | None = None
    steps: int | None = None
    recovery: Recovery | None = None
    error: Error | None = None


class RunIdentity(Struct, frozen=True, gc=False, kw_only=True):
    """What every fact of a run carries."""

    session_id: SessionId
    invocation_id: InvocationId
    run_id: RunId
    turn_id: TurnId
    branch: str | None = None


class OpenCall(Struct, frozen=True, gc=False, kw_only=True):
    """A call without its response. `refs` are the call's own; `wait_id` names the open wait that holds it."""

    call_id: CallId
    name: str
    refs: Refs | None = None
    operation_id: str | None = None
    wait_id: EventId | None = None

    @property
    def dispatched(self) -> bool:
        return self.operation_id is not None


class RunState(Struct, frozen=True, gc=False, kw_only=True):
    """A run as of its fact `seq`. `calls` are the open ones, in call order; `asking` says that a request is out.

    `started_ts` and `last_ts` are Unix ms and may step back; `steps` is the highest step that was asked for.
    """

    run: RunIdentity
    seq: int
    position: int
    started_ts: int
    last_ts: int
    steps: int = 0
    asking: bool = False
    calls: tuple[OpenCall, ...] = ()
    waits: tuple[EventId, ...] = ()
    terminal: TerminalFact | None = None

    @property
    def phase(self) -> Phase:
        if self.terminal is not None:
            return Phase.ENDED
        if self.steps == 0:
            return Phase.OPENING
        held = bool(self.waits) and all(call.wait_id is not None for call in self.calls)
        return Phase.PARKED if held else Phase.RUNNING


def project(items: Iterable[Committed], state: RunState | None = None) -> RunState | None:
    """Fold a run's facts in order of seq."""
    for item in items:
        state = fold(state, item)
    return state


def fold(state: RunState | None, item: Committed) -> RunState:
    """Take in one fact of the run. Raises FoldError on a log that breaks a rule."""
    event = item.event
    if state is None:
        return _opened(item)
    _check_place(state, item)
    calls, asking, content = state.calls, state.asking, event.content
    if event.partial:
        content = None
    if isinstance(content, FunctionCall):
        calls = (*calls, OpenCall(call_id=CallId(event.id), name=content.name, refs=event.refs))
        asking = False
    elif isinstance(content, FunctionResponse):
        calls = _answered(calls, content.call_id, item.position)
    elif isinstance(content, _WORDS) and event.role is Role.MODEL:
        asking = False
    state = replace(state, seq=item.seq, position=item.position, last_ts=event.ts, calls=calls, asking=asking)
    if event.actions is not None and not event.partial:
        state = _acted(state, event.id, event.actions, item.position)
    return _ended(state, item) if event.status is not None and is_terminal(event) else state


def _opened(item: Committed) -> RunState:
    check_opening(item)
    event = item.event
    if event.run_id is None or event.turn_id is None:
        raise FoldError(f"position {item.position}: a control stream is no run")
    run = RunIdentity(
        session_id=event.session_id,
        invocation_id=event.invocation_id,
        run_id=event.run_id,
        turn_id=event.turn_id,
        branch=event.branch,
    )
    return RunState(run=run, seq=1, position=item.position, started_ts=event.ts, last_ts=event.ts)


def _check_place(state: RunState, item: Committed) -> None:
    event, run = item.event, state.run
    if (
        event.run_id != run.run_id
        or event.invocation_id != run.invocation_id
        or event.turn_id != run.turn_id
        or event.session_id != run.session_id
    ):
        raise FoldError(f"position {item.position} isn't a fact of run {run.run_id}")
    if state.terminal is not None:
        raise FoldError(f"position {item.position}: run {run.run_id} has ended")
    if item.seq != state.seq + 1 or item.position <= state.position or is_opening(event):
        raise FoldError(f"position {item.position}: seq {item.seq} doesn't follow {state.seq} of run {run.run_id}")


def _answered(calls: tuple[OpenCall, ...], call_id: CallId, position: int) -> tuple[OpenCall, ...]:
    rest = tuple(call for call in calls if call.call_id != call_id)
    if len(rest) == len(calls):
        raise FoldError(f"position {position}: a response to {call_id}, which isn't an open call")
    return rest


def _acted(state: RunState, event_id: EventId, actions: Actions, position: int) -> RunState:
    if actions.model_request is not None:
        state = replace(state, steps=max(state.steps, actions.model_request.step), asking=True)
    if actions.token_usage is not None:
        state = replace(state, asking=False)
    if (dispatch := actions.tool_dispatch) is not None:
        state = _dispatched(state, dispatch, position)
    if (asked := actions.user_question_request) is not None:
        state = _wait(state, event_id, asked.call_id)
    if (answered := actions.user_question_answer) is not None:
        state = _unwait(state, answered.request_id, position)
    if (delta := actions.state_delta) is not None:
        if delta.boundary_request is not None:
            state = _wait(state, event_id, delta.boundary_request.call_id)
        if delta.boundary_decision is not None:
            state = _unwait(state, delta.boundary_decision.request_id, position)
        if delta.wait_closed is not None:
            state = _unwait(state, delta.wait_closed, position)
    return state


def _dispatched(state: RunState, dispatch: ToolDispatch, position: int) -> RunState:
    target = next((call for call in state.calls if call.call_id == dispatch.call_id), None)
    if target is None or target.dispatched:
        raise FoldError(f"position {position}: a dispatch of {dispatch.call_id}, which isn't an undispatched open call")
    sent = replace(target, operation_id=dispatch.operation_id)
    return replace(state, calls=tuple(sent if call is target else call for call in state.calls))


def _wait(state: RunState, wait_id: EventId, call_id: CallId) -> RunState:
    calls = tuple(replace(call, wait_id=wait_id) if call.call_id == call_id else call for call in state.calls)
    return replace(state, waits=(*state.waits, wait_id), calls=calls)


def _unwait(state: RunState, wait_id: EventId, position: int) -> RunState:
    waits = tuple(wait for wait in state.waits if wait != wait_id)
    if len(waits) == len(state.waits):
        raise FoldError(f"position {position}: {wait_id} isn't an open wait")
    calls = tuple(replace(call, wait_id=None) if call.wait_id == wait_id else call for call in state.calls)
    return replace(state, waits=waits, calls=calls)


def _ended(state: RunState, item: Committed) -> RunState:
    if state.calls or state.waits:
        raise FoldError(f"position {item.position}: a terminal over {len(state.calls)} calls, {len(state.waits)} waits")
    return replace(state, terminal=terminal_fact(item.event), asking=False)


def terminal_fact(event: RuntimeEvent) -> TerminalFact:
    """Read a terminal. Raises FoldError where it isn't one, or a failure lacks its class, a stop its source."""
    if event.run_id is None or event.status is None or not is_terminal(event):
        raise FoldError(f"event {event.id} doesn't end a run")
    status = Status.ABORTED if event.status is Status.CANCELLED else event.status
    error = event.content if isinstance(event.content, Error) else None
    delta = event.actions.state_delta if event.actions is not None else None
    fact = TerminalFact(run_id=event.run_id, status=status, error=error)
    if delta is not None:
        fact = replace(
            fact,
            failure_class=delta.failure_class,
            abort_source=delta.abort_source,
            stop_reason=delta.stop_reason,
            duration_ms=delta.duration_ms,
            steps=delta.steps,
            recovery=delta.recovery,
        )
    if status is Status.FAILED and fact.failure_class is None:
        raise FoldError(f"event {event.id}: a failed terminal needs its failure class")
    if status is Status.ABORTED and fact.abort_source is None:
        raise FoldError(f"event {event.id}: an aborted terminal needs its source")
    return fact


def classify(items: Iterable[Committed]) -> TerminalFact | None:
    """Return the one terminal fact of a run's facts, None while there is none.

    Raises FoldError where there are two, where a fact of another run is among them, or where it is incomplete.
    """
    found: TerminalFact | None = None
    identity: tuple[str, str, str | None, str | None] | None = None
    for item in items:
        event = item.event
        own = (event.session_id, event.invocation_id, event.run_id, event.turn_id)
        identity = identity or own
        if own != identity:
            raise FoldError(f"position {item.position} is a fact of another run")
        if is_terminal(event):
            if found is not None:
                raise FoldError(f"position {item.position}: a second terminal of run {event.run_id}")
            found = terminal_fact(event)
    return found
