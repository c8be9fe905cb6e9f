"""MakaActor: a mailbox with two lanes, a fence around each message, an answer for each dropped command.

Laws: control goes before data; order within a lane is the order of sending; a BaseException in one actor never
reaches another (Pykka stops every actor on one, so the fence turns it into an ordinary crash); a crash is told to
whoever started the actor; commands left in the mailbox of a dead actor are answered.
"""

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event
from typing import Any, Generic, TypeVar, final

import pykka
import structlog

from actors.address import Address, mark_actor_thread
from actors.messages import COMMANDS, CONTROL, Parent
from maka.contracts.errors import Refusal, RefusalCode

M = TypeVar("M")
Log = structlog.typing.FilteringBoundLogger


NOT_DONE = Refusal(
    code=RefusalCode.INTERNAL,
    message="the part of the program that had to do it has ended; nothing was done, try again",
)
"""To a command that was not begun."""

UNKNOWN = Refusal(
    code=RefusalCode.OUTCOME_UNKNOWN, message="it may have been done; the same command id, sent again, tells"
)
"""To a command whose facts may be durable."""


class TwoLanes:
    """The mailbox: two deques, and one wake-up token for each envelope.

    `deque.append` and `SimpleQueue` need no lock of ours, which is what makes a tell cheap.
    """

    def __init__(self) -> None:
        self.control: deque[Any] = deque()
        self.data: deque[Any] = deque()
        self._tokens: SimpleQueue[None] = SimpleQueue()
        self.ended = Event()

    def put(self, envelope: Any, /) -> None:
        # Messages have no subclasses, and asking a set costs 25 times less than `isinstance` with as many classes.
        (self.control if type(envelope.message) in CONTROL else self.data).append(envelope)
        self._tokens.put(None)

    def get(self) -> Any:
        self._tokens.get()
        return self.control.popleft() if self.control else self.data.popleft()

    def empty(self) -> bool:
        return not self.control and not self.data


def has_ended(ref: pykka.ActorRef[Any]) -> Event:
    """Return what is set once an actor's thread has done its last work, its clean-up included."""
    inbox: Any = ref.actor_inbox
    assert isinstance(inbox, TwoLanes)
    return inbox.ended


class ActorCrash(Exception):
    """What the fence makes of a BaseException."""


class CannotStartError(Exception):
    """The system has no thread left for one more actor. Nothing of it was begun."""


class MakaActor(pykka.ThreadingActor, Generic[M]):
    """Base of every actor. `__init__` stores its arguments; work starts with the first message."""

    def __init__(self, log: Log, parent: Parent | None = None) -> None:
        super().__init__()
        self.log: Log = log.bind(actor=type(self).__name__)
        self._parent = parent

    @staticmethod
    def _create_actor_inbox() -> Any:
        return TwoLanes()

    def receive(self, message: M) -> None:
        """Handle one message. A bug raises, and the parent is told."""
        raise NotImplementedError

    def cleanup(self) -> None:
        """Free what the actor holds, after a stop or a crash. Must not fail."""

    @property
    def address(self) -> Address[M]:
        """Where to tell this actor something, itself included."""
        return Address(self.actor_ref)

    @property
    def idle(self) -> bool:
        """Say whether no further message waits: the moment to commit a batch."""
        return bool(self.actor_inbox.empty())

    @final
    def on_receive(self, message: Any) -> None:
        self.attempt(self.receive, message)

    @final
    def attempt(self, handle: Callable[[Any], None], message: Any) -> None:
        """Handle a message, also one that was set aside: if that crashes, whoever sent a command is answered."""
        try:
            self._fence(handle, message)
        except Exception:
            self._answer(message, UNKNOWN)
            raise

    @final
    def on_stop(self) -> None:
        self._fence(self.cleanup)

    @final
    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        try:
            self._fence(self.cleanup)
        finally:
            if self._parent is not None:
                self._parent(repr(exception_value))

    def _fence(self, act: Callable[..., None], *args: Any) -> None:
        """Act; let nothing out that Pykka would stop every actor of the process for."""
        try:
            act(*args)
        except Exception:
            raise
        except BaseException as error:
            raise ActorCrash(f"{type(error).__name__} in {type(self).__name__}") from error

    def _handle_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        # Pykka's own would print through the root logger, which belongs to the embedder.
        self.log.error("actor_crashed", error_kind=getattr(exception_type, "__name__", "?"), exc_info=exception_value)
        pykka.ActorRegistry.unregister(self.actor_ref)
        self.actor_stopped.set()

    def _start_actor_loop(self) -> None:
        try:
            super()._start_actor_loop()
        except RuntimeError as error:
            pykka.ActorRegistry.unregister(self.actor_ref)
            self.actor_stopped.set()
            has_ended(self.actor_ref).set()
            raise CannotStartError(f"no thread can be started ({error}): let some runs end first") from error

    def _actor_loop_setup(self) -> None:
        try:
            super()._actor_loop_setup()
        except BaseException as error:  # Pykka takes an Exception for a failure to start, and nothing else
            self._handle_failure(type(error), error, error.__traceback__)
        if self.actor_stopped.is_set() and self._parent is not None:
            self._parent("it could not start")  # Pykka calls no hook where on_start fails

    def _actor_loop(self) -> None:
        mark_actor_thread()
        try:
            super()._actor_loop()
        finally:
            has_ended(self.actor_ref).set()

    def _actor_loop_teardown(self) -> None:
        # Pykka answers only what was asked; commands carry a port of their own, and none may be lost in silence.
        while not self.actor_inbox.empty():
            envelope = self.actor_inbox.get()
            self._answer(envelope.message, NOT_DONE)
            if envelope.reply_to is not None:
                envelope.reply_to.set(None)  # nothing of ours asks: it is a stop, and who sent it may be waiting
        super()._actor_loop_teardown()

    def _answer(self, message: Any, refusal: Refusal) -> None:
        if isinstance(message, COMMANDS):
            message.reply.set(refusal)
