"""A small HTTP/1.1 server for scripted answers: whole ones, and those that break in every way a real server does.

Laws: one answer at a time per connection, connections are kept alive; an answer is a list of steps, and each `bytes`
step is one flush; a client that goes away ends its answer at once and is noted.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

HEAD_BYTES_MAX = 64 << 10
BODY_BYTES_MAX = 64 << 20


class HttpRequest(Struct, frozen=True, kw_only=True):
    """One request: header names in lower case. `gone` is set when its client left before the answer's end."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    gone: threading.Event


class Gate:
    """A place in an answer where the server waits. Both sides may be used from any thread."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._lock = threading.Lock()

    def open(self) -> None:
        """Let everyone through, now and later."""
        with self._lock:
            self._open.set()
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)

    async def wait(self) -> None:
        event = asyncio.Event()
        with self._lock:
            if not self._open.is_set():
                self._waiting.append((asyncio.get_running_loop(), event))
            else:
                event.set()
        self.reached.set()
        await event.wait()


class Pause(Struct, frozen=True):
    """Silence for a while."""

    seconds: float


class Repeat(Struct, frozen=True):
    """The same bytes again and again, until the client goes away."""

    data: bytes
    every_s: float


Step = bytes | Gate | Pause | Repeat


class End(StrEnum):
    """How an answer ends: its body whole, the connection closed or reset within it, or never."""

    WHOLE = "whole"
    CUT = "cut"
    RESET = "reset"
    HANG = "hang"


class HttpReply(Struct, frozen=True, kw_only=True):
    """An answer: `head_gate` holds the status line back; steps may be made while they are sent."""

    status: int = 200
    headers: Mapping[str, str] = {}
    steps: Iterable[Step] = ()
    end: End = End.WHOLE
    head_gate: Gate | None = None


Answerer = Callable[[HttpRequest], Awaitable[HttpReply]]


class Connection:
    """Serves one connection until either side ends it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answerer) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = answer

    async def serve(self) -> None:
        """Answer requests in order; returns when the connection is over."""
        try:
            first = await self._reader.read(1)
            while first and (request := await self._request(first)) is not None:
                # Reading on is how a leaving client is seen; what comes instead is the next request's first byte.
                ahead = asyncio.create_task(self._reader.read(1))
                try:
                    if not await self._reply(request, ahead):
                        break
                    first = await ahead
                finally:
                    ahead.cancel()
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that breaks the protocol, or the connection, has no answer to come
        finally:
            self._writer.close()

    async def _request(self, first: bytes) -> HttpRequest | None:
        head = first + await self._reader.readuntil(b"\r\n\r\n")
        start, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = start.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        size = int(headers.get("content-length", "0"))
        if not 0 <= size <= BODY_BYTES_MAX:
            return None
        body = await self._reader.readexactly(size)
        return HttpRequest(method=method, path=path, headers=headers, body=body, gone=threading.Event())

    async def _reply(self, request: HttpRequest, ahead: "asyncio.Task[bytes]") -> bool:
        """Send one answer; returns whether the connection can take another request."""
        sending = asyncio.create_task(self._send(await self._answer(request)))
        await asyncio.wait({sending, ahead}, return_when=asyncio.FIRST_COMPLETED)
        if not sending.done() and (ahead.cancelled() or ahead.exception() is not None or not ahead.result()):
            request.gone.set()
            sending.cancel()
        await asyncio.wait({sending})
        if sending.cancelled():
            return False
        if isinstance(sending.exception(), OSError):
            request.gone.set()
            return False
        return sending.result()

    async def _send(self, reply: HttpReply) -> bool:
        if reply.head_gate is not None:
            await reply.head_gate.wait()
        headers = {"Content-Type": "text/event-stream", **reply.headers, "Transfer-Encoding": "chunked"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._writer.write(f"HTTP/1.1 {reply.status} Scripted\r\n{lines}\r\n".encode("latin-1"))
        await self._writer.drain()
        for step in reply.steps:
            await self._step(step)
        return await self._end(reply.end)

    async def _step(self, step: Step) -> None:
        match step:
            case bytes():
                await self._flush(step)
            case Gate():
                await step.wait()
            case Pause():
                await asyncio.sleep(step.seconds)
            case Repeat():
                while True:
                    await self._flush(step.data)
                    await asyncio.sleep(step.every_s)

    async def _flush(self, data: bytes) -> None:
        if data:
            self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await self._writer.drain()

    async def _end(self, end: End) -> bool:
        match end:
            case End.WHOLE:
                self._writer.write(b"0\r\n\r\n")
                await self._writer.drain()
                return True
            case End.RESET:
                sock: socket.socket = self._writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self._writer.transport.abort()
            case End.HANG:
                await asyncio.Event().wait()
            case End.CUT:
                pass
        return False
