"""PURE: how a run ends. Claim, settle, append, drain.

Laws: the first message handled that ends the run takes the claim, and nothing replaces it (but the failure to store
a completed ending); effects are cancelled at once; the settlement is decided after the answer to the append in
flight and after ToolEnded of every started call, or when the wait for them is over; what can't be appended now is
tried again, with the same claim.
"""

from msgspec.structs import replace

from actors import mapper
from actors.run_effects import AnswerStops, AppendEvents, Arm, CancelRequest, Disarm, Finish, StopTool
from actors.run_types import Claim, Deciding, InFlight, NextRequest, Purpose, Stream, Work
from maka.contracts.commands import AnswerTaken, StoppedCall, StopReceipt
from maka.contracts.content import FunctionResponse
from maka.contracts.errors import Refusal
from maka.contracts.events import Refs, RuntimeEvent, Status
from maka.contracts.ids import CallId
from maka.contracts.limits import LEDGER_RETRY_FIRST_S, LEDGER_RETRY_MAX_S, SETTLE_WAIT_S
from projections.settlement import Ending, KnownResult, Unfinished, settle

TIMERS = ("retry", "deadline", "partial")


def active_ms(d: Deciding) -> int:
    """Return how long the run has been active, on the monotonic clock; parked time doesn't count."""
    return max(0, round(1000 * (d.env.now_s - d.state.plan.started_s)))


def append(
    d: Deciding,
    purpose: Purpose,
    events: tuple[RuntimeEvent, ...],
    *,
    blobs: tuple[bytes, ...] = (),
    request: NextRequest | None = None,
    work: tuple[Work, ...] = (),
    token: int = 0,
    call_id: CallId | None = None,
    reply: tuple[object, AnswerTaken] | None = None,
) -> None:
    """Send an append; the next data message is handled after its answer."""
    assert d.state.in_flight is None, "one append at a time"
    tag = d.state.tags + 1
    flight = InFlight(
        tag=tag,
        purpose=purpose,
        events=events,
        request=request,
        work=work,
        token=token,
        call_id=call_id,
        reply=reply,
    )
    d.set(tags=tag, in_flight=flight)
    settlement = purpose is Purpose.SETTLE
    seq = d.state.facts.seq
    d.do(AppendEvents(tag=tag, expected_seq=seq, events=events, blobs=blobs, settlement=settlement))


def claim(d: Deciding, ending: Ending, *extras: RuntimeEvent) -> None:
    """Take the run's ending, if nobody has, and cancel everything that runs."""
    if d.state.claim is not None:
        return
    d.set(claim=Claim(ending=ending, was=describe(d), extras=extras))
    cancel_effects(d)
    try_settle(d)


def complete(d: Deciding, ending: Ending, events: tuple[RuntimeEvent, ...], blobs: tuple[bytes, ...] = ()) -> None:
    """Take the claim of a run whose last step has finished, and append its last facts.

    Nothing runs any more, so nothing is cancelled, and the facts are whole, so nothing is settled in short form.
    """
    assert d.state.claim is None, "the first claim stands"
    d.set(claim=Claim(ending=ending, was=describe(d), final=events, blobs=blobs))
    d.do(*(Disarm(kind) for kind in TIMERS))
    append(d, Purpose.FINAL, events, blobs=blobs)


def cancel_effects(d: Deciding) -> None:
    """Cancel the request and every started tool; their ends are still taken. Nobody waits for a look."""
    d.do(CancelRequest(d.state.generation), *(Disarm(kind) for kind in TIMERS))
    d.do(*(StopTool(call_id) for call_id in sorted(d.state.looking)))
    running = waiting_for(d)
    d.do(*(StopTool(work.call_id) for work in running))
    if running:
        d.do(Arm("settle", SETTLE_WAIT_S))
    d.set(waiting_retry=False)


def waiting_for(d: Deciding) -> tuple[Work, ...]:
    """Return the started calls whose end hasn't come."""
    return tuple(work for work in d.state.work if work.started and work.answer is None)


def describe(d: Deciding) -> str:
    """Say in a word what the run is doing."""
    state = d.state
    if state.plan.undo is not None:
        return "undoing"
    if state.waiting_retry:
        return "waiting to retry"
    if state.gated:
        return "running tools"
    if state.work:
        waits = all(work.wait_id is not None for work in state.work)
        return "waiting for a person" if waits else "running tools"
    return "streaming" if state.streams else "asking the model"


def try_settle(d: Deciding) -> None:
    """Append the settlement if its time has come."""
    state = d.state
    if state.claim is None or state.ended or state.in_flight is not None:
        return
    if waiting_for(d) and not state.claim.forced:
        return
    if state.claim.final:
        append(d, Purpose.FINAL, state.claim.final, blobs=state.claim.blobs)
        return
    finished = state.claim.ending
    settled = settle(
        state.facts.run,
        calls=state.facts.calls,
        waits=state.facts.waits,
        streams=tuple(_unfinished(stream, state.step) for stream in state.streams),
        results=tuple(known for work in state.work if (known := _known(d, work)) is not None),
        ending=replace(finished, steps=state.step, duration_ms=active_ms(d)),
        ids=d.env.ids,
        now_ms=d.env.now_ms,
    )
    *body, terminal = settled.events
    events = (*body, *state.claim.extras, terminal)
    carried = tuple(blob for work in state.work if work.answer is not None for blob in work.answer.blobs)
    append(d, Purpose.SETTLE, events, blobs=(*settled.blobs, *carried))


def _unfinished(stream: Stream, step: int) -> Unfinished:
    return Unfinished(stream_id=stream.id, kind=stream.kind, text=stream.text, refs=Refs(step_id=str(step)))


def _known(d: Deciding, work: Work) -> KnownResult | None:
    """Return the true result of an open call: what its tool said, or that a dispatched one was never started."""
    open_call = next((call for call in d.state.facts.calls if call.call_id == work.call_id), None)
    if open_call is None:
        return None
    if work.answer is not None:
        response = mapper.response_content(work.call_id, work.name, work.answer)
        answer = work.answer
        return KnownResult(
            response=response,
            file_seen=answer.seen,
            workspace_changed=answer.workspace,
            artifacts=answer.artifacts,
        )
    if open_call.dispatched and not work.started:
        return KnownResult(response=mapper.never_started(work.call_id, work.name))
    return None


def sealed(d: Deciding, flight: InFlight, position: int) -> None:
    """The terminal is durable: answer the stops, and end."""
    state = d.state
    assert state.claim is not None
    ending = state.claim.ending
    calls = tuple(
        StoppedCall(call_id=event.content.call_id, name=event.content.name, outcome=event.content.outcome.value)
        for event in flight.events
        if isinstance(event.content, FunctionResponse)
    )
    receipt = StopReceipt(
        session_id=d.who.session_id,
        run_id=d.who.run_id,
        status=ending.status.value,
        abort_source=ending.abort_source,
        was=state.claim.was,
        calls=calls,
        position=position,
    )
    d.set(ended=True, receipt=receipt)
    d.do(Disarm("settle"), Disarm("settle_retry"), AnswerStops(receipt), Finish(position))


def force(d: Deciding) -> None:
    """The wait for the tools is over: settle with what is known."""
    if d.state.claim is not None:
        d.set(claim=replace(d.state.claim, forced=True))
        try_settle(d)


def claim_waiting(d: Deciding, ending: Ending) -> None:
    """Take the ending, if nobody has, without settling now: the ledger has just refused."""
    if d.state.claim is None:
        d.set(claim=Claim(ending=ending, was=describe(d)))
        cancel_effects(d)


def replace_claim(d: Deciding, ending: Ending) -> None:
    """End with this instead: an ending that is too large to be stored is none. A stop's stays a stop."""
    if d.state.claim is not None and d.state.claim.ending.status is Status.COMPLETED:
        d.set(claim=None)
    claim(d, ending)
    try_settle(d)


def cannot_store(d: Deciding, refusal: Refusal) -> None:
    """The ending couldn't be stored: say so to the stops that wait, keep the claim, try again later."""
    claim_ = d.state.claim
    assert claim_ is not None
    retry_s = min(2 * claim_.retry_s, LEDGER_RETRY_MAX_S) if claim_.retry_s else LEDGER_RETRY_FIRST_S
    d.set(claim=replace(claim_, retry_s=retry_s))
    d.do(AnswerStops(refusal), Arm("settle_retry", retry_s))
