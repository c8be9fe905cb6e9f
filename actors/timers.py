"""Deadlines as messages: one timer of each kind, and a token that tells a current one from one that was replaced."""

from collections.abc import Callable

from maka.contracts.ports import Timer, Timers


class Deadlines:
    """An actor's timers. `tell` gets (kind, token) on the timer thread and only tells."""

    def __init__(self, timers: Timers, tell: Callable[[str, int], object]) -> None:
        self._timers = timers
        self._tell = tell
        self._armed: dict[str, tuple[Timer, int]] = {}
        self._tokens = 0

    def arm(self, kind: str, delay_s: float) -> None:
        """Start the timer of this kind, in place of one that runs."""
        self.disarm(kind)
        self._tokens += 1
        token = self._tokens

        def fire() -> None:
            self._tell(kind, token)

        self._armed[kind] = (self._timers.after(delay_s, fire), token)

    def disarm(self, kind: str) -> None:
        if (armed := self._armed.pop(kind, None)) is not None:
            armed[0].cancel()

    def is_current(self, kind: str, token: int) -> bool:
        """Say whether a deadline that came is one that still counts, and forget it."""
        if kind not in self._armed or self._armed[kind][1] != token:
            return False
        del self._armed[kind]
        return True

    def disarm_all(self) -> None:
        for kind in tuple(self._armed):
            self.disarm(kind)
