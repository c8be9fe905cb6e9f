"""Every message of the system, grouped by recipient: the whole conversation on one page (its further
pages are `messages_work` and `messages_ledger`).

Messages are frozen and shared, not copied. `CONTROL` names those that go before data; in KernelActor, SessionActor
and LedgerActor everything that clients or writers send is one lane, so a Stop never overtakes its own SendMessage.
"""

from collections.abc import Callable
from typing import Any

from actors.address import Address, ReplyTo
from actors.messages_ledger import AppendDone, BarrierPassed, LedgerUp, Message, RunClosed
from actors.messages_work import Cancel, CancelTool, Grant
from actors.verdicts import ToolAnswer, Verdict
from maka.contracts import commands
from maka.contracts.actions import FileChange, ProcessStarted
from maka.contracts.commands import Reply
from maka.contracts.ids import CallId, RunId, SessionId
from maka.contracts.model_ports import DeltaBatch

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


class AnswerWait(Message, frozen=True):
    """To KernelActor, which passes it to the session, which passes it to the run, reviving it where it is parked."""

    command: commands.Answer
    reply: ReplyTo[Reply]


class UndoChanges(Message, frozen=True):
    """To KernelActor, which passes it to the session; answered when the undo's run has ended."""

    command: commands.Undo
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


class RunStarted(Message, frozen=True):
    """From SessionActor: a run has an actor."""

    session_id: SessionId
    run_id: RunId
    run: Address["ToRun"]


class ChildStarted(Message, frozen=True):
    """From RunActor: it has one more child, which is waited for if the run's actor dies."""

    run_id: RunId
    child: Address[Any]


class RunFinished(Message, frozen=True):
    """From RunActor, passed on to its session: its terminal is durable, at this position."""

    session_id: SessionId
    run_id: RunId
    position: int


class RunReleased(Message, frozen=True):
    """From SessionActor: it let a parked run's actor go; the end of that actor is no death."""

    run_id: RunId


class RunDied(Message, frozen=True):
    session_id: SessionId
    run_id: RunId
    reason: str


class OrphansDue(Message, frozen=True):
    """Timer: look again whether the children of a dead run are gone."""

    run_id: RunId


class LedgerDied(Message, frozen=True):
    """Nothing can be made durable any more: cancel every effect, append nothing."""

    reason: str


class Sweep(Message, frozen=True):
    """Look for actors that died without a word."""


# -- to SessionActor ----------------------------------------------------------------------------------------------


class OpenSession(Message, frozen=True):
    """Make the session: its first message, instead of Load."""

    number: int
    command: commands.CreateSession
    reply: ReplyTo[Reply]


class Load(Message, frozen=True):
    """Read the session from the ledger: its first message. Commands wait until it is done.

    `runs` are alive. A session that is `fenced` closes its runs and refuses everything with these words.
    """

    runs: tuple[tuple[RunId, Address["ToRun"]], ...] = ()
    fenced: str | None = None


class RunOver(Message, frozen=True):
    """From KernelActor: the run has ended, however it did; its end is durable."""

    run_id: RunId


class RunParked(Message, frozen=True):
    """From RunActor: nothing but a person's answer is missing, and it has seen `handled` commands."""

    run_id: RunId
    handled: int


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


CONTROL: frozenset[type[Message]] = frozenset(
    {
        AppendDone,
        RunClosed,
        BarrierPassed,
        LedgerUp,
        RunStarted,
        ChildStarted,
        RunReleased,
        RunDied,
        SessionDied,
        LedgerDied,
        BackendDied,
        ToolDied,
        StopRun,
        Due,
        Cancel,
        CancelTool,
        Grant,
    }
)
COMMANDS = (CreateSession, SendMessage, StopSession, AnswerWait, UndoChanges, OpenSession, StopRun, AnswerRun)

ToKernel = (
    CreateSession
    | SendMessage
    | StopSession
    | AnswerWait
    | UndoChanges
    | Recover
    | Shutdown
    | Idle
    | SessionStopped
    | SessionDied
    | RunStarted
    | ChildStarted
    | RunReleased
    | RunFinished
    | RunDied
    | OrphansDue
    | LedgerDied
    | Sweep
    | RunClosed
)
ToSession = (
    OpenSession
    | Load
    | SendMessage
    | StopSession
    | AnswerWait
    | UndoChanges
    | RunOver
    | RunParked
    | AppendDone
    | RunClosed
    | BarrierPassed
    | LedgerUp
)
ToRun = (
    Start
    | Resume
    | AnswerRun
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
