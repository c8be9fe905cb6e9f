import pytest

from bookings import Booking, Interval, format_booking, parse_booking


def test_a_line_is_a_booking():
    assert parse_booking("09:00-10:30 design review\n") == Booking(Interval(540, 630), "design review")


def test_a_booking_is_a_line():
    assert format_booking(Booking(Interval(540, 630), "design review")) == "09:00-10:30 design review"


@pytest.mark.parametrize("line", ["", "9-10 early", "09:00-10:30", "09:00-25:00 late", "10:00-09:00 backwards"])
def test_anything_else_is_refused(line):
    with pytest.raises(ValueError):
        parse_booking(line)
