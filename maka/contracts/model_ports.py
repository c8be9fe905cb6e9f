"""The port of a model provider: what is asked, what comes back, and who may call whom.

`encode` is pure and any thread may call it. `start` returns at once; the listener is called on the I/O thread and
only tells. After `cancel` at most one more `failed` comes, with kind CANCELLED.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from maka.contracts.limits import FIRST_EVENT_S, IDLE_S


class ModelProfile(Struct, frozen=True, kw_only=True):
    """How a model is reached. The key itself is never part of it: `key_*` say where it is to be had."""

    name: str
    base_url: str
    model: str
    key_env: str | None = None
    key_cmd: str | None = None
    key_file: str | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    headers: dict[str, str] = {}
    extra_body: dict[str, Any] = {}
    reasoning_field: str = "reasoning_content"
    send_reasoning_back: bool = False
    first_event_s: float = FIRST_EVENT_S
    idle_s: float = IDLE_S
    max_concurrent: int | None = None


class ChatCall(Struct, frozen=True, kw_only=True):
    """A tool call in a history: `arguments` is JSON text of an object."""

    id: str
    name: str
    arguments: str


class ChatMessage(Struct, frozen=True, kw_only=True):
    """One message of a history, neutral among providers."""

    role: str
    text: str | None = None
    reasoning: str | None = None
    calls: tuple[ChatCall, ...] = ()
    call_id: str | None = None


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as the model sees it: `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


class ChatRequest(Struct, frozen=True, kw_only=True):
    """Everything that a request body is made of."""

    system: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...] = ()


class ErrorKind(StrEnum):
    """What went wrong at a provider. The values are failure classes, but for CANCELLED."""

    AUTH = "auth"
    BILLING = "billing"
    RATE_LIMIT = "rate_limit"
    CONTEXT_OVERFLOW = "context_overflow"
    NETWORK = "network"
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    TIMEOUT = "timeout"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    INCOMPLETE_ANSWER = "incomplete_answer"
    ANSWER_TOO_LONG = "answer_too_long"
    CANCELLED = "cancelled"


class ProviderError(Struct, frozen=True, kw_only=True):
    """A failure of one request. `retry_after_s` is the provider's own wish, clamped; `message` is redacted."""

    kind: ErrorKind
    message: str
    retryable: bool = False
    retry_after_s: float | None = None
    http_status: int | None = None
    code: str | None = None


class DeltaBatch(Struct, frozen=True, kw_only=True):
    """Merged pieces of an answer, in order: (kind, text) with kind text or thinking. One is unanswered at a time."""

    pieces: tuple[tuple[str, str], ...]


class AssembledCall(Struct, frozen=True, kw_only=True):
    """One whole tool call. Where the argument text is no JSON object, `args` is None and `raw` keeps the text.

    Where it was longer than what is held in memory, `too_long` is its length in bytes, and `raw` how it begins.
    """

    provider_id: str | None
    name: str
    args: dict[str, Any] | None
    raw: str
    cut: bool = False
    too_long: int | None = None


class UsageReport(Struct, frozen=True, kw_only=True):
    """Normalised tokens of one request; only made when input and output are both known."""

    input: int
    output: int
    cached_input: int | None = None
    reasoning: int | None = None
    total: int | None = None


class StepResult(Struct, frozen=True, kw_only=True):
    """A request that ended with a verdict. All deltas came before it. `finish_reason` is the provider's word."""

    finish_reason: str
    calls: tuple[AssembledCall, ...] = ()
    usage: UsageReport | None = None
    provider_id: str | None = None
    signature: str | None = None


class ProviderListener(Protocol):
    """Receives one request's facts: batches, then exactly one of `finished` or `failed`."""

    def batch(self, batch: DeltaBatch) -> None: ...

    def finished(self, result: StepResult) -> None: ...

    def failed(self, error: ProviderError, observed: bool) -> None:
        """Report the failure; `observed` says whether anything of an answer had come."""
        ...


class ProviderStream(Protocol):
    """A request under way. Both calls are thread-safe and return at once."""

    def ack(self) -> None:
        """Answer the last batch: the next one may come."""
        ...

    def cancel(self) -> None: ...


class Provider(Protocol):
    """One model behind one profile."""

    @property
    def profile(self) -> ModelProfile: ...

    @property
    def kind(self) -> str: ...

    def encode(self, request: ChatRequest) -> bytes:
        """Return the exact body that `start` will send."""
        ...

    def start(self, body: bytes, listener: ProviderListener) -> ProviderStream: ...


ProviderSource = Callable[[str], Provider]
"""Profile name -> provider; raises RefusedError where the profile isn't known or lacks something."""
