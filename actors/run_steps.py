"""PURE: the loop of a run that nobody has ended. Deltas, the end of a step, dispatches, answers, the next request."""

from typing import assert_never

from msgspec.structs import replace

from actors import mapper, too_long
from actors.mapper import At
from actors.run_effects import AckBatch, Arm, SendRequest, ShowFrame, StorePartial
from actors.run_ending import active_ms, append, claim, complete
from actors.run_types import Built, Deciding, NextRequest, Purpose, Stream, Wanted, failure
from actors.verdicts import Answered, Cancelled, Overflow, Retry, StepFailed, ToolsWanted, Verdict
from maka.contracts.content import Text, Thinking
from maka.contracts.errors import FailureClass
from maka.contracts.events import RuntimeEvent, Status
from maka.contracts.ids import CallId, EventId
from maka.contracts.limits import (
    ANSWER_CHARS_MAX,
    PARTIAL_CHUNK_BYTES_MAX,
    PARTIAL_EVERY_S,
    RETRY_TRIES_MAX,
    STEP_CALLS_MAX,
)
from maka.contracts.model_ports import DeltaBatch, UsageReport
from maka.contracts.ports import PutPartial
from maka.contracts.session_events import Frame, ProviderRetry
from projections.settlement import Ending

PARTIAL_CHARS = PARTIAL_CHUNK_BYTES_MAX // 4
"""A character takes at most four bytes."""
TOO_LONG = (
    f"the model's answer went on for more than {ANSWER_CHARS_MAX:,} characters and was ended; the record keeps what "
    "came"
)


# -- streaming ----------------------------------------------------------------------------------------------------


def deltas(d: Deciding, generation: int, batch: DeltaBatch) -> None:
    """Show what came, keep it in memory, and see to it that it is stored before long."""
    for kind, words in batch.pieces:
        stream = next((s for s in d.state.streams if s.kind == kind), None)
        if stream is None:
            stream = Stream(id=EventId(d.env.ids()), kind=kind)
        d.do(ShowFrame(_frame(d, stream.id, kind, stream.chars, words)))
        grown = replace(
            stream,
            pieces=stream.pieces.append(words),
            chars=stream.chars + len(words),
            fresh=(*stream.fresh, words),
        )
        others = tuple(s for s in d.state.streams if s.kind != kind)
        d.set(streams=(*others, grown))
    if sum(stream.chars for stream in d.state.streams) > ANSWER_CHARS_MAX:
        claim(d, failure(FailureClass.ANSWER_TOO_LONG.value, TOO_LONG))
        return
    if not d.state.partial_armed:
        d.set(partial_armed=True)
        d.do(Arm("partial", PARTIAL_EVERY_S))
    d.do(AckBatch(generation))


def _frame(d: Deciding, stream_id: str, kind: str, offset: int, words: str) -> Frame:
    return Frame(
        session_id=d.who.session_id,
        run_id=d.who.run_id,
        turn_id=d.who.turn_id,
        stream_id=stream_id,
        kind=kind,
        offset=offset,
        text=words,
        after_seq=d.state.facts.seq,
    )


def store_partials(d: Deciding) -> None:
    """Tell the ledger what came since the last time."""
    kept: list[Stream] = []
    for stream in d.state.streams:
        fresh = "".join(stream.fresh)  # never the whole text: it would be copied five times a second
        stored = stream.chars - len(fresh)
        for start in range(0, len(fresh), PARTIAL_CHARS):
            partial = PutPartial(
                session_id=d.who.session_id,
                invocation_id=d.who.invocation_id,
                stream_id=stream.id,
                kind=stream.kind,
                generation=d.state.generation,
                offset=stored + start,
                text=fresh[start : start + PARTIAL_CHARS],
            )
            d.do(StorePartial(partial))
        kept.append(replace(stream, fresh=()))
    d.set(streams=tuple(kept), partial_armed=False)


def tool_output(d: Deciding, call_id: CallId, stream: str, words: str) -> None:
    """Show a tool's live output."""
    offset = d.state.outputs.get((call_id, stream), 0)
    d.do(ShowFrame(_frame(d, call_id, stream, offset, words)))
    d.set(outputs={**d.state.outputs, (call_id, stream): offset + len(words)})


# -- the end of a request -----------------------------------------------------------------------------------------


def step_ended(d: Deciding, verdict: Verdict) -> None:
    """Act on what the request came to."""
    match verdict:
        case ToolsWanted():
            _tools_wanted(d, verdict)
        case Answered():
            _answered(d, verdict)
        case Retry():
            _wait_to_retry(d, verdict)
        case Overflow():
            d.set(streams=())
            _request(d, rise=True)
        case StepFailed():
            extras = () if verdict.usage is None else (_usage(d, verdict.usage, verdict.finish_reason),)
            words = failure(verdict.failure_class, verdict.message, http_status=verdict.http_status, code=verdict.code)
            claim(d, words, *extras)
        case Cancelled():
            message = "the model's stream ended without a verdict; send the message again"
            claim(d, failure(FailureClass.MISSING_TERMINAL_EVENT.value, message))
        case _:
            assert_never(verdict)


def _said(d: Deciding, signature: str | None, provider_id: str | None) -> tuple[list[RuntimeEvent], tuple[bytes, ...]]:
    """Return the final events of the step's streams, thinking before text, and the values that they name."""
    events: list[RuntimeEvent] = []
    blobs: tuple[bytes, ...] = ()
    for stream in sorted(d.state.streams, key=lambda s: s.kind == "text"):
        at, step = At(stream.id, d.env.now_ms), d.state.step
        words, whole, more = too_long.words(stream.text)
        blobs += more
        if stream.kind == "thinking":
            thought = Thinking(text=words, signature=signature, whole=whole)
            events.append(mapper.thinking(d.who, at, thought, step=step))
        elif words:
            said = Text(text=words, whole=whole)
            events.append(mapper.text(d.who, at, said, step=step, provider_id=provider_id))
    return events, blobs


def _usage(d: Deciding, report: UsageReport, finish_reason: str | None) -> RuntimeEvent:
    return mapper.usage(d.who, d.at(), report, step=d.state.step, finish_reason=finish_reason)


def _tools_wanted(d: Deciding, verdict: ToolsWanted) -> None:
    events, blobs = _said(d, verdict.signature, verdict.provider_id)
    if verdict.usage is not None:
        events.append(_usage(d, verdict.usage, verdict.finish_reason))
    events += [mapper.call(d.who, d.at(), asked, step=d.state.step) for asked in verdict.calls[:STEP_CALLS_MAX]]
    dropped = len(verdict.calls) - STEP_CALLS_MAX
    if dropped > 0:
        words = f"the model asked for {dropped} calls more than the {STEP_CALLS_MAX} that one step may have"
        events.append(mapper.notice(d.who, d.at(), "calls_dropped", words))
    append(d, Purpose.STEP, tuple(events), blobs=blobs)


def _answered(d: Deciding, verdict: Answered) -> None:
    """The last step: its text, its usage and the terminal are one append, and the claim is taken with it."""
    stop_reason = "max_tokens" if verdict.finish_reason == "length" else "end_turn"
    events, blobs = _said(d, verdict.signature, verdict.provider_id)
    if verdict.usage is not None:
        events.append(_usage(d, verdict.usage, verdict.finish_reason))
    duration_ms, steps = active_ms(d), d.state.step
    events.append(mapper.completed(d.who, d.at(), stop_reason=stop_reason, steps=steps, duration_ms=duration_ms))
    complete(d, Ending(status=Status.COMPLETED, stop_reason=stop_reason), tuple(events), blobs)


def _wait_to_retry(d: Deciding, verdict: Retry) -> None:
    d.set(streams=(), waiting_retry=True)
    d.do(Arm("retry", verdict.delay_s), ShowFrame(_retry_frame(d, "scheduled", verdict.delay_s, verdict.error.message)))


def _retry_frame(d: Deciding, phase: str, delay_s: float, reason: str) -> Frame:
    shown = ProviderRetry(
        session_id=d.who.session_id,
        run_id=d.who.run_id,
        turn_id=d.who.turn_id,
        phase=phase,
        attempt=d.state.tries + 1,
        attempts_max=RETRY_TRIES_MAX,
        delay_ms=round(1000 * delay_s),
        reason=reason,
    )
    return replace(_frame(d, "retry", "retry", 0, ""), retry=shown)


def retry_due(d: Deciding) -> None:
    """The wait is over: record another try of the same request, then send it."""
    if not d.state.waiting_retry:
        return
    d.set(waiting_retry=False)
    d.do(ShowFrame(_retry_frame(d, "started", 0.0, "")))
    _request(d, rise=False)


def _request(d: Deciding, *, rise: bool) -> None:
    """Record a further request of this step: a retry's, or one with a higher level."""
    state = d.state
    wanted = Wanted(step=state.step, attempt=state.attempt + 1, history_seq=state.facts.seq, active_ms=active_ms(d))
    built = d.env.build(state.history, wanted, raise_through=state.history.position, rise=rise)
    if isinstance(built, Ending):
        claim(d, built)
        return
    assert isinstance(built, Built), "a raise was allowed"
    event = mapper.model_request(d.who, d.at(), built.action)
    tries = 1 if rise else state.tries + 1
    request = NextRequest(step=state.step, attempt=wanted.attempt, tries=tries, body=built.body)
    append(d, Purpose.REQUEST, (event,), request=request)


def send(d: Deciding, request: NextRequest) -> None:
    """The request is durable: send its bytes as they are."""
    generation = d.state.generation + 1
    d.set(
        step=request.step,
        attempt=request.attempt,
        tries=request.tries,
        body=request.body,
        generation=generation,
        streams=(),
        work=(),
        outputs={},
    )
    d.do(SendRequest(generation, request.body, request.tries))
