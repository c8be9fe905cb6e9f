"""RuntimeEvent: one fact, in orthogonal dimensions.

`role` is the lane in the model's history, `author` says who produced the fact; the two are independent. Order comes
from the ledger alone (`seq` in its invocation, `position` in the store); `ts` is for people and never orders.
"""

from enum import StrEnum

from maka.contracts.actions import Actions
from maka.contracts.content import Content
from maka.contracts.ids import CommandId, EventId, InvocationId, MessageId, RunId, SessionId, TurnId
from maka.contracts.shape import Shape


class Role(StrEnum):
    USER = "user"
    MODEL = "model"
    TOOL = "tool"
    SYSTEM = "system"


class Author(StrEnum):
    USER = "user"
    AGENT = "agent"
    TOOL = "tool"
    SYSTEM = "system"
    HOST = "host"


class Origin(StrEnum):
    PROVIDER = "provider"
    IMPORT = "import"


class Status(StrEnum):
    """`streaming` is the only one that doesn't end a run; `cancelled` is read from foreign logs, never written."""

    STREAMING = "streaming"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"
    CANCELLED = "cancelled"


TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.ABORTED, Status.CANCELLED})


class ModelVisibility(StrEnum):
    VISIBLE = "visible"
    HIDDEN = "hidden"


class Refs(Shape, frozen=True, kw_only=True):
    """How one operation is found again across subsystems. `tool_call_id` is the provider's id and never identity."""

    tool_call_id: str | None = None
    operation_id: str | None = None
    step_id: str | None = None
    provider_event_id: str | None = None
    artifact_id: str | None = None
    message_id: MessageId | None = None
    parent_event_id: EventId | None = None
    parent_operation_id: str | None = None


class Cause(Shape, frozen=True, kw_only=True):
    """The command whose own append carries this fact."""

    command_id: CommandId
    command_hash: str


class RuntimeEvent(Shape, frozen=True, kw_only=True):
    """One fact. `run_id` and `turn_id` are None exactly in a session's control stream."""

    id: EventId
    session_id: SessionId
    invocation_id: InvocationId
    turn_id: TurnId | None = None
    run_id: RunId | None = None
    branch: str | None = None
    ts: int
    role: Role
    author: Author
    origin: Origin | None = None
    content: Content | None = None
    actions: Actions | None = None
    refs: Refs | None = None
    cause: Cause | None = None
    partial: bool = False
    status: Status | None = None
    model_visibility: ModelVisibility = ModelVisibility.VISIBLE


class Committed(Shape, frozen=True, kw_only=True):
    """A fact with the places that the ledger gave it."""

    position: int
    seq: int
    event: RuntimeEvent


def is_terminal(event: RuntimeEvent) -> bool:
    """Say whether the fact is a statement that its run ended."""
    return not event.partial and event.status in TERMINAL


def is_control(event: RuntimeEvent) -> bool:
    """Say whether the fact belongs to a session's control stream."""
    return event.run_id is None
