"""Every message of the system, grouped by recipient: the whole conversation on one page (`messages_ledger` is its
second half).

Messages are frozen and shared, not copied. `CONTROL` names those that go before data; in KernelActor, SessionActor
and LedgerActor everything that clients or writers send is one lane, so a Stop never overtakes its own SendMessage.
"""

from collections.abc import Callable

from actors.address import ReplyTo
from actors.messages_ledger import AppendDone, BarrierPassed, LedgerUp, Message, RunClosed
from actors.verdicts import ToolAnswer, Verdict
from maka.contracts import commands
from maka.contracts.actions import FileChange, ProcessStarted
from maka.contracts.commands import Reply
from maka.contracts.ids import CallId, RunId, SessionId
from maka.contracts.model_ports import DeltaBatch, ProviderError, StepResult
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolFact, ToolResult

Parent = Callable[[str], None]
"""How an actor's death reaches whoever started it: called once, on a crash, with the reason; it only tells."""


# -- to KernelActor -----------------------------------------------------------------------------------------------


class CreateSession(Message, frozen=True):
    command: commands.CreateSession
    reply: ReplyTo[Reply]


class SendMessage(Message, frozen=True):
    """To KernelActor, which passes it to the session."""

    command: commands.SendMessage
    reply: ReplyTo[Reply]


class StopSession(Message, frozen=True):
    """To KernelActor, which passes it to the session."""

    command: commands.Stop
    reply: ReplyTo[Reply]


class Recover(Message, frozen=True):
    """The first message: end what a dead owner left, then open the door. Answered with the number of runs closed."""

    reply: ReplyTo[int]


class Shutdown(Message, frozen=True):
    """Close the door, stop every run with source `host.shutdown`, answer True when all have ended."""

    reply: ReplyTo[bool]


class Idle(Message, frozen=True):
    """From SessionActor: it has nothing to do and has seen `handled` commands."""

    session_id: SessionId
    handled: int


class SessionStopped(Message, frozen=True):
    """A session's answer to the kernel's own stop at shutdown."""

    session_id: SessionId


class SessionDied(Message, frozen=True):
    session_id: SessionId
    reason: str


# -- to SessionActor ----------------------------------------------------------------------------------------------


class OpenSession(Message, frozen=True):
    """Make the session: its first message, instead of Load."""

    number: int
    command: commands.CreateSession
    reply: ReplyTo[Reply]


class Load(Message, frozen=True):
    """Read the session from the ledger: its first message. Commands wait until it is done."""


class RunFinished(Message, frozen=True):
    """From RunActor: its terminal is durable, at this position."""

    run_id: RunId
    position: int


class RunDied(Message, frozen=True):
    run_id: RunId
    reason: str


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


class Due(Message, frozen=True):
    """A timer fired; a token that isn't the current one for its kind is ignored."""

    kind: str
    token: int


class BackendDied(Message, frozen=True):
    reason: str


class ToolDied(Message, frozen=True):
    call_id: CallId
    reason: str


# -- to BackendActor ----------------------------------------------------------------------------------------------


class Begin(Message, frozen=True):
    """Send this body. `tries` counts the requests of this step so far, this one included."""

    generation: int
    body: bytes
    tries: int


class Cancel(Message, frozen=True):
    """Sticky: everything of this generation and older is cancelled, also what arrives later."""

    generation: int


class Ack(Message, frozen=True):
    generation: int


class StreamBatch(Message, frozen=True):
    generation: int
    batch: DeltaBatch


class StreamFinished(Message, frozen=True):
    generation: int
    result: StepResult


class StreamFailed(Message, frozen=True):
    generation: int
    error: ProviderError
    observed: bool


# -- to ToolActor -------------------------------------------------------------------------------------------------


class Dispatch(Message, frozen=True):
    """The dispatch is durable: run the call."""

    call: ToolCall
    env: ToolEnv


class CancelTool(Message, frozen=True):
    """Sticky; answered with ToolEnded, as everything is."""


class Grant(Message, frozen=True):
    token: int
    granted: bool


class OutputSeen(Message, frozen=True):
    stream: str
    text: str


class CommitWanted(Message, frozen=True):
    fact: ToolFact
    then: Callable[[bool], None]


class ResultSeen(Message, frozen=True):
    result: ToolResult


CONTROL: frozenset[type[Message]] = frozenset(
    {
        AppendDone,
        RunClosed,
        BarrierPassed,
        LedgerUp,
        RunDied,
        SessionDied,
        BackendDied,
        ToolDied,
        StopRun,
        Due,
        Cancel,
        CancelTool,
        Grant,
    }
)
COMMANDS = (CreateSession, SendMessage, StopSession, OpenSession, StopRun)

ToKernel = (
    CreateSession | SendMessage | StopSession | Recover | Shutdown | Idle | SessionStopped | SessionDied | RunClosed
)
ToSession = (
    OpenSession
    | Load
    | SendMessage
    | StopSession
    | RunFinished
    | RunDied
    | AppendDone
    | RunClosed
    | BarrierPassed
    | LedgerUp
)
ToRun = (
    Start
    | Deltas
    | StepEnded
    | FactWanted
    | ToolOutput
    | ToolEnded
    | StopRun
    | Due
    | BackendDied
    | ToolDied
    | AppendDone
    | LedgerUp
)
ToBackend = Begin | Cancel | Ack | StreamBatch | StreamFinished | StreamFailed
ToTool = Dispatch | CancelTool | Grant | OutputSeen | CommitWanted | ResultSeen
