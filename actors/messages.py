"""Every message of the system, grouped by recipient: the whole conversation on one page (its further
pages are `messages_run`, `messages_work` and `messages_ledger`).

Messages are frozen and shared, not copied. `CONTROL` names those that go before data; in KernelActor, SessionActor
and LedgerActor everything that clients or writers send is one lane, so a Stop never overtakes its own SendMessage.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from actors.address import Address, ReplyTo
from actors.messages_ledger import AppendDone, BarrierPassed, LedgerUp, Message, RunClosed
from actors.messages_run import AnswerRun, BackendDied, Due, ShellWanted, StopRun, ToolDied, ToRun
from actors.messages_work import Cancel, CancelTool, Grant, KeepWanted
from maka.contracts import commands
from maka.contracts.actions import ProcessStarted
from maka.contracts.commands import Reply
from maka.contracts.ids import RunId, SessionId
from projections.session_index import Placed


class ProcessOfRun(Struct, frozen=True, kw_only=True):
    """A process that is to outlive the run that started it."""

    session_id: SessionId
    run_id: RunId
    started: ProcessStarted


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


class SetBoundary(Message, frozen=True):
    """To KernelActor, which passes it to the session."""

    command: commands.ChangeBoundary
    reply: ReplyTo[Reply]


class AnswerWait(Message, frozen=True):
    """To KernelActor, which passes it to the session, which passes it to the run, reviving it where it is parked."""

    command: commands.Answer
    reply: ReplyTo[Reply]


class UndoChanges(Message, frozen=True):
    """To KernelActor, which passes it to the session; answered when the undo's run has ended."""

    command: commands.Undo
    reply: ReplyTo[Reply]


class KeepShell(Message, frozen=True):
    """From RunActor to KernelActor, which passes it to the session: write the fact of a background process's start."""

    command: ProcessOfRun
    reply: ReplyTo[Reply]


class StopShell(Message, frozen=True):
    """To KernelActor, which passes it to the session; answered when the shell's end is durable."""

    command: commands.StopBackground
    reply: ReplyTo[Reply]


class ShellsChanged(Message, frozen=True):
    """From whoever holds the background shells, and passed to the session: one of its own has ended; look again."""

    session_id: SessionId


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
    run: Address[ToRun]


class ChildStarted(Message, frozen=True):
    """From RunActor: it has one more child. If the run's actor dies, a child that has a `cancel` is told so and waited
    for, any other one is stopped."""

    run_id: RunId
    child: Address[Any]
    cancel: CancelTool | None = None


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
    """Make the session: its first message, instead of Load. `before` are those of the same directory, newest first."""

    number: int
    before: tuple[Placed, ...]
    command: commands.CreateSession
    reply: ReplyTo[Reply]


class Load(Message, frozen=True):
    """Read the session from the ledger: its first message. Commands wait until it is done.

    `runs` are alive. A session that is `fenced` closes its runs and refuses everything with these words; one that is
    loaded while the host is `closing` begins nothing.
    """

    runs: tuple[tuple[RunId, Address[ToRun]], ...] = ()
    fenced: str | None = None
    closing: bool = False


class RunOver(Message, frozen=True):
    """From KernelActor: the run has ended, however it did; its end is durable, unless it `is_damaged`."""

    run_id: RunId
    is_damaged: bool = False


class RunParked(Message, frozen=True):
    """From RunActor: nothing but a person's answer is missing, and it has seen `handled` commands."""

    run_id: RunId
    handled: int


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
COMMANDS = (
    CreateSession,
    SendMessage,
    StopSession,
    SetBoundary,
    AnswerWait,
    UndoChanges,
    OpenSession,
    StopRun,
    AnswerRun,
    KeepWanted,
    ShellWanted,
    KeepShell,
    StopShell,
)

SessionCommand = SendMessage | StopSession | SetBoundary | AnswerWait | UndoChanges | KeepShell | StopShell
Command = CreateSession | SessionCommand
"""What the kernel takes from outside once its door is open."""

ToKernel = (
    Command
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
    | ShellsChanged
)
ToSession = (
    OpenSession
    | Load
    | SessionCommand
    | ShellsChanged
    | RunOver
    | RunParked
    | AppendDone
    | RunClosed
    | BarrierPassed
    | LedgerUp
)
