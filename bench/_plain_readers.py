"""Two other ways to read the same stream, to compare with: a bare socket, and the openai client's parsed chunks."""

import asyncio
import socket
import time
from urllib.parse import urlsplit

from maka.contracts.codec import canonical_json

END = b"0\r\n\r\n"
MODEL = "scripted"


def socket_rate(base_url: str, count: int) -> float:
    """Return deltas/s of a reader that only drops the bytes: what the server and the socket allow."""
    url = urlsplit(base_url)
    body = canonical_json({"model": MODEL, "stream": True, "messages": [{"role": "user", "content": f"{count} 0"}]})
    head = f"POST {url.path}/chat/completions HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((url.hostname or "", url.port or 0)) as connection:
        started = time.perf_counter()
        connection.sendall(head.encode() + body)
        tail = b""
        while not tail.endswith(END):
            data = connection.recv(1 << 16)
            assert data, "the server went away"
            tail = (tail + data)[-len(END) :]
        return count / (time.perf_counter() - started)


def client_rate(base_url: str, count: int) -> float:
    """Return deltas/s of the openai client's own stream of parsed chunks, which are only counted."""
    return asyncio.run(_client_rate(base_url, count))


async def _client_rate(base_url: str, count: int) -> float:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key="none", base_url=base_url, max_retries=0) as client:
        started = time.perf_counter()
        stream = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": f"{count} 0"}], stream=True
        )
        seen = 0
        async for chunk in stream:
            seen += bool(chunk.choices and chunk.choices[0].delta.content)
        assert seen == count
        return count / (time.perf_counter() - started)
