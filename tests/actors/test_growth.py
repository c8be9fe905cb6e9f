"""What a long session costs: each message reads and writes as much as the first ones did."""

from collections.abc import Callable
from typing import Any

from maka.contracts.ids import InvocationId
from tests.actors.case import Case, asks, then
from tests.sim.faults import FaultyLedger
from tests.sim.outside import Said

TURNS = 200
EVERYTHING = 1 << 30
"""As many facts as only the world around the actors asks for, to check them."""
READS = ("read_stream", "read_positions", "read_session", "iter_session")


class Counted:
    """Counts the facts that are read from a store, and those that are appended."""

    def __init__(self, store: FaultyLedger) -> None:
        self.read = 0
        for name in READS:
            setattr(store, name, self._counting(getattr(store, name)))

    def _counting(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **options: Any) -> Any:
            found = list(read(*args, **options))
            self.read += len(found) if EVERYTHING not in args else 0
            return found

        return counting


def test_h77_cost_per_event_grows_with_the_session() -> None:
    """A turn with a tool call of 10 KB reads no more facts late in a session than early, and no delta stays a row."""
    case = Case(then(Said(text=("hello",))))
    case.host.world.run()
    counted, cost, grown = Counted(case.host.store), list[int](), list[int]()
    for turn in range(TURNS):
        case.host.provider.script = then(
            asks("Quick", text="x" * 10_000), Said(text=tuple(f"{turn} word " for _ in range(20)))
        )
        counted.read, head = 0, case.host.store.head().position
        sent = case.host.send(case.session_id, f"turn {turn}")
        case.host.world.run()
        cost.append(counted.read)
        grown.append(case.host.store.head().position - head)
        assert list(case.host.store.partials(InvocationId(sent.value.run_id))) == []
    assert max(cost[10:]) == cost[10] < 40, cost
    assert set(grown) == {grown[0]}, grown
