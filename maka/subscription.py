"""A reader's end of a session's events, for programs: a queue that a thread waits on.

Law: whoever is too slow loses the subscription, never an event in the middle of it.
"""

from collections import deque
from threading import Condition
from typing import Self

from actors.address import Address
from actors.messages_ledger import ToFeed, Unsubscribe
from maka.contracts.limits import SUBSCRIBER_BACKLOG_MAX
from maka.contracts.session_events import SessionEvent


class SubscriptionLostError(Exception):
    """The reader didn't keep up; subscribe again after the last position that was read."""


class Subscription:
    """A session's events, from a position on, then live. `get` for any one thread; `close` for any."""

    def __init__(self, feed: Address[ToFeed]) -> None:
        self._feed = feed
        self._events: deque[SessionEvent] = deque()
        self._changed = Condition()
        self._closed = False
        self._lost = False

    def put(self, events: tuple[SessionEvent, ...]) -> bool:
        """Take events from the feed; False drops the subscription."""
        with self._changed:
            if self._closed or self._lost:
                return False
            self._lost = len(self._events) + len(events) > SUBSCRIBER_BACKLOG_MAX
            if not self._lost:
                self._events.extend(events)
            self._changed.notify()
            return not self._lost

    def lost(self) -> None:
        """End the subscription from the feed's side; what came before can still be read."""
        with self._changed:
            self._lost = True
            self._changed.notify()

    def get(self, timeout_s: float | None = None) -> SessionEvent | None:
        """Return the next event; None after the timeout or when closed. Raises SubscriptionLostError."""
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._closed or self._lost, timeout_s)
            if self._events:
                return self._events.popleft()
            if self._lost:
                raise SubscriptionLostError("events were lost on their way: subscribe again from the last position")
            return None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._feed.tell(Unsubscribe(sink=self))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
