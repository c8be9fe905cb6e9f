"""One output of a child, read on the I/O thread as it comes, until its end or `close`."""

import asyncio
import os
from collections.abc import Callable

from maka.contracts.limits import DELTA_MERGE_BYTES_MAX, DELTA_MERGE_S

READ_BYTES = 64 << 10
"""A pipe's own capacity: one read empties it."""
EAGER_READS = 256
"""How many reads a child that fills its pipe within a pause gets without one: the pauses must not slow it down."""


class OutputPipe:
    """Reads one pipe. After a small piece it pauses, so that the kernel's buffer merges what a chatty child writes.

    Where it doesn't merge yet, it does from `merge` on: what stands in front of a command is read at once.
    """

    def __init__(self, fd: int, tell: Callable[[bytes], None], changed: asyncio.Event, *, merges: bool = True) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd: int | None = fd
        self._tell = tell
        self._changed = changed
        self._pausing = merges
        self._eager = 0
        self._timer: asyncio.TimerHandle | None = None
        self.inode = os.fstat(fd).st_ino
        self._loop.add_reader(fd, self._read)

    @property
    def closed(self) -> bool:
        return self._fd is None

    def _read(self) -> None:
        if self._fd is None:
            return
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        if len(data) == READ_BYTES:
            self._eager = EAGER_READS
        elif self._eager:
            self._eager -= 1
        elif self._pausing and len(data) < DELTA_MERGE_BYTES_MAX:
            self._loop.remove_reader(self._fd)
            self._timer = self._loop.call_later(DELTA_MERGE_S, self._resume)
        self._tell(data)

    def _resume(self) -> None:
        self._timer = None
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._read)

    def merge(self) -> None:
        """Pause from now on."""
        self._pausing = True

    def hurry(self) -> None:
        """Read without pauses from now on: the child has ended."""
        self._pausing = False
        if self._timer is not None:
            self._timer.cancel()
            self._resume()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
        self._changed.set()
