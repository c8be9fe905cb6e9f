"""Bookings as text: `09:00-10:30 design review`."""

import re

from bookings.calendar import Booking
from bookings.interval import Interval

_LINE = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d) +(\S.*)")


def parse_booking(line: str) -> Booking:
    """Read one line; raises ValueError for anything else."""
    match = _LINE.fullmatch(line.strip())
    if match is None:
        raise ValueError(f"not a booking: {line!r}")
    numbers = [int(number) for number in match.groups()[:4]]
    return Booking(Interval(_minute(numbers[0], numbers[1]), _minute(numbers[2], numbers[3])), match[5])


def format_booking(booking: Booking) -> str:
    """Write a booking as one line."""
    return f"{_clock(booking.when.start)}-{_clock(booking.when.end)} {booking.title}"


def _minute(hours: int, minutes: int) -> int:
    if hours > 24 or minutes > 59 or (hours == 24 and minutes):
        raise ValueError(f"not a time: {hours:02}:{minutes:02}")
    return hours * 60 + minutes


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
