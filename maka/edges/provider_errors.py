"""A provider's refusal -> ProviderError: what kind it is, whether it may pass, how long the provider wants us to wait.

Laws:
- The order of the tests is the meaning: a hard quota beats 429, a status beats words, a structured code beats a
  wrapping 5xx, and words decide only where nothing else does.
- A status is read from the response or from a numeric field, never from digits in a sentence.
- Every message is masked, in one line, and bounded.
"""

import math
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from msgspec import Struct

from maka.contracts.limits import ERROR_TEXT_CHARS_MAX, RETRY_AFTER_MAX_S
from maka.contracts.model_ports import ErrorKind, ProviderError
from maka.edges.loose_json import count, decode, mapping, sequence, text
from maka.edges.redact import Redactor
from maka.edges.surrogates import mend

_HARD_QUOTA = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance")
_OVERFLOW_CODES = (
    "context_length_exceeded",
    "model_context_window_exceeded",
    "request_too_large",
    "exceed_context_size_error",
)
_OVERFLOW_WORDS = (
    "context length",
    "context size",
    "context window",
    "maximum context",
    "prompt is too long",
    "input is too long",
    "too many tokens",
    "reduce the length of the messages",
)
# Words that make an overflow's wording mean something else: a rate, or the size of the answer.
_OVERFLOW_VETOES = ("rate limit", "throttl", "quota", "per minute", "max_tokens", "max_completion_tokens")
_BAD_OUTPUT = "does not match the expected"
"""llama.cpp's 500 for an answer that broke the chat format: the same request gives the same answer."""
_SERVER_CODES = ("server_error", "internal_server_error", "overloaded_error", "api_error", "service_unavailable")
_WORDS = (
    ("rate limit", ErrorKind.RATE_LIMIT),
    ("too many requests", ErrorKind.RATE_LIMIT),
    ("overloaded", ErrorKind.PROVIDER_UNAVAILABLE),
    ("unavailable", ErrorKind.PROVIDER_UNAVAILABLE),
    ("upstream", ErrorKind.PROVIDER_UNAVAILABLE),
    ("api key", ErrorKind.AUTH),
    ("unauthorized", ErrorKind.AUTH),
    ("timed out", ErrorKind.TIMEOUT),
    ("timeout", ErrorKind.TIMEOUT),
)
_RETRYABLE = {ErrorKind.RATE_LIMIT, ErrorKind.PROVIDER_UNAVAILABLE, ErrorKind.TIMEOUT, ErrorKind.NETWORK}


class HttpStatusError(Exception):
    """An answer whose status isn't success: its headers in lower case and the beginning of its body."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.headers = headers
        self.body = body


class _Said(Struct, frozen=True, kw_only=True):
    """What a provider said of its error."""

    status: int | None
    codes: tuple[str, ...]
    message: str


def of_response(error: HttpStatusError, redact: Redactor, now_ms: int) -> ProviderError:
    """Classify an answer with an error status."""
    raw = error.body.decode("utf-8", "replace")
    try:
        value = decode(raw)
    except ValueError:
        value = None
    said = _read(value, error.status)
    if error.status < 400:
        place = error.headers.get("location", "somewhere else")
        return _classify(
            _Said(status=error.status, codes=(), message=f"it redirects to {place}; set base_url to where the API is"),
            redact,
            retry_after_s=None,
            never=True,
        )
    if not said.message:
        said = _Said(status=said.status, codes=said.codes, message=raw)
    asked_s = retry_after_s(error.headers, now_ms)
    refused = error.headers.get("x-should-retry", "").lower() == "false"
    return _classify(said, redact, retry_after_s=asked_s, never=refused)


def of_event(error: object, redact: Redactor) -> ProviderError:
    """Classify an error object that came inside a stream of status 200."""
    return _classify(_read({"error": error}, None), redact, retry_after_s=None, never=False)


def retry_after_s(headers: Mapping[str, str], now_ms: int) -> float | None:
    """Return the wait that the provider asks for, in seconds and clamped; None where it asks for none in earnest.

    Taken: milliseconds, seconds, or a date. A negative, zero or unreadable value, or a date gone by, is none.
    """
    wait_s = _number(headers.get("retry-after-ms"), 1_000.0)
    asked = headers.get("retry-after")
    if wait_s is None:
        wait_s = _number(asked, 1.0)
    if wait_s is None and asked is not None:
        wait_s = _until(asked, now_ms)
    return min(wait_s, RETRY_AFTER_MAX_S) if wait_s is not None and wait_s > 0 else None


def _number(value: str | None, per_second: float) -> float | None:
    try:
        number = float(value) / per_second if value is not None else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _until(value: str, now_ms: int) -> float | None:
    try:
        moment = parsedate_to_datetime(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now_ms / 1_000
    except (ValueError, OverflowError):
        return None


def _read(value: object, status: int | None) -> _Said:
    """Find message and codes in the shapes that providers use: an object, a list of one, or a bare string."""
    whole = mapping(value) or mapping(next(iter(sequence(value)), None))
    inner: Any = whole.get("error", whole)
    fields = mapping(inner)
    codes = tuple(
        mend(text(fields.get(name)) or text(whole.get(name))) for name in ("code", "type", "status") if fields or whole
    )
    message = text(inner) or text(fields.get("message")) or text(whole.get("message")) or text(whole.get("detail"))
    number = status or next((n for name in ("status", "code") if _is_status(n := count(fields.get(name)))), None)
    return _Said(status=number, codes=tuple(code for code in codes if code), message=mend(message))


def _is_status(number: int | None) -> bool:
    return number is not None and 400 <= number < 600


def _classify(said: _Said, redact: Redactor, *, retry_after_s: float | None, never: bool) -> ProviderError:
    kind = _kind(said)
    status = said.status
    retryable = kind in _RETRYABLE and not never and status != 501
    about = f" (HTTP {status})" if status is not None else ""
    message = redact.line(said.message, ERROR_TEXT_CHARS_MAX - 64) or "the provider gave no reason"
    return ProviderError(
        kind=kind,
        message=f"the provider refused the request{about}: {message}",
        retryable=retryable,
        retry_after_s=retry_after_s if retryable else None,
        http_status=status,
        code=redact.line(said.codes[0], 128) if said.codes else None,
    )


def _kind(said: _Said) -> ErrorKind:
    status = said.status or 0
    words = said.message.lower()
    for found, kind in (
        (status == 402 or any(code in _HARD_QUOTA for code in said.codes), ErrorKind.BILLING),
        (status == 429, ErrorKind.RATE_LIMIT),
        (status in (401, 403), ErrorKind.AUTH),
        (_is_overflow(said, words), ErrorKind.CONTEXT_OVERFLOW),
        (status == 408, ErrorKind.TIMEOUT),
        (_BAD_OUTPUT in words, ErrorKind.REJECTED),
        (status == 409 or status >= 500, ErrorKind.PROVIDER_UNAVAILABLE),
        (status >= 300, ErrorKind.REJECTED),
        (any(code in _SERVER_CODES for code in said.codes), ErrorKind.PROVIDER_UNAVAILABLE),
    ):
        if found:
            return kind
    return next((kind for word, kind in _WORDS if word in words), ErrorKind.UNKNOWN)


def _is_overflow(said: _Said, words: str) -> bool:
    if said.status == 413 or any(code in _OVERFLOW_CODES for code in said.codes):
        return True
    return any(word in words for word in _OVERFLOW_WORDS) and not any(veto in words for veto in _OVERFLOW_VETOES)
