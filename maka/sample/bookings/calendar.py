"""A day's calendar of one room."""

from dataclasses import dataclass

from bookings.interval import Interval, merge


@dataclass(frozen=True)
class Booking:
    """Who has the room, and when."""

    when: Interval
    title: str


class Conflict(Exception):
    """The room is taken at that time."""

    def __init__(self, wanted: Booking, taken: Booking) -> None:
        super().__init__(f"{wanted.title!r} overlaps {taken.title!r}")
        self.wanted = wanted
        self.taken = taken


class Calendar:
    """Bookings in the order of their time; no two have a minute in common."""

    def __init__(self) -> None:
        self._bookings: list[Booking] = []

    @property
    def bookings(self) -> tuple[Booking, ...]:
        return tuple(self._bookings)

    def book(self, wanted: Booking) -> None:
        """Add a booking; raises Conflict where the room is taken."""
        for taken in self._bookings:
            if taken.when.overlaps(wanted.when):
                raise Conflict(wanted, taken)
        self._bookings.append(wanted)
        self._bookings.sort(key=lambda booking: booking.when)

    def at(self, minute: int) -> Booking | None:
        """Return who has the room at a minute."""
        return next((booking for booking in self._bookings if booking.when.contains(minute)), None)

    def busy(self) -> list[Interval]:
        """Return the times at which the room is taken, joined."""
        return merge([booking.when for booking in self._bookings])

    def free(self, opening: Interval) -> list[Interval]:
        """Return the free times within the opening hours."""
        free: list[Interval] = []
        start = opening.start
        for busy in self.busy():
            if busy.start > start:
                free.append(Interval(start, min(busy.start, opening.end)))
            start = max(start, busy.end)
        if start < opening.end:
            free.append(Interval(start, opening.end))
        return free
