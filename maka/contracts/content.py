"""What a fact says: one tagged union, exact shapes. An unknown key or kind is a decoding error, never dropped."""

from enum import StrEnum
from typing import Any

from maka.contracts.boundary import CarriedGrant
from maka.contracts.ids import CallId, InvocationId, RunId, SessionId, TurnId
from maka.contracts.shape import Shape


class BlobRef(Shape, frozen=True, kw_only=True):
    """A value stored once by its SHA-256 (hex)."""

    sha256: str
    size_bytes: int


class Outcome(StrEnum):
    """How a tool call ended. The first four need a dispatch before them; the last three may lack one."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    OUTCOME_UNKNOWN = "outcome_unknown"
    REFUSED = "refused"
    NOT_STARTED = "not_started"
    ABORTED = "aborted"


NEEDS_DISPATCH = frozenset({Outcome.OK, Outcome.ERROR, Outcome.TIMEOUT, Outcome.OUTCOME_UNKNOWN})


class Text(Shape, frozen=True, kw_only=True, tag_field="kind", tag="text"):
    """Words of the user or the model. `whole` names the full text where `text` keeps only head and tail."""

    text: str
    interrupted: bool = False
    whole: BlobRef | None = None


class Thinking(Shape, frozen=True, kw_only=True, tag_field="kind", tag="thinking"):
    """The model's reasoning; `signature` is opaque provider data."""

    text: str
    signature: str | None = None
    interrupted: bool = False
    whole: BlobRef | None = None


class FunctionCall(Shape, frozen=True, kw_only=True, tag_field="kind", tag="function_call"):
    """A tool call as the model asked for it. The event's id is the call's id.

    `malformed` holds the (bounded) argument text where it was no JSON object, or how it begins where it was too long
    for a fact, with a note of its size; `args` is then empty and the call is never dispatched. `cut` says that the
    output limit ended the arguments.
    """

    name: str
    args: dict[str, Any]
    malformed: str | None = None
    cut: bool = False


class FunctionResponse(Shape, frozen=True, kw_only=True, tag_field="kind", tag="function_response"):
    """The one answer to a call. `result` is exactly what the model sees; `whole` is the unbounded value."""

    call_id: CallId
    name: str
    result: str
    outcome: Outcome
    is_error: bool = False
    duration_ms: int | None = None
    exit_code: int | None = None
    whole: BlobRef | None = None
    diff: BlobRef | None = None


class Error(Shape, frozen=True, kw_only=True, tag_field="kind", tag="error"):
    """Why a run failed. `code` is a failure class; `provider_code` and `http_status` are the provider's own."""

    message: str
    code: str
    provider_code: str | None = None
    http_status: int | None = None
    details: tuple[str, ...] = ()


class SystemNote(Shape, frozen=True, kw_only=True, tag_field="kind", tag="system_note"):
    """A deterministic notice to the person, such as the one at the step limit. Never seen by a model."""

    note: str
    data: dict[str, Any] = {}


class Route(Shape, frozen=True, kw_only=True):
    """Which model answers: profile name, provider kind, model name."""

    profile: str
    provider: str
    model: str


class RunLimits(Shape, frozen=True, kw_only=True):
    """Limits of one run; None means unlimited."""

    steps_max: int | None = None
    active_s_max: float | None = None
    tokens_max: int | None = None


class RunConfiguration(Shape, frozen=True, kw_only=True):
    """What a run was started with. `history_position` is the last position of earlier runs that it may see."""

    cwd: str
    boundary_revision: int
    limits: RunLimits
    prompt: BlobRef
    tools: BlobRef
    history_position: int
    context_window: int | None = None


class RootKind(StrEnum):
    """Why a run was opened. An undo asks no model: its calls are Maka's own."""

    USER = "user"
    CHILD = "child"
    SCHEDULE = "schedule"
    UNDO = "undo"


class SourceKind(StrEnum):
    FRESH = "fresh"
    CONTINUATION = "continuation"


class Lineage(Shape, frozen=True, kw_only=True):
    """Where a run comes from, for child runs and continuations."""

    parent_session_id: SessionId | None = None
    parent_turn_id: TurnId | None = None
    parent_run_id: RunId | None = None
    parent_call_id: CallId | None = None
    source_invocation_id: InvocationId | None = None
    agent_name: str | None = None


class InvocationOpened(Shape, frozen=True, kw_only=True, tag_field="kind", tag="invocation_opened"):
    """Event 1 of every run."""

    route: Route
    configuration: RunConfiguration
    root: RootKind = RootKind.USER
    source: SourceKind = SourceKind.FRESH
    lineage: Lineage | None = None


class SessionOpened(Shape, frozen=True, kw_only=True, tag_field="kind", tag="session_opened"):
    """Event 1 of a control stream. `number` is the store's short name for the session; `real_cwd` has no links.

    `carried` are grants to the workspace that earlier sessions of it were given.
    """

    number: int
    cwd: str
    real_cwd: str
    title: str | None = None
    boundary: str = "ask"
    carried: tuple[CarriedGrant, ...] = ()
    lineage: Lineage | None = None


Content = Text | Thinking | FunctionCall | FunctionResponse | Error | SystemNote | InvocationOpened | SessionOpened
