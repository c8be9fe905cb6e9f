"""The header of a session: what lists show and admission asks, folded inside the append's own transaction.

The state is the header itself, so a store keeps its bytes and folds on from them. Bounded: open runs, waits and
untaken messages are few, and nothing here grows with a session's length. Sequence numbers and pairing are the
append rules' business; what a header can see of a broken log (a foreign session, a position that doesn't grow, a
fact of a run that isn't open) raises FoldError.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.actions import Actions
from maka.contracts.codec import CodecError
from maka.contracts.content import InvocationOpened, SessionOpened, Text
from maka.contracts.errors import FoldError
from maka.contracts.events import Committed, Role, RuntimeEvent, Status, is_terminal
from maka.contracts.ids import EventId, MessageId, RunId, SessionId
from maka.contracts.limits import TITLE_CHARS_MAX


class SessionStatus(StrEnum):
    """What a session is doing, by its facts: waiting for a person, running, holding messages, or nothing."""

    IDLE = "idle"
    RUNNING = "running"
    WAITING = "waiting"
    QUEUED = "queued"


class Header(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One session at a glance. `created_ts` and `activity_ts` are Unix ms; `activity_ts` never steps back.

    `waiting` holds the ids of unanswered requests, `open_runs` the runs without a terminal, `title_given` says that
    a person or client chose the title. The `last_*` fields speak of the newest run; its status is None while it is
    open.
    """

    session_id: SessionId
    number: int
    title: str | None
    title_given: bool = False
    cwd: str
    real_cwd: str
    archived: bool = False
    boundary: str
    boundary_revision: int = 0
    status: SessionStatus = SessionStatus.IDLE
    profile: str | None = None
    model: str | None = None
    run_count: int = 0
    open_runs: tuple[RunId, ...] = ()
    last_run_id: RunId | None = None
    last_status: Status | None = None
    last_failure_class: str | None = None
    last_abort_source: str | None = None
    created_ts: int
    activity_ts: int
    position: int
    untaken: tuple[MessageId, ...] = ()
    waiting: tuple[EventId, ...] = ()


class Numbered(Struct, frozen=True, gc=False):
    """As much of a header as a start needs of each: the rest isn't decoded."""

    number: int


class Placed(Struct, frozen=True, gc=False, rename="camel"):
    """As much of a header as says which sessions a directory has, and whether their boundaries were ever changed."""

    session_id: SessionId
    number: int
    real_cwd: str
    position: int
    boundary_revision: int = 0


_placed = msgspec.json.Decoder(Placed)
_encoder = msgspec.json.Encoder()
_numbered = msgspec.json.Decoder(Numbered)
_decoder = msgspec.json.Decoder(Header)


def encode(header: Header) -> bytes:
    """Return a header's bytes: JSON with camelCase keys."""
    return _encoder.encode(header)


def decode(data: bytes | memoryview) -> Header:
    """Return the header of some bytes; raises CodecError where they are none: headers are rebuildable."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise CodecError(f"not a session header (maka verify --rebuild makes it anew): {error}") from None


def in_folder(headers: Iterable[bytes], real_cwd: str) -> tuple[Placed, ...]:
    """Return the sessions of a directory, the newest first. A header that can't be read is passed over."""
    found: list[Placed] = []
    for data in headers:
        try:
            placed = _placed.decode(data)
        except msgspec.MsgspecError:
            continue
        if placed.real_cwd == real_cwd:
            found.append(placed)
    return tuple(sorted(found, key=lambda placed: placed.number, reverse=True))


def number_of(data: bytes | memoryview) -> int:
    """Return the session's number in a header's bytes; raises CodecError where they are none."""
    try:
        return _numbered.decode(data).number
    except msgspec.MsgspecError as error:
        raise CodecError(f"not a session header (maka verify --rebuild makes it anew): {error}") from None


def project(items: Iterable[Committed], state: Header | None = None) -> Header | None:
    """Fold many facts of one session, in order of position."""
    for item in items:
        state = fold(state, item)
    return state


def fold(state: Header | None, item: Committed) -> Header:
    """Take in one fact. Raises FoldError on a log that breaks a rule."""
    event = item.event
    if state is None:
        return _open(item)
    if event.session_id != state.session_id:
        raise FoldError(f"position {item.position} belongs to session {event.session_id}, not {state.session_id}")
    if item.position <= state.position:
        raise FoldError(f"position {item.position} doesn't follow {state.position}")
    state = replace(state, position=item.position, activity_ts=max(state.activity_ts, event.ts))
    state = _control(state, item) if event.run_id is None else _run(state, event, event.run_id, item.position)
    status = _status(state)
    return state if status is state.status else replace(state, status=status)


def _open(item: Committed) -> Header:
    event, opened = item.event, item.event.content
    if not isinstance(opened, SessionOpened) or event.run_id is not None or item.seq != 1:
        raise FoldError(f"position {item.position}: a session begins with session_opened in its control stream")
    return Header(
        session_id=event.session_id,
        number=opened.number,
        title=bounded_title(opened.title) if opened.title else None,
        title_given=bool(opened.title),
        cwd=opened.cwd,
        real_cwd=opened.real_cwd,
        boundary=opened.boundary,
        created_ts=event.ts,
        activity_ts=event.ts,
        position=item.position,
    )


def _status(header: Header) -> SessionStatus:
    if header.waiting:
        return SessionStatus.WAITING
    if header.open_runs:
        return SessionStatus.RUNNING
    return SessionStatus.QUEUED if header.untaken else SessionStatus.IDLE


def _control(state: Header, item: Committed) -> Header:
    event = item.event
    if isinstance(event.content, SessionOpened):
        raise FoldError(f"position {item.position}: a session is opened once")
    actions = event.actions
    if actions is None:
        return state
    if actions.message_queued is not None:
        state = replace(state, untaken=(*state.untaken, MessageId(event.id)))
    if actions.message_retracted is not None:
        state = _take(state, actions.message_retracted.message_id, item.position)
    if (changed := actions.session_changed) is not None:
        title = state.title if changed.title is None else bounded_title(changed.title)
        given = state.title_given or changed.title is not None
        archived = state.archived if changed.archived is None else changed.archived
        state = replace(state, title=title, title_given=given, archived=archived)
    if (configured := actions.configuration_changed) is not None:
        profile, model = configured.profile or state.profile, configured.model or state.model
        state = replace(state, profile=profile, model=model)
    if (boundary := actions.boundary_changed) is not None:
        state = replace(state, boundary=boundary.profile, boundary_revision=state.boundary_revision + 1)
    return state


def _take(state: Header, message_id: MessageId, position: int) -> Header:
    if message_id not in state.untaken:
        raise FoldError(f"position {position}: message {message_id} isn't waiting")
    return replace(state, untaken=tuple(waiting for waiting in state.untaken if waiting != message_id))


def _run(state: Header, event: RuntimeEvent, run_id: RunId, position: int) -> Header:
    content = event.content
    if isinstance(content, InvocationOpened):
        return _run_opened(state, content, run_id, position)
    if run_id not in state.open_runs:
        raise FoldError(f"position {position}: run {run_id} isn't open")
    if event.role is Role.USER and isinstance(content, Text):
        if state.title is None and (title := bounded_title(content.text)):
            state = replace(state, title=title)
        if event.refs is not None and event.refs.message_id is not None:
            state = _take(state, event.refs.message_id, position)
    if event.actions is not None:
        state = _waits(state, event.id, event.actions)
    return _run_ended(state, event, run_id, position) if is_terminal(event) else state


def _run_opened(state: Header, content: InvocationOpened, run_id: RunId, position: int) -> Header:
    if run_id in state.open_runs:
        raise FoldError(f"position {position}: run {run_id} is open already")
    return replace(
        state,
        run_count=state.run_count + 1,
        open_runs=(*state.open_runs, run_id),
        profile=content.route.profile,
        model=content.route.model,
        last_run_id=run_id,
        last_status=None,
        last_failure_class=None,
        last_abort_source=None,
    )


def _waits(state: Header, event_id: EventId, actions: Actions) -> Header:
    opened = actions.user_question_request is not None
    closed: EventId | None = None
    if actions.user_question_answer is not None:
        closed = actions.user_question_answer.request_id
    if (delta := actions.state_delta) is not None:
        opened = opened or delta.boundary_request is not None
        if delta.boundary_decision is not None:
            closed = delta.boundary_decision.request_id
            allowed = delta.boundary_decision.decision == "allow"
            state = replace(state, boundary_revision=state.boundary_revision + allowed)
        closed = delta.wait_closed or closed
    if opened:
        state = replace(state, waiting=(*state.waiting, event_id))
    if closed is not None:
        state = replace(state, waiting=tuple(wait for wait in state.waiting if wait != closed))
    return state


def _run_ended(state: Header, event: RuntimeEvent, run_id: RunId, position: int) -> Header:
    open_runs = tuple(other for other in state.open_runs if other != run_id)
    if state.waiting and not open_runs:
        raise FoldError(f"position {position}: run {run_id} ended with unanswered requests")
    state = replace(state, open_runs=open_runs)
    if state.last_run_id != run_id:
        return state
    delta = event.actions.state_delta if event.actions is not None else None
    return replace(
        state,
        last_status=event.status,
        last_failure_class=delta.failure_class if delta is not None else None,
        last_abort_source=delta.abort_source if delta is not None else None,
    )


def bounded_title(text: str) -> str:
    """Return the first line of a text that isn't blank, without control characters, within the title's bound."""
    line = next((line for line in text.splitlines() if line.strip()), "").strip()
    clean = "".join(character if character.isprintable() else " " for character in line)
    return clean if len(clean) <= TITLE_CHARS_MAX else clean[: TITLE_CHARS_MAX - 1] + "…"
