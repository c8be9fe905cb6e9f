"""A host's actors end before what they use is closed, all at once, and never those of another host."""

from threading import Event
from typing import Any

from actors.base import MakaActor
from actors.troupe import LAST_MOMENT_S, PRUNE_EVERY, Patience, Troupe
from tests.sim.host import QUIET

WAIT_S = 10.0


class Patient(MakaActor[Any]):
    """Handles one message that takes until `go`, then says in its clean-up that it has ended."""

    def __init__(self, go: Event, begun: Event, ended: Event) -> None:
        super().__init__(QUIET, None)
        self._go, self._begun, self._ended = go, begun, ended

    def receive(self, message: Any) -> None:
        self._begun.set()
        assert self._go.wait(WAIT_S)

    def cleanup(self) -> None:
        self._ended.set()


def patient(troupe: Troupe) -> tuple[Event, Event]:
    go, begun, ended = Event(), Event(), Event()
    troupe(Patient, go, begun, ended).tell("work")
    assert begun.wait(WAIT_S)
    return go, ended


def test_it_waits_for_what_is_being_handled() -> None:
    troupe = Troupe()
    held = [patient(troupe) for _ in range(5)]
    for go, _ in held:
        go.set()
    assert troupe.stop_all(WAIT_S) == 0
    assert all(ended.is_set() for _, ended in held)


def test_it_says_how_many_are_left_when_the_time_is_over() -> None:
    troupe = Troupe()
    held = [patient(troupe) for _ in range(3)]
    assert troupe.stop_all(0.0) == 3
    for go, ended in held:
        go.set()
        assert ended.wait(WAIT_S)


def test_another_hosts_actors_live_on() -> None:
    one, other = Troupe(), Troupe()
    go, ended = patient(other)
    assert one.stop_all(0.0) == 0
    assert not ended.is_set()
    go.set()
    assert other.stop_all(WAIT_S) == 0


def test_actors_that_have_ended_are_forgotten() -> None:
    troupe = Troupe()
    for _ in range(PRUNE_EVERY + 1):
        go, begun, ended = Event(), Event(), Event()
        troupe(Patient, go, begun, ended).stop()
        assert ended.wait(WAIT_S)
    assert troupe.stop_all(WAIT_S) == 0


def test_all_steps_of_an_end_share_one_patience() -> None:
    """Its time runs from the first step on; a step for which none is left still has a moment, to see what is over."""
    now_s = 100.0
    patience = Patience(4.5, lambda: now_s)
    now_s = 200.0
    assert patience.left_s() == 4.5
    now_s += 3.0
    assert patience.left_s() == 1.5
    now_s += 3.0
    assert patience.left_s() == LAST_MOMENT_S
