import pytest

from bookings.interval import Interval, merge


def test_an_empty_interval_is_refused():
    with pytest.raises(ValueError):
        Interval(60, 60)


def test_the_end_is_not_part_of_an_interval():
    assert Interval(60, 90).contains(60)
    assert not Interval(60, 90).contains(90)


def test_intervals_with_a_common_minute_overlap():
    assert Interval(60, 90).overlaps(Interval(89, 120))
    assert Interval(60, 90).overlaps(Interval(70, 80))


def test_intervals_that_only_touch_do_not_overlap():
    assert not Interval(60, 90).overlaps(Interval(90, 120))
    assert not Interval(90, 120).overlaps(Interval(60, 90))


def test_merging_joins_what_touches():
    assert merge([Interval(90, 120), Interval(60, 90), Interval(200, 210)]) == [Interval(60, 120), Interval(200, 210)]
