"""What Maka's own tools made by right under protected names: no command's guard takes that for planted.

Law: it holds for as long as nobody changes it. A command that began before it was there could still write to it.
"""

import os
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager

from maka.tools.policy import protected_in

_ENTRIES_MAX = 1_000

Stamp = frozenset[tuple[object, ...]]


class Made:
    """Names with what stood there when they were made. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stamps: dict[str, Stamp | None] = {}

    @contextmanager
    def making(self, path: str) -> Generator[None]:
        """Let a path be made or changed meanwhile, and know it afterwards."""
        name = protected_in(path)
        if name is None:
            yield
            return
        with self._lock:
            self._stamps[name] = None
        try:
            yield
        finally:
            self.note(name)

    def note(self, name: str) -> None:
        """Know what stands under a protected name now."""
        stamp = _stamp(name)
        with self._lock:
            self._stamps[name] = stamp

    def holds(self, name: str) -> bool:
        """Say whether what stands there is what was made by right, or is just being made."""
        with self._lock:
            if name not in self._stamps:
                return False
            stamp = self._stamps[name]
        return stamp is None or stamp == _stamp(name)


def _stamp(name: str) -> Stamp:
    """Return what changes when anything of a file or a folder does."""
    found: set[tuple[object, ...]] = set()
    waiting = [name]
    while waiting and len(found) < _ENTRIES_MAX:
        path = waiting.pop()
        try:
            info = os.lstat(path)
            if stat.S_ISDIR(info.st_mode):
                waiting += [entry.path for entry in os.scandir(path)]
        except OSError:
            continue
        found.add((path, info.st_dev, info.st_ino, info.st_ctime_ns))
    return frozenset(found)
