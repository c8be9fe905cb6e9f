"""The simulated model: a provider that says what a script says, reports honest usage, and has its oddities.

It checks the laws where it stands: a body that no durable request names is refused, and so is one over the window.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Literal

import msgspec

from maka.contracts.codec import hash_hex
from maka.contracts.events import RuntimeEvent
from maka.contracts.model_ports import (
    AssembledCall,
    ChatRequest,
    DeltaBatch,
    ErrorKind,
    ModelProfile,
    ProviderError,
    ProviderListener,
    StepResult,
    UsageReport,
)
from tests.sim.laws import Facts
from tests.sim.world import World

Odd = Literal["", "deaf", "twice"]
ODD: tuple[Odd, ...] = ("deaf", "twice")


@dataclass(frozen=True)
class Said:
    """One scripted answer: pieces of text, calls, then a finish; or an error after the pieces.

    `deaf`: a cancel does nothing, and everything still comes. `twice`: after its end it goes on and ends again.
    """

    text: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()
    calls: tuple[AssembledCall, ...] = ()
    error: ProviderError | None = None
    hangs: bool = False
    odd: Odd = ""

    def __str__(self) -> str:
        parts = [repr("".join(self.text))] if self.text else []
        parts += [f"calls {call.name}" for call in self.calls]
        if self.error is not None:
            parts.append(f"error {self.error.kind.value}{' (may pass)' if self.error.retryable else ''}")
        parts += ["hangs"] if self.hangs else []
        parts += [self.odd] if self.odd else []
        return ", ".join(parts) or "nothing"


def chars_of(request: ChatRequest) -> int:
    """Count what a request's tokens are estimated from."""
    chars = len(request.system) + len(msgspec.json.encode(request.tools))
    for message in request.messages:
        chars += len(message.text or "") + sum(len(call.name) + len(call.arguments) for call in message.calls)
    return chars


def _names(event: RuntimeEvent, digest: str) -> bool:
    request = event.actions.model_request if event.actions is not None else None
    return request is not None and request.request_hash == digest


class SimProvider:
    """Answers each request with what `script` says for it."""

    kind = "simulated"

    def __init__(self, world: World, facts: Facts, script: Callable[[ChatRequest], Said], window: int | None) -> None:
        self.profile = ModelProfile(
            name="sim", base_url="sim:", model="sim-1", context_window=window, send_reasoning_back=True
        )
        self._world = world
        self._facts = facts
        self.script = script
        self.requests: list[ChatRequest] = []
        self.streams: list[SimStream] = []

    def encode(self, request: ChatRequest) -> bytes:
        return msgspec.json.encode(request)

    def start(self, body: bytes, listener: ProviderListener) -> "SimStream":
        digest = hash_hex(body)
        facts = self._facts()
        named = {item.event.invocation_id for item in facts if _names(item.event, digest)}
        if not named:
            self._world.breaks("a request was sent that no durable fact names")
        if named <= {item.event.invocation_id for item in facts if item.event.status is not None}:
            self._world.breaks("a request was sent for a run that had ended")
        request = msgspec.json.decode(body, type=ChatRequest)
        window, tokens = self.profile.context_window, ceil(chars_of(request) / 4)
        if window is not None and tokens > window:
            self._world.breaks(f"a request of {tokens} tokens for a window of {window}")
        self.requests.append(request)
        stream = SimStream(self._world, listener, self.script(request), 10 if window is None else tokens)
        self.streams.append(stream)
        return stream

    def hanging(self) -> int:
        """Count the requests that will never end by themselves."""
        return sum(stream.hangs for stream in self.streams)


class SimStream:
    """One request under way: acts at later steps of the world, one unanswered batch at a time."""

    def __init__(self, world: World, listener: ProviderListener, said: Said, tokens: int) -> None:
        self._world = world
        self._listener = listener
        self._said = said
        self._tokens = tokens
        self._pieces = [("thinking", each) for each in said.thinking] + [("text", each) for each in said.text]
        self._over = False
        self._observed = False
        self._heedless = False
        world.soon("provider", self._next)

    @property
    def hangs(self) -> bool:
        return self._said.hangs and not self._over

    def ack(self) -> None:
        if not self._heedless:
            self._world.soon("provider", self._next)

    def cancel(self) -> None:
        if self._over or self._heedless:
            return
        if self._said.odd == "deaf":
            self._heedless = True  # it reads on, whether anybody acknowledges or not
            self._world.soon("provider", self._next)
            return
        self._over = True
        error = ProviderError(kind=ErrorKind.CANCELLED, message="cancelled")
        self._world.soon("provider", lambda: self._listener.failed(error, self._observed))

    def _next(self) -> None:
        if self._over:
            return
        if self._pieces:
            self._observed = True
            self._listener.batch(DeltaBatch(pieces=(self._pieces.pop(0),)))
            if self._heedless:
                self._world.soon("provider", self._next)
            return
        if self._said.hangs:
            return
        self._over = True
        self._end()
        if self._said.odd == "twice":
            self._world.soon("provider", self._once_more)

    def _end(self) -> None:
        if self._said.error is not None:
            self._listener.failed(self._said.error, self._observed)
            return
        output = 5
        usage = UsageReport(input=self._tokens, output=output, total=self._tokens + output)
        reason = "tool_calls" if self._said.calls else "stop"
        self._listener.finished(StepResult(finish_reason=reason, calls=self._said.calls, usage=usage))

    def _once_more(self) -> None:
        self._listener.batch(DeltaBatch(pieces=(("text", "late"),)))
        self._end()
        self._listener.failed(ProviderError(kind=ErrorKind.NETWORK, message="late"), True)
