"""What a dead owner's run is closed with. First match wins; a run that has ended, or stays parked, gets nothing.

Pure: it calls no model and runs no tool. Applied twice it adds nothing, since its own terminal ends the run. A log
that breaks a rule raises FoldError: that session is fenced, not guessed about.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from maka.contracts.actions import Actions, ProcessEnded, Recovery
from maka.contracts.content import Error
from maka.contracts.errors import FailureClass, FoldError
from maka.contracts.events import Author, Committed, ModelVisibility, Role, RuntimeEvent, Status
from maka.contracts.ids import EventId, IdSource
from maka.contracts.ports import Partial
from projections import background
from projections.run_state import Phase, RunState, project
from projections.settlement import Ending, Unfinished, settle

ORPHANS_ENDED = "orphans_ended"
Reason = Literal["app_restarted", "actor_crashed"]

_MESSAGES = {
    FailureClass.APP_RESTARTED: "Maka was restarted while this run was under way.",
    FailureClass.ACTOR_CRASHED: "A part of Maka crashed while this run was under way.",
    FailureClass.INTERRUPTED_TOOL: "Maka ended while a tool ran: what it has done is unknown.",
}


class Verdict(Struct, frozen=True, kw_only=True):
    """What to append (nothing for `already_ended` and `parked`), and the values that it names, of any size."""

    name: str
    keep_parked: bool = False
    events: tuple[RuntimeEvent, ...] = ()
    blobs: tuple[bytes, ...] = ()


def verdict(
    events: Sequence[Committed],
    partials: Sequence[Partial],
    *,
    reason: Reason,
    ids: IdSource,
    now_ms: int,
    waits_keep: bool = False,
) -> Verdict:
    """Decide how one run, given whole and in order, is closed after its owner died.

    Of a control stream only the background processes are: what is left of them is killed before this. `waits_keep`
    leaves a run parked that waits for nothing but a person. Raises FoldError on a broken log.
    """
    if events and events[0].event.run_id is None:
        return _orphans(events, ids, now_ms)
    state = project(events)
    if state is None:
        raise FoldError("a run without facts can't be closed")
    if state.phase is Phase.ENDED:
        return Verdict(name="already_ended")
    name, failure = _choose(state, FailureClass(reason))
    if state.phase is Phase.PARKED and waits_keep:
        return Verdict(name="parked", keep_parked=True)
    settled = settle(
        state.run,
        calls=state.calls,
        waits=state.waits,
        streams=_unfinished(events, partials),
        ending=Ending(
            status=Status.FAILED,
            failure_class=failure,
            error=Error(message=_MESSAGES[failure], code=failure),
            steps=state.steps,
            # Until its last fact: the time in which nobody ran it isn't its own. Clocks step back, durations don't.
            duration_ms=max(0, state.last_ts - state.started_ts),
            recovery=Recovery(reason=reason, verdict=name),
        ),
        ids=ids,
        now_ms=now_ms,
    )
    return Verdict(name=name, events=settled.events, blobs=settled.blobs)


def _orphans(events: Sequence[Committed], ids: IdSource, now_ms: int) -> Verdict:
    state, first = background.project(events), events[0].event
    assert state is not None, "there are facts"
    ends = tuple(
        RuntimeEvent(
            id=EventId(ids()),
            session_id=first.session_id,
            invocation_id=first.invocation_id,
            ts=now_ms,
            role=Role.SYSTEM,
            author=Author.HOST,
            model_visibility=ModelVisibility.HIDDEN,
            actions=Actions(
                process_ended=ProcessEnded(
                    call_id=shell.call_id, process=shell.process, how="orphaned", shell_id=shell.shell_id
                )
            ),
        )
        for shell in state.live.values()
    )
    return Verdict(name=ORPHANS_ENDED, events=ends)


def _choose(state: RunState, reason: FailureClass) -> tuple[str, FailureClass]:
    if any(call.dispatched for call in state.calls):
        return "interrupted_tool", FailureClass.INTERRUPTED_TOOL
    if any(call.wait_id is None for call in state.calls):
        return "call_not_started", reason
    if state.phase is Phase.PARKED:
        return "waits_closed", reason
    return ("request_interrupted" if state.asking else "run_interrupted"), reason


def _unfinished(events: Sequence[Committed], partials: Sequence[Partial]) -> list[Unfinished]:
    final: set[EventId] = {item.event.id for item in events}
    streams = [
        Unfinished(stream_id=partial.stream_id, kind=partial.kind, text=partial.text)
        for partial in partials
        if partial.stream_id not in final
    ]
    # Thinking comes before the text that follows from it; ids grow in the order of minting.
    return sorted(streams, key=lambda stream: stream.stream_id)
