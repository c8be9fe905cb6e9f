"""The state of a session as of one fact: what the model had seen, which calls were open, what the session was doing."""

from collections.abc import Iterable

from msgspec import Struct

from maka.contracts.errors import FoldError
from maka.contracts.events import Committed
from maka.contracts.ids import CallId, InvocationId, RunId
from maka.contracts.model_ports import ChatMessage
from projections import model_history, run_state, session_index


class OpenCallLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """A call without its response; a dispatched one may have had effects."""

    call_id: CallId
    name: str
    dispatched: bool


class RunLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """A run that was open."""

    run_id: RunId
    phase: str
    step: int
    calls: tuple[OpenCallLine, ...]


class SeenCall(Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    arguments: str


class SeenMessage(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One message of the history that a model would be sent."""

    role: str
    text: str | None = None
    reasoning: str | None = None
    calls: tuple[SeenCall, ...] = ()


class Moment(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="state"):
    """A session as of a position, its profile (`boundary`), too.

    `messages` are those of the newest request to a model that was durable by then.
    """

    position: int
    session_id: str
    status: str
    boundary: str
    run_count: int
    last_status: str | None
    queued: int
    window_level: int
    open_runs: tuple[RunLine, ...]
    messages: tuple[SeenMessage, ...]


def moment_of(items: Iterable[Committed]) -> Moment:
    """Fold a session's facts, in order of position, into its state after the last of them."""
    header: session_index.Header | None = None
    history: model_history.History | None = None
    seen: model_history.History | None = None
    runs: dict[InvocationId, run_state.RunState] = {}
    for item in items:
        header = session_index.fold(header, item)
        history = model_history.fold(history, item)
        if item.event.actions is not None and item.event.actions.model_request is not None:
            seen = history
        if item.event.run_id is not None:
            key = item.event.invocation_id
            runs[key] = run_state.fold(runs.get(key), item)
    if header is None:
        raise FoldError("the session has no fact through that position")
    return Moment(
        position=header.position,
        session_id=header.session_id,
        status=header.status,
        boundary=header.boundary,
        run_count=header.run_count,
        last_status=header.last_status,
        queued=len(header.untaken),
        window_level=0 if seen is None else seen.window.level,
        open_runs=tuple(_run_line(run) for run in runs.values() if run.terminal is None),
        messages=_messages(seen),
    )


def _messages(history: model_history.History | None) -> tuple[SeenMessage, ...]:
    if history is None:
        return ()
    window = history.window
    rendered = model_history.render(
        history,
        level=window.level,
        through_position=window.through_position,
        keeps_reasoning=False,
        open_calls="leave_out",
    )
    return tuple(_seen(message) for message in rendered.messages)


def _run_line(run: run_state.RunState) -> RunLine:
    calls = tuple(OpenCallLine(call_id=call.call_id, name=call.name, dispatched=call.dispatched) for call in run.calls)
    return RunLine(run_id=run.run.run_id, phase=run.phase, step=run.steps, calls=calls)


def _seen(message: ChatMessage) -> SeenMessage:
    calls = tuple(SeenCall(name=call.name, arguments=call.arguments) for call in message.calls)
    return SeenMessage(role=message.role, text=message.text, reasoning=message.reasoning, calls=calls)
