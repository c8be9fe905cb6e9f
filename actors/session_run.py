"""A session's one run: started, adopted after the session's own crash, let go while it is parked, revived.

Law: `revive` is the one way back to life, before and after a restart; it reads the run's log and nothing else.
"""

from actors import request, run_resume, session_protocol, session_undo
from actors.address import Address, ReplyTo
from actors.messages import RunDied, RunReleased, RunStarted, ToKernel, ToSession
from actors.messages_ledger import ToFeed, ToLedger
from actors.messages_run import AnswerRun, ControlFact, Resume, Start, StopRun, ToRun
from actors.recovery import read_run
from actors.run import Links, RunActor
from actors.run_types import State
from actors.session_log import SessionLog
from actors.session_open import Opened
from actors.session_undo import Prepared
from actors.wiring import Ports
from maka.contracts import commands
from maka.contracts.commands import Reply
from maka.contracts.errors import LedgerError, Refusal, RefusedError
from maka.contracts.events import Committed
from maka.contracts.ids import InvocationId, RunId, SessionId
from maka.contracts.model_ports import Provider
from maka.contracts.ports import Appended

UNCOUNTED = -1
"""An adopted run has had commands that this actor never saw: it isn't let go before it is parked anew."""


class OwnRun:
    """The session's run, alive or parked; owned by its SessionActor and used on its thread alone."""

    def __init__(
        self,
        ports: Ports,
        session_id: SessionId,
        session: Address[ToSession],
        kernel: Address[ToKernel],
        ledger: Address[ToLedger],
        feed: Address[ToFeed],
    ) -> None:
        self._ports = ports
        self._session_id = session_id
        self._links = Links(ledger=ledger, feed=feed, kernel=kernel, session=session)
        self.run_id: RunId | None = None
        self._address: Address[ToRun] | None = None
        self._sent = 0
        self._undo: ReplyTo[Reply] | None = None

    @property
    def is_alive(self) -> bool:
        return self._address is not None

    def start(self, log: SessionLog, opened: Opened, result: Appended) -> None:
        """Start the actor of a run whose first append is durable."""
        if opened.opening.plan is None:
            return
        assert log.history is not None and log.boundary is not None
        first = session_protocol.first_state(opened.opening, result, log.history, log.seen, log.boundary)
        self._spawn(first, opened.kit, opened.provider).tell(Start())

    def start_undo(self, log: SessionLog, prepared: Prepared, result: Appended, reply: ReplyTo[Reply]) -> None:
        """Start the actor of an undo whose first append is durable; `reply` is answered when it has ended."""
        first = session_undo.first_state(prepared, result, log, self._ports.clock.monotonic_s())
        self._undo = reply
        self._spawn(first, None, None).tell(Start())

    def adopt(self, run_id: RunId, address: Address[ToRun]) -> None:
        """Take over a run that outlived an earlier actor of the session."""
        self.run_id, self._address, self._sent = run_id, address, UNCOUNTED

    def park(self, run_id: RunId) -> None:
        """Note a run that waits for a person and has no actor."""
        self.run_id, self._address, self._sent = run_id, None, 0

    def over(self, run_id: RunId) -> None:
        """Forget a run that has ended."""
        if self.run_id == run_id:
            self.run_id, self._address, self._sent = None, None, 0
            if self._undo is not None:
                self._undo.set(session_undo.receipt_of(self._ports, run_id))
                self._undo = None

    def answer_undo(self, refusal: Refusal) -> None:
        """Answer whoever waits for an undo: the session's actor ends before it."""
        if self._undo is not None:
            self._undo.set(refusal)
            self._undo = None

    def let_go(self, run_id: RunId, handled: int) -> None:
        """Let a parked run's actor go, unless a command is on its way to it."""
        if self._address is not None and self.run_id == run_id and self._sent == handled:
            self._links.kernel.tell(RunReleased(run_id=run_id))
            self._address.stop()
            self.park(run_id)

    def stop(self, log: SessionLog, command: commands.Stop, reply: ReplyTo[Reply]) -> None:
        """Pass a stop on; a parked run is revived to end, unless it is the host that stops."""
        if self.run_id is None:
            reply.set(commands.StopReceipt(session_id=self._session_id))
            return
        if self._address is None and command.source == commands.HOST_SHUTDOWN:
            was = "waiting for a person"
            reply.set(commands.StopReceipt(session_id=self._session_id, run_id=self.run_id, was=was))
            return
        if self._address is None and (refusal := self._revive(log, must_ask=False)) is not None:
            reply.set(refusal)
            return
        self._tell(StopRun(source=command.source, reply=reply), reply)

    def answer(self, log: SessionLog, command: commands.Answer, reply: ReplyTo[Reply]) -> None:
        """Pass an answer on, reviving a parked run."""
        if self.run_id is None:
            reply.set(session_protocol.wait_closed())
            return
        if self._address is None and (refusal := self._revive(log, must_ask=True)) is not None:
            reply.set(refusal)
            return
        self._tell(AnswerRun(command=command, reply=reply), reply)

    def control_fact(self, item: Committed) -> None:
        """Let a live run know of a fact of the control stream; a parked one reads it when it is revived."""
        if self._address is not None:
            self._address.tell(ControlFact(item=item))

    def _tell(self, message: StopRun | AnswerRun, reply: ReplyTo[Reply]) -> None:
        assert self._address is not None
        if self._sent != UNCOUNTED:
            self._sent += 1
        if self._address.tell(message):
            return
        # It has ended, and word of that is on its way here.
        if isinstance(message, AnswerRun):
            reply.set(session_protocol.wait_closed())
        else:
            reply.set(commands.StopReceipt(session_id=self._session_id, run_id=self.run_id, was="ending"))

    def _revive(self, log: SessionLog, *, must_ask: bool) -> Refusal | None:
        """Bring a parked run back. `must_ask` says that it will need its model again."""
        assert self.run_id is not None and log.header is not None
        assert log.history is not None and log.boundary is not None
        provider: Provider | None = None
        try:
            items = read_run(self._ports.reader, InvocationId(self.run_id))
            opening = run_resume.opening_of(items)
            prompt = self._ports.reader.blob(opening.configuration.prompt.sha256)
            tools = self._ports.reader.blob(opening.configuration.tools.sha256)
        except LedgerError as error:
            return session_protocol.unreadable(self._session_id, error)
        try:
            provider = self._ports.providers(opening.route.profile)
        except RefusedError as error:
            if must_ask:
                return error.refusal
        kit = request.kit_from_record(opening, provider, prompt or b"", tools or b"[]")
        cwd, now_s = log.header.real_cwd, self._ports.clock.monotonic_s()
        state = run_resume.resume_state(items, log.history, log.seen, log.boundary, cwd=cwd, now_s=now_s)
        self._spawn(state, kit, provider).tell(Resume())
        return None

    def _spawn(self, state: State, kit: request.Kit | None, provider: Provider | None) -> Address[ToRun]:
        session_id, run_id, kernel = self._session_id, state.plan.who.run_id, self._links.kernel

        def died(reason: str) -> None:
            kernel.tell(RunDied(session_id=session_id, run_id=run_id, reason=reason))

        run = self._ports.spawn(RunActor, self._ports, died, self._links, state, kit, provider)
        kernel.tell(RunStarted(session_id=session_id, run_id=run_id, run=run))
        self.run_id, self._address, self._sent = run_id, run, 0
        return run
