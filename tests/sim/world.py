"""The deterministic runtime: the same actor classes, no threads, one message at a time, chosen by a seed.

The seam is Pykka's own: an actor leaves its inbox, its futures and its loop to three factories. One step lets Pykka's
loop handle one envelope, so error paths, failure hooks and teardown are Pykka's and MakaActor's, not copies.
"""
# pyright: reportPrivateUsage=false

import contextlib
import random
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn, TypeVar

import pykka

from actors.address import Address
from actors.base import CannotStartError, MakaActor, TwoLanes
from tests.sim.laws import BrokenLaw

M = TypeVar("M")


class _Yield(Exception):
    """Leaves Pykka's loop after one message; raised outside its try block."""


class SimInbox(TwoLanes):
    """The production mailbox, whose `get` hands out as many envelopes as the world allows."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = 0
        self.draining = False

    def get(self) -> Any:
        if self.budget == 0 and not self.draining:
            raise _Yield
        self.budget -= 1
        return super().get()


class Livelock(AssertionError):
    """The world didn't settle within its steps."""


class World:
    """A seeded scheduler and its virtual time.

    `trace` is the schedule, `crashes` the actors that died of a bug and why, `broken` the laws that the outside saw
    broken: an actor's fence would swallow what is raised there. `stillborn` names classes whose next actor can't start,
    `threadless` those for whose next one there is no thread.
    """

    def __init__(self, seed: int, choose: Callable[[int], int] | None = None) -> None:
        self.random = random.Random(seed)
        self._choose = choose or self.random.randrange
        self.actors: list[Any] = []
        self.trace: list[str] = []
        self.crashes: list[tuple[str, BaseException]] = []
        self.broken: list[BrokenLaw] = []
        self.stillborn: list[str] = []
        self.threadless: list[str] = []
        self.now_s = 1_000.0
        self.wall_ms = 1_700_000_000_000
        self.timers: list[SimTimer] = []
        self.pending: list[tuple[str, Callable[[], None]]] = []
        self.ids = 0

    # -- ports of time and ids ------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self.wall_ms + round(1000 * self.now_s)

    def monotonic_s(self) -> float:
        return self.now_s

    def next_id(self) -> str:
        self.ids += 1
        return f"01900000-0000-7000-8000-{self.ids:012x}"

    def after(self, delay_s: float, fire: Callable[[], None]) -> "SimTimer":
        timer = SimTimer(self.now_s + delay_s, fire)
        self.timers.append(timer)
        return timer

    # -- actors ---------------------------------------------------------------------------------------------------

    def spawn(self, actor: type[MakaActor[M]], *args: Any) -> Address[M]:
        """Start an actor of a production class under this scheduler."""
        if actor.__name__ in self.threadless:
            self.threadless.remove(actor.__name__)
            raise CannotStartError("planted: there is no thread")
        return Address(_simulated(actor).start(self, *args))

    def soon(self, name: str, act: Callable[[], None]) -> None:
        """Let the outside (a provider, a tool, a disk) act at some later step."""
        self.pending.append((name, act))

    def breaks(self, law: str) -> NoReturn:
        """Note a broken law, and raise it where it was seen."""
        error = BrokenLaw(law)
        self.broken.append(error)
        raise error

    # -- steps ----------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Let one thing happen: a message, an act of the outside, or, when nothing else can, time passing."""
        ready = [actor for actor in self.actors if actor.fresh or not actor.actor_inbox.empty()]
        options = len(ready) + len(self.pending)
        if options == 0:
            return self.pass_time()
        choice = self._choose(options) if options > 1 else 0
        if choice < len(ready):
            self._run_one(ready[choice])
        else:
            name, act = self.pending.pop(choice - len(ready))
            self.trace.append(name)
            act()
        return True

    def run(self, steps_max: int = 20_000, until: Callable[[], bool] | None = None) -> int:
        """Step until nothing can happen any more, or `until` holds."""
        for count in range(steps_max):
            if (until is not None and until()) or not self.step():
                return count
        raise Livelock(f"not settled after {steps_max} steps: {self.trace[-20:]}")

    def _run_one(self, actor: Any) -> None:
        self.trace.append(type(actor).__name__)
        if actor.fresh:
            actor.fresh = False
            actor._actor_loop_setup()
        else:
            actor.actor_inbox.budget = 1
            with contextlib.suppress(_Yield):
                actor._actor_loop_running()
        if actor.actor_stopped.is_set():
            self.actors.remove(actor)
            actor.actor_inbox.draining = True
            actor._actor_loop_teardown()

    def pass_time(self, late_s: float = 0.0) -> bool:
        """Fire the next timer, whatever else could happen; one of all that are due where they are late."""
        live = [timer for timer in self.timers if not timer.is_over]
        if not live:
            self.now_s += late_s
            return False
        first = min(live, key=lambda timer: timer.at_s)
        self.now_s = max(self.now_s, first.at_s) + late_s
        due = sorted((timer for timer in live if timer.at_s <= self.now_s), key=lambda timer: timer.at_s)
        chosen = due[self._choose(len(due)) if len(due) > 1 else 0]
        self.timers = [timer for timer in live if timer is not chosen]
        self.trace.append("time")
        chosen.fire()
        return True

    def drop_all(self) -> None:
        """Crash: every actor, timer and act of the outside is gone; nobody is told."""
        for actor in self.actors:
            actor.actor_stopped.set()
            pykka.ActorRegistry.unregister(actor.actor_ref)
        self.actors, self.timers, self.pending = [], [], []


@cache
def _simulated(actor: type[MakaActor[Any]]) -> Any:
    """Return the same class with another runtime: its objects take the world first.

    One for each class, not for each actor: a class lives on until the garbage collector finds it, and each further one
    makes every `isinstance` with an abstract class slower.
    """

    class Simulated(actor):  # type: ignore[valid-type,misc]
        def __init__(self, world: World, *args: Any) -> None:
            super().__init__(*args)
            self.world = world
            self.fresh = True

        @staticmethod
        def _create_actor_inbox() -> Any:
            return SimInbox()

        def _start_actor_loop(self) -> None:
            self.world.actors.append(self)

        def on_start(self) -> None:
            if type(self).__name__ in self.world.stillborn:
                self.world.stillborn.remove(type(self).__name__)
                raise RuntimeError("planted: it can't start")

        def _handle_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
            self.world.crashes.append((type(self).__name__, exception_value))
            super()._handle_failure(exception_type, exception_value, traceback)

    Simulated.__name__ = actor.__name__
    return Simulated


class SimTimer:
    def __init__(self, at_s: float, act: Callable[[], None]) -> None:
        self.at_s = at_s
        self._act: Callable[[], None] | None = act

    @property
    def is_over(self) -> bool:
        return self._act is None

    def cancel(self) -> None:
        self._act = None

    def fire(self) -> None:
        act, self._act = self._act, None
        if act is not None:
            act()
