"""The ledger's side of the conversation: what LedgerActor and ProjectionActor are told, and what they answer."""

from typing import Any, Literal, Protocol

from msgspec import Struct

from actors.address import Address
from maka.contracts.events import Committed
from maka.contracts.ids import InvocationId, SessionId
from maka.contracts.ports import Append, AppendResult, PutPartial
from maka.contracts.session_events import Frame, SessionEvent

CloseReason = Literal["app_restarted", "actor_crashed"]


class Message(Struct, frozen=True, kw_only=True):
    """Base of every message."""


# -- to LedgerActor (one lane) ------------------------------------------------------------------------------------


class AppendFacts(Message, frozen=True):
    """Make these durable; answered with AppendDone(tag)."""

    append: Append
    to: Address[Any]
    tag: int


class PutPartialText(Message, frozen=True):
    """Unacknowledged, in arrival order."""

    partial: PutPartial


class CloseRun(Message, frozen=True):
    """End a run that has no actor, with the verdict on its tail as it is then. Answered with RunClosed.

    With `keeps_waits` one that waits for a person alone may stay parked, if the policy is so.
    """

    session_id: SessionId
    invocation_id: InvocationId
    reason: CloseReason
    to: Address[Any]
    keeps_waits: bool = True


class Barrier(Message, frozen=True):
    """Answered with BarrierPassed when everything before it is committed."""

    to: Address[Any]


class Follow(Message, frozen=True):
    """Send Published for each batch from now on."""

    to: Address[Any]


class RoomWanted(Message, frozen=True):
    """A value that a queued message's run needs found no room: the door is closed; answered with LedgerUp."""

    to: Address[Any]


class PartialsDue(Message, frozen=True):
    """Timer: partials have waited long enough for a batch to go with."""


class Probe(Message, frozen=True):
    """Timer: is there room again?"""


# -- from LedgerActor ---------------------------------------------------------------------------------------------


class AppendDone(Message, frozen=True):
    """The answer to AppendFacts: durable with its places, or refused and nothing changed."""

    tag: int
    result: AppendResult


class RunClosed(Message, frozen=True):
    """The answer to CloseRun. `verdict` is the row of the table that applied, `already_ended` or `damaged`."""

    session_id: SessionId
    invocation_id: InvocationId
    verdict: str


class BarrierPassed(Message, frozen=True):
    pass


class LedgerUp(Message, frozen=True):
    """There is room again."""


# -- to ProjectionActor -------------------------------------------------------------------------------------------


class Published(Message, frozen=True):
    """Newly committed facts, contiguous in position."""

    items: tuple[Committed, ...]


class Show(Message, frozen=True):
    frame: Frame


class Sink(Protocol):
    """A reader's end: `put` never blocks, and says False when the reader is gone or too slow."""

    def put(self, events: tuple[SessionEvent, ...]) -> bool: ...

    def lost(self) -> None:
        """Nothing more will come this way: subscribe again from the last position."""
        ...


class Subscribe(Message, frozen=True):
    """Send a session's events after a position, then live ones. A sink that says False is dropped."""

    session_id: SessionId
    after_position: int
    sink: Sink


class Unsubscribe(Message, frozen=True):
    sink: Sink


ToLedger = AppendFacts | PutPartialText | CloseRun | Barrier | Follow | RoomWanted | PartialsDue | Probe
ToFeed = Published | Show | Subscribe | Unsubscribe
