"""Does a provider do what a run needs? Two small requests tell: a counted text, and a call of a tool."""

from enum import StrEnum
from queue import Empty, SimpleQueue

from msgspec import Struct

from maka.cli.output import one_line
from maka.cli.revealed import brief
from maka.contracts.model_ports import (
    ChatMessage,
    ChatRequest,
    DeltaBatch,
    ErrorKind,
    Provider,
    ProviderError,
    ProviderStream,
    StepResult,
    ToolSpec,
)

ANSWER_TIMEOUT_S = 120.0
_SYSTEM = "You answer briefly. This is a check of the connection."
_COUNT = "Count from one to ten in words."
_CALL = 'Call the tool "ping" with the word "pong". Do nothing else.'
_PING = ToolSpec(
    name="ping",
    description="Answers a check. Call it when asked to.",
    parameters={
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
)


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Check(Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that was looked at, and what was found."""

    name: str
    verdict: Verdict
    detail: str


class Answer(Struct, frozen=True, kw_only=True):
    """All that came of one request: its pieces of text or thought, and its verdict."""

    pieces: int
    result: StepResult | None = None
    error: ProviderError | None = None


class Mailbox:
    """A request's listener: whatever comes on the I/O thread, for the thread that waits."""

    def __init__(self) -> None:
        self.facts: SimpleQueue[DeltaBatch | StepResult | ProviderError] = SimpleQueue()

    def batch(self, batch: DeltaBatch) -> None:
        self.facts.put(batch)

    def finished(self, result: StepResult) -> None:
        self.facts.put(result)

    def failed(self, error: ProviderError, observed: bool) -> None:
        self.facts.put(error)


def check_provider(provider: Provider, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Check]:
    """Ask a provider twice and return what it can do; blocks for at most twice the time."""
    text = _ask(provider, ChatRequest(system=_SYSTEM, messages=(ChatMessage(role="user", text=_COUNT),)), timeout_s)
    if text.error is not None:
        return [_unreachable(text.error)]
    checks = [
        Check(name="reachable", verdict=Verdict.OK, detail=provider.profile.base_url),
        _streams(text),
        _usage(text),
    ]
    request = ChatRequest(system=_SYSTEM, messages=(ChatMessage(role="user", text=_CALL),), tools=(_PING,))
    return [*checks, _calls(_ask(provider, request, timeout_s))]


def _ask(provider: Provider, request: ChatRequest, timeout_s: float) -> Answer:
    mailbox = Mailbox()
    stream = provider.start(provider.encode(request), mailbox)
    pieces = 0
    while True:
        fact = _next(mailbox, stream, timeout_s)
        match fact:
            case DeltaBatch():
                pieces += len(fact.pieces)
                stream.ack()
            case StepResult():
                return Answer(pieces=pieces, result=fact)
            case ProviderError():
                return Answer(pieces=pieces, error=fact)


def _next(mailbox: Mailbox, stream: ProviderStream, timeout_s: float) -> DeltaBatch | StepResult | ProviderError:
    try:
        return mailbox.facts.get(timeout=timeout_s)
    except Empty:
        stream.cancel()
        return ProviderError(kind=ErrorKind.TIMEOUT, message=f"no answer in {timeout_s:.0f} s")


def _unreachable(error: ProviderError) -> Check:
    reached = error.kind not in (ErrorKind.NETWORK, ErrorKind.TIMEOUT)
    name = "answers" if reached else "reachable"
    return Check(name=name, verdict=Verdict.FAILED, detail=f"{error.kind}: {one_line(error.message, 300)}")


def _streams(answer: Answer) -> Check:
    # Merging makes few pieces of many, so that one piece is no proof against streaming.
    verdict = Verdict.OK if answer.pieces else Verdict.FAILED
    return Check(name="streams", verdict=verdict, detail=f"{answer.pieces} pieces of an answer")


def _usage(answer: Answer) -> Check:
    usage = answer.result.usage if answer.result is not None else None
    if usage is None:
        detail = "not reported: the window is fitted by an estimate"
        return Check(name="reports usage", verdict=Verdict.WARNING, detail=detail)
    return Check(name="reports usage", verdict=Verdict.OK, detail=f"{usage.input} tokens in, {usage.output} out")


def _calls(answer: Answer) -> Check:
    if answer.error is not None:
        detail = f"{answer.error.kind}: {one_line(answer.error.message, 300)}"
        return Check(name="calls a tool", verdict=Verdict.FAILED, detail=detail)
    calls = answer.result.calls if answer.result is not None else ()
    good = [call for call in calls if call.name == "ping" and call.args is not None]
    if good:
        return Check(name="calls a tool", verdict=Verdict.OK, detail=f"{good[0].name} {brief(good[0].raw, 200)}")
    detail = "it answered with text only: an agent needs a model that calls tools"
    return Check(name="calls a tool", verdict=Verdict.FAILED, detail=detail)
