"""What every part of the simulated world calls a broken law."""

from collections.abc import Callable

from maka.contracts.events import Committed

Facts = Callable[[], list[Committed]]
"""Everything durable, in order."""


class BrokenLaw(AssertionError):
    """Something happened that the design forbids."""
