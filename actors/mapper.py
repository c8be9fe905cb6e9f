"""PURE: provider and tool facts -> RuntimeEvents. The vocabulary bridge; it owns no lifecycle."""

from typing import Any

from msgspec import Struct

from actors import too_long
from actors.verdicts import ToolAnswer
from maka.contracts.actions import (
    Actions,
    BoundaryChanged,
    MessageQueued,
    ModelRequest,
    ProcessEnded,
    ProcessStarted,
    StateDelta,
    TokenUsage,
    ToolDispatch,
)
from maka.contracts.codec import canonical_json
from maka.contracts.content import (
    Content,
    FunctionCall,
    FunctionResponse,
    InvocationOpened,
    Outcome,
    SessionOpened,
    SystemNote,
    Text,
    Thinking,
)
from maka.contracts.events import Author, Cause, ModelVisibility, Origin, Refs, Role, RuntimeEvent, Status
from maka.contracts.ids import CallId, EventId, InvocationId, MessageId, RunId, SessionId, TurnId
from maka.contracts.limits import CALL_FACT_BYTES_MAX
from maka.contracts.model_ports import AssembledCall, UsageReport
from projections.shorten import head_and_tail

MALFORMED_CHARS_MAX = 4_000


class Who(Struct, frozen=True, kw_only=True):
    """The identity that a run's facts carry."""

    session_id: SessionId
    invocation_id: InvocationId
    turn_id: TurnId
    run_id: RunId


class At(Struct, frozen=True):
    """An event's own id and its time (Unix ms)."""

    id: str
    ts: int


def _run_event(
    who: Who, at: At, role: Role, author: Author, content: Content | None = None, **more: Any
) -> RuntimeEvent:
    return RuntimeEvent(
        id=EventId(at.id),
        session_id=who.session_id,
        invocation_id=who.invocation_id,
        turn_id=who.turn_id,
        run_id=who.run_id,
        ts=at.ts,
        role=role,
        author=author,
        content=content,
        **more,
    )


def _system(who: Who, at: At, content: Content | None = None, **more: Any) -> RuntimeEvent:
    hidden = ModelVisibility.HIDDEN
    return _run_event(who, at, Role.SYSTEM, Author.SYSTEM, content, model_visibility=hidden, **more)


# -- a run's first append -----------------------------------------------------------------------------------------


def opened(who: Who, at: At, content: InvocationOpened, cause: Cause | None) -> RuntimeEvent:
    return _system(who, at, content, cause=cause)


def user_text(who: Who, at: At, text: str, *, message_id: MessageId | None, cause: Cause | None) -> RuntimeEvent:
    refs = None if message_id is None else Refs(message_id=message_id)
    return _run_event(who, at, Role.USER, Author.USER, Text(text=text), refs=refs, cause=cause)


def model_request(who: Who, at: At, request: ModelRequest, cause: Cause | None = None) -> RuntimeEvent:
    return _system(who, at, actions=Actions(model_request=request), cause=cause)


# -- a step -------------------------------------------------------------------------------------------------------


def text(who: Who, at: At, content: Text, *, step: int, provider_id: str | None) -> RuntimeEvent:
    refs = Refs(step_id=str(step), provider_event_id=_id(provider_id))
    return _run_event(who, at, Role.MODEL, Author.AGENT, content, refs=refs, origin=Origin.PROVIDER)


def thinking(who: Who, at: At, content: Thinking, *, step: int) -> RuntimeEvent:
    refs = Refs(step_id=str(step))
    return _run_event(who, at, Role.MODEL, Author.AGENT, content, refs=refs, origin=Origin.PROVIDER)


def call(who: Who, at: At, asked: AssembledCall, *, step: int) -> RuntimeEvent:
    """Return a call as a fact that the ledger takes, however long its name, its id and its arguments are."""
    args, malformed, size_bytes = asked.args, None, asked.too_long
    if args is not None and len(given := canonical_json(args)) > CALL_FACT_BYTES_MAX:
        args, size_bytes = None, len(given)
    if size_bytes is not None:
        malformed = too_long.arguments(asked.raw, size_bytes)
    elif args is None:
        malformed = head_and_tail(asked.raw, MALFORMED_CHARS_MAX)
    content = FunctionCall(name=too_long.name(asked.name), args=args or {}, malformed=malformed, cut=asked.cut)
    refs = Refs(step_id=str(step), tool_call_id=_id(asked.provider_id))
    return _run_event(who, at, Role.MODEL, Author.AGENT, content, refs=refs, origin=Origin.PROVIDER)


def _id(given: str | None) -> str | None:
    return None if given is None else too_long.name(given)


def usage(who: Who, at: At, report: UsageReport, *, step: int, finish_reason: str | None) -> RuntimeEvent:
    tokens = TokenUsage(
        step=step,
        input=report.input,
        output=report.output,
        cached_input=report.cached_input,
        reasoning=report.reasoning,
        total=report.total,
        finish_reason=_id(finish_reason),
    )
    return _system(who, at, actions=Actions(token_usage=tokens))


# -- tools --------------------------------------------------------------------------------------------------------


def dispatch(who: Who, at: At, what: ToolDispatch) -> RuntimeEvent:
    return _system(who, at, actions=Actions(tool_dispatch=what), refs=Refs(operation_id=what.operation_id))


def tool_fact(who: Who, at: At, actions: Actions) -> RuntimeEvent:
    return _run_event(who, at, Role.SYSTEM, Author.TOOL, actions=actions, model_visibility=ModelVisibility.HIDDEN)


def response(who: Who, at: At, *, call_id: CallId, name: str, step: int, answer: ToolAnswer) -> RuntimeEvent:
    content = response_content(call_id, name, answer)
    actions: Actions | None = None
    if answer.seen is not None or answer.workspace is not None or answer.artifacts:
        actions = Actions(file_seen=answer.seen, workspace_changed=answer.workspace, artifact_delta=answer.artifacts)
    refs = Refs(step_id=str(step))
    return _run_event(who, at, Role.TOOL, Author.TOOL, content, actions=actions, refs=refs)


def response_content(call_id: CallId, name: str, answer: ToolAnswer) -> FunctionResponse:
    return FunctionResponse(
        call_id=call_id,
        name=name,
        result=answer.text,
        outcome=answer.outcome,
        is_error=answer.outcome.value != "ok",
        duration_ms=answer.duration_ms,
        exit_code=answer.exit_code,
        whole=answer.whole,
        diff=answer.diff,
    )


def never_started(call_id: CallId, name: str) -> FunctionResponse:
    """Return the response of a call whose dispatch is durable but which the run's end kept from starting."""
    words = "This call was not started: the run ended first."
    return FunctionResponse(call_id=call_id, name=name, result=words, outcome=Outcome.NOT_STARTED, is_error=True)


def request(who: Who, at: At, actions: Actions) -> RuntimeEvent:
    """Return a request to a person; its id names the wait."""
    return _system(who, at, actions=actions)


def decision(who: Who, at: At, actions: Actions) -> RuntimeEvent:
    """Return a person's answer: in the system's lane, by the user."""
    hidden = ModelVisibility.HIDDEN
    return _run_event(who, at, Role.SYSTEM, Author.USER, actions=actions, model_visibility=hidden)


# -- endings ------------------------------------------------------------------------------------------------------


def undo_words(who: Who, at: At, words: str, cause: Cause | None = None) -> RuntimeEvent:
    """Return Maka's own words in the user's lane: how a model learns what an undo did to its files."""
    return _run_event(who, at, Role.USER, Author.HOST, Text(text=words), cause=cause)


def undo_note(who: Who, at: At, content: SystemNote, cause: Cause | None) -> RuntimeEvent:
    return _system(who, at, content, cause=cause)


def undo_call(who: Who, at: At, content: FunctionCall) -> RuntimeEvent:
    """Return a call of Maka's own, by the person who asked for the undo; no model made it or sees it."""
    hidden = ModelVisibility.HIDDEN
    return _run_event(who, at, Role.SYSTEM, Author.USER, content, model_visibility=hidden)


def notice(who: Who, at: At, note: str, words: str) -> RuntimeEvent:
    return _system(who, at, SystemNote(note=note, data={"text": words}))


def completed(who: Who, at: At, *, stop_reason: str, steps: int, duration_ms: int) -> RuntimeEvent:
    delta = StateDelta(stop_reason=stop_reason, steps=steps, duration_ms=duration_ms)
    actions = Actions(state_delta=delta, end_invocation=True)
    return _system(who, at, actions=actions, status=Status.COMPLETED)


# -- a session's control stream -----------------------------------------------------------------------------------


def _control(session_id: SessionId, at: At, **more: Any) -> RuntimeEvent:
    return RuntimeEvent(
        id=EventId(at.id),
        session_id=session_id,
        invocation_id=InvocationId(session_id),
        ts=at.ts,
        model_visibility=ModelVisibility.HIDDEN,
        **more,
    )


def session_opened(session_id: SessionId, at: At, content: SessionOpened, cause: Cause) -> RuntimeEvent:
    return _control(session_id, at, role=Role.SYSTEM, author=Author.HOST, content=content, cause=cause)


def message_queued(session_id: SessionId, at: At, queued: MessageQueued, cause: Cause) -> RuntimeEvent:
    actions = Actions(message_queued=queued)
    return _control(session_id, at, role=Role.USER, author=Author.USER, actions=actions, cause=cause)


def boundary_changed(session_id: SessionId, at: At, change: BoundaryChanged, cause: Cause) -> RuntimeEvent:
    actions = Actions(boundary_changed=change)
    return _control(session_id, at, role=Role.SYSTEM, author=Author.USER, actions=actions, cause=cause)


def shell_started(session_id: SessionId, at: At, started: ProcessStarted) -> RuntimeEvent:
    return _control(session_id, at, role=Role.SYSTEM, author=Author.TOOL, actions=Actions(process_started=started))


def shell_ended(session_id: SessionId, at: At, ended: ProcessEnded) -> RuntimeEvent:
    return _control(session_id, at, role=Role.SYSTEM, author=Author.HOST, actions=Actions(process_ended=ended))
