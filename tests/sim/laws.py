"""What every part of the simulated world calls a broken law."""

from collections.abc import Callable

from maka.contracts.events import Committed

Facts = Callable[[], list[Committed]]
"""Everything durable, in order."""

SECRET = "sim-key-0123456789abcdef"
"""What simulated tools say again and again, in one piece and in several, and nobody may ever see."""


class BrokenLaw(AssertionError):
    """Something happened that the design forbids."""
