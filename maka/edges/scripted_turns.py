"""What a scripted model says: turns, raw frames, refusals; and scripts that choose among them.

Law: a script is a function of the request. What a session hears depends on its own messages alone, so any number of
sessions can talk to one script at the same time.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from maka.edges.loose_json import decode, mapping, sequence, text
from maka.edges.scripted_http import End, Gate, HttpReply, HttpRequest, Pause, Step

_PREFIX = b"data: "
DONE = b"data: [DONE]\n\n"


class ScriptRequest(Struct, frozen=True, kw_only=True):
    """A request as a script sees it. `number` counts the server's chat requests from 1."""

    number: int
    http: HttpRequest
    data: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [mapping(message) for message in sequence(self.data.get("messages"))]

    @property
    def steps(self) -> int:
        """How many answers the model has given since the last user message."""
        spoken = 0
        for message in self.messages:
            spoken = 0 if message.get("role") == "user" else spoken + (message.get("role") == "assistant")
        return spoken

    def tool_results(self) -> list[str]:
        """Return the texts of all tool results since the last user message, in order."""
        results: list[str] = []
        for message in self.messages:
            if message.get("role") == "user":
                results = []
            elif message.get("role") == "tool":
                results.append(text(message.get("content")))
        return results


class Call(Struct, frozen=True, kw_only=True):
    """A tool call: `args` is an object, or argument text as it is."""

    name: str
    args: dict[str, Any] | str
    id: str | None = None


class Turn(Struct, frozen=True, kw_only=True):
    """A well-formed answer, streamed in pieces of `chunk_chars` characters with `pace_s` between them.

    `usage` None reports an estimate, an empty one reports nothing.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    finish: str | None = None
    usage: Mapping[str, Any] | None = None
    chunk_chars: int = 12
    pace_s: float = 0.0
    gate: Gate | None = None
    """Where the server waits before the finish."""


class Raw(Struct, frozen=True, kw_only=True):
    """An answer's exact bytes, each one flush, and how it ends. Steps may be made while they are sent."""

    steps: Iterable[Step]
    status: int = 200
    headers: Mapping[str, str] = {}
    end: End = End.WHOLE
    head_gate: Gate | None = None


class Fault(Struct, frozen=True, kw_only=True):
    """A refusal with a JSON body."""

    status: int
    error: Any
    headers: Mapping[str, str] = {}


Reply = Turn | Raw | Fault
Script = Callable[[ScriptRequest], Reply]


def by_step(turns: Sequence[Reply]) -> Script:
    """Make a script that gives the n-th answer after each user message; the last one is repeated."""
    return lambda request: turns[min(request.steps, len(turns) - 1)]


def in_order(replies: Sequence[Reply]) -> Script:
    """Make a script that gives its answers in the order of arrival, for one session; the last one is repeated."""
    lock = threading.Lock()
    left = iter(replies)
    last = replies[-1]

    def script(request: ScriptRequest) -> Reply:
        del request
        with lock:
            return next(left, last)

    return script


def chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """Return the frame of one delta."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return frame({"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "choices": [choice], **more})


def frame(value: Any) -> bytes:
    """Return a value as one data frame."""
    return _PREFIX + msgspec.json.encode(value) + b"\n\n"


def render(reply: Reply, request: ScriptRequest) -> HttpReply:
    """Return the HTTP answer of a reply."""
    match reply:
        case Raw():
            return HttpReply(
                status=reply.status,
                headers=reply.headers,
                steps=reply.steps,
                end=reply.end,
                head_gate=reply.head_gate,
            )
        case Fault():
            body = msgspec.json.encode({"error": reply.error})
            return HttpReply(
                status=reply.status, headers={"Content-Type": "application/json", **reply.headers}, steps=(body,)
            )
        case Turn():
            return HttpReply(steps=tuple(_turn_steps(reply, request)))


def _turn_steps(turn: Turn, request: ScriptRequest) -> Iterator[Step]:
    yield chunk({"role": "assistant", "content": None})
    for name, words in (("reasoning_content", turn.thinking), ("content", turn.text)):
        for start in range(0, len(words), turn.chunk_chars):
            yield chunk({name: words[start : start + turn.chunk_chars]})
            if turn.pace_s:
                yield Pause(turn.pace_s)
    for index, call in enumerate(turn.calls):
        yield from _call_steps(index, call, request.number)
    if turn.gate is not None:
        yield turn.gate
    yield chunk({}, turn.finish or ("tool_calls" if turn.calls else "stop"))
    usage = _estimate(turn, request) if turn.usage is None else dict(turn.usage)
    if usage and mapping(request.data.get("stream_options")).get("include_usage"):
        yield frame({"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "choices": [], "usage": usage})
    yield DONE


def _call_steps(index: int, call: Call, number: int) -> Iterator[Step]:
    arguments = call.args if isinstance(call.args, str) else msgspec.json.encode(call.args).decode()
    function = {"name": call.name, "arguments": ""}
    start = {"index": index, "id": call.id or f"call_{number}_{index}", "type": "function", "function": function}
    yield chunk({"tool_calls": [start]})
    for place in range(0, len(arguments), 24):
        piece = {"index": index, "function": {"arguments": arguments[place : place + 24]}}
        yield chunk({"tool_calls": [piece]})


def _estimate(turn: Turn, request: ScriptRequest) -> dict[str, int]:
    """Count four characters as a token, as a rough model of a tokenizer."""
    given = len(request.http.body) // 4 + 1
    said = len(turn.text) + len(turn.thinking) + sum(len(str(call.args)) for call in turn.calls)
    made = said // 4 + 1
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


def read_body(body: bytes) -> dict[str, Any] | None:
    """Return a request body's object, or None where it is none."""
    try:
        value = decode(body)
    except ValueError:
        return None
    return mapping(value) or None
