"""What must hold after every step of the world, and what must hold once it has settled."""
# pyright: reportPrivateUsage=false

from actors.run import RunActor
from maka.contracts.codec import encode
from maka.contracts.content import FunctionCall, FunctionResponse, Outcome
from maka.contracts.errors import LedgerFailedError
from maka.contracts.events import Committed, RuntimeEvent, Status, is_terminal
from maka.contracts.ids import InvocationId, SessionId
from maka.contracts.limits import RETRY_TRIES_MAX
from maka.storage.replay import Replay
from projections import background, boundary, model_history, run_state, session_index
from projections.background import Background, Shell
from projections.boundary import BoundaryState
from projections.model_history import History
from projections.run_state import Phase, RunState, terminal_fact
from projections.settlement import Ending
from projections.window import LEVEL_MAX
from tests.checkers import check_endings, check_messages
from tests.sim.host import SimHost
from tests.sim.laws import SECRET, BrokenLaw
from tests.sim.tools import HANGING

NEVER = (Outcome.NOT_STARTED, Outcome.REFUSED)
CHILDREN = frozenset({"RunActor", "BackendActor", "ToolActor"})


class Checker:
    """Follows the log of a host, fact by fact. Survives its crashes."""

    def __init__(self, host: SimHost) -> None:
        self._host = host
        self._position = 0
        self._seqs: dict[InvocationId, int] = {}
        self.runs: dict[InvocationId, RunState] = {}
        self._histories: dict[SessionId, History] = {}
        self._shells: dict[SessionId, Background] = {}
        self._names: dict[str, str] = {}
        self._requests = 0
        self._replay = Replay()
        self._world = host.world
        self._claims: dict[str, Ending] = {}

    def step(self) -> None:
        """Check the facts, the requests and the deaths that are new since the last call."""
        world = self._host.world
        if world is not self._world:
            self._world, self._claims = world, {}  # what a dead process was about to write is nobody's claim
        if world.broken:
            raise world.broken[0]
        for name, error in world.crashes:
            if "planted" not in str(error) and not isinstance(error, LedgerFailedError):
                raise BrokenLaw(f"{name} died of {type(error).__name__}: {error}") from error
        world.crashes.clear()
        living: set[str] = set()
        for actor in world.actors:
            if isinstance(actor, RunActor):
                living.add(actor._state.plan.who.run_id)
                if (claim := actor._state.claim) is not None:
                    self._claims.setdefault(actor._state.plan.who.run_id, claim.ending)
        for item in self._host.store.read_positions(self._position, 1 << 30):
            self._take(item)
        # A run whose actor died may stay parked: what the actor was about to write is nobody's claim, either.
        self._claims = {run_id: ending for run_id, ending in self._claims.items() if run_id in living}
        provider = self._host.provider
        if self._requests > len(provider.requests):
            self._requests = 0  # a new provider after a crash
        for request in provider.requests[self._requests :]:
            check_messages(request.messages)
        self._requests = len(provider.requests)

    def _take(self, item: Committed) -> None:
        event = item.event
        if item.position != self._position + 1:
            raise BrokenLaw(f"position {item.position} follows {self._position}")
        self._host.left_over.check(self._host.processes.killed, self._host.leftovers)
        self._position = item.position
        last = self._seqs.get(event.invocation_id, 0)
        if item.seq != last + 1:
            raise BrokenLaw(f"seq {item.seq} follows {last}")
        self._seqs[event.invocation_id] = item.seq
        if (broken := self._replay.take(item, len(encode(event)))) is not None:
            raise BrokenLaw(f"a fact that no append lets in: {broken}")
        self._histories[event.session_id] = model_history.fold(self._histories.get(event.session_id), item)
        self._shells[event.session_id] = background.fold(self._shells.get(event.session_id), item)
        if event.run_id is not None:
            # This fold refuses a second terminal, a fact behind one, a response without its call.
            self.runs[event.invocation_id] = run_state.fold(self.runs.get(event.invocation_id), item)
        self._check_call(item)
        self._check_tries(item)
        if is_terminal(event):
            self._check_claim(event)
            self._check_next_request(event.session_id)

    def _check_call(self, item: Committed) -> None:
        """What really happened to a call is what the log says of it."""
        content, effects = item.event.content, self._host.effects
        if isinstance(content, FunctionCall):
            self._names[item.event.id] = content.name
        self._check_secrets(item)
        if not isinstance(content, FunctionResponse) or self._names.get(content.call_id) == "Ask":
            return
        if content.outcome in NEVER and content.call_id in effects.done:
            raise BrokenLaw(f"a call that had an effect is said to be {content.outcome}")
        if content.outcome is Outcome.OK and content.call_id not in effects.started:
            raise BrokenLaw("a call that was never started has a result")

    def _check_secrets(self, item: Committed) -> None:
        """What a tool says is stored without the secret, in facts and in values beside them."""
        content, found = item.event.content, [encode(item.event)]
        if isinstance(content, FunctionResponse):
            refs = [ref for ref in (content.whole, content.diff) if ref is not None]
            found += [self._host.store.blob(ref.sha256) or b"" for ref in refs]
        if any(SECRET.encode() in data for data in found):
            raise BrokenLaw("a secret was stored")

    def _check_claim(self, event: RuntimeEvent) -> None:
        """The first ending that was claimed is the one that is written; a completed one may not find room."""
        fact = terminal_fact(event)
        first = self._claims.get(fact.run_id)
        if first is None or fact.recovery is not None or first.status is Status.COMPLETED:
            return
        claimed = (first.status, first.failure_class, first.abort_source)
        written = (fact.status, fact.failure_class, fact.abort_source)
        if claimed != written:
            raise BrokenLaw(f"run {fact.run_id} was to end as {claimed}, and its terminal says {written}")

    def _check_tries(self, item: Committed) -> None:
        """Requests of one step are bounded: the tries, begun anew at each level of the window."""
        asked = item.event.actions.model_request if item.event.actions is not None else None
        if asked is not None and asked.attempt > RETRY_TRIES_MAX * (LEVEL_MAX + 1):
            raise BrokenLaw(f"step {asked.step} was asked for {asked.attempt} times")

    def _check_next_request(self, session_id: SessionId) -> None:
        history = self._histories[session_id]
        if any(turn.calls for turn in history.open.values()):
            return
        window = history.window
        rendered = model_history.render(
            history, level=window.level, through_position=window.through_position, keeps_reasoning=True
        )
        check_messages(rendered.messages)

    # -- settled --------------------------------------------------------------------------------------------------

    def at_rest(self) -> None:
        """Check that of each open run it is clear whom it waits for: a person, or an outside that hangs.

        A session that crashed too often is exempt until the restart that it asks for.
        """
        hanging, fenced = self._host.provider.hanging(), self._host.fenced()
        for invocation_id, run in self.runs.items():
            if run.phase in (Phase.ENDED, Phase.PARKED) or run.run.session_id in fenced:
                continue
            calls = [call for call in run.calls if call.wait_id is None]
            if run.asking:
                hanging -= 1
            stuck = run.asking and hanging < 0
            idle = [call.name for call in calls if call.call_id not in self._host.effects.hanging]
            if stuck or (not run.asking and not calls) or idle:
                raise BrokenLaw(f"run {invocation_id} is open and nobody works on it (calls {idle})")
        self._check_shells(fenced)
        for actor in self._host.world.actors:
            if isinstance(actor, RunActor) and not actor._state.ended:
                self._check_bounds(actor._state.boundary)
        for session_id in self._histories:
            header = session_index.decode(self._host.store.header_of(session_id) or b"")
            if header.untaken and not header.open_runs and session_id not in fenced:
                raise BrokenLaw(f"{len(header.untaken)} messages of {session_id} wait, and nobody takes them")

    def live_shells(self) -> list[Shell]:
        """Return the background shells that the facts call live."""
        return [shell for state in self._shells.values() for shell in state.live.values()]

    def _check_shells(self, fenced: set[SessionId]) -> None:
        """What the facts call live is what lives, and the other way round."""
        named = {shell.call_id: shell for shell in self.live_shells()}
        alive = set(self._host.effects.alive.values())
        if nameless := alive - named.keys():
            raise BrokenLaw(f"background processes run on that no fact calls live: {nameless}")
        gone = {call_id for call_id, shell in named.items() if shell.session_id not in fenced} - alive
        if gone:
            raise BrokenLaw(f"background processes are gone, and no fact says so: {gone}")

    def _check_bounds(self, held: BoundaryState) -> None:
        """A live run is held to the boundary that the log says."""
        says = boundary.project(self._host.session_facts(held.session_id))
        assert says is not None
        mine, true = ({grant.origin for grant in each.boundary.grants} for each in (held, says))
        if mine != true or held.boundary.profile is not says.boundary.profile:
            raise BrokenLaw(f"a live run of {held.session_id} is held to another boundary than its session's")

    def settled(self) -> None:
        """Check that nothing is left over: every run ended, every session could ask its model again."""
        self.step()
        if self.live_shells() or self._host.effects.alive or not self._host.table.is_empty():
            raise BrokenLaw(f"background shells are left: {self.live_shells()}, {self._host.effects.alive}")
        for run in self.runs.values():
            if run.terminal is None:
                raise BrokenLaw(f"run {run.run.run_id} never ended")
            if self._host.store.partials(run.run.invocation_id):
                raise BrokenLaw(f"unfinished text is left of run {run.run.run_id}, which has ended")
        for session_id in self._histories:
            self._check_next_request(session_id)
            check_endings(self._host.session_facts(session_id))
            self._check_header(session_id)
        left = [type(actor).__name__ for actor in self._host.world.actors]
        deaf = sum(self._names.get(call_id) in HANGING for call_id in self._host.effects.hanging)
        if sum(name in CHILDREN for name in left) > deaf:
            raise BrokenLaw(f"actors are left: {left}")

    def _check_header(self, session_id: SessionId) -> None:
        data = self._host.store.header_of(session_id)
        header = None
        for item in self._host.session_facts(session_id):
            header = session_index.fold(header, item)
        if header is None or data != session_index.encode(header):
            raise BrokenLaw(f"the stored header of {session_id} isn't the fold of its facts")
        bounds = boundary.project(self._host.session_facts(session_id))
        if bounds is None or bounds.boundary.revision != header.boundary_revision:
            raise BrokenLaw(f"the header of {session_id} counts another revision of the boundary than its facts")
        if header.open_runs or header.waiting:
            raise BrokenLaw(f"the header of {session_id} still has {header.open_runs} {header.waiting}")
