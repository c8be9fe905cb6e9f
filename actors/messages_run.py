"""What RunActor is told: by its session, its backend, its tools, the ledger and the clock."""

from actors.address import ReplyTo
from actors.messages_ledger import AppendDone, LedgerUp, Message
from actors.verdicts import ToolAnswer, Verdict
from maka.contracts import commands
from maka.contracts.actions import FileChange, ProcessStarted
from maka.contracts.commands import Reply
from maka.contracts.events import Committed
from maka.contracts.ids import CallId
from maka.contracts.model_ports import DeltaBatch
from maka.contracts.tool_ports import Asked, Turn

# -- to RunActor --------------------------------------------------------------------------------------------------


class Start(Message, frozen=True):
    """The first append is durable: begin."""


class Deltas(Message, frozen=True):
    """From BackendActor: pieces of the answer, in order; answered with Ack once shown."""

    generation: int
    batch: DeltaBatch


class StepEnded(Message, frozen=True):
    """From BackendActor: what a request of this generation came to."""

    generation: int
    verdict: Verdict


class FactWanted(Message, frozen=True):
    """From ToolActor: make this durable, then answer Grant(token). `blobs` travel with the append."""

    call_id: CallId
    token: int
    file_change: FileChange | None = None
    process_started: ProcessStarted | None = None
    blobs: tuple[bytes, ...] = ()


class ShellWanted(Message, frozen=True):
    """From ToolActor: a process is to outlive the run, so its fact belongs to the session; answered with ShellKept."""

    started: ProcessStarted
    reply: ReplyTo[Reply]


class ToolReady(Message, frozen=True):
    """From ToolActor: the call may be dispatched, as far as its tool can see. `turn` is the file that it is about."""

    call_id: CallId
    turn: Turn | None = None


class ToolOutput(Message, frozen=True):
    call_id: CallId
    stream: str
    text: str


class ToolEnded(Message, frozen=True):
    call_id: CallId
    answer: ToolAnswer


class StopRun(Message, frozen=True):
    """Control, and never stashed: the stop must win over everything that wasn't handled before it."""

    source: str
    reply: ReplyTo[Reply]


class ControlFact(Message, frozen=True):
    """From SessionActor: a fact of its control stream that concerns a live run, such as a change of the boundary."""

    item: Committed


class AskReady(Message, frozen=True):
    """From RunActor to itself: what a call asks a person, or why it can't be asked."""

    call_id: CallId
    asked: Asked | str


class AnswerRun(Message, frozen=True):
    command: commands.Answer
    reply: ReplyTo[Reply]


class Resume(Message, frozen=True):
    """The run was parked, and is alive again: its first message instead of Start."""


class Due(Message, frozen=True):
    """A timer fired; a token that isn't the current one for its kind is ignored."""

    kind: str
    token: int


class BackendDied(Message, frozen=True):
    reason: str


class ToolDied(Message, frozen=True):
    call_id: CallId
    reason: str


ToRun = (
    Start
    | Resume
    | ControlFact
    | AskReady
    | AnswerRun
    | Deltas
    | StepEnded
    | FactWanted
    | ShellWanted
    | ToolReady
    | ToolOutput
    | ToolEnded
    | StopRun
    | Due
    | BackendDied
    | ToolDied
    | AppendDone
    | LedgerUp
)
