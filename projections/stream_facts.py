"""One fact -> the SessionEvents that say it, none of them with a position yet."""

from collections.abc import Iterator
from typing import TypedDict

from maka.contracts.actions import Actions, BoundaryChanged, StateDelta
from maka.contracts.content import (
    Content,
    FunctionCall,
    FunctionResponse,
    InvocationOpened,
    SystemNote,
    Text,
    Thinking,
)
from maka.contracts.events import Role, RuntimeEvent, Status, is_terminal
from maka.contracts.ids import CallId, EventId, RunId, SessionId, TurnId
from maka.contracts.session_events import (
    Abort,
    Complete,
    ErrorEvent,
    MessageWaiting,
    Notice,
    PermissionClosureAck,
    RunStarted,
    SandboxBoundaryDecisionAck,
    SandboxBoundaryRequest,
    SessionEvent,
    StepStarted,
    TextComplete,
    ThinkingComplete,
    TokenUsageEvent,
    ToolFileChange,
    ToolResultEvent,
    ToolStart,
    UserMessage,
    UserQuestionAnswerAck,
    UserQuestionAsked,
)
from projections.background import first_line, how_it_ended
from projections.boundary import expansion_words
from projections.run_state import terminal_fact


class _Common(TypedDict):
    session_id: SessionId
    run_id: RunId | None
    turn_id: TurnId | None
    ts: int | None


def _common(event: RuntimeEvent) -> _Common:
    return _Common(session_id=event.session_id, run_id=event.run_id, turn_id=event.turn_id, ts=event.ts)


def events_of(event: RuntimeEvent, boundary: str | None = None) -> Iterator[SessionEvent]:
    """Yield what a fact says to people: its content, its acts, and its ending last.

    `boundary` is the session's profile as of the fact, None where it isn't known.
    """
    if event.partial:
        return
    if event.content is not None:
        yield from _content_events(event, event.content, boundary)
    if event.actions is not None:
        yield from _action_events(event, event.actions)
    if is_terminal(event):
        yield from _ending(event)


def queue_event(event: RuntimeEvent, queued: int) -> SessionEvent:
    """Return the notice that the session's queue has changed."""
    return MessageWaiting(**_common(event), queued=queued)


def _content_events(event: RuntimeEvent, content: Content, boundary: str | None) -> Iterator[SessionEvent]:
    common = _common(event)
    match content:
        case InvocationOpened(route=route):
            yield RunStarted(**common, profile=route.profile, model=route.model, boundary=boundary)
        case Text() if event.role is Role.USER:
            yield UserMessage(**common, text=content.text)
        case Text() if event.role is Role.MODEL:
            yield TextComplete(**common, message_id=event.id, text=content.text, interrupted=content.interrupted)
        case Thinking():
            yield ThinkingComplete(**common, message_id=event.id, text=content.text, interrupted=content.interrupted)
        case FunctionCall():
            args = content.args if content.malformed is None else {"malformed_arguments": content.malformed}
            yield ToolStart(**common, call_id=CallId(event.id), name=content.name, args=args)
        case FunctionResponse():
            yield _tool_result(common, content)
        case SystemNote():
            text = content.data.get("text")
            yield Notice(**common, note=content.note, text=text if isinstance(text, str) else content.note)
        case _:
            pass


def _tool_result(common: _Common, content: FunctionResponse) -> SessionEvent:
    return ToolResultEvent(
        **common,
        call_id=content.call_id,
        name=content.name,
        result=content.result,
        outcome=content.outcome.value,
        is_error=content.is_error,
        duration_ms=None if content.duration_ms is None else max(0, content.duration_ms),
        exit_code=content.exit_code,
        diff_sha256=content.diff.sha256 if content.diff is not None else None,
        output_sha256=content.whole.sha256 if content.whole is not None else None,
    )


def _action_events(event: RuntimeEvent, actions: Actions) -> Iterator[SessionEvent]:
    common = _common(event)
    if (request := actions.model_request) is not None:
        yield StepStarted(**common, step=request.step, attempt=request.attempt)
    if (change := actions.file_change) is not None:
        yield ToolFileChange(**common, call_id=change.call_id, path=change.path, created=change.before_sha256 is None)
    if (usage := actions.token_usage) is not None:
        yield TokenUsageEvent(
            **common,
            step=usage.step,
            input=usage.input,
            output=usage.output,
            cached_input=usage.cached_input,
            reasoning=usage.reasoning,
            total=usage.total,
        )
    yield from _asking(event, actions)
    yield from _background(common, actions)
    if actions.boundary_changed is not None:
        yield Notice(**common, note="boundary_changed", text=_boundary_words(actions.boundary_changed))


def _background(common: _Common, actions: Actions) -> Iterator[SessionEvent]:
    if (started := actions.process_started) is not None and started.background:
        text = f"{started.shell_id} runs in the background (pid {started.process.pid}): {started.command}"
        yield Notice(**common, note="background_started", text=text)
    if (ended := actions.process_ended) is not None:
        words = how_it_ended(ended.how, exit_code=ended.exit_code, by=ended.by)
        more = f". {first_line(ended.note)}" if ended.note else ""
        yield Notice(**common, note="background_ended", text=f"{ended.shell_id} in the background: {words}{more}")


def _asking(event: RuntimeEvent, actions: Actions) -> Iterator[SessionEvent]:
    common, request_id = _common(event), EventId(event.id)
    if (asked := actions.user_question_request) is not None:
        yield UserQuestionAsked(**common, request_id=request_id, call_id=asked.call_id, questions=asked.questions)
    if (given := actions.user_question_answer) is not None:
        yield UserQuestionAnswerAck(**common, request_id=given.request_id, answers=given.answers, client=given.client)
    if actions.state_delta is not None:
        yield from _boundary_asking(event, actions.state_delta)


def _boundary_asking(event: RuntimeEvent, delta: StateDelta) -> Iterator[SessionEvent]:
    common = _common(event)
    if (asked := delta.boundary_request) is not None:
        yield SandboxBoundaryRequest(
            **common,
            request_id=EventId(event.id),
            call_id=asked.call_id,
            expansion=asked.expansion,
            justification=asked.justification,
        )
    if (decided := delta.boundary_decision) is not None:
        yield SandboxBoundaryDecisionAck(
            **common,
            request_id=decided.request_id,
            decision=decided.decision,
            scope=decided.scope,
            revision=decided.revision,
            client=decided.client,
            covers=decided.covers,
        )
    if delta.wait_closed is not None:
        yield PermissionClosureAck(**common, request_id=delta.wait_closed, reason=delta.wait_closed_reason or "")


def _boundary_words(changed: BoundaryChanged) -> str:
    parts = [f"the boundary is now {changed.profile} (revision {changed.revision})"]
    parts += [f"allowed: {words}" for words in expansion_words(changed.grants)]
    parts += [f"taken back: {origin}" for origin in changed.revoked]
    return "; ".join(parts)


def _ending(event: RuntimeEvent) -> Iterator[SessionEvent]:
    common, fact = _common(event), terminal_fact(event)
    if fact.status is Status.ABORTED:
        yield Abort(**common, reason=fact.abort_source or "")
        return
    if fact.status is Status.FAILED:
        message = fact.error.message if fact.error is not None else f"the run failed: {fact.failure_class}"
        yield ErrorEvent(**common, code=fact.failure_class or "", message=message)
    yield Complete(**common, status=fact.status.value, stop_reason=fact.stop_reason, failure_class=fact.failure_class)
