"""A scripted OpenAI-compatible server on loopback: the offline default, and the provider of the tests.

It is reached over a real socket by the real client; only the words are scripted. It keeps the last request bodies, so
that a test can see what a model would have seen.

Laws: it listens on 127.0.0.1 alone, at a free port; it runs on a thread of its own; `close` ends every connection.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import msgspec

from maka.edges.io_loop import IoLoop
from maka.edges.scripted_http import HEAD_BYTES_MAX, Connection, End, Gate, HttpReply, HttpRequest, Pause, Repeat, Step
from maka.edges.scripted_rules import Strictness, complaint
from maka.edges.scripted_turns import (
    DONE,
    Call,
    Fault,
    Raw,
    Reply,
    Script,
    ScriptRequest,
    Turn,
    by_step,
    chunk,
    frame,
    in_order,
    read_body,
    render,
)

__all__ = [
    "DONE",
    "Call",
    "End",
    "Fault",
    "Gate",
    "Pause",
    "Raw",
    "Repeat",
    "Reply",
    "Script",
    "ScriptRequest",
    "ScriptedModel",
    "Step",
    "Strictness",
    "Turn",
    "by_step",
    "chunk",
    "frame",
    "in_order",
]


class ScriptedModel:
    """A running server. Made by `start`; every method may be called from any thread."""

    def __init__(self, io: IoLoop, script: Script, model: str, strict: Strictness | None, keep: int) -> None:
        self.model = model
        self._io = io
        self._script = script
        self._strict = strict
        self._changed = threading.Condition()
        self._requests: deque[ScriptRequest] = deque(maxlen=keep)
        self._count = 0
        self._connections = 0
        self._port = 0
        self._started = threading.Event()
        self._trouble: BaseException | None = None

    @classmethod
    def start(
        cls, script: Script, *, model: str = "scripted", strict: Strictness | None = None, keep: int = 256
    ) -> Self:
        """Start a server; it listens when this returns. With `strict` it refuses what a strict provider refuses.

        `keep` bounds the requests that are remembered. Raises OSError where it can't listen.
        """
        server = cls(IoLoop.start("maka-scripted"), script, model, strict, keep)
        server._io.submit(server._serve(), server._ended)
        server._started.wait()
        if server._trouble is not None:
            server._io.close()
            raise server._trouble
        return server

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def requests(self) -> tuple[ScriptRequest, ...]:
        """The last chat requests, oldest first."""
        with self._changed:
            return tuple(self._requests)

    @property
    def request_count(self) -> int:
        with self._changed:
            return self._count

    @property
    def connection_count(self) -> int:
        """How many connections were made so far."""
        return self._connections

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> bool:
        """Wait until a condition holds; it is asked again after each request that arrives."""
        with self._changed:
            return self._changed.wait_for(condition, timeout_s)

    def close(self) -> None:
        """End every connection and the thread. Idempotent."""
        self._io.close()

    async def _serve(self) -> None:
        serving: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connections += 1
            serving.add(task)
            task.add_done_callback(serving.discard)
            # Python 3.11 reports the end of a cancelled handler as an error.
            with suppress(asyncio.CancelledError):
                await Connection(reader, writer, self._answer).serve()

        server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=HEAD_BYTES_MAX, backlog=1024)
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for task in serving:
                task.cancel()

    def _ended(self, error: BaseException | None) -> None:
        if not self._started.is_set():
            self._trouble = error or RuntimeError("the scripted model ended at once")
            self._started.set()

    async def _answer(self, http: HttpRequest) -> HttpReply:
        path = http.path.partition("?")[0].rstrip("/")
        if (http.method, path) == ("GET", "/v1/models"):
            return _json(200, {"object": "list", "data": [{"id": self.model, "object": "model"}]})
        if (http.method, path) != ("POST", "/v1/chat/completions"):
            return _refuse(404, f"no such route: {http.method} {path}", "not_found")
        data = read_body(http.body)
        if data is None or data.get("stream") is not True:
            return _refuse(400, "the body must be a JSON object with stream: true", "invalid_request_error")
        request = self._remember(http, data)
        if self._strict is not None and (why := complaint(data, self._strict)) is not None:
            return _refuse(400, why, "invalid_request_error")
        try:
            return render(self._script(request), request)
        except Exception as error:
            # A script with a bug must show, not hang the client.
            return _refuse(400, f"the script failed: {type(error).__name__}: {error}", "script_error")

    def _remember(self, http: HttpRequest, data: dict[str, object]) -> ScriptRequest:
        with self._changed:
            self._count += 1
            request = ScriptRequest(number=self._count, http=http, data=data)
            self._requests.append(request)
            self._changed.notify_all()
            return request


def _json(status: int, value: object) -> HttpReply:
    return HttpReply(status=status, headers={"Content-Type": "application/json"}, steps=(msgspec.json.encode(value),))


def _refuse(status: int, message: str, code: str) -> HttpReply:
    return _json(status, {"error": {"message": message, "type": code, "code": code}})
