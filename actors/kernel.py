"""KernelActor: root of the tree. Recovery, the table of live sessions, routing, passivation, shutdown.

Laws: nothing is admitted before recovery is done; a session has one actor at a time; it is let go only when it is
idle and has seen every command that was sent to it; at shutdown the door is closed first.
"""

from collections import deque
from functools import partial
from typing import assert_never

from msgspec import Struct

from actors import recovery, session_protocol
from actors.address import Address, ReplyTo
from actors.base import CannotStartError, MakaActor
from actors.messages import (
    AnswerWait,
    ChildStarted,
    Command,
    CreateSession,
    Idle,
    KeepShell,
    LedgerDied,
    Load,
    OpenSession,
    OrphansDue,
    Parent,
    Recover,
    RunDied,
    RunFinished,
    RunOver,
    RunReleased,
    RunStarted,
    SendMessage,
    SessionCommand,
    SessionDied,
    SessionStopped,
    SetBoundary,
    ShellsChanged,
    Shutdown,
    StopSession,
    StopShell,
    Sweep,
    ToKernel,
    ToSession,
    UndoChanges,
)
from actors.messages_ledger import CloseRun, RunClosed, ToFeed, ToLedger
from actors.session import SessionActor
from actors.shutdown import ShuttingDown
from actors.supervisor import Supervisor
from actors.wiring import Ports
from maka.contracts.errors import LedgerError, Refusal, RefusalCode
from maka.contracts.ids import InvocationId, RunId, SessionId, is_id
from maka.contracts.limits import SESSIONS_IDLE_MAX
from projections import session_index
from projections.recovery_verdict import ORPHANS_ENDED

FENCED = "this session's part of the program crashed too often; restart maka to try it again"


class Live(Struct):
    """A session's actor, and the number of commands that were sent to it."""

    address: Address[ToSession]
    sent: int = 0
    idle: bool = False


class KernelActor(MakaActor[ToKernel]):
    """Started by the composition root; told Recover first."""

    def __init__(self, ports: Ports, parent: Parent | None, ledger: Address[ToLedger], feed: Address[ToFeed]) -> None:
        super().__init__(ports.log, parent)
        self._ports = ports
        self._ledger = ledger
        self._feed = feed
        self._live: dict[SessionId, Live] = {}
        self._fenced: set[SessionId] = set()
        self._unloaded: set[SessionId] = set()
        self._ledger_died = False
        self._supervisor = Supervisor(ports.log, ports.clock, ports.timers, lambda: self.address, ledger)
        self._next_number = 1
        self._open = False
        self._early: deque[Command] = deque()
        self._recovered: ReplyTo[int] | None = None
        self._closing: set[InvocationId] = set()
        self._closed = 0
        self._to_resume: tuple[SessionId, ...] = ()
        self._shutdown = ShuttingDown(ports.background)

    def receive(self, message: ToKernel) -> None:
        match message:
            case CreateSession() | SendMessage() | StopSession() | SetBoundary() | AnswerWait() | UndoChanges():
                self._admit(message)
            case KeepShell() | StopShell():
                self._admit(message)
            case ShellsChanged(session_id=session_id):
                self._note_shells(session_id)
            case Recover(reply=reply):
                self._recover(reply)
            case RunClosed():
                self._note_closed(message)
            case Idle(session_id=session_id, handled=handled):
                self._note_idle(session_id, handled)
            case Shutdown(reply=reply):
                sessions = [(session_id, live.address) for session_id, live in self._live.items()]
                self._shutdown.begin(reply, sessions, self.address)
            case SessionStopped(session_id=session_id):
                self._shutdown.left(session_id)
            case SessionDied(session_id=session_id):
                self._reload(session_id)
            case RunStarted():
                self._supervisor.started(message)
            case ChildStarted():
                self._supervisor.child_started(message)
            case RunReleased(run_id=run_id):
                self._supervisor.finished(run_id)
            case RunFinished(session_id=session_id, run_id=run_id):
                self._note_over(session_id, run_id)
            case RunDied(session_id=session_id, run_id=run_id, reason=reason):
                self._supervisor.run_died(session_id, run_id, reason)
            case OrphansDue(run_id=run_id):
                self._supervisor.look_after(run_id)
            case LedgerDied():
                self._give_everything_up()
            case Sweep():
                self._sweep()
            case _:
                assert_never(message)

    def cleanup(self) -> None:
        for live in self._live.values():
            live.address.stop()
        self._supervisor.stop_all()
        for message in self._early:
            message.reply.set(session_protocol.CLOSED)

    # -- recovery -------------------------------------------------------------------------------------------------

    def _recover(self, reply: ReplyTo[int]) -> None:
        self._recovered = reply
        self._ports.background.listen(partial(_tell_of_shells, self.address))
        self._next_number = self._ports.reader.last_number() + 1
        found = recovery.take_inventory(self._ports.reader, self.log)
        processes = tuple(process for left in (*found.runs, *found.control) for process in left.processes)
        if processes:
            killed = self._ports.processes.kill_left_over(processes)
            self.log.info("left_over_processes_killed", count=len(killed))
        for path in (path for run in found.runs for path in run.temp_files):
            self._ports.leftovers.unlink_temp(path)
        self._to_resume = tuple(control.session_id for control in found.control)
        to_close = [*found.runs, *(control for control in found.control if control.processes)]
        self._closing = {left.invocation_id for left in to_close}
        for left in to_close:
            self._ledger.tell(
                CloseRun(
                    session_id=left.session_id,
                    invocation_id=left.invocation_id,
                    reason="app_restarted",
                    to=self.address,
                )
            )
        self._open_door()

    def _note_closed(self, message: RunClosed) -> None:
        """A run that had no actor is ended, or stays parked: recovery's, or one whose actor died."""
        if message.invocation_id in self._closing:
            self._closing.discard(message.invocation_id)
            self._closed += message.verdict not in ("parked", "damaged", ORPHANS_ENDED)
            self._open_door()
        else:
            is_damaged = message.verdict == "damaged"
            self._note_over(message.session_id, RunId(message.invocation_id), is_damaged=is_damaged)

    def _note_over(self, session_id: SessionId, run_id: RunId, *, is_damaged: bool = False) -> None:
        self._supervisor.finished(run_id)
        if not self._ledger_died and (live := self._wake(session_id)) is not None:
            live.address.tell(RunOver(run_id=run_id, is_damaged=is_damaged))

    def _open_door(self) -> None:
        if self._closing or self._open or self._recovered is None:
            return
        self._open = True
        for session_id in self._to_resume:
            self._wake(session_id)
        self._recovered.set(self._closed)
        while self._early:
            self.attempt(self._admit, self._early.popleft())

    # -- commands -------------------------------------------------------------------------------------------------

    def _admit(self, message: Command) -> None:
        if self._shutdown.is_on or self._ledger_died:
            message.reply.set(session_protocol.CLOSED)
        elif not self._open:
            self._early.append(message)
        else:
            try:
                self._pass_on(message)
            except (LedgerError, CannotStartError) as error:  # nothing was decided yet
                message.reply.set(Refusal(code=RefusalCode.NOT_READY, message=f"{error}; nothing was done"))

    def _pass_on(self, message: Command) -> None:
        if isinstance(message, CreateSession):
            self._create(message)
        else:
            self._route(message.command.session_id, message)

    def _create(self, message: CreateSession) -> None:
        command, reader = message.command, self._ports.reader
        if (refusal := session_protocol.check_create(command)) is not None:
            message.reply.set(refusal)
            return
        if (known := reader.command("", command.command_id)) is not None:
            stored = reader.read_positions(known.position - 1, 1)[0]
            conflict = session_protocol.check_known(known, session_protocol.key_of(command))
            message.reply.set(conflict or session_protocol.outcome_of(stored))
            return
        session_id = SessionId(self._ports.ids())
        live = self._start(session_id)
        number, self._next_number = self._next_number, self._next_number + 1
        live.sent += 1
        before = session_index.in_folder(reader.header_bytes(), command.real_cwd)  # their grants to it go on
        live.address.tell(OpenSession(number=number, before=before, command=command, reply=message.reply))

    def _route(self, session_id: SessionId, message: SessionCommand) -> None:
        if not is_id(session_id):
            words = f"not a session id: {session_id[:64]!r}; `maka sessions` lists them"
            message.reply.set(session_protocol.invalid(words))
            return
        live = self._session(session_id)
        live.sent += 1
        live.idle = False
        live.address.tell(message)

    def _note_shells(self, session_id: SessionId) -> None:
        """Let a session record what has ended of its background shells; one that is loaded later does so by itself."""
        is_due = bool(self._ports.background.unrecorded(session_id)) and not self._ledger_died
        if is_due and (live := self._wake(session_id)) is not None:
            live.sent += 1
            live.idle = False
            live.address.tell(ShellsChanged(session_id=session_id))
        elif is_due and self._shutdown.is_on:
            self._shutdown.died(session_id)
        self._shutdown.finish()

    def _session(self, session_id: SessionId) -> Live:
        """Return the session's actor, loading it where there is none."""
        live = self._live.get(session_id)
        if live is None:
            live = self._start(session_id)
            fenced = FENCED if session_id in self._fenced else None
            runs = self._supervisor.runs_of(session_id)
            live.address.tell(Load(runs=runs, fenced=fenced, closing=self._shutdown.is_on))
        return live

    def _wake(self, session_id: SessionId) -> Live | None:
        """Do as `_session`; one that can't be started now reads all of this in the log at one of the next sweeps."""
        try:
            return self._session(session_id)
        except CannotStartError as error:
            self.log.error("session_not_loaded", session_id=session_id, error_kind=str(error))
            self._unloaded.add(session_id)
            return None

    def _start(self, session_id: SessionId) -> Live:
        address = self.address

        def died(reason: str) -> None:
            address.tell(SessionDied(session_id=session_id, reason=reason))

        actor = self._ports.spawn(SessionActor, self._ports, died, session_id, address, self._ledger, self._feed)
        live = Live(actor)
        self._live[session_id] = live
        return live

    # -- passivation and death ------------------------------------------------------------------------------------

    def _note_idle(self, session_id: SessionId, handled: int) -> None:
        live = self._live.get(session_id)
        if live is None or live.sent != handled:
            return  # a command is on its way: it isn't idle any more
        live.idle = True
        # The newest idle one stands last; the oldest goes first when there are too many.
        self._live[session_id] = self._live.pop(session_id)
        idle = [key for key, each in self._live.items() if each.idle]
        for key in idle[: max(0, len(idle) - SESSIONS_IDLE_MAX)]:
            self._live.pop(key).address.stop()

    def _reload(self, session_id: SessionId) -> None:
        """Read a crashed session again; its runs live on, unless it crashes too often."""
        self._live.pop(session_id, None)
        if self._shutdown.is_on:
            self._shutdown.died(session_id)
        if self._shutdown.is_on or self._ledger_died:
            return
        if session_id in self._fenced:
            return  # its next command tries once more
        if not self._supervisor.may_reload(session_id):
            self.log.error("session_fenced", session_id=session_id)
            self._fenced.add(session_id)
            self._supervisor.give_up(session_id)
        self._wake(session_id)

    def _sweep(self) -> None:
        for session_id, live in tuple(self._live.items()):
            if not live.address.is_alive():
                self._reload(session_id)
        unloaded, self._unloaded = self._unloaded, set()
        for session_id in sorted(unloaded):
            self._wake(session_id)
        for session_id, run_id in self._supervisor.sweep():
            self._supervisor.run_died(session_id, run_id, "it ended without a word")

    def _give_everything_up(self) -> None:
        """Nothing can be made durable: cancel every effect, append nothing, and wait for the process to leave."""
        self._ledger_died = True
        self._supervisor.stop_all()
        for live in self._live.values():
            live.address.stop()
        self._live = {}
        self._ports.background.close("ledger")
        self._shutdown.give_up()


def _tell_of_shells(kernel: Address[ToKernel], session_id: SessionId) -> None:
    kernel.tell(ShellsChanged(session_id=session_id))
