"""A whole Maka in the deterministic world: the real kernel, sessions, runs, backends, tools, ledger and feed.

The store survives a crash: `crash` drops all actors and keeps the committed bytes, `restart` begins anew on them.
"""

from collections.abc import Callable
from typing import Any, Literal, cast

import structlog

from actors.address import Address
from actors.kernel import KernelActor
from actors.ledger import LedgerActor
from actors.messages import (
    AnswerWait,
    CreateSession,
    LedgerDied,
    Recover,
    SendMessage,
    SetBoundary,
    Shutdown,
    StopSession,
    StopShell,
    Sweep,
    ToKernel,
    UndoChanges,
)
from actors.messages_ledger import Follow, Subscribe, ToFeed, ToLedger
from actors.projection import ProjectionActor
from actors.wiring import Ports
from maka.contracts import commands
from maka.contracts.boundary import Expansion, Profile
from maka.contracts.commands import SessionCreated
from maka.contracts.content import RunLimits
from maka.contracts.errors import LedgerFailedError, LedgerFullError, Refusal, RefusalCode, RefusedError
from maka.contracts.events import Committed
from maka.contracts.ids import CommandId, EventId, RunId, SessionId
from maka.contracts.model_ports import ChatRequest, Provider
from maka.contracts.ports import LedgerReader
from maka.edges.secrets import Secrets
from maka.tools.background import BackgroundTable
from projections import session_index
from tests.sim.faults import FaultyBlobs, FaultyLedger, FlakyReader, fail_commit
from tests.sim.laws import SECRET
from tests.sim.model import Said, SimProvider
from tests.sim.outside import LeftOver, SimLeftovers, SimReply, SimSink, Watch
from tests.sim.shells import SimProcesses, SimShell
from tests.sim.tools import Effects, SimCatalog, SimUndo
from tests.sim.world import World


def _drop(*_: Any) -> Any:
    raise structlog.DropEvent


QUIET = structlog.wrap_logger(structlog.PrintLogger(), processors=[_drop])


class SimHost:
    """One Maka. `world` is new after each restart; `store` is one on disk where the memory twin won't do."""

    def __init__(
        self,
        seed: int,
        script: Callable[[ChatRequest], Said],
        *,
        window: int | None = None,
        choose: Callable[[int], int] | None = None,
        store: FaultyLedger | None = None,
    ) -> None:
        self.script = script
        self.window = window
        self.fatal: list[str] = []
        self.provider_name = "sim"
        self.waits_keep = True
        self._commands = 0
        self._seed = seed
        self._choose = choose
        self.effects = Effects()
        self.blobs = FaultyBlobs(None if store is None else store.root)
        self.store = store or FaultyLedger(blobs=self.blobs)
        self.world = World(seed, choose)
        self.start()

    def start(self) -> None:
        world, store = self.world, self.store
        masks, self.table = Secrets([SECRET]), BackgroundTable()
        self.processes, self.leftovers = SimProcesses(world, self.facts, self.effects), SimLeftovers()
        shell = SimShell(world, self.facts, self.effects, self.table, self.processes, masks)
        self.catalog = SimCatalog(world, self.facts, self.effects, shell)
        self.provider = SimProvider(world, self.facts, self.script, self.window)
        self.undo = SimUndo(world, self.facts, self.effects)
        self.left_over = LeftOver(self.facts())
        self.reader = FlakyReader(store)
        self.ports = Ports(
            ids=world.next_id,
            clock=world,
            timers=world,
            jitter=lambda: 0.5,
            reader=cast("LedgerReader", self.reader),
            blobs=self.blobs,
            providers=self._provider,
            catalog=self.catalog,
            undo=self.undo,
            processes=self.processes,
            background=self.table,
            leftovers=self.leftovers,
            prompt=lambda cwd: f"You work in {cwd}.",
            spawn=world.spawn,
            log=QUIET,
            masks=masks,
        )
        self.fatal = []
        over: list[Address[ToKernel]] = []

        def fatal(reason: str) -> None:
            self.fatal.append(reason)
            for kernel in over:
                kernel.tell(LedgerDied(reason=reason))

        self.ledger: Address[ToLedger] = world.spawn(
            LedgerActor, QUIET, fatal, store, self.blobs, world, world, world.next_id, fatal, self.waits_keep
        )
        self.feed = self._feed()
        self.ledger.tell(Follow(to=Watch(world, self._head, self.feed.tell)))  # type: ignore[arg-type]
        self.kernel: Address[ToKernel] = world.spawn(KernelActor, self.ports, fatal, self.ledger, self.feed)
        over.append(self.kernel)
        self.recovered = SimReply()
        self.kernel.tell(Recover(reply=self.recovered))

    def _feed(self) -> Address[ToFeed]:
        """Start the feed, with a successor for each one that crashes."""

        def died(_: str) -> None:
            feed.move_to(self.world.spawn(ProjectionActor, QUIET, died, self.store))

        feed: Address[ToFeed] = self.world.spawn(ProjectionActor, QUIET, died, self.store)
        return feed

    def _head(self) -> int:
        return self.store.head().position

    def fenced(self) -> set[SessionId]:
        """Return the sessions whose actors crashed too often: their queues wait for a restart."""
        kernels: list[Any] = [actor for actor in self.world.actors if isinstance(actor, KernelActor)]
        return set[SessionId]().union(*(kernel._fenced for kernel in kernels))

    @property
    def is_gone(self) -> bool:
        """Say whether the process died in the middle of a commit."""
        return self.store.cut

    def crash(self) -> None:
        """Lose everything but the committed bytes, then start again on them."""
        self.world.drop_all()
        ids, now_s = self.world.ids, self.world.now_s
        self.store = self.store.again()
        self.world = World(self.world.random.randrange(1 << 30), self._choose)
        self.world.ids, self.world.now_s = ids, now_s
        self.start()

    def _provider(self, name: str) -> Provider:
        if name != "sim":
            raise RefusedError(Refusal(code=RefusalCode.NOT_READY, message=f"no profile {name}"))
        return self.provider

    # -- commands -------------------------------------------------------------------------------------------------

    def create(self, command_id: str | None = None) -> SimReply:
        reply = SimReply()
        command = commands.CreateSession(command_id=self._command(command_id), cwd="/w", real_cwd="/w")
        self.kernel.tell(CreateSession(command=command, reply=reply))
        return reply

    def session(self) -> SessionId:
        """Make a session and return its id."""
        reply = self.create()
        self.world.run(until=lambda: reply.value is not None)
        assert isinstance(reply.value, SessionCreated), reply.value
        return reply.value.session_id

    def send(
        self, session_id: SessionId, text: str, *, limits: RunLimits | None = None, command_id: str | None = None
    ) -> SimReply:
        reply = SimReply()
        command = commands.SendMessage(
            command_id=self._command(command_id),
            session_id=session_id,
            text=text,
            profile=self.provider_name,
            limits=limits or RunLimits(),
        )
        self.kernel.tell(SendMessage(command=command, reply=reply))
        return reply

    def stop(self, session_id: SessionId, source: str = "test.button") -> SimReply:
        reply = SimReply()
        self.kernel.tell(StopSession(command=commands.Stop(session_id=session_id, source=source), reply=reply))
        return reply

    def change_boundary(
        self,
        session_id: SessionId,
        *,
        profile: Profile | None = None,
        grants: Expansion | None = None,
        revoked: tuple[EventId, ...] = (),
        command_id: str | None = None,
    ) -> SimReply:
        reply = SimReply()
        command = commands.ChangeBoundary(
            command_id=self._command(command_id),
            session_id=session_id,
            profile=profile,
            grants=grants or Expansion(),
            revoked=revoked,
        )
        self.kernel.tell(SetBoundary(command=command, reply=reply))
        return reply

    def stop_shell(self, session_id: SessionId, shell_id: str) -> SimReply:
        reply = SimReply()
        command = commands.StopBackground(session_id=session_id, shell_id=shell_id, by="test.button")
        self.kernel.tell(StopShell(command=command, reply=reply))
        return reply

    def undo_changes(
        self, session_id: SessionId, *, run_id: str | None = None, command_id: str | None = None
    ) -> SimReply:
        reply = SimReply()
        command = commands.Undo(
            command_id=self._command(command_id),
            session_id=session_id,
            run_id=None if run_id is None else RunId(run_id),
        )
        self.kernel.tell(UndoChanges(command=command, reply=reply))
        return reply

    def waits(self, session_id: SessionId) -> tuple[EventId, ...]:
        """Return what the session waits for, by its header."""
        data = self.store.header_of(session_id)
        return () if data is None else session_index.decode(data).waiting

    def answer(self, session_id: SessionId, request_id: str, *answers: str) -> SimReply:
        reply = SimReply()
        command = commands.Answer(session_id=session_id, request_id=EventId(request_id), answers=answers or ("yes",))
        self.kernel.tell(AnswerWait(command=command, reply=reply))
        return reply

    def answer_fitting(self, session_id: SessionId, request_id: str) -> SimReply:
        """Allow what is a request for a wider boundary, and answer what is a question."""
        for item in self.session_facts(session_id):
            actions = item.event.actions
            delta = None if actions is None else actions.state_delta
            if item.event.id == request_id and delta is not None and delta.boundary_request is not None:
                return self.decide(session_id, request_id, "allow")
        return self.answer(session_id, request_id)

    def decide(self, session_id: SessionId, request_id: str, decision: Literal["allow", "deny"]) -> SimReply:
        reply = SimReply()
        command = commands.Answer(session_id=session_id, request_id=EventId(request_id), decision=decision)
        self.kernel.tell(AnswerWait(command=command, reply=reply))
        return reply

    def follow(self, session_id: SessionId, after_position: int = 0) -> SimSink:
        sink = SimSink(self.world, self._head)
        self.feed.tell(Subscribe(session_id=session_id, after_position=after_position, sink=sink))
        return sink

    def sweep(self) -> None:
        self.kernel.tell(Sweep())

    def shut_down(self) -> SimReply:
        reply = SimReply()
        self.kernel.tell(Shutdown(reply=reply))
        return reply

    def _command(self, given: str | None) -> CommandId:
        self._commands += 1
        return CommandId(given or f"c{self._commands}")

    # -- facts ----------------------------------------------------------------------------------------------------

    def facts(self) -> list[Committed]:
        return self.store.read_positions(0, 1 << 30)

    def session_facts(self, session_id: SessionId) -> list[Committed]:
        return self.store.read_session(session_id, 0, 1 << 30)


__all__ = ["FaultyLedger", "LedgerFailedError", "LedgerFullError", "SimHost", "fail_commit"]
