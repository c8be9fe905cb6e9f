"""What clients ask for and what they are answered. Commands are imperative; a command id makes a retry harmless."""

from typing import Literal

from msgspec import Struct

from maka.contracts.boundary import Expansion, Profile, Scope
from maka.contracts.content import RunLimits
from maka.contracts.errors import Refusal
from maka.contracts.ids import CallId, CommandId, EventId, MessageId, RunId, SessionId, TurnId


class CreateSession(Struct, frozen=True, kw_only=True):
    """Make a session. `real_cwd` has its links resolved; the caller has checked that it is a readable directory.

    `boundary` is the profile that its tools begin with.
    """

    command_id: CommandId
    cwd: str
    real_cwd: str
    title: str | None = None
    boundary: Profile = Profile.ASK


class SessionCreated(Struct, frozen=True, kw_only=True, tag_field="type", tag="session_created", rename="camel"):
    session_id: SessionId
    number: int
    position: int


class SendMessage(Struct, frozen=True, kw_only=True):
    """Give a session a message. An idle session starts a run with it; a busy one queues it durably."""

    command_id: CommandId
    session_id: SessionId
    text: str
    profile: str
    limits: RunLimits = RunLimits()


class MessageAccepted(Struct, frozen=True, kw_only=True, tag_field="type", tag="message_accepted", rename="camel"):
    """The message is durable. `run_id` is None while it waits in the queue; `message_id` is None when it never did."""

    session_id: SessionId
    position: int
    turn_id: TurnId | None = None
    run_id: RunId | None = None
    message_id: MessageId | None = None


HOST_SHUTDOWN = "host.shutdown"
"""The source of the host's own stops: never a person's, and it leaves parked runs parked."""


class Stop(Struct, frozen=True, kw_only=True):
    """End the session's run, whatever it is doing. `source` says which button or client."""

    session_id: SessionId
    source: str


class StoppedCall(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one tool call at a stop: its outcome's word."""

    call_id: CallId
    name: str
    outcome: str


class StopReceipt(Struct, frozen=True, kw_only=True, tag_field="type", tag="stop_receipt", rename="camel"):
    """What a stop did. Concurrent stops get the same receipt; `run_id` is None when nothing was running.

    `background` are the session's background shells, which a stop of a run leaves alone.
    """

    session_id: SessionId
    run_id: RunId | None = None
    status: str | None = None
    abort_source: str | None = None
    was: str = "idle"
    calls: tuple[StoppedCall, ...] = ()
    position: int | None = None
    background: tuple[str, ...] = ()


class ShellKept(Struct, frozen=True, kw_only=True):
    """The start of a background shell is durable, and this is its name."""

    session_id: SessionId
    shell_id: str
    position: int


class StopBackground(Struct, frozen=True, kw_only=True):
    """End a background shell of a session. `by` says which button or client."""

    session_id: SessionId
    shell_id: str
    by: str


class BackgroundStopped(Struct, frozen=True, kw_only=True, tag_field="type", tag="background_stopped", rename="camel"):
    """How a background shell ended, by this stop or before it: the words of its `process_ended` fact."""

    session_id: SessionId
    shell_id: str
    status: str
    exit_code: int | None = None
    by: str | None = None
    survivors: tuple[int, ...] = ()


class Answer(Struct, frozen=True, kw_only=True):
    """Answer a wait: a decision on a boundary, or the answers to questions, in their order. First answer wins."""

    session_id: SessionId
    request_id: EventId
    client: str | None = None
    decision: Literal["allow", "deny"] | None = None
    scope: Scope = "session"
    answers: tuple[str | None, ...] | None = None


class AnswerTaken(Struct, frozen=True, kw_only=True, tag_field="type", tag="answer_taken", rename="camel"):
    """The answer is durable and the run goes on."""

    session_id: SessionId
    run_id: RunId
    request_id: EventId
    position: int


class Undo(Struct, frozen=True, kw_only=True):
    """Put back what files held before a session's changes, or those of one of its runs.

    `files` are real paths, none for all. `force` puts those named files back although someone else changed them.
    """

    command_id: CommandId
    session_id: SessionId
    run_id: RunId | None = None
    files: tuple[str, ...] = ()
    force: bool = False


class UndoneFile(Struct, frozen=True, kw_only=True, rename="camel"):
    """One file of an undo: what it held, what it was to hold (None is no file), and what became of it."""

    path: str
    before_sha256: str | None
    after_sha256: str | None
    outcome: str
    text: str


class LeftFile(Struct, frozen=True, kw_only=True, rename="camel"):
    """A file that an undo leaves as it is, or doesn't take back all the way. Hashes where they tell.

    `reason` is already, changed, changed_between, later, nothing or unusable.
    """

    path: str
    reason: str
    message: str
    ours_sha256: str | None = None
    current_sha256: str | None = None


class CommandChanges(Struct, frozen=True, kw_only=True, rename="camel"):
    """What changed while commands ran: no undo takes it back. `more` paths aren't listed, `unlooked` calls unknown."""

    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    more: int = 0
    unlooked: int = 0


class UndoReceipt(Struct, frozen=True, kw_only=True, tag_field="type", tag="undo_receipt", rename="camel"):
    """What an undo did, as its run's facts say. `run_id` is None where there was nothing to do; undo it to redo.

    Of a plan: what it would do. Then there is no run, and the files' outcome is `planned`.
    """

    session_id: SessionId
    run_id: RunId | None = None
    status: str | None = None
    files: tuple[UndoneFile, ...] = ()
    left: tuple[LeftFile, ...] = ()
    commands: CommandChanges = CommandChanges()
    position: int | None = None


class ChangeBoundary(Struct, frozen=True, kw_only=True):
    """A person's change of what a session may touch: a profile, one more grant, or grants taken back."""

    command_id: CommandId
    session_id: SessionId
    profile: Profile | None = None
    grants: Expansion = Expansion()
    scope: Literal["session", "workspace"] = "session"
    revoked: tuple[EventId, ...] = ()
    client: str | None = None


class BoundarySet(Struct, frozen=True, kw_only=True, tag_field="type", tag="boundary_set", rename="camel"):
    """The change is durable: every call from now on is held against it."""

    session_id: SessionId
    revision: int
    position: int


Reply = (
    SessionCreated
    | MessageAccepted
    | StopReceipt
    | AnswerTaken
    | BoundarySet
    | UndoReceipt
    | ShellKept
    | BackgroundStopped
    | Refusal
)
