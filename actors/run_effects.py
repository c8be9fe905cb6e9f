"""PURE: what a run's decision may cause. RunActor performs these, in their order."""

from msgspec import Struct

from maka.contracts.actions import ProcessStarted
from maka.contracts.commands import Reply as Replied
from maka.contracts.events import RuntimeEvent
from maka.contracts.ids import CallId
from maka.contracts.ports import PutPartial
from maka.contracts.session_events import Frame
from maka.contracts.tool_ports import ToolCall, ToolEnv


class AppendEvents(Struct, frozen=True, kw_only=True):
    tag: int
    expected_seq: int
    events: tuple[RuntimeEvent, ...]
    blobs: tuple[bytes, ...] = ()
    settlement: bool = False


class SendRequest(Struct, frozen=True):
    generation: int
    body: bytes
    tries: int


class CancelRequest(Struct, frozen=True):
    generation: int


class AckBatch(Struct, frozen=True):
    generation: int


class LookAhead(Struct, frozen=True):
    """Ask a call's tool whether the call may begin; comes back as ToolReady or ToolEnded."""

    call: ToolCall
    env: ToolEnv


class StartTool(Struct, frozen=True):
    call: ToolCall
    env: ToolEnv


class AskPerson(Struct, frozen=True):
    """Prepare what a call asks a person; comes back as AskReady."""

    call: ToolCall
    env: ToolEnv


class StopTool(Struct, frozen=True):
    call_id: CallId


class GrantFact(Struct, frozen=True):
    call_id: CallId
    token: int
    granted: bool


class ShowFrame(Struct, frozen=True):
    frame: Frame


class StorePartial(Struct, frozen=True):
    partial: PutPartial


class Arm(Struct, frozen=True):
    """Start the timer of this kind, in place of one that runs."""

    kind: str
    delay_s: float


class Disarm(Struct, frozen=True):
    kind: str


class AnswerStops(Struct, frozen=True):
    """Answer every stop that waits."""

    reply: Replied


class Reply(Struct, frozen=True):
    """Answer one command; `to` is its ReplyTo, which means nothing here."""

    to: object
    reply: Replied


class HandOver(Struct, frozen=True):
    """A process is to outlive the run: let its session write the fact, and answer `to`, which means nothing here."""

    started: ProcessStarted
    to: object


class LetGo(Struct, frozen=True):
    """Nothing but a person's answer is missing: say so to the session, which may let the actor go."""


class Finish(Struct, frozen=True):
    """The terminal is durable: tell the session and end the actor."""

    position: int


Effect = (
    AppendEvents
    | SendRequest
    | CancelRequest
    | AckBatch
    | LookAhead
    | StartTool
    | AskPerson
    | StopTool
    | GrantFact
    | ShowFrame
    | StorePartial
    | Arm
    | Disarm
    | AnswerStops
    | Reply
    | HandOver
    | LetGo
    | Finish
)
