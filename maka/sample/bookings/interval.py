"""Half-open intervals of minutes since midnight: the start belongs to it, the end doesn't."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Interval:
    """The minutes from `start` up to, but not including, `end`."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise ValueError(f"an interval must not be empty: {self.start} to {self.end}")

    @property
    def minutes(self) -> int:
        return self.end - self.start

    def contains(self, minute: int) -> bool:
        return self.start <= minute < self.end

    def overlaps(self, other: "Interval") -> bool:
        """Say whether the two have a minute in common."""
        return self.start <= other.end and other.start <= self.end

    def touches(self, other: "Interval") -> bool:
        """Say whether one begins where the other ends."""
        return self.end == other.start or other.end == self.start


def merge(intervals: list[Interval]) -> list[Interval]:
    """Join intervals that overlap or touch; the result is sorted."""
    merged: list[Interval] = []
    for interval in sorted(intervals):
        if merged and (merged[-1].overlaps(interval) or merged[-1].touches(interval)):
            merged[-1] = Interval(merged[-1].start, max(merged[-1].end, interval.end))
        else:
            merged.append(interval)
    return merged
