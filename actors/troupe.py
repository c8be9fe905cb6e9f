"""The actors of one host that nobody else stops: started here, and waited for at the end, all at once.

Law: nothing that an actor uses is closed before the actor has ended, or its time is over. Never Pykka's own registry:
it is the process's, and another host may live in it.
"""

import contextlib
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

import pykka

from actors.address import Address
from actors.base import MakaActor, has_ended

M = TypeVar("M")
PRUNE_EVERY = 256
LAST_MOMENT_S = 0.1


class Patience:
    """How long the end of a host may still wait, all of its steps together. Begins with the first question."""

    def __init__(self, total_s: float, now_s: Callable[[], float] = monotonic) -> None:
        self._total_s = total_s
        self._now_s = now_s
        self._until_s: float | None = None

    def left_s(self) -> float:
        """Return what is left; a moment in any case, for what is over already."""
        if self._until_s is None:
            self._until_s = self._now_s() + self._total_s
        return max(LAST_MOMENT_S, self._until_s - self._now_s())


class Troupe:
    """Starts actors from any thread; `stop_all` is for the thread that closes the host."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refs: list[pykka.ActorRef[Any]] = []
        self._prune_at = PRUNE_EVERY

    def __call__(self, actor: type[MakaActor[M]], *args: Any) -> Address[M]:
        """Start an actor on a thread of its own."""
        ref = actor.start(*args)
        with self._lock:
            self._refs.append(ref)
            if len(self._refs) >= self._prune_at:
                self._refs = [each for each in self._refs if not has_ended(each).is_set()]
                self._prune_at = max(PRUNE_EVERY, 2 * len(self._refs))
        return Address(ref)

    def stop_all(self, timeout_s: float) -> int:
        """Stop every actor that is left, wait for all of them together, and return how many are still there."""
        with self._lock:
            refs, self._refs = self._refs, []
        for ref in refs:
            _ask_to_stop(ref)
        until_s = monotonic() + timeout_s
        return sum(not has_ended(ref).wait(max(0.0, until_s - monotonic())) for ref in refs)


def _ask_to_stop(ref: pykka.ActorRef[Any]) -> None:
    with contextlib.suppress(pykka.ActorDeadError):
        ref.stop(block=False)
