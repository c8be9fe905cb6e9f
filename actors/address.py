"""Where a message goes, and where an answer comes from.

Laws: actors only `tell`; nobody waits inside an actor; a wait has a timeout, and a timeout is an unknown outcome,
never a failure. First answer wins.
"""

import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import pykka

FAILED_POLL_S = 0.25
"""How soon a failure ends the wait for an answer; answers themselves come at once."""

M_contra = TypeVar("M_contra", contravariant=True)
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_inside = threading.local()


def mark_actor_thread() -> None:
    """Note that the calling thread runs an actor: waiting in it is a bug from now on."""
    _inside.actor = True


class Address(Generic[M_contra]):
    """A typed way to tell one actor something."""

    def __init__(self, ref: pykka.ActorRef[Any]) -> None:
        self._ref = ref

    def tell(self, message: M_contra) -> bool:
        """Put a message into the actor's mailbox; False says that the actor is gone and nobody will handle it."""
        try:
            self._ref.tell(message)
        except pykka.ActorDeadError:
            return False
        return True

    def is_alive(self) -> bool:
        return self._ref.is_alive()

    def move_to(self, other: "Address[M_contra]") -> None:
        """Reach another actor from now on: how everyone who knows an actor goes on with its successor."""
        self._ref = other._ref

    def stop(self) -> None:
        """Ask the actor to stop after what is already in its mailbox. Returns at once."""
        if self._ref.is_alive():
            try:
                self._ref.stop(block=False)
            except pykka.ActorDeadError:  # it died in between, which is all that was wanted
                return

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and other._ref == self._ref

    def __hash__(self) -> int:
        return hash(self._ref)

    def __repr__(self) -> str:
        return f"Address({self._ref.actor_class.__name__})"


class ReplyTo(Protocol[T_contra]):
    """A one-shot port for the answer to a command; the first `set` wins, later ones are dropped."""

    def set(self, value: T_contra) -> None: ...


class OneShot(Generic[T]):
    """The thread-safe ReplyTo that a caller outside every actor waits on."""

    def __init__(self) -> None:
        # Before anything is told: what can't be waited for must not be asked for.
        assert not getattr(_inside, "actor", False), "an actor may not wait: tell, and take the answer as a message"
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._value: T | None = None

    def set(self, value: T) -> None:
        with self._lock:
            if self._done.is_set():
                return
            self._value = value
            self._done.set()

    def wait(self, timeout_s: float) -> T | None:
        """Return the answer, or None when none came in time."""
        assert not getattr(_inside, "actor", False), "an actor may not wait: tell, and take the answer as a message"
        self._done.wait(timeout_s)
        return self._value

    def wait_unless(self, failed: Callable[[], bool], timeout_s: float) -> T | None:
        """Wait as `wait` does, but not for an answer that will never come because of a failure."""
        waited_s = 0.0
        while (value := self.wait(FAILED_POLL_S)) is None and waited_s < timeout_s and not failed():
            waited_s += FAILED_POLL_S
        return value


class Tells(Generic[T_contra]):
    """A ReplyTo for an actor: the answer comes to it as a message."""

    def __init__(self, tell: Callable[[T_contra], object]) -> None:
        self._tell = tell

    def set(self, value: T_contra) -> None:
        self._tell(value)


class Dropped(Generic[T_contra]):
    """A ReplyTo for commands whose sender doesn't want the answer."""

    def set(self, value: T_contra) -> None:
        return
