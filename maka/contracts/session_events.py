"""SessionEvents: what transports carry to people and programs. camelCase, tagged by `type`; `position` where durable.

Of the events that one fact maps to, only the last carries the position. The vocabulary is closed; a golden file in
the tests freezes the schema.
"""

from typing import Any

from msgspec import Struct

from maka.contracts.actions import Question
from maka.contracts.boundary import Expansion, Scope
from maka.contracts.ids import CallId, EventId, RunId, SessionId, TurnId


class SessionEventBase(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Common keys. `ts` is Unix ms of the fact, absent on transient events."""

    session_id: SessionId
    run_id: RunId | None = None
    turn_id: TurnId | None = None
    ts: int | None = None
    position: int | None = None


class UserMessage(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="user_message"):
    text: str


class MessageWaiting(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="queue_update"):
    """A message waits in the session's queue, or left it. `queued` is the number that still wait."""

    queued: int


class RunStarted(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="run_started"):
    """A run began. `boundary` is the session's profile then; absent alone where a fold began after it was named."""

    profile: str
    model: str
    boundary: str | None = None


class StepStarted(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="step_started"):
    """A model request is durable and about to be sent."""

    step: int
    attempt: int


class TextDelta(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="text_delta"):
    """Text as it streams: `offset` is the number of characters of this stream before it."""

    message_id: EventId
    offset: int
    text: str


class TextComplete(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="text_complete"):
    message_id: EventId
    text: str
    interrupted: bool = False


class ThinkingDelta(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="thinking_delta"):
    message_id: EventId
    offset: int
    text: str


class ThinkingComplete(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="thinking_complete"):
    message_id: EventId
    text: str
    interrupted: bool = False


class ToolStart(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="tool_start"):
    call_id: CallId
    name: str
    args: dict[str, Any]


class ToolOutputDelta(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="tool_output_delta"):
    """Live output of a tool: `offset` counts the characters of this stream before it."""

    call_id: CallId
    stream: str
    offset: int
    text: str


class ToolFileChange(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="file_change"):
    call_id: CallId
    path: str
    created: bool


class ToolResultEvent(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="tool_result"):
    call_id: CallId
    name: str
    result: str
    outcome: str
    is_error: bool = False
    duration_ms: int | None = None
    exit_code: int | None = None
    diff_sha256: str | None = None
    output_sha256: str | None = None


class SandboxBoundaryRequest(
    SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="sandbox_boundary_request"
):
    """The model asks for a wider boundary; `request_id` is what an answer names."""

    request_id: EventId
    call_id: CallId
    expansion: Expansion
    justification: str


class SandboxBoundaryDecisionAck(
    SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="sandbox_boundary_decision_ack"
):
    """A person decided: the first answer, and the only one. `covers` are other open requests that it would satisfy."""

    request_id: EventId
    decision: str
    scope: Scope
    revision: int
    client: str | None = None
    covers: tuple[EventId, ...] = ()


class UserQuestionAsked(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="user_question_request"):
    """The model asks the person; `request_id` is what an answer names."""

    request_id: EventId
    call_id: CallId
    questions: tuple[Question, ...]


class UserQuestionAnswerAck(
    SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="user_question_answer_ack"
):
    """A person answered, in the order of the questions; None where one was left open."""

    request_id: EventId
    answers: tuple[str | None, ...]
    client: str | None = None


class PermissionClosureAck(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="permission_closure_ack"):
    """A request was closed without an answer; whoever shows it takes it away."""

    request_id: EventId
    reason: str


class TokenUsageEvent(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="token_usage"):
    step: int
    input: int
    output: int
    cached_input: int | None = None
    reasoning: int | None = None
    total: int | None = None


class ProviderRetry(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="provider_retry"):
    """A wait before another try, shown while it lasts. `phase` is scheduled or started."""

    phase: str
    attempt: int
    attempts_max: int
    delay_ms: int
    reason: str


class Notice(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="notice"):
    note: str
    text: str


class ErrorEvent(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="error"):
    code: str
    message: str


class Complete(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="complete"):
    """The run ended by itself: `status` completed or failed."""

    status: str
    stop_reason: str | None = None
    failure_class: str | None = None


class Abort(SessionEventBase, frozen=True, kw_only=True, tag_field="type", tag="abort"):
    """The run was stopped. `reason` is the source of the stop."""

    reason: str


class Usage(Struct, frozen=True, kw_only=True, rename="camel"):
    """Tokens of a run, summed over its steps; None when one step's usage is unknown."""

    input: int | None = None
    output: int | None = None
    cached_input: int | None = None
    reasoning: int | None = None


class RunEnded(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="run_ended"):
    """The last line of `maka run --json`. Every key is always there.

    `boundary` is the session's profile when the run ended: what changed it meanwhile was a `notice`.
    """

    run_id: RunId
    session_id: SessionId
    status: str
    exit: str
    failure_class: str | None
    abort_source: str | None
    stop_reason: str | None
    final_text: str
    usage: Usage
    duration_ms: int
    steps: int
    files_changed: tuple[str, ...]
    boundary: str
    position: int


class RunParked(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="run_parked"):
    """The last line of `maka run --json` where a run waits for a person. `pending` are what answers name.

    `boundary` is the session's profile now. All events through `position` were told.
    """

    run_id: RunId
    session_id: SessionId
    pending: tuple[EventId, ...]
    boundary: str
    position: int


SessionEvent = (
    UserMessage
    | MessageWaiting
    | RunStarted
    | StepStarted
    | TextDelta
    | TextComplete
    | ThinkingDelta
    | ThinkingComplete
    | ToolStart
    | ToolOutputDelta
    | ToolFileChange
    | ToolResultEvent
    | SandboxBoundaryRequest
    | SandboxBoundaryDecisionAck
    | UserQuestionAsked
    | UserQuestionAnswerAck
    | PermissionClosureAck
    | TokenUsageEvent
    | ProviderRetry
    | Notice
    | ErrorEvent
    | Complete
    | Abort
)


class Frame(Struct, frozen=True, kw_only=True):
    """A transient piece of a live stream. `after_seq`: show it once the run's facts through that seq were shown.

    `kind` is text or thinking (`stream_id` is the id of the event that will end the stream), stdout or stderr
    (`stream_id` is the call's id), or retry (`retry` is the event to show, text and offset mean nothing). `offset`
    counts characters of the stream before `text`; a frame with offset 0 is a snapshot: the whole text so far.
    """

    session_id: SessionId
    run_id: RunId
    turn_id: TurnId
    stream_id: str
    kind: str
    offset: int
    text: str
    after_seq: int
    retry: ProviderRetry | None = None
