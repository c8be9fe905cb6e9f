"""The end of every story: the faults stop, and then everything must come to its end by itself, within some steps."""

from typing import Protocol

from maka.contracts.content import RunLimits
from maka.contracts.ids import SessionId
from maka.contracts.model_ports import ChatRequest
from projections.run_state import Phase
from tests.sim.checkers import Checker
from tests.sim.clients import Clients
from tests.sim.host import SimHost
from tests.sim.laws import BrokenLaw
from tests.sim.model import Said
from tests.sim.story import DONE

STEPS_MAX = 20_000
ROUNDS_MAX = 12
"""A session's queue holds that many messages at most in these stories, and one stop ends one run."""


class Played(Protocol):
    """What is settled."""

    host: SimHost
    checker: Checker
    clients: Clients

    @property
    def sessions(self) -> list[SessionId]: ...
    def step(self) -> None: ...
    def look(self) -> None: ...
    def crash(self, why: str) -> None: ...
    def tell(self, words: str) -> None: ...


def settle(played: Played) -> None:
    """End the faults; then nothing is stuck, a stop ends what hangs, and every session takes a further prompt."""
    host = played.host
    played.tell("the faults stop")
    host.store.next, host.store.full, host.blobs.full = None, False, False
    host.store.faults.clear()
    host.world.stillborn.clear()
    host.world.threadless.clear()
    host.reader.failing = 0
    host.script = host.provider.script = _done
    _rest(played)
    if not host.fatal:
        played.clients.all_answered()
    if not host.fatal and not played.clients.has_shut_down:
        played.checker.at_rest()
    # A fence is lifted, and a closed door opened, by a restart alone.
    played.crash("is started anew")
    _rest(played)
    played.checker.at_rest()
    _end_runs(played)
    played.checker.settled()
    _go_on(played)
    played.checker.settled()
    played.clients.settled()
    head = host.store.head()
    played.crash("is started anew")
    _rest(played)
    if host.store.head() != head:
        raise BrokenLaw("a restart of what had settled added facts")


def _rest(played: Played) -> None:
    """Step until nothing can happen any more; two sweeps find who died without a word."""
    for _ in range(2):
        for _ in range(STEPS_MAX):
            if not played.host.world.step():
                break
            played.look()
        else:
            raise BrokenLaw(f"not settled after {STEPS_MAX} steps")
        played.look()
        played.host.sweep()
    while played.host.world.step():
        played.look()


def _end_runs(played: Played) -> None:
    """Answer what waits in every second session, and stop what is open in the others."""
    for _ in range(ROUNDS_MAX):
        open_runs = [run for run in played.checker.runs.values() if run.terminal is None]
        if not open_runs and not played.clients.ask_again():
            return
        for run in open_runs:
            session_id = run.run.session_id
            answers = run.phase is Phase.PARKED and played.sessions.index(session_id) % 2 == 0
            for wait in run.waits if answers else ():
                played.clients.answer(session_id, wait)
            if not answers:
                played.clients.stop(session_id)
        _rest(played)
    raise BrokenLaw("runs that neither an answer nor a stop ends")


def _go_on(played: Played) -> None:
    """Every session takes one more message."""
    for session_id in played.sessions:
        played.clients.send(session_id, "and now", RunLimits())
    _rest(played)


def _done(_: ChatRequest) -> Said:
    return DONE
