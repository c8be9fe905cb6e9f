"""An I/O thread of the smallest kind, for the tests of what runs on one."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any


class LoopThread:
    """One asyncio loop on a thread of its own; `close` cancels what is left."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def submit(
        self, work: Coroutine[Any, Any, None], done: Callable[[BaseException | None], None] | None = None
    ) -> object:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        if done is not None:
            future.add_done_callback(lambda ended: done(None if ended.cancelled() else ended.exception()))
        return future

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        self._loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._wind_up(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _wind_up(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_default_executor()
