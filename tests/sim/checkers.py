"""What must hold after every step of the world, and what must hold once it has settled."""

from maka.contracts.events import Committed
from maka.contracts.ids import InvocationId, SessionId
from projections import model_history, run_state
from projections.model_history import History
from projections.run_state import RunState
from tests.checkers import check_endings, check_messages
from tests.sim.host import SimHost
from tests.sim.outside import BrokenLaw


class Checker:
    """Follows the log of a host, fact by fact. Survives its crashes."""

    def __init__(self, host: SimHost) -> None:
        self._host = host
        self._position = 0
        self._seqs: dict[InvocationId, int] = {}
        self.runs: dict[InvocationId, RunState] = {}
        self._histories: dict[SessionId, History] = {}
        self._requests = 0

    def step(self) -> None:
        """Check the facts and the requests that are new since the last call."""
        for item in self._host.store.read_positions(self._position, 1 << 30):
            self._take(item)
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
        self._position = item.position
        last = self._seqs.get(event.invocation_id, 0)
        if item.seq != last + 1:
            raise BrokenLaw(f"seq {item.seq} follows {last}")
        self._seqs[event.invocation_id] = item.seq
        self._histories[event.session_id] = model_history.fold(self._histories.get(event.session_id), item)
        if event.run_id is not None:
            # This fold refuses a second terminal, a fact behind one, a response without its call.
            self.runs[event.invocation_id] = run_state.fold(self.runs.get(event.invocation_id), item)

    def settled(self) -> None:
        """Check that nothing is left over: every run ended, every session could ask its model again."""
        self.step()
        for run in self.runs.values():
            if run.terminal is None:
                raise BrokenLaw(f"run {run.run.run_id} never ended")
        for history in self._histories.values():
            rendered = model_history.render(history, level=0, through_position=0, keeps_reasoning=True)
            check_messages(rendered.messages)
        for session_id in self._histories:
            check_endings(self._host.session_facts(session_id))
