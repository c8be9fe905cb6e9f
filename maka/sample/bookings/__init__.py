"""Bookings of one meeting room."""

from bookings.calendar import Booking, Calendar, Conflict
from bookings.interval import Interval
from bookings.text import format_booking, parse_booking

__all__ = ["Booking", "Calendar", "Conflict", "Interval", "format_booking", "parse_booking"]
