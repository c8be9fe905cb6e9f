"""SessionReads: what can be asked of sessions without changing one, over a store and the files as they are.

Laws: it answers beside a running host as well as in it, from any thread; what doesn't fit, and a session or run that
isn't there, is a RefusedError. SessionManager offers the same reads; the command line uses them without a host.
"""

import os
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from actors import session_undo
from maka import given
from maka.artifact_content import content_of
from maka.contracts.boundary import Boundary
from maka.contracts.codec import CodecError
from maka.contracts.commands import Undo, UndoneFile, UndoReceipt
from maka.contracts.errors import FoldError, LedgerError, Refusal, RefusalCode, RefusedError
from maka.contracts.ids import CommandId, EventId, InvocationId, RunId, SessionId
from maka.contracts.limits import BLOB_BYTES_MAX
from maka.contracts.ports import LedgerReader
from maka.file_diffs import Look, SessionChanges, file_diffs
from projections import artifacts, background, boundary, changes, inbox, session_index, undo_plan
from projections.artifacts import Artifact
from projections.background import Shell
from projections.changes import Changes
from projections.inbox import Closed, PendingWait
from projections.session_index import Header

SAID_CHARS_MAX = 200
_PLAN = CommandId("plan")
"""A plan is no command: nothing is sent under this name."""


class SessionReads:
    """Every read of a session. `look` says what a file is now."""

    def __init__(self, reader: LedgerReader, look: Look) -> None:
        self._reader = reader
        self._look = look

    def header(self, session_id: str) -> Header:
        """Return a session at a glance, folded anew where what is stored of it is damaged."""
        return read_header(self._reader, given.session(session_id))

    def run(self, session_id: str, run_id: str | None) -> RunId | None:
        """Return the id of a run of this session, None where none is given."""
        header = self.header(session_id)
        if run_id is None:
            return None
        known = given.run(run_id)
        opening = self._reader.read_stream(InvocationId(known), 0, 1)
        if not opening or (opening[0].event.session_id, opening[0].event.run_id) != (header.session_id, known):
            words = f"session #{header.number} has no such run; `maka show {header.number}` names its runs"
            raise _refused(RefusalCode.UNKNOWN_RUN, words)
        return known

    def pending(self) -> list[PendingWait]:
        """Return every open request of every session, oldest first."""
        return inbox.pending(self._reader)

    def why_not_taken(self, session_id: SessionId, request_id: EventId) -> Refusal | None:
        """Say what became of a request, or where it waits if not here; None where the log doesn't tell (yet)."""
        with suppress(LedgerError):
            closed = inbox.closing(self._reader.iter_session(session_id), request_id)
            if closed is not None and closed.id == request_id:
                return Refusal(code=RefusalCode.WAIT_CLOSED, message=_too_late(closed))
            if not inbox.was_asked(self._reader.iter_session(session_id), request_id):
                return _astray(session_id, request_id, self.pending())
        return None

    def boundary(self, session_id: str) -> Boundary:
        """Return what a session's tools may touch, with the fact that each grant came from."""
        state = boundary.project(self._reader.iter_session(self.header(session_id).session_id))
        assert state is not None, "a session with a header has facts"
        return state.boundary

    def background(self, session_id: str | None = None) -> list[Shell]:
        """Return a session's background shells, ended ones too; without a session, those of all that live."""
        if session_id is None:
            return background.live(self._reader)
        return background.read_all(self._reader, (self.header(session_id).session_id,))

    def changes(self, session_id: str, run_id: str | None = None, *, files: Sequence[str] = ()) -> SessionChanges:
        """Return what stands of a session's changes, or all that one run changed, of all files or of some."""
        header, run = self.header(session_id), self.run(session_id, run_id)
        found = self._changes(header.session_id)
        return SessionChanges(
            session_id=header.session_id,
            run_id=run,
            boundary=header.boundary,
            files=file_diffs(self._reader, self._look, found, run, _resolved(found, files)),
            commands=changes.by_commands(found, run),
        )

    def undo_plan(
        self, session_id: str, *, run_id: str | None = None, files: Sequence[str] = (), force: bool = False
    ) -> UndoReceipt:
        """Return what an undo would do if it were asked for now: nothing is changed, and no run is made.

        Files that would be put back have the outcome `planned`. What would be refused as a whole is refused here, but
        for a session that is at work: that is over by the time.
        """
        header, run = self.header(session_id), self.run(session_id, run_id)
        found = self._changes(header.session_id)
        paths = _resolved(found, files)
        command = Undo(command_id=_PLAN, session_id=header.session_id, run_id=run, files=paths, force=force)
        refusal = session_undo.check(given.fitting(command), header, busy=False)
        if refusal is not None:
            raise RefusedError(refusal)
        now = {path: self._look(found.root, path)[0] for path in undo_plan.candidates(found, run, paths)}
        plan = undo_plan.plan(found, run, now, files=paths, force=force)
        if (refusal := session_undo.too_many(plan)) is not None:
            raise RefusedError(refusal)
        planned = tuple(
            UndoneFile(
                path=step.path,
                before_sha256=step.now_sha256,
                after_sha256=step.then_sha256,
                outcome="planned",
                text="",
            )
            for step in plan.steps
        )
        commands = changes.by_commands(found, run)
        return UndoReceipt(session_id=header.session_id, files=planned, left=plan.left, commands=commands)

    def paths(self, session_id: str, files: Sequence[str]) -> tuple[str, ...]:
        """Return the real paths of the files that a caller means.

        A relative one is of the workspace where the session changed such a file, else of this process's folder.
        """
        named = tuple(map(given.path, given.several(files, "files")))
        return _resolved(self._changes(self.header(session_id).session_id), named) if named else ()

    def artifacts(self, session_id: str, run_id: str | None = None) -> list[Artifact]:
        """Return what a session or a run left to look at, in the order of the facts: files, diffs, long outputs."""
        header, run = self.header(session_id), self.run(session_id, run_id)
        state = artifacts.project(self._reader.iter_session(header.session_id))
        found = () if state is None else state.found
        return [artifact for artifact in found if run in (None, artifact.run_id)]

    def artifact_content(self, session_id: str, artifact: Artifact, *, bytes_max: int = BLOB_BYTES_MAX) -> bytes:
        """Return the whole content of an artifact that `artifacts` listed, as it was then.

        Refused where it isn't in the store, and where it has more than `bytes_max` bytes: half of it is never
        returned as if it were all.
        """
        named, bound = given.artifact(artifact), given.size(bytes_max, "bytes_max")
        header = self.header(session_id)
        if named not in self.artifacts(header.session_id):
            raise given.refused(f"session #{header.number} has no such artifact: take one that artifacts() returns")
        _check_size(named.size_bytes or 0, bound)
        data = content_of(self._reader, header.session_id, named)
        if data is None:
            words = f"the content of this {named.kind} isn't in the store; its SHA-256 is {named.sha256}"
            raise given.refused(words)
        _check_size(len(data), bound)
        return data

    def _changes(self, session_id: SessionId) -> Changes:
        folded = changes.project(self._reader.iter_session(session_id))
        if folded is None:
            raise FoldError(f"session {session_id} has a header but no facts")
        return changes.changes(folded)


def read_header(reader: LedgerReader, session_id: SessionId) -> Header:
    """Return a session's header, folded anew where the stored one is damaged. Raises RefusedError if there is none."""
    data = reader.header_of(session_id)
    if data is not None:
        with suppress(CodecError):
            return session_index.decode(data)
    header = session_index.project(reader.iter_session(session_id))
    if header is None:
        raise _refused(RefusalCode.UNKNOWN_SESSION, "no such session; `maka sessions` lists them")
    return header


def _resolved(found: Changes, files: Sequence[str]) -> tuple[str, ...]:
    paths: list[str] = []
    for name in map(given.path, given.several(files, "files")):
        # As `changes` names it first: what was a file then may be a link, or lie behind one, by now.
        named = os.path.join(found.root, name)
        meant = (os.path.normpath(named), os.path.realpath(named))
        paths.append(next((path for path in meant if path in found.chains), os.path.realpath(name)))
    return tuple(paths)


def _check_size(size_bytes: int, bound: int) -> None:
    if size_bytes > bound:
        raise given.refused(f"it has {size_bytes:,} bytes, more than the {bound:,} of bytes_max: allow more")


def _refused(code: RefusalCode, message: str) -> RefusedError:
    return RefusedError(Refusal(code=code, message=message))


def _too_late(closed: Closed) -> str:
    """Say who answered a request first, and with what; texts are in quotes, as in JSON."""
    if closed.answers is not None:
        said = ", ".join("no answer" if each is None else _quoted(each) for each in closed.answers)
        what = f"answered{_by(closed)}: {said}"
    elif closed.decision is not None:
        scope = f", {closed.scope or 'session'}" if closed.decision == "allow" else ""
        what = f"{closed.decision}{scope}{_by(closed)}"
    else:
        what = f"closed: {closed.reason}"
    return f"request {closed.id} no longer waits ({what}, position {closed.position}); this answer changed nothing"


def _astray(session_id: SessionId, request_id: EventId, open_: Sequence[PendingWait]) -> Refusal:
    """Say that a session never asked what is answered there, and where it is waited for."""
    wait = next((wait for wait in open_ if wait.id == request_id), None)
    if wait is None:
        where = "`maka inbox` lists what waits"
    else:
        where = f"it waits in session #{wait.session_number}, {wait.session_id}: answer it there"
    words = f"session {session_id} never asked {request_id}: {where}; this answer changed nothing"
    return given.refused(words).refusal


def _by(closed: Closed) -> str:
    return f" by {_quoted(closed.client)}" if closed.client else ""


def _quoted(text: str) -> str:
    """Return a text on one line, its end left out where it is long."""
    short = text if len(text) <= SAID_CHARS_MAX else text[: SAID_CHARS_MAX - 1] + "…"
    return msgspec.json.encode(short).decode()
