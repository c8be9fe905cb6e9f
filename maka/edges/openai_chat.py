"""A provider that speaks OpenAI's Chat Completions: a cloud's, or a local server's.

Laws: the bytes that `encode` returned are what is sent; one `start` is one request, retries are the caller's; the
client's library is imported on first use, away from the I/O thread, since that takes 0.4 s.
"""

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from maka.contracts.model_ports import ChatRequest, ModelProfile, ProviderError, ProviderListener
from maka.contracts.ports import Clock
from maka.edges.chat_request import encode_request
from maka.edges.chat_stream import ChatStream, Open
from maka.edges.io_loop import IoLoop
from maka.edges.redact import Redactor

if TYPE_CHECKING:
    from maka.edges.openai_client import OpenAIClient

NO_KEY = "none"
"""What is sent as the key of a server that wants none: the client refuses an empty one."""


class OpenAIChat:
    """A `Provider` behind one profile. Thread-safe; its connections close with the I/O loop."""

    kind = "openai_chat"

    def __init__(self, profile: ModelProfile, key: str, io: IoLoop, clock: Clock) -> None:
        self.profile = profile
        self._key = key or NO_KEY
        self._io = io
        self._clock = clock
        self._redact = Redactor((key, *profile.headers.values(), urlsplit(profile.base_url).password or ""))
        self._client: asyncio.Future[OpenAIClient] | None = None
        # A slot is held from the request to the end of its answer; waiting for one isn't the provider's silence.
        self._slots = asyncio.Semaphore(profile.max_concurrent) if profile.max_concurrent else None
        io.at_close(self._close)

    def encode(self, request: ChatRequest) -> bytes:
        return encode_request(self.profile, request)

    def start(self, body: bytes, listener: ProviderListener) -> ChatStream:
        stream = ChatStream(self.profile, self._connect, self._explain, listener, self._redact, self._slots)
        stream.start(self._io, body)
        return stream

    async def _connect(self) -> Open:
        if self._client is None:
            self._client = asyncio.get_running_loop().run_in_executor(None, _make_client, self.profile, self._key)
        # Shielded: a stop of the first request must not take the client from those that wait beside it.
        return (await asyncio.shield(self._client)).open

    def _explain(self, error: BaseException) -> ProviderError:
        from maka.edges.openai_errors import explain

        return explain(error, self.profile.base_url, self._redact, self._clock.now_ms())

    async def _close(self) -> None:
        if self._client is not None:
            await (await self._client).close()


def _make_client(profile: ModelProfile, key: str) -> "OpenAIClient":
    from maka.edges.openai_client import OpenAIClient

    return OpenAIClient(profile, key)
