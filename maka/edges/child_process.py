"""The life of one child process, on the I/O thread: gate, output, end.

Laws:
- Nothing of the command runs before `release`; `cancel` before it means `not_started`. What is said before it is the
  sandbox's: one byte of output when it is set up, or why it can't be.
- Whoever of the leader's tree is there when it has ended is ended too, also out of its group: a foreground call leaves
  nothing behind. A child may write for a moment after its parent (a `>(tee log)` does), so one that holds the output
  has half of PIPE_DRAIN_S before TERM, and all have as long before KILL.
- The leader is collected last: until then its number is nobody else's.
- What a sandbox leaves where it was killed is removed on a thread of its own. The end waits for that, but not for long:
  a huge folder goes in its own time.
- After `ended` nothing comes: the pipes are closed even where a survivor still holds their other ends.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from msgspec.structs import replace

from maka.contracts.actions import ProcessIdentity
from maka.contracts.limits import (
    KILL_GRACE_S,
    PIPE_DRAIN_S,
    SANDBOX_WORDS_BYTES_MAX,
    SWEEP_WAIT_S,
    TERM_GRACE_S,
    TOOL_WATCH_EVERY_S,
)
from maka.contracts.process_ports import ProcessEnd, ProcessListener, ProcessSpec
from maka.contracts.tool_limits import LimitMet, ToolLimits
from maka.edges.output_pipe import OutputPipe
from maka.edges.process_end import POLL_S, Ending, kill
from maka.edges.process_tree import related
from maka.edges.spawn_bounds import bounding_words
from maka.edges.spawn_gate import GatedProcess, spawn_gated, why_not
from maka.edges.tree_ender import TreeEnder
from maka.edges.tree_watch import TreeWatch


class Io(Protocol):
    """What is needed of the I/O thread."""

    def submit(
        self, work: Coroutine[Any, Any, None], done: Callable[[BaseException | None], None] | None = None
    ) -> object: ...

    def call_soon(self, function: Callable[..., object], *args: object) -> None: ...


class Trees:
    """What all children share: what bounds each, who watches their trees, who ends them."""

    def __init__(self, limits: ToolLimits) -> None:
        self.bounds = bounding_words(limits)
        self.watch = TreeWatch(limits)
        self.ender = TreeEnder()


class ChildProcess:
    """A `ProcessHandle` and what is behind it. Only `release`, `cancel` and the constructor are for other threads."""

    def __init__(self, io: Io, trees: Trees, spec: ProcessSpec, listener: ProcessListener) -> None:
        self._io = io
        self._trees = trees
        self._spec = spec
        self._listener = listener
        self._changed = asyncio.Event()
        self._is_set_up = not spec.launch.is_boxed
        self._said = b""
        self._is_late = False
        self._released = False
        self._cancelled = False
        self._exited = False
        self._code: int | None = None
        self._limit: LimitMet | None = None
        self._swept = False
        self._over = False
        self._pipes: tuple[OutputPipe, ...] = ()
        self._pidfd: int | None = None
        self.identity: ProcessIdentity | None = None

    def release(self) -> None:
        self._io.call_soon(self._on_release)

    def cancel(self) -> None:
        self._io.call_soon(self._on_cancel)

    def _on_release(self) -> None:
        self._released = True
        self._changed.set()

    def _on_cancel(self) -> None:
        self._cancelled = True
        self._changed.set()

    def _on_limit(self, limit: LimitMet) -> None:
        self._limit = limit
        self._changed.set()

    async def run(self) -> None:
        """Live from spawn to end; the listener hears of it in every case."""
        if self._cancelled:
            return self._end(ProcessEnd(cause="not_started"))
        try:
            gated = spawn_gated(self._spec.launch, self._spec.cwd, self._spec.env, self._trees.bounds)
        except (OSError, ValueError) as error:
            self._over = True
            return self._listener.failed(why_not(error, self._spec.cwd))
        self.identity = gated.identity
        try:
            self._watch(gated)
            if await self._set_up():
                self._listener.waiting(gated.identity)
            end = await self._live(gated)
            await self._sweep()
        except BaseException:
            # The I/O thread closes, or a listener failed: nobody would end the child later.
            self._abandon(gated)
            raise
        self._close(gated)
        self._end(end)

    def done(self, error: BaseException | None) -> None:
        """Speak for a child whose life was never begun, since the I/O thread is closed."""
        if not self._over:
            self._over = True
            self._listener.failed(f"the process could not be started: {error or 'the I/O thread is closed'}")

    def _end(self, end: ProcessEnd) -> None:
        self._over = True
        self._listener.ended(end)

    async def _set_up(self) -> bool:
        """Wait until the command stands at its gate; False where it doesn't come to that."""
        setup_s = self._spec.setup_s
        if not await self._until(lambda: self._is_set_up or self._cancelled or self._has_exited(), setup_s):
            self._is_late = True
            self._said += f"it took longer than {setup_s:g} s".encode()
        return self._is_set_up

    async def _live(self, gated: GatedProcess) -> ProcessEnd:
        if self._is_set_up:
            await self._until(lambda: self._released or self._cancelled or self._has_exited())
        if self._cancelled or self._has_exited() or not self._is_set_up:
            gated.close_gate()
            survivors = () if await self._until(self._has_exited, KILL_GRACE_S) else await self._kill(gated, 0.0)
            if (self._is_set_up and not self._is_late) or self._cancelled:
                return ProcessEnd(cause="not_started", survivors=survivors)
            await self._until(self._drained, PIPE_DRAIN_S / 2)
            said = self._said.decode("utf-8", "replace").strip() or "it ended"
            return ProcessEnd(cause="not_started", survivors=survivors, said=said, is_late=self._is_late)
        for pipe in self._pipes:
            pipe.merge()
        gated.open_gate()
        ended = await self._watched(gated)
        if self._has_exited() and self._limit is None:
            return self._how("exited", await self._leftovers(gated))
        survivors = await self._kill(gated, TERM_GRACE_S if self._limit is None else 0.0)
        await self._until(self._drained, PIPE_DRAIN_S)
        if self._limit is not None:
            return replace(self._how("limit", survivors), limit=self._limit)
        return self._how("cancelled" if ended else "timeout", survivors)

    async def _watched(self, gated: GatedProcess) -> bool:
        """Wait for the command's end, a stop, or a bound that its tree meets; False where its time was up first."""
        stops: list[Callable[[], None]] = []

        def met(limit: LimitMet) -> None:
            self._io.call_soon(self._on_limit, limit)

        def begin() -> None:
            stops.append(self._trees.watch.begin(gated.identity, met))

        # Most commands have ended by then, and cost nothing.
        timer = asyncio.get_running_loop().call_later(TOOL_WATCH_EVERY_S, begin)
        try:
            return await self._until(
                lambda: self._has_exited() or self._cancelled or self._limit is not None, self._spec.timeout_s
            )
        finally:
            timer.cancel()
            for stop in stops:
                stop()

    def _how(self, cause: str, survivors: tuple[int, ...]) -> ProcessEnd:
        code = self._code
        if self._exited and code is None:
            return ProcessEnd(cause="unknown", survivors=survivors)
        if code is None or code >= 0:
            return ProcessEnd(cause=cause, exit_code=code, survivors=survivors)
        return ProcessEnd(cause=cause, signal=-code, survivors=survivors)

    async def _leftovers(self, gated: GatedProcess) -> tuple[int, ...]:
        """Empty the pipes after the leader's end, and end whoever it left behind."""
        await self._until(self._drained, PIPE_DRAIN_S / 2)
        survivors = await self._kill(gated, PIPE_DRAIN_S / 2)
        await self._until(self._drained, PIPE_DRAIN_S / 2)
        return survivors

    async def _kill(self, gated: GatedProcess, grace_s: float) -> tuple[int, ...]:
        """End the whole tree. Returns the pids that are still alive."""
        loop = asyncio.get_running_loop()
        survivors: asyncio.Future[tuple[int, ...]] = loop.create_future()

        def tell(alive: tuple[int, ...]) -> None:
            if not survivors.done():
                survivors.set_result(alive)

        inodes = [pipe.inode for pipe in self._pipes if not pipe.closed]
        self._trees.ender.end(Ending(gated.identity, inodes, grace_s), lambda alive: self._io.call_soon(tell, alive))
        alive = await survivors
        await self._until(self._has_exited, POLL_S)
        return alive

    async def _sweep(self) -> None:
        sweep = self._spec.launch.sweep
        if sweep is None or (self._code is not None and self._code >= 0):
            return

        def work() -> None:
            try:
                sweep()
            finally:
                self._io.call_soon(self._on_swept)

        threading.Thread(target=work, name="maka-sweep", daemon=True).start()
        await self._until(lambda: self._swept, SWEEP_WAIT_S)

    def _on_swept(self) -> None:
        self._swept = True
        self._changed.set()

    async def _until(self, ready: Callable[[], bool], timeout_s: float | None = None) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while not ready():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        return ready()

    def _has_exited(self) -> bool:
        return self._exited

    def _drained(self) -> bool:
        return all(pipe.closed for pipe in self._pipes)

    def _watch(self, gated: GatedProcess) -> None:
        merges = self._is_set_up
        self._pipes = (
            OutputPipe(gated.stdout, lambda data: self._tell("stdout", data), self._changed, merges=merges),
            OutputPipe(gated.stderr, lambda data: self._tell("stderr", data), self._changed, merges=merges),
        )
        try:
            self._pidfd = os.pidfd_open(gated.pid)
        except (AttributeError, OSError):  # no Linux, or a container without it: one thread for each child instead
            threading.Thread(target=self._wait, args=(gated,), name="maka-wait", daemon=True).start()
            return
        asyncio.get_running_loop().add_reader(self._pidfd, lambda: self._on_exit(gated, gated.wait()))

    def _tell(self, stream: str, data: bytes) -> None:
        if self._released:
            self._listener.output(stream, data)
        elif stream == "stdout":
            self._is_set_up = True
            self._changed.set()
        else:
            self._said = (self._said + data)[:SANDBOX_WORDS_BYTES_MAX]

    def _wait(self, gated: GatedProcess) -> None:
        self._io.call_soon(self._on_exit, gated, gated.wait())

    def _on_exit(self, gated: GatedProcess, code: int | None) -> None:
        self._unwatch()
        if self._over:  # it outlived KILL, and has ended after all
            gated.reap()
            return
        self._code = code
        self._exited = True
        for pipe in self._pipes:
            pipe.hurry()
        self._changed.set()

    def _unwatch(self) -> None:
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _close(self, gated: GatedProcess) -> None:
        gated.close_gate()
        for pipe in self._pipes:
            pipe.close()
        if self._exited:
            gated.reap()

    def _abandon(self, gated: GatedProcess) -> None:
        try:
            self._unwatch()
            kill(gated.identity.group, related(gated.identity))
            if not self._exited:
                gated.reap_killed()
            self._close(gated)
        finally:
            if not self._over:
                self._end(ProcessEnd(cause="unknown" if self._released else "not_started"))
