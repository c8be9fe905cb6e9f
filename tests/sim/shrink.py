"""From a failing story to the shortest one that fails the same way: parts are left out while it still fails."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from tests.sim.story import ANSWERS_MAX, Story

T = TypeVar("T")
TRIES_MAX = 600

Fails = Callable[[Story], tuple[int, ...] | None]
"""Plays a story; returns the scheduler's choices where it fails in the same way, None where it doesn't."""


def shrink(story: Story, choices: tuple[int, ...], fails: Fails) -> Story:
    """Return a story that fails, with as few moves, answers and choices as some tries find."""
    search = _Search(story, fails)
    if not search.tries(replace(story, choices=choices)):
        return story  # it doesn't fail again: it isn't the same every time, which is a finding of its own
    search.tries(replace(search.best, choices=()))
    for _ in range(2):
        search.settings()
        search.moves()
        search.answers()
        search.schedule()
    return search.best


class _Search:
    def __init__(self, story: Story, fails: Fails) -> None:
        self.best = story
        self._fails = fails
        self._left = TRIES_MAX

    def tries(self, story: Story) -> bool:
        """Keep a story if it fails too."""
        if self._left <= 0:
            return False
        self._left -= 1
        made = self._fails(story)
        if made is None:
            return False
        given = story.choices or ()
        self.best = replace(story, choices=given[: len(made)])
        return True

    def settings(self) -> None:
        simple: tuple[dict[str, Any], ...] = (
            {"error_share": 0.0}, {"odd_share": 0.0}, {"calls_max": 1}, {"window": None}, {"idle_max": 64},
            *({"tools": (name,)} for name in self.best.tools),
        )  # fmt: skip
        for changes in simple:
            if any(getattr(self.best, name) != value for name, value in changes.items()):
                self.tries(replace(self.best, **changes))

    def moves(self) -> None:
        """Leave moves out, then let the rest happen earlier."""
        without(self.best.moves, lambda moves: self.tries(replace(self.best, moves=tuple(moves))))

    def answers(self) -> None:
        """Let the model just say that it's done."""
        told = [number for number in range(1, ANSWERS_MAX + 1) if number not in self.best.plain]

        def keep(numbers: Sequence[int]) -> bool:
            plain = frozenset(range(1, ANSWERS_MAX + 1)) - frozenset(numbers)
            return self.tries(replace(self.best, plain=plain))

        without(told, keep)

    def schedule(self) -> None:
        """Take the first of all that could happen, wherever that still fails."""
        size = max(1, len(self.best.choices or ()) // 2)
        while size >= 4:
            at = 0
            while at < len(self.best.choices or ()):
                given = self.best.choices or ()
                if any(given[at : at + size]):
                    zeros = tuple(0 for _ in given[at : at + size])
                    self.tries(replace(self.best, choices=given[:at] + zeros + given[at + size :]))
                at += size
            size //= 2
        given = self.best.choices or ()
        used = max((number for number, choice in enumerate(given, 1) if choice), default=0)
        self.best = replace(self.best, choices=given[:used])


def without(things: Sequence[T], keep: Callable[[Sequence[T]], bool]) -> None:
    """Leave things out, in halves, then quarters, down to single ones, while `keep` says that it may be so."""
    left, size = list(things), max(1, len(things) // 2)
    while True:
        at = 0
        while at < len(left):
            fewer = left[:at] + left[at + size :]
            if keep(fewer):
                left = fewer
            else:
                at += size
        if size == 1:
            return
        size //= 2
