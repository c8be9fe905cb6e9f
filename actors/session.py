"""SessionActor: one live session. It admits messages, owns its runs, routes stops.

Laws: it alone writes its control stream and a run's first append; commands are handled one at a time and wait while
an append is in flight; what it knows of the session is folded from the ledger, never kept beside it.
"""

from collections import deque
from typing import assert_never

from msgspec import Struct

from actors import session_open, session_protocol
from actors.address import Address, ReplyTo
from actors.base import MakaActor
from actors.mapper import At
from actors.messages import (
    Idle,
    Load,
    OpenSession,
    Parent,
    RunDied,
    RunFinished,
    SendMessage,
    Start,
    StopRun,
    StopSession,
    ToKernel,
    ToRun,
    ToSession,
)
from actors.messages_ledger import (
    AppendDone,
    AppendFacts,
    Barrier,
    BarrierPassed,
    CloseRun,
    LedgerUp,
    RunClosed,
    ToFeed,
    ToLedger,
)
from actors.run import Links, RunActor
from actors.session_log import SessionLog
from actors.session_open import Opened, Order
from actors.wiring import Ports
from maka.contracts import commands
from maka.contracts.commands import Reply, StopReceipt
from maka.contracts.content import RunLimits
from maka.contracts.errors import FoldError, LedgerError, Refusal, RefusalCode
from maka.contracts.ids import InvocationId, RunId, SessionId
from maka.contracts.ports import Append, Appended, AppendResult, CommandKey

SHUTDOWN = "host.shutdown"


class Pending(Struct, frozen=True, kw_only=True):
    """The append in flight, and who waits for it."""

    tag: int
    reply: ReplyTo[Reply] | None
    opened: Opened | None


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
        self._run: tuple[RunId, Address[ToRun]] | None = None
        self._stash: deque[OpenSession | SendMessage | StopSession | RunFinished] = deque()
        self._handled = 0

    def receive(self, message: ToSession) -> None:
        match message:
            case Load():
                self._ledger.tell(Barrier(to=self.address))
            case OpenSession() | SendMessage() | StopSession() | RunFinished():
                self._stash.append(message)
            case BarrierPassed():
                self._load()
            case AppendDone(tag=tag, result=result):
                assert self._pending is not None and self._pending.tag == tag, "an answer to no append of ours"
                self._answered(self._pending, result)
            case RunClosed(invocation_id=invocation_id):
                self._closing.discard(invocation_id)
                self._loaded()
            case RunDied(run_id=run_id):
                self._close_dead_run(run_id)
            case LedgerUp():
                self._held = False
            case _:
                assert_never(message)
        self._go_on()

    def cleanup(self) -> None:
        waiting = [message.reply for message in self._stash if not isinstance(message, RunFinished)]
        if self._pending is not None and self._pending.reply is not None:
            waiting.append(self._pending.reply)
        for reply in waiting:
            reply.set(Refusal(code=RefusalCode.INTERNAL, message="the session's actor ended; send the command again"))

    # -- what comes next ------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        while self._pending is None and self._stash:
            first = self._stash[0]
            if isinstance(first, OpenSession):
                self._loading = False
            elif self._loading or self._closing:
                return
            self._stash.popleft()
            self._handle(first)
        if self._pending is None and not self._loading and not self._closing:
            self._start_next()
        if self._is_idle():
            self._kernel.tell(Idle(session_id=self._id, handled=self._handled))

    def _handle(self, message: OpenSession | SendMessage | StopSession | RunFinished) -> None:
        match message:
            case OpenSession():
                self._handled += 1
                at = At(self._ports.ids(), self._ports.clock.now_ms())
                append = session_protocol.open_session(self._id, message.number, message.command, at)
                self._send(append, message.reply)
            case SendMessage(command=command, reply=reply):
                self._handled += 1
                self._take_message(command, reply)
            case StopSession(command=command, reply=reply):
                self._handled += 1
                self._stop_run(command, reply)
            case RunFinished(run_id=run_id):
                if self._run is not None and self._run[0] == run_id:
                    self._run = None
                    self._catch_up()
            case _:
                assert_never(message)

    def _is_idle(self) -> bool:
        busy = self._loading or self._closing or self._pending is not None or self._run is not None or self._stash
        return not busy and (self._shutting_down or not self._log.queue) and self.idle

    def _send(self, append: Append, reply: ReplyTo[Reply] | None, opened: Opened | None = None) -> None:
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
            words = "no such session; `maka sessions` lists them"
            self._refusal = Refusal(code=RefusalCode.UNKNOWN_SESSION, message=words)
            return
        for run_id in header.open_runs:
            # Nobody lives in it: a run has no actor before its session has one.
            self._close(InvocationId(run_id))
        self._loaded()

    def _close(self, invocation_id: InvocationId) -> None:
        self._closing.add(invocation_id)
        self._ledger.tell(
            CloseRun(session_id=self._id, invocation_id=invocation_id, reason="actor_crashed", to=self.address)
        )

    def _loaded(self) -> None:
        if not self._closing:
            self._loading = False
            self._catch_up()

    def _close_dead_run(self, run_id: RunId) -> None:
        if self._run is not None and self._run[0] == run_id:
            self._run = None
            self._close(InvocationId(run_id))

    def _catch_up(self) -> bool:
        """Fold what is new in the ledger; False fences the session, which is damaged."""
        try:
            self._log.catch_up(self._ports.reader)
        except (LedgerError, FoldError) as error:
            self.log.error("session_damaged", error_kind=str(error))
            words = f"session {self._id} is damaged ({error}); `maka verify` shows where; no other is touched"
            self._refusal = Refusal(code=RefusalCode.SESSION_DAMAGED, message=words)
            return False
        return True

    # -- messages -------------------------------------------------------------------------------------------------

    def _take_message(self, command: commands.SendMessage, reply: ReplyTo[Reply]) -> None:
        if self._refusal is not None or self._log.header is None:
            assert self._refusal is not None
            reply.set(self._refusal)
            return
        key = session_protocol.key_of(command)
        if (known := self._ports.reader.command(self._id, command.command_id)) is not None:
            stored = self._ports.reader.read_positions(known.position - 1, 1)
            reply.set(session_protocol.check_known(known, key) or session_protocol.outcome_of(stored[0]))
            return
        if self._shutting_down:
            reply.set(Refusal(code=RefusalCode.SHUTTING_DOWN, message="the host is shutting down; try again later"))
            return
        refusal = session_protocol.check_message(command, self._log.header, waiting=len(self._log.queue))
        if refusal is not None:
            reply.set(refusal)
        elif self._run is not None or self._log.queue:
            at = At(self._ports.ids(), self._ports.clock.now_ms())
            self._fallback, self._held = command.profile, False
            self._send(session_protocol.queue_message(command, self._log.control_seq, at), reply)
        else:
            self._open(Order(command.text, command.profile, command.limits), key, reply)

    def _start_next(self) -> None:
        """Start the run of the oldest message that waits, unless there is no room or no profile for it."""
        if self._run is not None or self._shutting_down or self._held or self._refusal is not None:
            return
        waiting = next(iter(self._log.queue.values()), None)
        if waiting is not None:
            queued = waiting.queued
            order = Order(queued.text, queued.profile or "", queued.limits or RunLimits(), waiting.message_id)
            self._open(order, None)

    def _open(self, order: Order, key: CommandKey | None, reply: ReplyTo[Reply] | None = None) -> None:
        prepared = session_open.prepare(self._ports, self._log, order, key, fallback=self._fallback)
        if isinstance(prepared, Refusal):
            self._held = reply is None  # a queued message waits for one that brings a profile
            if reply is not None:
                reply.set(prepared)
            return
        append, opened = prepared
        self._send(append, reply, opened)

    # -- answers of the ledger ------------------------------------------------------------------------------------

    def _answered(self, pending: Pending, result: AppendResult) -> None:
        self._pending = None
        if isinstance(result, Refusal):
            self._held = pending.reply is None  # until LedgerUp
            if pending.reply is not None:
                pending.reply.set(result)
            return
        if not self._catch_up():
            return
        if pending.opened is not None and not result.known:
            self._start_run(pending.opened, result)
        if pending.reply is not None:
            stored = self._ports.reader.read_positions(result.places[0][0] - 1, 1)[0]
            pending.reply.set(session_protocol.outcome_of(stored))

    def _start_run(self, opened: Opened, result: Appended) -> None:
        opening, run_id, address = opened.opening, opened.opening.who.run_id, self.address
        if opening.plan is None:
            return
        assert self._log.history is not None
        first = session_protocol.first_state(opening, result, self._log.history, self._log.seen)

        def died(reason: str) -> None:
            address.tell(RunDied(run_id=run_id, reason=reason))

        links = Links(ledger=self._ledger, feed=self._feed, session=address)
        run = self._ports.spawn(RunActor, self._ports, died, links, first, opened.kit, opened.provider)
        self._run = (run_id, run)
        run.tell(Start())

    # -- stop -----------------------------------------------------------------------------------------------------

    def _stop_run(self, command: commands.Stop, reply: ReplyTo[Reply]) -> None:
        if command.source == SHUTDOWN:
            self._shutting_down = True
        if self._refusal is not None:
            reply.set(self._refusal)
        elif self._run is None:
            reply.set(StopReceipt(session_id=self._id))
        elif not self._run[1].tell(StopRun(source=command.source, reply=reply)):
            reply.set(StopReceipt(session_id=self._id, run_id=self._run[0], was="ending"))
