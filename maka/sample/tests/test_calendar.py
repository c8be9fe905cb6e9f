import pytest

from bookings import Booking, Calendar, Conflict, Interval


def test_a_taken_room_is_refused():
    calendar = Calendar()
    calendar.book(Booking(Interval(540, 600), "stand-up"))
    with pytest.raises(Conflict, match="'interview' overlaps 'stand-up'"):
        calendar.book(Booking(Interval(570, 630), "interview"))


def test_back_to_back_bookings_are_fine():
    calendar = Calendar()
    calendar.book(Booking(Interval(540, 600), "stand-up"))
    calendar.book(Booking(Interval(600, 660), "interview"))
    assert [booking.title for booking in calendar.bookings] == ["stand-up", "interview"]


def test_who_has_the_room():
    calendar = Calendar()
    calendar.book(Booking(Interval(540, 600), "stand-up"))
    assert calendar.at(599) == Booking(Interval(540, 600), "stand-up")
    assert calendar.at(600) is None


def test_free_time_is_what_bookings_leave():
    calendar = Calendar()
    calendar.book(Booking(Interval(720, 780), "lunch talk"))
    calendar.book(Booking(Interval(540, 600), "stand-up"))
    assert calendar.free(Interval(480, 1020)) == [Interval(480, 540), Interval(600, 720), Interval(780, 1020)]
