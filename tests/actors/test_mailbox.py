"""Mailbox, fence and addresses: control before data, order within a lane, no death that reaches others."""

from threading import Event, Thread
from typing import Any

import pykka
import pytest

from actors.address import Address, OneShot
from actors.base import CannotStartError, MakaActor, has_ended
from actors.messages import SendMessage
from actors.messages_run import Start, StopRun
from actors.messages_work import Cancel
from maka.contracts import commands
from maka.contracts.commands import Reply
from maka.contracts.errors import Refusal
from maka.contracts.ids import CommandId, SessionId
from tests.sim.host import QUIET

WAIT_S = 10.0


class Recorder(MakaActor[Any]):
    """Keeps what it handled; the first message holds it until `go` is set."""

    def __init__(self, go: Event, seen: list[Any], done: Event, count: int) -> None:
        super().__init__(QUIET, None)
        self._go, self._seen, self._done, self._count = go, seen, done, count

    def receive(self, message: Any) -> None:
        assert self._go.wait(WAIT_S)
        self._seen.append(message)
        if len(self._seen) == self._count:
            self._done.set()


class Faulty(MakaActor[Any]):
    """Raises what it is told, and says when it has cleaned up."""

    def __init__(self, died: list[str], cleaned: Event) -> None:
        super().__init__(QUIET, died.append)
        self._cleaned = cleaned

    def receive(self, message: Any) -> None:
        if isinstance(message, BaseException) or (isinstance(message, type) and issubclass(message, BaseException)):
            raise message
        if isinstance(message, Event):
            message.set()

    def cleanup(self) -> None:
        self._cleaned.set()


def start(actor: type[MakaActor[Any]], *args: Any) -> tuple[Address[Any], pykka.ActorRef[Any]]:
    ref = actor.start(*args)
    return Address(ref), ref


def test_control_goes_before_data_and_each_lane_keeps_its_order() -> None:
    go, seen, done = Event(), list[Any](), Event()
    address, ref = start(Recorder, go, seen, done, 6)
    data = [Start(), Start(), Start()]
    control = [Cancel(generation=1), Cancel(generation=2)]
    address.tell("held")
    for message in (data[0], control[0], data[1], control[1], data[2]):
        address.tell(message)
    go.set()
    assert done.wait(WAIT_S)
    rest = seen[1:] if seen[0] == "held" else seen
    assert rest[:2] == control or seen[:2] == control
    assert [message for message in seen if isinstance(message, Start)] == data
    ref.stop(timeout=WAIT_S)


@pytest.mark.parametrize("error", [ValueError("a bug"), SystemExit(3), KeyboardInterrupt()])
def test_h48_a_base_exception_in_one_actor_reaches_no_other(error: BaseException) -> None:
    """Pykka would stop every actor of the process."""
    died, cleaned = list[str](), Event()
    victim, victim_ref = start(Faulty, died, cleaned)
    other, other_ref = start(Faulty, list[str](), Event())
    victim.tell(error)
    assert cleaned.wait(WAIT_S)
    assert victim_ref.actor_stopped.wait(WAIT_S)
    alive = Event()
    assert other.tell(alive)
    assert alive.wait(WAIT_S)
    assert not victim.tell("later")
    assert len(died) == 1
    other_ref.stop(timeout=WAIT_S)


@pytest.mark.parametrize("hook", ["on_start", "cleanup at a stop", "cleanup at a crash"])
def test_h48_a_base_exception_in_a_hook_reaches_no_other(hook: str) -> None:
    """And whoever started the actor hears of its death, or asked for it."""
    died = Event()

    class Exits(MakaActor[Any]):
        def on_start(self) -> None:
            if hook == "on_start":
                raise SystemExit(3)

        def receive(self, message: Any) -> None:
            raise ValueError(message)

        def cleanup(self) -> None:
            raise SystemExit(3)

    other, other_ref = start(Faulty, list[str](), Event())

    def told(reason: str) -> None:
        died.set()

    victim, victim_ref = start(Exits, QUIET, told)
    if hook == "cleanup at a stop":
        victim_ref.stop(block=False)
    else:
        victim.tell("a message that nobody can handle")
        assert died.wait(WAIT_S)
    assert has_ended(victim_ref).wait(WAIT_S)
    assert not victim.is_alive()
    alive = Event()
    assert other.tell(alive) and alive.wait(WAIT_S)
    other_ref.stop(timeout=WAIT_S)


def test_an_actor_without_a_thread_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_none(self: Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = len(pykka.ActorRegistry.get_all())
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", start_none)
        with pytest.raises(CannotStartError, match="no thread can be started"):
            start(Faulty, list[str](), Event())
    assert len(pykka.ActorRegistry.get_all()) == before


def test_h47_a_command_left_in_a_dead_actors_mailbox_is_answered() -> None:
    died, cleaned = list[str](), Event()
    go = Event()

    class Held(Faulty):
        def receive(self, message: Any) -> None:
            assert go.wait(WAIT_S)
            super().receive(message)

    victim, _ = start(Held, died, cleaned)
    victim.tell(ValueError("a bug"))
    replies: list[OneShot[Reply]] = [OneShot(), OneShot()]
    command = commands.SendMessage(command_id=CommandId("c"), session_id=SessionId("s"), text="t", profile="p")
    victim.tell(SendMessage(command=command, reply=replies[0]))
    victim.tell(SendMessage(command=command, reply=replies[1]))
    go.set()
    answers = [reply.wait(WAIT_S) for reply in replies]
    assert all(isinstance(answer, Refusal) for answer in answers), answers


def test_a_crash_in_handling_a_command_answers_that_command() -> None:
    class Breaks(MakaActor[Any]):
        def receive(self, message: Any) -> None:
            raise SystemExit(1)

    address, _ = start(Breaks, QUIET, None)
    reply: OneShot[Reply] = OneShot()
    address.tell(StopRun(source="test", reply=reply))
    assert isinstance(reply.wait(WAIT_S), Refusal)


def test_h46_waiting_inside_an_actor_is_refused_at_once() -> None:
    """An actor that asks itself would wait for ever."""
    died, cleaned = list[str](), Event()

    class Waits(Faulty):
        def receive(self, message: Any) -> None:
            OneShot[int]().wait(WAIT_S)

    address, _ = start(Waits, died, cleaned)
    address.tell("go")
    assert cleaned.wait(WAIT_S)
    assert "may not wait" in died[0]


def test_the_first_answer_wins() -> None:
    reply: OneShot[int] = OneShot()
    threads = [Thread(target=reply.set, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = reply.wait(0)
    reply.set(99)
    assert reply.wait(0) == first != 99


def test_no_answer_in_time_is_none() -> None:
    assert OneShot[int]().wait(0) is None


def test_nothing_of_ours_goes_through_the_root_logger(caplog: pytest.LogCaptureFixture) -> None:
    died, cleaned = list[str](), Event()
    address, ref = start(Faulty, died, cleaned)
    address.tell(ValueError("a bug"))
    assert ref.actor_stopped.wait(WAIT_S)
    assert cleaned.wait(WAIT_S)
    assert caplog.records == []
