"""SessionManager: the thread-safe facade that command line, gateway, tests and embedders call.

It turns calls into commands and waits for their answers, always with a timeout: no answer in time is an unknown
outcome, never a failure, and the same command id sent again tells. A refusal is raised as RefusedError.
"""

import os
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from msgspec.structs import replace

from actors.address import Address, OneShot
from actors.messages import (
    AnswerWait,
    Command,
    CreateSession,
    SendMessage,
    SetBoundary,
    StopSession,
    StopShell,
    ToKernel,
    UndoChanges,
)
from actors.messages_ledger import Subscribe, ToFeed
from maka import given
from maka.contracts import commands
from maka.contracts.boundary import Boundary, Expansion, Scope
from maka.contracts.commands import (
    AnswerTaken,
    BackgroundStopped,
    BoundarySet,
    MessageAccepted,
    Reply,
    SessionCreated,
    StopReceipt,
    UndoReceipt,
)
from maka.contracts.content import RunLimits
from maka.contracts.errors import OutcomeUnknownError, Refusal, RefusalCode, RefusedError
from maka.contracts.ids import CommandId, EventId, IdSource
from maka.contracts.limits import BLOB_BYTES_MAX, COMMAND_TIMEOUT_S, UNDO_TIMEOUT_S
from maka.file_diffs import SessionChanges
from maka.session_reads import SessionReads
from maka.subscription import Subscription
from projections.artifacts import Artifact
from projections.background import Shell
from projections.inbox import PendingWait

R = TypeVar("R", SessionCreated, MessageAccepted, StopReceipt, AnswerTaken, BoundarySet, UndoReceipt, BackgroundStopped)


class SessionManager:
    """What a host offers. Every method may be called from any thread but an actor's."""

    def __init__(
        self,
        kernel: Address[ToKernel],
        feed: Address[ToFeed],
        reads: SessionReads,
        ids: IdSource,
        timeout_s: float = COMMAND_TIMEOUT_S,
        failed: Callable[[], bool] = lambda: False,
        normalise: given.Normalise = given.as_it_is,
    ) -> None:
        self._kernel = kernel
        self._feed = feed
        self._reads = reads
        self._ids = ids
        self._timeout_s = timeout_s
        self._failed = failed
        self._normalise = normalise

    def create_session(
        self, cwd: str, *, title: str | None = None, boundary: str = "ask", command_id: str | None = None
    ) -> SessionCreated:
        """Make a session that works in a directory, which must be readable. `boundary` is its tools' profile."""
        named = given.path(cwd)
        folder, real = os.path.abspath(named), os.path.realpath(named)
        given.check_directory(folder)
        given.check_directory(real)
        command = commands.CreateSession(
            command_id=self._command_id(command_id),
            cwd=folder,
            real_cwd=real,
            title=None if title is None else given.text(title, "a title"),
            boundary=given.profile(boundary),
        )
        reply: OneShot[Reply] = OneShot()
        return self._answer(CreateSession(command=command, reply=reply), reply, command.command_id, SessionCreated)

    def send_message(
        self,
        session_id: str,
        text: str,
        *,
        profile: str,
        limits: RunLimits | None = None,
        command_id: str | None = None,
    ) -> MessageAccepted:
        """Give a session a message: an idle one starts a run, a busy one queues it durably."""
        command = commands.SendMessage(
            command_id=self._command_id(command_id),
            session_id=given.session(session_id),
            text=given.text(text, "a message"),
            profile=given.name(profile, "a profile's name"),
            limits=given.limits(limits),
        )
        reply: OneShot[Reply] = OneShot()
        return self._answer(SendMessage(command=command, reply=reply), reply, command.command_id, MessageAccepted)

    def stop(self, session_id: str, source: str) -> StopReceipt:
        """End a session's run, whatever it is doing; returns when its end is durable.

        Background shells go on: the receipt names them, and `stop_background` ends them.
        """
        command = commands.Stop(session_id=given.session(session_id), source=given.source(source))
        reply: OneShot[Reply] = OneShot()
        receipt = self._answer(
            StopSession(command=command, reply=reply), reply, f"stop {command.session_id}", StopReceipt
        )
        live = (shell.shell_id for shell in self.background(command.session_id) if shell.is_live)
        return replace(receipt, background=tuple(live))

    def background(self, session_id: str | None = None) -> list[Shell]:
        """Return a session's background shells, ended ones too; without a session, those of all that live."""
        return self._reads.background(session_id)

    def stop_background(self, session_id: str, shell_id: str, by: str = "client") -> BackgroundStopped:
        """End a background shell with all that it started; returns when its end is durable."""
        who, what = given.name(by, "a client's name"), given.name(shell_id, "a shell's name")
        command = commands.StopBackground(session_id=given.session(session_id), shell_id=what, by=who)
        reply: OneShot[Reply] = OneShot()
        return self._answer(
            StopShell(command=command, reply=reply), reply, f"stop {what} of {command.session_id}", BackgroundStopped
        )

    def answer(
        self,
        session_id: str,
        request_id: str,
        *,
        decision: Literal["allow", "deny"] | None = None,
        scope: Scope = "session",
        answers: tuple[str | None, ...] | None = None,
        client: str | None = None,
    ) -> AnswerTaken:
        """Answer what a run waits for; the first answer wins, and a parked run goes on with it.

        A boundary request takes a decision and how long it holds, a question the answers in their order. A refusal of
        a later answer says who was first, and with what.
        """
        if (decision is None) == (answers is None):
            raise given.refused("give a decision for a boundary request, or answers for a question: one of the two")
        command = commands.Answer(
            session_id=given.session(session_id),
            request_id=EventId(given.name(request_id, "a request's id")),
            client=given.client_name(client),
            decision=decision,
            scope=scope,
            answers=None if answers is None else tuple(map(given.answer_text, given.several(answers, "answers"))),
        )
        reply: OneShot[Reply] = OneShot()
        message = AnswerWait(command=command, reply=reply)
        try:
            return self._answer(message, reply, f"answer {command.request_id}", AnswerTaken)
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.WAIT_CLOSED:
                raise
            if (refusal := self._reads.why_not_taken(command.session_id, command.request_id)) is None:
                raise
            raise RefusedError(refusal) from None

    def undo(
        self,
        session_id: str,
        *,
        run_id: str | None = None,
        files: Sequence[str] = (),
        force: bool = False,
        command_id: str | None = None,
    ) -> UndoReceipt:
        """Put back what files held before a session's changes, or those of one run; returns when that is durable.

        A file that someone else changed since is left as it is, unless it is named and forced. The undo is a run of
        its own: undoing that run takes it back. `undo_plan` says beforehand what would be done.
        """
        run = self._reads.run(session_id, run_id)
        command = commands.Undo(
            command_id=self._command_id(command_id),
            session_id=given.session(session_id),
            run_id=run,
            files=self._reads.paths(session_id, files),
            force=force,
        )
        reply: OneShot[Reply] = OneShot()
        message = UndoChanges(command=command, reply=reply)
        return self._answer(message, reply, command.command_id, UndoReceipt, max(self._timeout_s, UNDO_TIMEOUT_S))

    def pending(self) -> list[PendingWait]:
        """Return every open request of every session, oldest first."""
        return self._reads.pending()

    def boundary(self, session_id: str) -> Boundary:
        """Return what a session's tools may touch, with the fact that each grant came from."""
        return self._reads.boundary(session_id)

    def changes(self, session_id: str, run_id: str | None = None, *, files: Sequence[str] = ()) -> SessionChanges:
        """Return what stands of a session's changes, or all that one run changed, as unified diffs."""
        return self._reads.changes(session_id, run_id, files=files)

    def undo_plan(
        self, session_id: str, *, run_id: str | None = None, files: Sequence[str] = (), force: bool = False
    ) -> UndoReceipt:
        """Return what an undo would do now: files to be put back are `planned`, what would stay is `left`."""
        return self._reads.undo_plan(session_id, run_id=run_id, files=files, force=force)

    def artifacts(self, session_id: str, run_id: str | None = None) -> list[Artifact]:
        """Return what a session or a run left to look at: files that were written, diffs, long outputs and texts."""
        return self._reads.artifacts(session_id, run_id)

    def artifact_content(self, session_id: str, artifact: Artifact, *, bytes_max: int = BLOB_BYTES_MAX) -> bytes:
        """Return the whole content of an artifact, as it was then; refused where it is larger than the bound."""
        return self._reads.artifact_content(session_id, artifact, bytes_max=bytes_max)

    def change_boundary(
        self,
        session_id: str,
        *,
        profile: str | None = None,
        grants: Expansion | None = None,
        scope: Literal["session", "workspace"] = "session",
        revoked: tuple[str, ...] = (),
        client: str | None = None,
        command_id: str | None = None,
    ) -> BoundarySet:
        """Change what a session's tools may touch, from their next call on: a person's act, with its own fact.

        Paths of `grants` may be relative to the workspace; what becomes the fact is real and absolute.
        """
        wider = given.grants(grants)
        if wider != Expansion():
            wider = self._normalise(wider, self.boundary(session_id).workspace)
        command = commands.ChangeBoundary(
            command_id=self._command_id(command_id),
            session_id=given.session(session_id),
            profile=None if profile is None else given.profile(profile),
            grants=wider,
            scope=scope,
            revoked=tuple(EventId(given.name(each, "a grant's id")) for each in given.several(revoked, "grants")),
            client=given.client_name(client),
        )
        reply: OneShot[Reply] = OneShot()
        return self._answer(SetBoundary(command=command, reply=reply), reply, command.command_id, BoundarySet)

    def subscribe(self, session_id: str, *, after_position: int = 0) -> Subscription:
        """Follow a session from after a position; live events come as they happen."""
        after = given.position(after_position)
        followed = self._reads.header(session_id).session_id
        subscription = Subscription(self._feed)
        message = Subscribe(session_id=followed, after_position=after, sink=subscription)
        if not self._feed.tell(message):
            raise RefusedError(_not_ready())
        return subscription

    def _command_id(self, own: str | None) -> CommandId:
        return CommandId(self._ids()) if own is None else given.command_id(own)

    def _answer(
        self,
        message: Command,
        reply: OneShot[Reply],
        name: str,
        wanted: type[R],
        timeout_s: float | None = None,
    ) -> R:
        if not self._kernel.tell(replace(message, command=given.fitting(message.command))):
            raise RefusedError(_not_ready())
        answer = reply.wait_unless(self._failed, self._timeout_s if timeout_s is None else timeout_s)
        if answer is None:
            raise OutcomeUnknownError(name)
        if isinstance(answer, Refusal):
            if answer.code is RefusalCode.OUTCOME_UNKNOWN:
                raise OutcomeUnknownError(name)
            raise RefusedError(replace(answer, message=given.one_line(answer.message)))
        assert isinstance(answer, wanted), f"{type(answer).__name__} answers {type(message).__name__}"
        return answer


def _not_ready() -> Refusal:
    return Refusal(code=RefusalCode.NOT_READY, message="the host isn't running; start it again")
