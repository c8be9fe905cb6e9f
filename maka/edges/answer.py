"""The frames of one answer -> its pieces and its one verdict. Pure: what ended the reading is an argument.

Laws:
- A finish reason is the verdict. What breaks after it (a cut, a silence) changes nothing; an error object does.
- [DONE] or the end of the body without a finish reason is a failure, always the same one: `incomplete_answer` where
  something of an answer had come, `provider_unavailable` (it may be asked again) where nothing had.
- A failure is only retryable while nothing observable has come.
- A refusal of the content filter is a failure, not a short answer.
"""

import msgspec

from maka.contracts.model_ports import ErrorKind, ProviderError, StepResult, UsageReport
from maka.edges.assemble import CallAssembler, CallOverflowError
from maka.edges.chunks import TEXT, THINKING, BadChunkError, Chunk, read_chunk
from maka.edges.loose_json import decode, mapping
from maka.edges.provider_errors import of_event
from maka.edges.redact import Redactor
from maka.edges.sse import SseFrame, SseOverflowError, SseParser
from maka.edges.surrogates import Joiner, mend

_PREVIEW_BYTES = 16 << 10
_PREVIEW_CHARS = 200
_DONE = b"[DONE]"
_EVENT_STREAM = "text/event-stream"

Pieces = list[tuple[str, str]]
Verdict = StepResult | ProviderError


class Answer:
    """What has come of one answer. Fed with bytes; not thread-safe."""

    def __init__(self, content_type: str, reasoning_field: str, redact: Redactor) -> None:
        self._content_type = content_type
        self._reasoning_field = reasoning_field
        self._redact = redact
        self._parser = SseParser()
        self._calls = CallAssembler()
        self._joiners = {TEXT: Joiner(), THINKING: Joiner()}
        self._preview = b""
        self._finish_reason: str | None = None
        self._usage: UsageReport | None = None
        self._provider_id: str | None = None
        self._error: ProviderError | None = None
        self.observed = False
        self.frames = 0
        self.is_over = False
        """Whether nothing that may still come matters: [DONE], an error, or bytes that are no event stream."""

    @property
    def has_finish(self) -> bool:
        return self._finish_reason is not None

    def feed(self, data: bytes) -> Pieces:
        """Take bytes, and return the pieces that they make certain."""
        if not self.frames and len(self._preview) < _PREVIEW_BYTES:
            self._preview += data[: _PREVIEW_BYTES - len(self._preview)]
        pieces: Pieces = []
        try:
            for frame in self._parser.feed(data):
                self._take(frame, pieces)
                if self.is_over:
                    break
        except BadChunkError as error:
            self._fail(self._broken(f"{error}"))
        except (CallOverflowError, SseOverflowError) as error:
            self._fail(_failure(ErrorKind.ANSWER_TOO_LONG, f"{error}"))
        if not self.frames and len(self._preview) == _PREVIEW_BYTES and not self._is_event_stream:
            self.is_over = True
        return pieces

    def rest(self) -> Pieces:
        """Return what the end of the answer makes of halves that waited."""
        return [(kind, text) for kind, joiner in self._joiners.items() if (text := joiner.close())]

    def verdict(self, broken: ProviderError | None = None) -> Verdict:
        """Return how the answer ended; `broken` is what went wrong with the connection, if anything did."""
        if self._error is not None:
            return self._error
        if self._finish_reason is None:
            return self._once_only(broken or self._unfinished())
        if self._finish_reason == "content_filter":
            return _failure(ErrorKind.REJECTED, "the provider's content filter ended the answer", code="content_filter")
        return StepResult(
            finish_reason=self._finish_reason,
            calls=self._calls.close(self._finish_reason),
            usage=self._usage,
            provider_id=self._provider_id,
        )

    @property
    def _is_event_stream(self) -> bool:
        return self._content_type.lower().startswith(_EVENT_STREAM)

    def _take(self, frame: SseFrame, pieces: Pieces) -> None:
        self.frames += 1
        if frame.data.strip() == _DONE:
            self.is_over = True
            return
        chunk = read_chunk(frame.data, self._reasoning_field)
        if chunk.error is not None or frame.event == "error":
            self._fail(of_event(chunk.error if chunk.error is not None else decode(frame.data), self._redact))
            return
        self._note(chunk)
        for kind, text in chunk.pieces:
            self.observed = True
            if whole := self._joiners[kind].feed(text):
                pieces.append((kind, whole))
        for fragment in chunk.fragments:
            self.observed = True
            self._calls.add(fragment)
        if chunk.finish_reason == "error":
            self._fail(self._broken("the provider ended the answer with an error of its own"))

    def _note(self, chunk: Chunk) -> None:
        if chunk.finish_reason is not None:
            self._finish_reason = mend(chunk.finish_reason)
        if chunk.usage is not None:
            self._usage = chunk.usage
        if chunk.provider_id is not None and self._provider_id is None:
            self._provider_id = mend(chunk.provider_id)

    def _fail(self, error: ProviderError) -> None:
        self._error = self._once_only(error)
        self.is_over = True

    def _broken(self, message: str) -> ProviderError:
        return _failure(ErrorKind.PROVIDER_UNAVAILABLE, message, retryable=True)

    def _once_only(self, error: ProviderError) -> ProviderError:
        if self.observed and error.retryable:
            return msgspec.structs.replace(error, retryable=False, retry_after_s=None)
        return error

    def _unfinished(self) -> ProviderError:
        if self.observed:
            return _failure(
                ErrorKind.INCOMPLETE_ANSWER,
                "the answer stopped without a finish reason, so what came of it may be a part only",
            )
        if self.frames or self._is_event_stream:
            return self._broken("the stream ended before anything of an answer came")
        return self._no_stream()

    def _no_stream(self) -> ProviderError:
        """Explain a success that is no event stream: a proxy's page, or an error in plain JSON."""
        text = self._preview.decode("utf-8", "replace")
        try:
            error = mapping(decode(text)).get("error")
        except ValueError:
            error = None
        if error:
            return of_event(error, self._redact)
        kind = self._redact.line(self._content_type, 100) or "none"
        start = self._redact.line(text, _PREVIEW_CHARS)
        return _failure(
            ErrorKind.REJECTED,
            f"no events in the answer (content type {kind}; it begins with {start!r}): "
            "check that base_url is an OpenAI-compatible API and that no proxy answers in its place",
        )


def _failure(kind: ErrorKind, message: str, *, retryable: bool = False, code: str | None = None) -> ProviderError:
    return ProviderError(kind=kind, message=message, retryable=retryable, code=code)
