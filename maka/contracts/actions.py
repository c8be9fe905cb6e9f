"""What a fact does: control state that the runtime records. Every field is one kind of act; most facts carry one."""

from typing import Any, Literal

from maka.contracts.boundary import Expansion
from maka.contracts.content import BlobRef, RunLimits
from maka.contracts.ids import CallId, EventId, MessageId, RunId
from maka.contracts.shape import Shape


class BoundaryRequest(Shape, frozen=True, kw_only=True):
    """The model asks for a wider boundary; the fact's event id names the wait. `active_ms` as in ModelRequest.

    `is_rest` says that the call asked for more, which was allowed already.
    """

    call_id: CallId
    expansion: Expansion
    justification: str
    active_ms: int = 0
    is_rest: bool = False


class BoundaryDecision(Shape, frozen=True, kw_only=True):
    """A person's answer; the decision fact is the grant. `covers` names other open requests that it would satisfy:
    they still wait for answers of their own."""

    request_id: EventId
    decision: Literal["allow", "deny"]
    scope: Literal["once", "session", "workspace"] = "session"
    revision: int = 0
    client: str | None = None
    covers: tuple[EventId, ...] = ()


class Recovery(Shape, frozen=True, kw_only=True):
    """Marks a terminal written by CloseRun, with the verdict it followed from."""

    reason: str
    verdict: str


class StateDelta(Shape, frozen=True, kw_only=True):
    """Typed control state. A terminal carries `stop_reason`, `duration_ms`, `steps` and its class or source."""

    stop_reason: str | None = None
    abort_source: str | None = None
    failure_class: str | None = None
    duration_ms: int | None = None
    steps: int | None = None
    recovery: Recovery | None = None
    boundary_request: BoundaryRequest | None = None
    boundary_decision: BoundaryDecision | None = None
    wait_closed: EventId | None = None
    wait_closed_reason: str | None = None


class Question(Shape, frozen=True, kw_only=True):
    """One question to the person, with two or three options or free text."""

    question: str
    options: tuple[str, ...] = ()


class UserQuestionRequest(Shape, frozen=True, kw_only=True):
    """The model asks the person; the fact's event id names the wait. `active_ms` as in ModelRequest."""

    call_id: CallId
    questions: tuple[Question, ...]
    active_ms: int = 0


class UserQuestionAnswer(Shape, frozen=True, kw_only=True):
    """The person's answer, in the order of the questions; None where one was left open."""

    request_id: EventId
    answers: tuple[str | None, ...]
    client: str | None = None


class ModelRequest(Shape, frozen=True, kw_only=True):
    """One request to a model, recorded before it is sent. The body isn't stored; its SHA-256 is.

    `history_seq` is the last seq of this run that the body includes, `history_position` (in the opening) bounds
    earlier runs. `window_level` holds for everything through `window_position` and never goes back. `active_ms` is
    how long the run has been active so far, parked time not counted.
    """

    step: int
    attempt: int
    request_hash: str
    prompt_hash: str
    tools_hash: str
    projector_version: int
    history_seq: int
    window_level: int = 0
    window_position: int = 0
    active_ms: int = 0
    options: dict[str, Any] = {}
    losses: tuple[str, ...] = ()


RecoveryMode = Literal["replay_safe", "idempotent", "outcome_unknown"]


class ToolDispatch(Shape, frozen=True, kw_only=True):
    """The call may have started: committed before any effect of it. `args_hash` is over canonical (sorted) JSON."""

    call_id: CallId
    name: str
    operation_id: str
    args_hash: str
    recovery_mode: RecoveryMode


class ProcessIdentity(Shape, frozen=True, kw_only=True):
    """Enough to find a process group again, and to know that the pid wasn't reused. `start_ticks` since boot.

    `mark` is what the environment of the process and of each descendant holds, so that those that left the group are
    found as well.
    """

    pid: int
    group: int
    start_ticks: int
    boot_id: str
    mark: str | None = None


class ProcessStarted(Shape, frozen=True, kw_only=True):
    """A process of a tool call that waits behind its gate until this fact is durable.

    One in the `background` outlives its run, which `run_id` names, and so its fact is in the control stream;
    `shell_id` is what people and models call it, unique in its session.
    """

    call_id: CallId
    process: ProcessIdentity
    command: str
    background: bool = False
    shell_id: str | None = None
    run_id: RunId | None = None


class ProcessEnded(Shape, frozen=True, kw_only=True):
    """A background process ended. `how` is exited, killed (by a signal of nobody here), timeout, limit, stopped (`by`
    whom), not_started, unknown, or orphaned: its owner died.

    `output` is what is kept of what it printed; `note` says which limit it met, what was put right after it, or what
    was probably denied to it.
    """

    call_id: CallId
    process: ProcessIdentity
    how: str
    exit_code: int | None = None
    shell_id: str | None = None
    by: str | None = None
    output: BlobRef | None = None
    note: str | None = None
    survivors: tuple[int, ...] = ()


class FileChange(Shape, frozen=True, kw_only=True):
    """A file is about to be changed by Write, Edit or an undo. Hashes are SHA-256 (hex); None: no file is there.

    `mode` holds the permission bits of the file before. `undoes` is the fact of the earliest change that this one
    takes back, with all changes of the file that came after it.
    """

    call_id: CallId
    path: str
    before_sha256: str | None
    after_sha256: str | None
    pre_image: BlobRef | None
    temp_name: str
    mode: int | None = None
    undoes: EventId | None = None


class FileSeen(Shape, frozen=True, kw_only=True):
    """What this session last saw of a file: carried by the response of a Read, Write or Edit."""

    path: str
    sha256: str


class WorkspaceChanged(Shape, frozen=True, kw_only=True):
    """What became different in the workspace while a command ran, whoever did it; carried by the call's response.

    Paths are relative to the workspace and bounded in number, the counts are whole. Where nobody `looked`, `why`
    says why not, and nothing is known.
    """

    call_id: CallId
    looked: bool = True
    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    added_count: int = 0
    modified_count: int = 0
    deleted_count: int = 0
    why: str | None = None


class ArtifactDelta(Shape, frozen=True, kw_only=True):
    """Values that belong to a call: long output, a diff, a written file."""

    call_id: CallId
    kind: str
    name: str
    blob: BlobRef | None = None


class TokenUsage(Shape, frozen=True, kw_only=True):
    """Tokens of one model step, normalised. A value that isn't known is absent, never understated."""

    step: int
    input: int
    output: int
    cached_input: int | None = None
    reasoning: int | None = None
    total: int | None = None
    finish_reason: str | None = None


class MessageQueued(Shape, frozen=True, kw_only=True):
    """A message to a busy session; the fact's event id is the message's id. The rest is what its run will use."""

    text: str
    profile: str | None = None
    limits: RunLimits | None = None


class MessageRetracted(Shape, frozen=True, kw_only=True):
    message_id: MessageId


class SessionChanged(Shape, frozen=True, kw_only=True):
    """A change of the session's header. Only the given fields change."""

    title: str | None = None
    archived: bool | None = None


class ConfigurationChanged(Shape, frozen=True, kw_only=True):
    profile: str | None = None
    model: str | None = None
    limits: RunLimits | None = None


class BoundaryChanged(Shape, frozen=True, kw_only=True):
    """A person's change of the boundary: its profile, one more grant, or grants taken back by their origins.

    `revision` counts up with each change.
    """

    profile: str
    revision: int
    grants: Expansion = Expansion()
    scope: Literal["session", "workspace"] = "session"
    revoked: tuple[EventId, ...] = ()
    client: str | None = None


class Actions(Shape, frozen=True, kw_only=True):
    """The acts of one fact."""

    state_delta: StateDelta | None = None
    model_request: ModelRequest | None = None
    tool_dispatch: ToolDispatch | None = None
    token_usage: TokenUsage | None = None
    process_started: ProcessStarted | None = None
    process_ended: ProcessEnded | None = None
    file_change: FileChange | None = None
    file_seen: FileSeen | None = None
    workspace_changed: WorkspaceChanged | None = None
    artifact_delta: tuple[ArtifactDelta, ...] = ()
    user_question_request: UserQuestionRequest | None = None
    user_question_answer: UserQuestionAnswer | None = None
    message_queued: MessageQueued | None = None
    message_retracted: MessageRetracted | None = None
    session_changed: SessionChanged | None = None
    configuration_changed: ConfigurationChanged | None = None
    boundary_changed: BoundaryChanged | None = None
    transfer_to_agent: str | None = None
    end_invocation: bool = False
