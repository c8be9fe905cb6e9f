"""Facts and frames -> the SessionEvents of one reader. Pure: the reader holds the state and feeds it in order.

Facts may be given twice (a position not after the last is nothing new) and may begin in mid-run, where the reader
joined. Frames are transient: each is held until the run's facts through its `after_seq` were shown, then shown from
where the stream's shown text ends, so that repeated and overlapping frames show each character once. A frame that
comes after the final event of its stream, or after its step or run, is dropped: the fact has said it all.
Of the events that one fact maps to, only the last carries its position.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.content import FunctionResponse, Text, Thinking
from maka.contracts.events import Committed, is_terminal
from maka.contracts.ids import CallId, EventId, MessageId, RunId
from maka.contracts.session_events import Frame, SessionEvent, TextDelta, ThinkingDelta, ToolOutputDelta
from projections.boundary import profile_after
from projections.stream_facts import events_of, queue_event

Key = tuple[str, str]
"""A stream and the kind of its text: stdout and stderr of one call are two."""

_ENDED_KEPT = 8
_RUNS_MAX = 8
_HELD_MAX = 64
"""Streams and waits of one run that are held at once: 32 calls with two outputs each."""


class RunStream(Struct, frozen=True, kw_only=True):
    """What was shown of a live run. `final` and `shown` reach back to the newest request (`request_seq`) alone."""

    seq: int = 0
    request_seq: int = 0
    final: frozenset[str] = frozenset()
    shown: Mapping[Key, int] = {}
    held: tuple[Frame, ...] = ()


class StreamState(Struct, frozen=True, kw_only=True):
    """One reader of one session. `ended` are the newest runs whose terminal was shown.

    `boundary` is the session's profile, None where the reader began after the facts that name it.
    """

    position: int = 0
    runs: Mapping[RunId, RunStream] = {}
    ended: tuple[RunId, ...] = ()
    untaken: tuple[MessageId, ...] = ()
    boundary: str | None = None


Step = tuple[StreamState, tuple[SessionEvent, ...]]


def on_fact(state: StreamState, item: Committed) -> Step:
    """Show one fact, and the frames that waited for it."""
    if item.position <= state.position:
        return state, ()
    event = item.event
    untaken = _untaken(state, item)
    boundary = profile_after(state.boundary, event)
    events = list(events_of(event, boundary))
    if untaken != state.untaken:
        events.append(queue_event(event, len(untaken)))
    if events:
        events[-1] = replace(events[-1], position=item.position)
    state = replace(state, position=item.position, untaken=untaken, boundary=boundary)
    run_id = event.run_id
    if run_id is None:
        return state, tuple(events)
    if is_terminal(event):
        runs = {key: run for key, run in state.runs.items() if key != run_id}
        return replace(state, runs=runs, ended=(*state.ended, run_id)[-_ENDED_KEPT:]), tuple(events)
    run = _seen(state.runs.get(run_id, RunStream()), item)
    run, released = _release(run)
    return replace(state, runs={**state.runs, run_id: run}), (*events, *released)


def on_frame(state: StreamState, frame: Frame) -> Step:
    """Show what is new in one frame, or hold it until its facts were shown."""
    if frame.run_id in state.ended:
        return state, ()
    run = state.runs.get(frame.run_id, RunStream())
    events: tuple[SessionEvent, ...] = ()
    if frame.after_seq > run.seq:
        run = replace(run, held=_held(run.held, frame))
    else:
        run, events = _show(run, frame)
    return replace(state, runs=_bounded({**state.runs, frame.run_id: run})), events


def _bounded(runs: dict[RunId, RunStream]) -> dict[RunId, RunStream]:
    """Forget runs of which no fact ever came: late frames of a run that ended before the reader joined."""
    if len(runs) > _RUNS_MAX:
        del runs[next((run_id for run_id, run in runs.items() if run.seq == 0), next(iter(runs)))]
    return runs


def _untaken(state: StreamState, item: Committed) -> tuple[MessageId, ...]:
    event, gone = item.event, None
    if event.refs is not None and event.run_id is not None:
        gone = event.refs.message_id
    if event.actions is not None:
        if event.actions.message_queued is not None:
            return (*state.untaken, MessageId(event.id))
        if event.actions.message_retracted is not None:
            gone = event.actions.message_retracted.message_id
    return tuple(waiting for waiting in state.untaken if waiting != gone) if gone in state.untaken else state.untaken


def _seen(run: RunStream, item: Committed) -> RunStream:
    event = item.event
    run = replace(run, seq=item.seq)
    if event.partial:
        return run
    if event.actions is not None and event.actions.model_request is not None:
        # Every call of the step before has its response: whatever still comes of that step is stale.
        return replace(run, request_seq=item.seq, final=frozenset(), shown={})
    match event.content:
        case Text() | Thinking():
            return replace(run, final=run.final | {event.id})
        case FunctionResponse(call_id=call_id):
            return replace(run, final=run.final | {call_id})
        case _:
            return run


def _release(run: RunStream) -> tuple[RunStream, tuple[SessionEvent, ...]]:
    ready = [frame for frame in run.held if frame.after_seq <= run.seq]
    if not ready:
        return run, ()
    run = replace(run, held=tuple(frame for frame in run.held if frame.after_seq > run.seq))
    events: list[SessionEvent] = []
    for frame in ready:
        run, shown = _show(run, frame)
        events.extend(shown)
    return run, tuple(events)


def _held(held: tuple[Frame, ...], frame: Frame) -> tuple[Frame, ...]:
    """Add a frame to those that wait, joined to the one of its stream that it continues or repeats."""
    for index, other in enumerate(held):
        if (other.stream_id, other.kind) != (frame.stream_id, frame.kind):
            continue
        if frame.kind == "retry":
            return (*held[:index], *held[index + 1 :], frame)
        end = other.offset + len(other.text)
        if other.offset <= frame.offset <= end:
            joined = replace(
                other,
                text=other.text + frame.text[end - frame.offset :],
                after_seq=max(other.after_seq, frame.after_seq),
            )
            return (*held[:index], joined, *held[index + 1 :])
        if frame.offset <= other.offset and frame.offset + len(frame.text) >= end:
            return (*held[:index], frame, *held[index + 1 :])
    return (*held, frame)[-_HELD_MAX:]


def _show(run: RunStream, frame: Frame) -> tuple[RunStream, tuple[SessionEvent, ...]]:
    if frame.after_seq < run.request_seq or frame.stream_id in run.final:
        return run, ()
    if frame.kind == "retry":
        return run, () if frame.retry is None else (frame.retry,)
    key = (frame.stream_id, frame.kind)
    shown = run.shown.get(key, 0)
    end = frame.offset + len(frame.text)
    if end <= shown:
        return run, ()
    start = max(shown, frame.offset)
    event = _delta(frame, start, frame.text[start - frame.offset :])
    return replace(run, shown={**run.shown, key: end}), (event,)


def _delta(frame: Frame, offset: int, text: str) -> SessionEvent:
    session_id, run_id, turn_id = frame.session_id, frame.run_id, frame.turn_id
    match frame.kind:
        case "stdout" | "stderr":
            return ToolOutputDelta(
                session_id=session_id,
                run_id=run_id,
                turn_id=turn_id,
                call_id=CallId(frame.stream_id),
                stream=frame.kind,
                offset=offset,
                text=text,
            )
        case "text" | "thinking":
            shape = TextDelta if frame.kind == "text" else ThinkingDelta
            return shape(
                session_id=session_id,
                run_id=run_id,
                turn_id=turn_id,
                message_id=EventId(frame.stream_id),
                offset=offset,
                text=text,
            )
        case _:
            raise AssertionError(f"unknown kind of frame: {frame.kind!r}")
