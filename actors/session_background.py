"""A session's background shells: their starts and ends become facts of its control stream.

Laws: whoever holds the processes is the truth about what lives; this only writes down what it says. An end without a
start among the facts isn't written; what finds no room is written when there is room again.
"""

from msgspec.structs import replace

from actors import mapper, session_protocol
from actors.address import ReplyTo
from actors.base import Log
from actors.mapper import At
from actors.messages import ProcessOfRun
from actors.session_log import SessionLog
from actors.wiring import Ports
from maka.contracts.actions import ProcessEnded
from maka.contracts.background_ports import ShellEnd
from maka.contracts.boundary import Boundary, Profile
from maka.contracts.codec import drafts
from maka.contracts.commands import BackgroundStopped, Reply, StopBackground
from maka.contracts.content import BlobRef
from maka.contracts.errors import LedgerError, Refusal, RefusalCode
from maka.contracts.events import RuntimeEvent
from maka.contracts.ids import CallId, InvocationId, RunId, SessionId
from maka.contracts.ports import Append, Group
from projections import background
from projections.background import Shell
from projections.boundary import BoundaryState

BY_BOUNDARY = "boundary"
ENDS_PER_APPEND = 16
_RANK = {Profile.EXPLORE: 0, Profile.ASK: 1, Profile.BYPASS: 2}


class OwnShells:
    """Owned by a SessionActor and used on its thread alone."""

    def __init__(self, ports: Ports, session_id: SessionId, log: Log) -> None:
        self._ports = ports
        self._session_id = session_id
        self._log = log
        self._stops: list[tuple[CallId, ReplyTo[Reply]]] = []
        self.is_held = False
        """Whether an end waits for room in the ledger."""

    def keep(self, log: SessionLog, wanted: ProcessOfRun, live: RunId | None, *, closing: bool) -> Append | Refusal:
        """Return the append of a shell's start, or why it must not begin."""
        if closing:
            return Refusal(code=RefusalCode.SHUTTING_DOWN, message="the host is shutting down")
        if live != wanted.run_id:
            return Refusal(code=RefusalCode.RUN_SEALED, message="its run has ended")
        started = replace(wanted.started, shell_id=log.background.next_id, run_id=wanted.run_id)
        event = mapper.shell_started(self._session_id, self._at(), started)
        return Append(groups=(Group(InvocationId(self._session_id), log.control_seq, drafts([event])),))

    def stop(self, log: SessionLog, command: StopBackground, refusal: Refusal | None, reply: ReplyTo[Reply]) -> None:
        """End a shell, also of a session that is merely fenced; whoever asked is answered when its end is durable."""
        if refusal is not None and refusal.code is not RefusalCode.INTERNAL:
            reply.set(refusal)
            return
        known = background.shells(log.background)
        shell = next((shell for shell in known if shell.shell_id == command.shell_id), None)
        if shell is None:
            names = ", ".join(shell.shell_id for shell in known if shell.is_live) or "none"
            reply.set(session_protocol.invalid(f"there is no such background shell; those that live: {names}"))
        elif not shell.is_live:
            reply.set(_receipt(shell))
        elif self._ports.background.stop(self._session_id, command.by, shell.call_id):
            self._stops.append((shell.call_id, reply))
        else:
            words = f"{shell.shell_id} isn't known to this host; a restart of maka ends what is left of it"
            reply.set(Refusal(code=RefusalCode.INTERNAL, message=words))

    def narrowed(self, before: BoundaryState | None, after: BoundaryState | None) -> None:
        """End the shells of a session that may touch less than before: they run with what held at their start."""
        if before is None or after is None or not _is_narrower(before.boundary, after.boundary):
            return
        self._ports.background.stop(self._session_id, BY_BOUNDARY)

    def ends(self, log: SessionLog, refusal: Refusal | None) -> Append | None:
        """Return the append of the ends that are due, if any; forget those that are recorded, and answer for them.

        Nothing of the session may be in flight: an end whose start is no fact now never gets one.
        """
        if refusal is not None and refusal.code is RefusalCode.SESSION_DAMAGED:
            self._ports.background.forget(self._session_id)
            return None
        self._answer_stops(log)
        due: list[ShellEnd] = []
        for end in self._ports.background.unrecorded(self._session_id):
            if end.call_id in log.background.live:
                due.append(end)
            else:
                self._ports.background.recorded(end.call_id)
        return None if self.is_held or not due else self._append(log, due[:ENDS_PER_APPEND])

    def refused(self, refusal: Refusal, *, closing: bool) -> None:
        """Note that the ends found no room, and say so to those who wait for them."""
        assert refusal.code in (RefusalCode.LEDGER_FULL, RefusalCode.LEDGER_CLOSED, RefusalCode.SESSION_DAMAGED), (
            f"the ledger refused an end: {refusal.code} {refusal.message}"
        )
        self.is_held = True
        self._answer_all(refusal)
        if closing:
            self._ports.background.forget(self._session_id)

    def room(self) -> None:
        """There is room again."""
        self.is_held = False

    def leave(self, refusal: Refusal) -> None:
        """Answer whoever still waits: the session's actor ends."""
        self._answer_all(refusal)

    def _append(self, log: SessionLog, due: list[ShellEnd]) -> Append:
        events: list[RuntimeEvent] = []
        blobs: list[bytes] = []
        for end in due:
            output, inline = self._store(end.output)
            blobs += inline
            shell = log.background.live[end.call_id]
            ended = ProcessEnded(
                call_id=end.call_id,
                process=shell.process,
                how=end.how,
                exit_code=end.exit_code,
                shell_id=shell.shell_id,
                by=end.by,
                output=output,
                note=end.note,
                survivors=end.survivors,
            )
            events.append(mapper.shell_ended(self._session_id, self._at(), ended))
        group = Group(InvocationId(self._session_id), log.control_seq, drafts(events))
        # An end may use the room that is kept for endings.
        return Append(groups=(group,), blobs=tuple(blobs), settlement=True)

    def _store(self, output: bytes) -> tuple[BlobRef | None, list[bytes]]:
        """Store what a shell printed; without room its end still counts."""
        if not output:
            return None, []
        try:
            ref, inline = self._ports.blobs.put(output)
        except LedgerError as error:
            self._log.error("output_not_stored", error_kind=str(error))
            return None, []
        return ref, [] if inline is None else [inline]

    def _at(self) -> At:
        return At(self._ports.ids(), self._ports.clock.now_ms())

    def _answer_stops(self, log: SessionLog) -> None:
        over = [(call_id, reply) for call_id, reply in self._stops if call_id not in log.background.live]
        if not over:
            return
        self._stops = [stop for stop in self._stops if stop not in over]
        ended = {shell.call_id: shell for shell in log.background.ended}
        for call_id, reply in over:
            reply.set(_receipt(ended[call_id]))

    def _answer_all(self, refusal: Refusal) -> None:
        stops, self._stops = self._stops, []
        for _, reply in stops:
            reply.set(refusal)


def _receipt(shell: Shell) -> BackgroundStopped:
    return BackgroundStopped(
        session_id=shell.session_id,
        shell_id=shell.shell_id,
        status=shell.status,
        exit_code=shell.exit_code,
        by=shell.by,
        survivors=shell.survivors,
    )


def _is_narrower(before: Boundary, after: Boundary) -> bool:
    """Say whether something that may be used for longer than one run was taken away."""
    kept = {grant.origin for grant in after.grants}
    lost = any(grant.origin not in kept for grant in before.grants if grant.scope != "once")
    return lost or _RANK[after.profile] < _RANK[before.profile]
