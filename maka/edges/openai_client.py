"""The openai client as we use it: one client per profile, made on first use, one request per call, no retries.

Laws:
- The wire carries what the profile says and nothing else: the client's own additions, some of them read from the
  environment, are removed from every request.
- A server on this machine is never reached through a proxy.
- A status that isn't success raises HttpStatusError with a bounded part of the body. Redirects are refused: they would
  carry the prompt and the profile's headers to a place that nobody named.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx2
from openai import AsyncOpenAI, DefaultAsyncHttpx2Client

from maka.contracts.limits import ERROR_BODY_BYTES_MAX
from maka.contracts.model_ports import ModelProfile
from maka.edges.loopback import is_loopback
from maka.edges.provider_errors import HttpStatusError

_CONNECT_S = 10.0
_WRITE_S = 120.0
_ERROR_BODY_S = 10.0
_PATH = "/chat/completions"
_HEADERS = frozenset(
    {"host", "connection", "user-agent", "accept", "accept-encoding", "authorization", "content-type", "content-length"}
)


class OpenedAnswer:
    """An answer whose head has come. The bytes can be read once, also in two turns."""

    def __init__(self, response: httpx2.Response) -> None:
        self._bytes = response.aiter_bytes()
        self.content_type = response.headers.get("content-type", "")

    def bytes(self) -> AsyncIterator[bytes]:
        return self._bytes


class OpenAIClient:
    """The client of one profile; used on the I/O thread alone, made on any."""

    def __init__(self, profile: ModelProfile, key: str) -> None:
        headers = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
            "User-Agent": "maka",
            **profile.headers,
        }
        # Said explicitly, since the client would let the environment's own headers override its key.
        headers.setdefault("Authorization", f"Bearer {key}")
        self._kept = _HEADERS | {name.lower() for name in profile.headers}
        self._client = AsyncOpenAI(
            api_key=key,
            base_url=profile.base_url,
            max_retries=0,
            default_headers=headers,
            organization="",
            project="",
            webhook_secret="",
            http_client=DefaultAsyncHttpx2Client(
                trust_env=not is_loopback(profile.base_url),
                # Reading has no limit here: the stream's own deadlines count data, not bytes.
                timeout=httpx2.Timeout(connect=_CONNECT_S, write=_WRITE_S, read=None, pool=None),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=30.0),
                follow_redirects=False,
                event_hooks={"request": [self._strip], "response": [_refuse]},
            ),
        )

    @asynccontextmanager
    async def open(self, body: bytes) -> AsyncGenerator[OpenedAnswer]:
        """Send a body as it is and yield the answer. Raises HttpStatusError and the client's own exceptions."""
        response = await self._client.post(
            _PATH,
            cast_to=httpx2.Response,
            content=body,
            options={"headers": {"Content-Type": "application/json"}},
            stream=True,
        )
        assert isinstance(response, httpx2.Response)
        try:
            yield OpenedAnswer(response)
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close idle connections."""
        await self._client.close()

    async def _strip(self, request: httpx2.Request) -> None:
        for name in [name for name in request.headers if name.lower() not in self._kept]:
            del request.headers[name]


async def _refuse(response: httpx2.Response) -> None:
    """Turn a bad status into our own exception before the client reads a body of any size into memory."""
    if response.status_code < 300:
        return
    body = bytearray()
    try:
        async with asyncio.timeout(_ERROR_BODY_S):
            async for part in response.aiter_bytes():
                body += part
                if len(body) >= ERROR_BODY_BYTES_MAX:
                    break
    except (TimeoutError, httpx2.RequestError):
        pass  # the status says enough
    raise HttpStatusError(response.status_code, _lower(response.headers), bytes(body[:ERROR_BODY_BYTES_MAX]))


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
