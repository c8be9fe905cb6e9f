"""What a session waits for a person to say: each open request, with all that is needed to answer it.

A client that missed the moment finds it here; what is shown is what was asked, to the byte.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.actions import Actions, Question
from maka.contracts.boundary import Expansion
from maka.contracts.codec import CodecError
from maka.contracts.content import SessionOpened
from maka.contracts.errors import FoldError, LedgerDamagedError
from maka.contracts.events import Committed, RuntimeEvent, is_terminal
from maka.contracts.ids import CallId, EventId, RunId, SessionId
from maka.contracts.ports import LedgerReader
from projections import session_index
from projections.boundary import profile_after
from projections.log_order import check_next


class PendingWait(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One open request. `id` is what an answer names; `since_ts` is Unix ms. Either `expansion` or `questions`.

    `boundary` is the session's profile now, not when it was asked: what an answer lets go on has that one.
    """

    id: EventId
    session_id: SessionId
    session_number: int
    boundary: str
    run_id: RunId
    call_id: CallId
    position: int
    since_ts: int
    expansion: Expansion | None = None
    justification: str | None = None
    questions: tuple[Question, ...] = ()


class Inbox(Struct, frozen=True, kw_only=True):
    """A session's open requests as of a position, oldest first."""

    session_id: SessionId
    number: int
    boundary: str
    position: int
    waits: Mapping[EventId, PendingWait] = {}


class Closed(Struct, frozen=True, kw_only=True):
    """What became of a request: a decision with its scope, answers, or else the reason why nobody answered."""

    id: EventId
    position: int
    client: str | None = None
    decision: str | None = None
    scope: str | None = None
    answers: tuple[str | None, ...] | None = None
    reason: str | None = None


def fold(state: Inbox | None, item: Committed) -> Inbox:
    """Take in one fact of the session. Raises FoldError on a log that doesn't begin with session_opened."""
    event = item.event
    if state is None:
        if not isinstance(event.content, SessionOpened):
            raise FoldError(f"position {item.position}: a session begins with session_opened")
        return Inbox(
            session_id=event.session_id,
            number=event.content.number,
            boundary=event.content.boundary,
            position=item.position,
        )
    check_next(item, state.session_id, state.position)
    state = replace(state, position=item.position)
    boundary = profile_after(state.boundary, event)
    if boundary is not None and boundary != state.boundary:
        waits = {key: replace(wait, boundary=boundary) for key, wait in state.waits.items()}
        state = replace(state, boundary=boundary, waits=waits)
    if is_terminal(event):
        left = {key: wait for key, wait in state.waits.items() if wait.run_id != event.run_id}
        return replace(state, waits=left)
    asked = _asked(state, item)
    if asked is not None:
        return replace(state, waits={**state.waits, asked.id: asked})
    closed = _closed(event)
    return replace(state, waits={key: wait for key, wait in state.waits.items() if key != closed}) if closed else state


def project(items: Iterable[Committed], state: Inbox | None = None) -> Inbox | None:
    """Fold many facts of one session, in order of position."""
    for item in items:
        state = fold(state, item)
    return state


def pending(reader: LedgerReader) -> list[PendingWait]:
    """Return every open request of every session, oldest first. A damaged session hides none but its own."""
    waits: list[PendingWait] = []
    for data in reader.header_bytes():
        try:
            header = session_index.decode(data)
            state = project(reader.iter_session(header.session_id)) if header.waiting else None
        except (CodecError, FoldError, LedgerDamagedError):
            continue  # `maka sessions` and `maka verify` name it
        waits += () if state is None else state.waits.values()
    return sorted(waits, key=lambda wait: wait.position)


def closing(items: Iterable[Committed], ending: str) -> Closed | None:
    """Return what became of the request whose id ends so, by facts in order of position; None while it waits."""
    asked: EventId | None = None
    for item in items:
        actions = item.event.actions
        if actions is None:
            continue
        if _asks(actions) and item.event.id.endswith(ending):
            asked = item.event.id
        elif asked is not None and _closed(item.event) == asked:
            return _how(item, actions, asked)
    return None


def was_asked(items: Iterable[Committed], request_id: EventId) -> bool:
    """Say whether one of these facts is this request, open or closed."""
    return any(
        item.event.id == request_id and item.event.actions is not None and _asks(item.event.actions) for item in items
    )


def _asks(actions: Actions) -> bool:
    delta = actions.state_delta
    return actions.user_question_request is not None or (delta is not None and delta.boundary_request is not None)


def _how(item: Committed, actions: Actions, asked: EventId) -> Closed:
    position, delta = item.position, actions.state_delta
    if (given := actions.user_question_answer) is not None:
        return Closed(id=asked, position=position, client=given.client, answers=given.answers)
    assert delta is not None
    if (made := delta.boundary_decision) is not None:
        return Closed(id=asked, position=position, client=made.client, decision=made.decision, scope=made.scope)
    return Closed(id=asked, position=position, reason=delta.wait_closed_reason or "closed")


def _asked(state: Inbox, item: Committed) -> PendingWait | None:
    event, actions = item.event, item.event.actions
    if actions is None or event.run_id is None:
        return None
    boundary = actions.state_delta.boundary_request if actions.state_delta is not None else None
    asked = boundary or actions.user_question_request
    if asked is None:
        return None
    return PendingWait(
        id=EventId(event.id),
        session_id=state.session_id,
        session_number=state.number,
        boundary=state.boundary,
        run_id=event.run_id,
        call_id=asked.call_id,
        position=item.position,
        since_ts=event.ts,
        expansion=None if boundary is None else boundary.expansion,
        justification=None if boundary is None else boundary.justification,
        questions=() if actions.user_question_request is None else actions.user_question_request.questions,
    )


def _closed(event: RuntimeEvent) -> EventId | None:
    if event.actions is None:
        return None
    if event.actions.user_question_answer is not None:
        return event.actions.user_question_answer.request_id
    delta = event.actions.state_delta
    if delta is None:
        return None
    return delta.boundary_decision.request_id if delta.boundary_decision is not None else delta.wait_closed
