"""Fail at the 1st, 2nd, 3rd … write of a run with two tools, a wait and a stop, until a run passes clean.

After each failure: recovery, every checker, every session takes a further prompt. In memory on several schedules, and
on the real store.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from maka.contracts.content import RunLimits
from maka.contracts.errors import LedgerFailedError
from maka.contracts.model_ports import ChatRequest
from maka.storage.ledger import LmdbLedger
from maka.storage.root import acquire_root
from maka.storage.verify import verify
from tests.actors.case import asks
from tests.sim.faults import CommitFault, FaultyLedger
from tests.sim.model import Said
from tests.sim.settle import settle
from tests.sim.story import DONE, Story
from tests.sim.swarm import Swarm

FAULTS: tuple[CommitFault, ...] = ("refuse", "die_lost", "die_kept", "sync_lost", "sync_kept")
WRITES_MAX = 60


def script(request: ChatRequest) -> Said:
    """Two tools and a question, then a tool that hangs until the stop."""
    last = max(number for number, message in enumerate(request.messages) if message.role == "user")
    if request.messages[last].text != "do it":
        return DONE
    steps = sum(message.role == "assistant" for message in request.messages[last:])
    return (asks("File", "Process", "Ask", text="first "), asks("Hang", text="then "), DONE)[min(steps, 2)]


def drive(swarm: Swarm) -> None:
    """Let the run come as far as it can: answer what waits, stop what hangs."""
    swarm.host.script = swarm.host.provider.script = script
    swarm.clients.create()
    stopped, answered, asked = False, set[str](), False
    for _ in range(5_000):
        going = swarm.host.world.step()
        swarm.look()
        if swarm.sessions and not asked:
            asked = True
            swarm.clients.send(swarm.sessions[0], "do it", RunLimits())
        for session_id in swarm.sessions:
            for wait in set(swarm.host.waits(session_id)) - answered:
                answered.add(wait)
                swarm.clients.answer(session_id, wait)
        if swarm.host.effects.hanging and not stopped:
            stopped = True
            swarm.clients.stop(swarm.sessions[0])
        if not going and asked:
            return


def fail_each_write(fault: CommitFault, seed: int, store: Callable[[], FaultyLedger | None] = lambda: None) -> int:
    """Play the run once for each write that fails; return the number of writes of a clean one."""
    for number in range(1, WRITES_MAX):
        swarm = Swarm(Story(seed=seed, moves=(), choices=None if seed else ()), store=store())
        first = swarm.host.store
        first.faults[number] = fault
        try:
            drive(swarm)
            settle(swarm)
        except BaseException as error:
            error.add_note("\n".join([f"write {number} of schedule {seed}: {fault}", *swarm.told]))
            raise
        if isinstance(swarm.host.store.inner, LmdbLedger):
            assert verify(swarm.host.store.inner.reader).ok
            swarm.host.store.inner.close()
        if first.commits < number:
            return number - 1
    raise AssertionError("no run passed clean")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", range(6))
def test_h37_a_run_is_whole_after_a_failure_at_any_write(fault: CommitFault, seed: int) -> None:
    assert fail_each_write(fault, seed) >= 10


@pytest.mark.parametrize("fault", FAULTS)
def test_h37_a_real_store_is_whole_after_a_failure_at_any_write(fault: CommitFault, tmp_path: Path) -> None:
    count = iter(range(WRITES_MAX))

    def fresh() -> FaultyLedger:
        root = tmp_path / str(next(count))
        acquire_root(root).close()
        return FaultyLedger(root=root, map_bytes=16 << 20)

    assert fail_each_write(fault, 0, fresh) >= 10


def test_a_failed_sync_is_a_failed_ledger() -> None:
    """The port's word for it: nobody is told of a commit whose outcome is unknown."""
    store = FaultyLedger()
    store.next = "sync_kept"
    with pytest.raises(LedgerFailedError):
        store.commit([])
    assert store.failed and not store.has_room()
