"""SessionActor: one live session. It admits messages, owns its runs, routes stops.

Laws: it alone writes its control stream and a run's first append; commands are handled one at a time and wait while
an append is in flight; what it knows of the session is folded from the ledger, never kept beside it.
"""

from collections import deque
from typing import assert_never

from actors import session_open, session_protocol, session_undo
from actors.address import Address, ReplyTo
from actors.base import NOT_DONE, UNKNOWN, MakaActor
from actors.mapper import At
from actors.messages import (
    AnswerWait,
    Idle,
    Load,
    OpenSession,
    Parent,
    RunOver,
    RunParked,
    SendMessage,
    SetBoundary,
    StopSession,
    ToKernel,
    ToSession,
    UndoChanges,
)
from actors.messages_ledger import (
    AppendDone,
    AppendFacts,
    Barrier,
    BarrierPassed,
    CloseRun,
    LedgerUp,
    RoomWanted,
    RunClosed,
    ToFeed,
    ToLedger,
)
from actors.messages_run import ToRun
from actors.session_log import SessionLog
from actors.session_open import Opened, Pending
from actors.session_run import OwnRun
from actors.session_undo import Prepared
from actors.wiring import Ports
from maka.contracts import commands
from maka.contracts.commands import Reply
from maka.contracts.errors import FoldError, LedgerDamagedError, Refusal, RefusalCode
from maka.contracts.ids import InvocationId, RunId, SessionId
from maka.contracts.ports import Append, AppendResult

Stashed = OpenSession | SendMessage | StopSession | SetBoundary | AnswerWait | UndoChanges | RunOver | RunParked


class SessionActor(MakaActor[ToSession]):
    """Started by KernelActor; told OpenSession or Load first."""

    def __init__(
        self,
        ports: Ports,
        parent: Parent | None,
        session_id: SessionId,
        kernel: Address[ToKernel],
        ledger: Address[ToLedger],
        feed: Address[ToFeed],
    ) -> None:
        super().__init__(ports.log.bind(session_id=session_id), parent)
        self._ports = ports
        self._id = session_id
        self._kernel = kernel
        self._ledger = ledger
        self._feed = feed
        self._log = SessionLog(session_id)
        self._held = False
        self._fallback = ""
        self._refusal: Refusal | None = None
        self._loading = True
        self._closing: set[InvocationId] = set()
        self._shutting_down = False
        self._pending: Pending | None = None
        self._tags = 0
        self._own: OwnRun | None = None
        self._alive: dict[RunId, Address[ToRun]] = {}
        self._stash: deque[Stashed] = deque()
        self._handled = 0

    @property
    def _run(self) -> OwnRun:
        # Made late: an actor has no address before it is started.
        if self._own is None:
            self._own = OwnRun(self._ports, self._id, self.address, self._kernel, self._ledger, self._feed)
        return self._own

    def receive(self, message: ToSession) -> None:
        match message:
            case Load(runs=runs, fenced=fenced):
                self._alive = {} if fenced is not None else dict(runs)
                if fenced is not None:
                    self._refusal = Refusal(code=RefusalCode.INTERNAL, message=fenced)
                self._ledger.tell(Barrier(to=self.address))
            case BarrierPassed():
                self._load()
            case AppendDone(tag=tag, result=result):
                assert self._pending is not None and self._pending.tag == tag, "an answer to no append of ours"
                self._answered(self._pending, result)
            case RunClosed(invocation_id=invocation_id, verdict=verdict):
                self._closing.discard(invocation_id)
                if verdict == "parked":
                    self._run.park(RunId(invocation_id))
                elif verdict == "damaged":
                    self._shut_off(f"run {invocation_id} can't be ended")
                self._loaded()
            case LedgerUp():
                self._held = False
            case _:  # by its type one that waits its turn
                self._stash.append(message)
        self._go_on()

    def cleanup(self) -> None:
        for message in self._stash:
            if not isinstance(message, RunOver | RunParked):
                message.reply.set(NOT_DONE)
        if self._pending is not None and self._pending.reply is not None:
            self._pending.reply.set(UNKNOWN)  # its append is on its way
        if self._own is not None:
            self._own.answer_undo(UNKNOWN)

    # -- what comes next ------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        while self._pending is None and self._stash:
            first = self._stash[0]
            if isinstance(first, OpenSession):
                self._loading = False
            elif self._loading or self._closing:
                return
            self._stash.popleft()
            self.attempt(self._handle, first)
        if self._pending is None and not self._loading and not self._closing:
            self._start_next()
        if self._is_idle():
            self._kernel.tell(Idle(session_id=self._id, handled=self._handled))

    def _handle(self, message: Stashed) -> None:
        self._handled += not isinstance(message, RunOver | RunParked)
        match message:
            case OpenSession():
                at = At(self._ports.ids(), self._ports.clock.now_ms())
                carried = session_open.carried_grants(self._ports.reader, message.before)
                append = session_protocol.open_session(self._id, message.number, message.command, at, carried)
                self._send(append, message.reply)
            case SendMessage(command=command, reply=reply):
                self._take_message(command, reply)
            case StopSession(command=command, reply=reply):
                self._stop_run(command, reply)
            case SetBoundary(command=command, reply=reply):
                self._set_boundary(command, reply)
            case AnswerWait(command=command, reply=reply):
                if self._refusal is not None:
                    reply.set(self._refusal)
                else:
                    self._run.answer(self._log, command, reply)
            case UndoChanges(command=command, reply=reply):
                self._undo(command, reply)
            case RunOver(run_id=run_id, is_damaged=is_damaged):
                self._run.over(run_id)
                if is_damaged:
                    self._shut_off(f"run {run_id} can't be ended")
                elif self._catch_up() and self._log.header is not None and run_id in self._log.header.open_runs:
                    self._run.park(run_id)  # its actor died, but a person may still answer
            case RunParked(run_id=run_id, handled=handled):
                self._run.let_go(run_id, handled)
                self._catch_up()
            case _:
                assert_never(message)

    def _is_idle(self) -> bool:
        if self._loading or self._closing or self._pending is not None or self._stash or self._run.is_alive:
            return False
        # A parked run costs nothing: its session may go, and the queue behind it waits with it.
        resting = self._shutting_down or self._run.run_id is not None or not self._log.queue
        return resting and self.idle

    def _send(self, append: Append, reply: ReplyTo[Reply] | None, opened: Opened | Prepared | None = None) -> None:
        self._tags += 1
        self._pending = Pending(tag=self._tags, reply=reply, opened=opened)
        self._ledger.tell(AppendFacts(append=append, to=self.address, tag=self._tags))

    # -- loading --------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        if not self._catch_up():
            self._loading = False
            return
        header = self._log.header
        if header is None:
            self._loading = False
            self._refusal = session_protocol.unknown()
            return
        for run_id in header.open_runs:
            alive = self._alive.get(run_id)
            if alive is not None and alive.is_alive():
                self._run.adopt(run_id, alive)
            else:
                self._close(InvocationId(run_id))
        self._loaded()

    def _close(self, invocation_id: InvocationId) -> None:
        self._closing.add(invocation_id)
        self._ledger.tell(
            CloseRun(
                session_id=self._id,
                invocation_id=invocation_id,
                reason="actor_crashed",
                to=self.address,
                keeps_waits=self._refusal is None,
            )
        )

    def _loaded(self) -> None:
        if not self._closing:
            self._loading = False
            self._catch_up()

    def _catch_up(self) -> bool:
        """Fold what is new in the ledger; False fences the session, which is damaged."""
        try:
            self._log.catch_up(self._ports.reader)
        except (LedgerDamagedError, FoldError) as error:
            self._shut_off(str(error))
            return False
        return True

    def _shut_off(self, why: str) -> None:
        self.log.error("session_damaged", error_kind=why)
        self._refusal = session_protocol.damaged(self._id, why)

    # -- messages -------------------------------------------------------------------------------------------------

    def _take_message(self, command: commands.SendMessage, reply: ReplyTo[Reply]) -> None:
        busy, closing = self._run.run_id is not None, self._shutting_down
        answer = self._refusal or session_open.take_message(self._ports, self._log, command, busy=busy, closing=closing)
        if isinstance(answer, Append):  # it waits in the queue
            self._fallback, self._held = command.profile, False
        self._act(answer, reply)

    def _start_next(self) -> None:
        """Start the run of the oldest message that waits, unless there is no room or no profile for it."""
        if self._run.run_id is not None or self._shutting_down or self._held or self._refusal is not None:
            return
        opened = session_open.open_next(self._ports, self._log, fallback=self._fallback)
        if isinstance(opened, Opened):
            self._send(opened.append, None, opened)
        elif opened is not None:
            self._held = True  # until a message brings a profile, or there is room
            if opened.code is RefusalCode.LEDGER_FULL:
                self._ledger.tell(RoomWanted(to=self.address))

    # -- answers of the ledger ------------------------------------------------------------------------------------

    def _answered(self, pending: Pending, result: AppendResult) -> None:
        self._pending = None
        try:
            self._stored(pending, result)
        except BaseException:
            pending.answer(UNKNOWN)
            raise

    def _stored(self, pending: Pending, result: AppendResult) -> None:
        if isinstance(result, Refusal):
            self._held = pending.reply is None  # until LedgerUp
            pending.answer(result)
            return
        if not self._catch_up():
            pending.answer(UNKNOWN)
            return
        if isinstance(pending.opened, Prepared):
            assert pending.reply is not None, "an undo is a command"
            self._run.start_undo(self._log, pending.opened, result, pending.reply)
            return
        if pending.opened is not None and not result.known:
            self._run.start(self._log, pending.opened, result)
        if pending.reply is not None:
            stored = self._ports.reader.read_positions(result.places[0][0] - 1, 1)[0]
            if stored.event.run_id is None:
                self._run.control_fact(stored)
            pending.reply.set(session_protocol.outcome_of(stored))

    def _set_boundary(self, command: commands.ChangeBoundary, reply: ReplyTo[Reply]) -> None:
        self._act(self._refusal or session_open.boundary_change(self._ports, self._log, command), reply)

    def _undo(self, command: commands.Undo, reply: ReplyTo[Reply]) -> None:
        live, closing = self._run.run_id, self._shutting_down
        undo = self._refusal or session_undo.prepare(self._ports, self._log, command, live=live, closing=closing)
        self._act(undo, reply)

    def _act(self, answer: Append | Opened | Prepared | Reply, reply: ReplyTo[Reply]) -> None:
        match answer:
            case Append():
                self._send(answer, reply)
            case Opened() | Prepared():
                self._send(answer.append, reply, answer)
            case _:
                reply.set(answer)

    # -- stop -----------------------------------------------------------------------------------------------------

    def _stop_run(self, command: commands.Stop, reply: ReplyTo[Reply]) -> None:
        if command.source == commands.HOST_SHUTDOWN:
            self._shutting_down = True
        if self._refusal is not None:
            reply.set(self._refusal)
        else:
            self._run.stop(self._log, command, reply)
