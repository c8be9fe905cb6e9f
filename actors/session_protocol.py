"""PURE: one live session's admission. What a command becomes: a run's first append, a queued message, or a refusal.

Laws: one run at a time; a message to a busy session is durable before it is acknowledged, and is taken by the user
fact that names it; a run from the queue carries `refs.message_id` and no cause.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from actors import mapper
from actors.mapper import At, Who
from actors.request import Kit, build
from actors.run_types import Built, Plan, State, Wanted
from maka.contracts.actions import BoundaryChanged, MessageQueued
from maka.contracts.boundary import CarriedGrant
from maka.contracts.codec import canonical_json, drafts, hash_hex
from maka.contracts.commands import (
    BoundarySet,
    ChangeBoundary,
    CreateSession,
    MessageAccepted,
    SendMessage,
    SessionCreated,
    ShellKept,
)
from maka.contracts.content import BlobRef, InvocationOpened, RunConfiguration, RunLimits, SessionOpened
from maka.contracts.errors import LedgerDamagedError, LedgerError, Refusal, RefusalCode
from maka.contracts.events import Cause, Committed, RuntimeEvent
from maka.contracts.ids import CommandId, IdSource, InvocationId, MessageId, RunId, SessionId, TurnId, is_command_id
from maka.contracts.limits import PROMPT_CHARS_MAX, QUEUED_MESSAGES_MAX, TITLE_CHARS_MAX
from maka.contracts.ports import Append, Appended, CommandKey, Group, KnownCommand
from projections import model_history, run_state
from projections.boundary import BoundaryState
from projections.model_history import History
from projections.run_state import RunIdentity
from projections.session_index import Header
from projections.settlement import Ending, settle

CLOSED = Refusal(code=RefusalCode.SHUTTING_DOWN, message="the host is shutting down; try again later")


class Waiting(Struct, frozen=True, kw_only=True):
    """A message in the queue."""

    message_id: MessageId
    queued: MessageQueued


class Opening(Struct, frozen=True, kw_only=True):
    """A run to be started once its first append is durable. `state` is None where the run ends with that append."""

    who: Who
    events: tuple[RuntimeEvent, ...]
    append: Append
    plan: Plan | None
    message_id: MessageId | None


# -- commands -----------------------------------------------------------------------------------------------------


def command_hash(command: CreateSession | SendMessage | ChangeBoundary) -> str:
    """Return the hash that tells a repeated command from another one under the same id."""
    if isinstance(command, CreateSession):
        return hash_hex(canonical_json(["create_session", command.cwd, command.title, command.boundary]))
    if isinstance(command, ChangeBoundary):
        grants = msgspec.to_builtins(command.grants)
        what = [command.session_id, command.profile, grants, command.scope, command.revoked]
        return hash_hex(canonical_json(["change_boundary", *what]))
    limits = command.limits
    return hash_hex(
        canonical_json(
            [
                "send_message",
                command.session_id,
                command.text,
                command.profile,
                [limits.steps_max, limits.active_s_max, limits.tokens_max],
            ]
        )
    )


def key_of(command: CreateSession | SendMessage | ChangeBoundary) -> CommandKey:
    scope = "" if isinstance(command, CreateSession) else command.session_id
    return CommandKey(scope, command.command_id, command_hash(command))


def _cause(key: CommandKey) -> Cause:
    return Cause(command_id=key.command_id, command_hash=key.command_hash)


def check_known(known: KnownCommand, key: CommandKey) -> Refusal | None:
    """Refuse a command id that was used for something else."""
    if known.command_hash == key.command_hash:
        return None
    return Refusal(
        code=RefusalCode.COMMAND_CONFLICT,
        message=f"command id {key.command_id} was used for another command; use a new id",
    )


def check_create(command: CreateSession) -> Refusal | None:
    """Refuse what can't become a session."""
    if (refusal := _check_id(command.command_id)) is not None:
        return refusal
    if command.title is not None and len(command.title) > TITLE_CHARS_MAX:
        return invalid(f"a title has at most {TITLE_CHARS_MAX} characters; shorten it")
    return None


def check_message(command: SendMessage, header: Header, *, waiting: int) -> Refusal | None:
    """Refuse what can't become a message of this session now."""
    if (refusal := _check_id(command.command_id)) is not None:
        return refusal
    if not command.text.strip():
        return invalid("the prompt is empty; say what to do")
    if len(command.text) > PROMPT_CHARS_MAX:
        return invalid(f"the prompt has {len(command.text):,} characters, at most {PROMPT_CHARS_MAX:,} are taken")
    limits = (command.limits.steps_max, command.limits.active_s_max, command.limits.tokens_max)
    if not all(limit is None or limit > 0 for limit in limits):  # not-a-number is refused, too
        return invalid("a run's limits are above 0; leave out those that it shouldn't have")
    if header.archived:
        return Refusal(code=RefusalCode.SESSION_ARCHIVED, message=f"session #{header.number} is archived")
    if waiting >= QUEUED_MESSAGES_MAX:
        return Refusal(
            code=RefusalCode.QUEUE_FULL, message=f"{waiting} messages wait already; wait until some have been taken"
        )
    return None


def _check_id(command_id: CommandId) -> Refusal | None:
    if is_command_id(command_id):
        return None
    return invalid("a command id is 1 to 128 letters, digits and _.:- ; choose another")


def wait_closed() -> Refusal:
    words = "nobody waits for this answer here: it was answered before, its run has ended, or it is another session's"
    return Refusal(code=RefusalCode.WAIT_CLOSED, message=words)


def damaged(session_id: SessionId, why: str) -> Refusal:
    words = f"session {session_id} is damaged ({why}); `maka verify` shows where; no other is touched"
    return Refusal(code=RefusalCode.SESSION_DAMAGED, message=words)


def unreadable(session_id: SessionId, error: LedgerError) -> Refusal:
    """Say whether a session that can't be read is damaged, or only can't be read now."""
    if isinstance(error, LedgerDamagedError):
        return damaged(session_id, str(error))
    return Refusal(code=RefusalCode.NOT_READY, message=f"{error}; nothing was done, try again")


def unknown() -> Refusal:
    return Refusal(code=RefusalCode.UNKNOWN_SESSION, message="no such session; `maka sessions` lists them")


def invalid(message: str) -> Refusal:
    return Refusal(code=RefusalCode.INVALID_INPUT, message=message)


# -- appends ------------------------------------------------------------------------------------------------------


def open_session(
    session_id: SessionId, number: int, command: CreateSession, at: At, carried: tuple[CarriedGrant, ...]
) -> Append:
    """Return the append that makes a session. `carried` are grants to its workspace from earlier sessions."""
    key = key_of(command)
    content = SessionOpened(
        number=number,
        cwd=command.cwd,
        real_cwd=command.real_cwd,
        title=command.title,
        boundary=command.boundary.value,
        carried=carried,
    )
    event = mapper.session_opened(session_id, at, content, _cause(key))
    return Append(groups=(Group(InvocationId(session_id), 0, drafts([event])),), command=key)


def queue_message(command: SendMessage, control_seq: int, at: At) -> Append:
    """Return the append that queues a message."""
    key = key_of(command)
    queued = MessageQueued(text=command.text, profile=command.profile, limits=command.limits)
    event = mapper.message_queued(command.session_id, at, queued, _cause(key))
    return Append(groups=(Group(InvocationId(command.session_id), control_seq, drafts([event])),), command=key)


def change_boundary(command: ChangeBoundary, now: BoundaryState, control_seq: int, at: At) -> Append | Refusal:
    """Return the append that changes what a session may touch."""
    known = {grant.origin for grant in now.boundary.grants}
    if unknown := [origin for origin in command.revoked if origin not in known]:
        return invalid(f"there is no grant {unknown[0]}; `maka rules` lists those that hold")
    key = key_of(command)
    change = BoundaryChanged(
        profile=(command.profile or now.boundary.profile).value,
        revision=now.boundary.revision + 1,
        grants=command.grants,
        scope=command.scope,
        revoked=command.revoked,
        client=command.client,
    )
    event = mapper.boundary_changed(command.session_id, at, change, _cause(key))
    return Append(groups=(Group(InvocationId(command.session_id), control_seq, drafts([event])),), command=key)


class Admission(Struct, frozen=True, kw_only=True):
    """What a run is opened with."""

    header: Header
    history: History
    kit: Kit
    prompt: BlobRef
    tools: BlobRef
    limits: RunLimits
    now_ms: int
    now_s: float


def open_run(
    admission: Admission, text: str, ids: IdSource, *, key: CommandKey | None, message_id: MessageId | None
) -> Opening | Refusal:
    """Return a run's first append: opening, user message, request.

    A prompt that can't fit the window is refused; one that was queued is durable already, so its run is opened and
    ended in the same append.
    """
    run_id = ids()
    who = Who(
        session_id=admission.header.session_id,
        invocation_id=InvocationId(run_id),
        run_id=RunId(run_id),
        turn_id=TurnId(ids()),
    )
    cause, now_ms = None if key is None else _cause(key), admission.now_ms
    events = [
        mapper.opened(who, At(ids(), now_ms), _opened(admission), cause),
        mapper.user_text(who, At(ids(), now_ms), text, message_id=message_id, cause=cause),
    ]
    wanted, position = Wanted(step=1, attempt=1, history_seq=2), admission.history.position
    built = build(admission.kit, _ahead(admission.history, events), wanted, raise_through=position)
    plan: Plan | None = None
    if isinstance(built, Built):
        events.append(mapper.model_request(who, At(ids(), now_ms), built.action, cause))
        cwd, limits = admission.header.real_cwd, admission.limits
        plan = Plan(who=who, cwd=cwd, limits=limits, started_s=admission.now_s, body=built.body)
    elif message_id is None:
        return invalid("the prompt doesn't fit the model's window; shorten it or use a larger window")
    else:
        assert isinstance(built, Ending), "a raise was allowed"
        events += _ended_at_once(who, built, ids, now_ms)
    append = Append(groups=(Group(who.invocation_id, 0, drafts(events)),), command=key)
    return Opening(who=who, events=tuple(events), append=append, plan=plan, message_id=message_id)


def _opened(admission: Admission) -> InvocationOpened:
    configuration = RunConfiguration(
        cwd=admission.header.cwd,
        boundary_revision=admission.header.boundary_revision,
        limits=admission.limits,
        prompt=admission.prompt,
        tools=admission.tools,
        history_position=admission.history.position,
        context_window=admission.kit.context_window,
    )
    return InvocationOpened(route=admission.kit.route, configuration=configuration)


def _ahead(history: History, events: list[RuntimeEvent]) -> History:
    """Fold events that aren't durable yet, to build the request that is recorded with them."""
    for offset, event in enumerate(events, start=1):
        history = model_history.fold(history, Committed(position=history.position + 1, seq=offset, event=event))
    return history


def _ended_at_once(who: Who, ending: Ending, ids: IdSource, now_ms: int) -> tuple[RuntimeEvent, ...]:
    run = RunIdentity(
        session_id=who.session_id, invocation_id=who.invocation_id, run_id=who.run_id, turn_id=who.turn_id
    )
    return settle(run, ending=ending, ids=ids, now_ms=now_ms).events


def first_state(
    opening: Opening, result: Appended, history: History, seen: Mapping[str, str], boundary: BoundaryState
) -> State:
    """Return the state of a run whose first append is durable; `history` and `boundary` include it."""
    assert opening.plan is not None
    facts: run_state.RunState | None = None
    for event, (position, seq) in zip(opening.events, result.places, strict=True):
        facts = run_state.fold(facts, Committed(position=position, seq=seq, event=event))
    assert facts is not None
    return State(plan=opening.plan, facts=facts, history=history, seen=seen, boundary=boundary)


def outcome_of(item: Committed) -> SessionCreated | MessageAccepted | BoundarySet | ShellKept:
    """Read the stored outcome of a command from the first fact of its append."""
    event = item.event
    if event.actions is not None and (started := event.actions.process_started) is not None:
        assert started.shell_id is not None, "its session names it"
        return ShellKept(session_id=event.session_id, shell_id=started.shell_id, position=item.position)
    if event.actions is not None and (change := event.actions.boundary_changed) is not None:
        return BoundarySet(session_id=event.session_id, revision=change.revision, position=item.position)
    if isinstance(event.content, SessionOpened):
        return SessionCreated(session_id=event.session_id, number=event.content.number, position=item.position)
    queued = event.actions is not None and event.actions.message_queued is not None
    return MessageAccepted(
        session_id=event.session_id,
        position=item.position,
        turn_id=event.turn_id,
        run_id=event.run_id,
        message_id=MessageId(event.id) if queued else None,
    )
