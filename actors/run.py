"""RunActor: one run's durable envelope. It performs what run_protocol decides, in that order, and owns the children.

Laws: data waits in the stash while an append is in flight, control doesn't; the backend and every tool of the run are
its children, and are cancelled when it ends, however it ends.
"""

from collections import deque
from functools import partial
from typing import assert_never, cast

from msgspec import Struct

from actors import request, run_protocol
from actors.address import Address, ReplyTo
from actors.backend import BackendActor
from actors.base import NOT_DONE, UNKNOWN, MakaActor
from actors.mapper import Who
from actors.messages import (
    ChildStarted,
    KeepShell,
    Parent,
    ProcessOfRun,
    RunFinished,
    RunParked,
    ToKernel,
    ToSession,
)
from actors.messages_ledger import AppendDone, AppendFacts, PutPartialText, Show, ToFeed, ToLedger
from actors.messages_run import AnswerRun, AskReady, BackendDied, Due, ShellWanted, StopRun, ToolDied, ToRun
from actors.messages_work import Ack, Begin, Cancel, CancelTool, Dispatch, Grant, Look, ToBackend, ToTool
from actors.run_effects import (
    AckBatch,
    AnswerStops,
    AppendEvents,
    Arm,
    AskPerson,
    CancelRequest,
    Disarm,
    Effect,
    Finish,
    GrantFact,
    HandOver,
    LetGo,
    LookAhead,
    Reply,
    SendRequest,
    ShowFrame,
    StartTool,
    StopTool,
    StorePartial,
)
from actors.run_types import Build, Built, Env, State, Wanted
from actors.timers import Deadlines
from actors.tool import ToolActor
from actors.tool_masks import masked_request
from actors.wiring import Ports
from maka.contracts.actions import ProcessStarted
from maka.contracts.codec import drafts
from maka.contracts.commands import Reply as Replied
from maka.contracts.errors import LedgerError, Refusal, RefusalCode
from maka.contracts.ids import CallId
from maka.contracts.limits import STASH_MAX
from maka.contracts.model_ports import Provider
from maka.contracts.ports import Append, Group
from maka.contracts.tool_ports import AskingTool, Tool, ToolCall
from projections.model_history import History


class Links(Struct, frozen=True, kw_only=True):
    """Whom a run talks to."""

    ledger: Address[ToLedger]
    feed: Address[ToFeed]
    kernel: Address[ToKernel]
    session: Address[ToSession]


class RunActor(MakaActor[ToRun]):
    """Started by SessionActor once the run's first append is durable; told Start, and ends itself."""

    def __init__(
        self,
        ports: Ports,
        parent: Parent | None,
        links: Links,
        state: State,
        kit: request.Kit | None,
        provider: Provider | None,
    ) -> None:
        super().__init__(ports.log.bind(run_id=state.plan.who.run_id), parent)
        self._ports = ports
        self._links = links
        self._state = state
        # An undo has no kit: it asks nothing.
        self._build: Build = _asks_nothing if kit is None else partial(request.build, kit)
        self._provider = provider
        self._backend: Address[ToBackend] | None = None
        self._tools: dict[CallId, Address[ToTool]] = {}
        self._stash: deque[ToRun] = deque()
        self._stops: list[ReplyTo[Replied]] = []
        self._handled = 0
        self._deadlines = Deadlines(ports.timers, self._due)

    def receive(self, message: ToRun) -> None:
        if isinstance(message, Due) and not self._deadlines.is_current(message.kind, message.token):
            return
        if isinstance(message, StopRun):
            self._stops.append(message.reply)
        if self._state.in_flight is not None and isinstance(message, run_protocol.STASHED):
            assert len(self._stash) < STASH_MAX, "more data than the credits of all senders allow"
            self._stash.append(message)
            return
        self._decide(message)
        while self._stash and self._state.in_flight is None:
            self.attempt(self._decide, self._stash.popleft())

    def cleanup(self) -> None:
        self._deadlines.disarm_all()
        if self._backend is not None:
            self._backend.tell(Cancel(generation=self._state.generation))
            self._backend.stop()
        for tool in self._tools.values():
            tool.tell(CancelTool())
        self._answer_all()

    def _answer_all(self) -> None:
        """Answer every command that this actor holds: whoever drops a command answers it."""
        self._answer_stops(UNKNOWN)
        for message in self._stash:
            if isinstance(message, AnswerRun | ShellWanted):
                message.reply.set(NOT_DONE)
        flight = self._state.in_flight
        if flight is not None and flight.reply is not None:
            cast("ReplyTo[Replied]", flight.reply[0]).set(UNKNOWN)

    def _due(self, kind: str, token: int) -> None:
        self.address.tell(Due(kind=kind, token=token))

    def _decide(self, message: ToRun) -> None:
        if isinstance(message, StopRun | AnswerRun):
            self._handled += 1
        clock = self._ports.clock
        env = Env(
            ids=self._ports.ids,
            now_ms=clock.now_ms(),
            now_s=clock.monotonic_s(),
            tools=self._ports.catalog,
            build=self._build,
        )
        decision = run_protocol.decide(self._state, message, env)
        self._state = decision.state
        for effect in decision.effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case AppendEvents():
                self._append(effect)
            case SendRequest(generation=generation, body=body, tries=tries):
                self._open_backend().tell(Begin(generation=generation, body=body, tries=tries))
            case CancelRequest(generation=generation):
                if self._backend is not None:
                    self._backend.tell(Cancel(generation=generation))
            case AckBatch(generation=generation):
                if self._backend is not None:
                    self._backend.tell(Ack(generation=generation))
            case LookAhead(call=call, env=env):
                self._tool_of(call).tell(Look(call=call, env=env))
            case StartTool(call=call, env=env):
                self._tool_of(call).tell(Dispatch(call=call, env=env))
            case AskPerson():
                self._ask(effect)
            case StopTool(call_id=call_id):
                if (tool := self._tools.get(call_id)) is not None:
                    tool.tell(CancelTool())
            case GrantFact(call_id=call_id, token=token, granted=granted):
                if (tool := self._tools.get(call_id)) is not None:
                    tool.tell(Grant(token=token, granted=granted))
            case ShowFrame(frame=frame):
                self._links.feed.tell(Show(frame=frame))
            case StorePartial(partial=piece):
                self._links.ledger.tell(PutPartialText(partial=piece))
            case Arm(kind=kind, delay_s=delay_s):
                self._deadlines.arm(kind, delay_s)
            case Disarm(kind=kind):
                self._deadlines.disarm(kind)
            case AnswerStops(reply=reply):
                self._answer_stops(reply)
            case Reply(to=to, reply=reply):
                cast("ReplyTo[Replied]", to).set(reply)
            case HandOver(started=started, to=to):
                self._hand_over(started, cast("ReplyTo[Replied]", to))
            case LetGo():
                self._links.session.tell(RunParked(run_id=self._who.run_id, handled=self._handled))
            case Finish(position=position):
                session_id, run_id = self._who.session_id, self._who.run_id
                self._links.kernel.tell(RunFinished(session_id=session_id, run_id=run_id, position=position))
                self.stop()
            case _:
                assert_never(effect)

    @property
    def _who(self) -> Who:
        return self._state.plan.who

    def _append(self, effect: AppendEvents) -> None:
        try:
            inline = [self._ports.blobs.put(data)[1] for data in effect.blobs]
        except LedgerError as error:
            # The same to the protocol as an append without room: nothing is stored, and it is tried again.
            refusal = Refusal(code=RefusalCode.LEDGER_FULL, message=str(error))
            self.address.tell(AppendDone(tag=effect.tag, result=refusal))
            return
        group = Group(self._state.plan.who.invocation_id, effect.expected_seq, drafts(effect.events))
        append = Append(
            groups=(group,),
            blobs=tuple(data for data in inline if data is not None),
            settlement=effect.settlement,
        )
        self._links.ledger.tell(AppendFacts(append=append, to=self.address, tag=effect.tag))

    def _open_backend(self) -> Address[ToBackend]:
        if self._backend is None:
            address = self.address

            def died(reason: str) -> None:
                address.tell(BackendDied(reason=reason))

            assert self._provider is not None, "a run that was revived to be stopped asks nothing"
            self._backend = self._ports.spawn(BackendActor, self._ports, died, address, self._provider)
            self._links.kernel.tell(ChildStarted(run_id=self._who.run_id, child=self._backend))
        return self._backend

    def _tool_of(self, call: ToolCall) -> Address[ToTool]:
        """Return the call's actor, which is started with the first word for it."""
        address, call_id = self.address, call.call_id
        if (there := self._tools.get(call_id)) is not None:
            return there
        is_undo = self._state.plan.undo is not None
        tool: Tool | None = self._ports.undo if is_undo else self._ports.catalog.get(call.name)
        assert tool is not None, "the gate admits known tools only"

        def died(reason: str) -> None:
            address.tell(ToolDied(call_id=call_id, reason=reason))

        actor = self._ports.spawn(ToolActor, self._ports, died, address, tool, call_id)
        self._tools[call_id] = actor
        self._links.kernel.tell(ChildStarted(run_id=self._who.run_id, child=actor, cancel=CancelTool()))
        return actor

    def _ask(self, effect: AskPerson) -> None:
        tool: object = self._ports.catalog.get(effect.call.name)
        assert isinstance(tool, AskingTool), "the protocol asks for asking tools only"
        try:
            asked = masked_request(tool.prepare(effect.call, effect.env), self._ports.masks)
        except OSError as error:
            asked = f"this can't be asked for: {error.strerror or error}"
        self.address.tell(AskReady(call_id=effect.call.call_id, asked=asked))

    def _hand_over(self, started: ProcessStarted, reply: ReplyTo[Replied]) -> None:
        """Let the session's own actor, which may have to be loaded, name a process that outlives the run."""
        who = self._who
        process = ProcessOfRun(session_id=who.session_id, run_id=who.run_id, started=started)
        if not self._links.kernel.tell(KeepShell(command=process, reply=reply)):
            reply.set(NOT_DONE)

    def _answer_stops(self, reply: Replied) -> None:
        stops, self._stops = self._stops, []
        for stop in stops:
            stop.set(reply)


def _asks_nothing(history: History, wanted: Wanted, *, raise_through: int | None, rise: bool = False) -> Built:
    raise AssertionError("an undo asks no model")
