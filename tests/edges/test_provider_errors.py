"""Kind D: what a refusal means, how long to wait, and that no key is in the words."""

from typing import Any

import msgspec
import pytest

from maka.contracts.limits import ERROR_BODY_BYTES_MAX, ERROR_TEXT_CHARS_MAX
from maka.contracts.model_ports import ErrorKind, ProviderError
from maka.edges.provider_errors import HttpStatusError, of_event, of_response, retry_after_s
from maka.edges.redact import Redactor
from maka.edges.scripted_model import DONE, Fault, Raw, Repeat, Turn, by_step, chunk, frame
from tests.edges.support import Edge

NOW_MS = 1_700_000_000_000  # Tue, 14 Nov 2023 22:13:20 GMT
LLAMA_OVERFLOW = "request (9030 tokens) exceeds the available context size (8192 tokens), try increasing it"
OPENAI_OVERFLOW = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"
LLAMA_FORMAT = "The model produced output that does not match the expected peg-native format"


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": " 7 "}, 7.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "abc"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "3600"}, 120.0),
        ({"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"}, 120.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 -0000"}, 30.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, None),
        ({"retry-after": "Wed, 99 Foo 2099 07:28:00 GMT"}, None),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({}, None),
    ],
)
def test_h19_forms_of_retry_after(headers: dict[str, str], wait_s: float | None) -> None:
    assert retry_after_s(headers, NOW_MS) == wait_s


@pytest.mark.parametrize(("value", "wait_s"), [("2", 2.0), ("-5", None), ("abc", None), ("3600", 120.0)])
def test_h19_over_the_wire(edge: Edge, value: str, wait_s: float | None) -> None:
    server = edge.serve(lambda _: Fault(status=429, error={"message": "slow"}, headers={"Retry-After": value}))
    error = edge.start(edge.provider(server)).error
    assert (error.kind, error.retryable, error.retry_after_s) == (ErrorKind.RATE_LIMIT, True, wait_s)
    assert server.request_count == 1, "retries are the caller's"


@pytest.mark.parametrize(
    ("status", "error", "kind", "retryable"),
    [
        (401, {"message": "bad key"}, ErrorKind.AUTH, False),
        (403, {"message": "no"}, ErrorKind.AUTH, False),
        (402, {"message": "pay"}, ErrorKind.BILLING, False),
        (429, {"message": "daily", "code": "insufficient_quota"}, ErrorKind.BILLING, False),
        (429, {"message": "x", "type": "insufficient_quota"}, ErrorKind.BILLING, False),
        (429, {"message": OPENAI_OVERFLOW}, ErrorKind.RATE_LIMIT, True),
        (400, {"message": LLAMA_OVERFLOW, "type": "exceed_context_size_error"}, ErrorKind.CONTEXT_OVERFLOW, False),
        (400, {"message": LLAMA_OVERFLOW}, ErrorKind.CONTEXT_OVERFLOW, False),
        (400, {"message": OPENAI_OVERFLOW}, ErrorKind.CONTEXT_OVERFLOW, False),
        (400, {"message": "too long", "code": "context_length_exceeded"}, ErrorKind.CONTEXT_OVERFLOW, False),
        (500, {"message": "x", "code": "context_length_exceeded"}, ErrorKind.CONTEXT_OVERFLOW, False),
        (413, {"message": "body"}, ErrorKind.CONTEXT_OVERFLOW, False),
        (400, {"message": f"max_tokens is too large: {OPENAI_OVERFLOW}"}, ErrorKind.REJECTED, False),
        (400, {"message": "too many tokens per minute"}, ErrorKind.REJECTED, False),
        (400, {"message": "bad field"}, ErrorKind.REJECTED, False),
        (404, "model 'm' not found", ErrorKind.REJECTED, False),
        (422, {"detail": "odd"}, ErrorKind.REJECTED, False),
        (408, {"message": "slow"}, ErrorKind.TIMEOUT, True),
        (409, {"message": "busy"}, ErrorKind.PROVIDER_UNAVAILABLE, True),
        (500, {"message": "oops"}, ErrorKind.PROVIDER_UNAVAILABLE, True),
        (500, {"message": LLAMA_FORMAT}, ErrorKind.REJECTED, False),
        (501, {"message": "never"}, ErrorKind.PROVIDER_UNAVAILABLE, False),
        (503, None, ErrorKind.PROVIDER_UNAVAILABLE, True),
        (529, {"type": "overloaded_error"}, ErrorKind.PROVIDER_UNAVAILABLE, True),
    ],
)
def test_classes_of_refusals(status: int, error: Any, kind: ErrorKind, retryable: bool) -> None:
    body = msgspec.json.encode({"error": error})
    made = of_response(HttpStatusError(status, {}, body), Redactor(), NOW_MS)
    assert (made.kind, made.retryable, made.http_status) == (kind, retryable, status)


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"message": "upstream full", "code": 502}, ErrorKind.PROVIDER_UNAVAILABLE, True),
        ({"message": "x", "code": "429"}, ErrorKind.RATE_LIMIT, True),
        ({"message": "x", "type": "server_error"}, ErrorKind.PROVIDER_UNAVAILABLE, True),
        ({"message": LLAMA_OVERFLOW}, ErrorKind.CONTEXT_OVERFLOW, False),
        ("Overloaded", ErrorKind.PROVIDER_UNAVAILABLE, True),
        ("Rate limit reached", ErrorKind.RATE_LIMIT, True),
        ("request timed out", ErrorKind.TIMEOUT, True),
        ("invalid API key", ErrorKind.AUTH, False),
        ({"message": "error 500 in line 429"}, ErrorKind.UNKNOWN, False),
        (["odd"], ErrorKind.UNKNOWN, False),
        (True, ErrorKind.UNKNOWN, False),
    ],
)
def test_classes_of_errors_within_a_stream(error: object, kind: ErrorKind, retryable: bool) -> None:
    made = of_event(error, Redactor())
    assert (made.kind, made.retryable) == (kind, retryable)


def test_h81_hard_quota_against_short_overload(edge: Edge) -> None:
    quota = {"code": "insufficient_quota", "message": "daily"}
    server = edge.serve(lambda _: Fault(status=429, error=quota))
    assert edge.start(edge.provider(server)).error == ProviderError(
        kind=ErrorKind.BILLING,
        message="the provider refused the request (HTTP 429): daily",
        http_status=429,
        code="insufficient_quota",
    )
    server = edge.serve(lambda _: Fault(status=503, error={"message": "overloaded"}))
    assert edge.start(edge.provider(server)).error.retryable


def test_a_provider_that_says_not_to_retry(edge: Edge) -> None:
    headers = {"x-should-retry": "false", "Retry-After": "3"}
    server = edge.serve(lambda _: Fault(status=503, error="no", headers=headers))
    error = edge.start(edge.provider(server)).error
    assert (error.retryable, error.retry_after_s) == (False, None)


KEY = "sk-proj-abcDEF123456"
HEADER = "tenant-9f8e7d6c5b"


def test_h74_key_echoed_in_a_refusal(edge: Edge) -> None:
    def echo(request: Any) -> Fault:
        said = " ".join(f"{name}: {value}" for name, value in request.http.headers.items())
        return Fault(status=401, error={"message": f"wrong: {said}\nkey={KEY}", "code": KEY})

    error = edge.start(edge.provider(edge.serve(echo), key=KEY, headers={"X-Tenant": HEADER})).error
    assert error.kind is ErrorKind.AUTH
    assert "authorization: Bearer ***" in error.message
    assert KEY not in str(error)
    assert HEADER not in str(error)
    assert "\n" not in error.message


@pytest.mark.parametrize("cut", range(1, len(KEY), 3))
def test_h74_key_over_a_border_of_chunks(edge: Edge, cut: int) -> None:
    body = b'{"error":{"message":"Bearer ' + KEY.encode() + b'"}}'
    place = body.index(KEY.encode()) + cut
    for status, kind in ((401, "application/json"), (200, "text/html"), (200, "text/event-stream")):
        framed = b"data: " + body + b"\n\n" if kind == "text/event-stream" else body
        steps = (framed[:place], framed[place:])
        server = edge.serve(
            lambda _, steps=steps, status=status, kind=kind: Raw(  # type: ignore[misc]
                steps=steps, status=status, headers={"Content-Type": kind}
            )
        )
        error = edge.start(edge.provider(server, key=KEY)).error
        assert "***" in error.message
        assert KEY[:8] not in error.message


def test_h74_key_at_the_place_where_a_text_is_cut() -> None:
    for size in range(ERROR_TEXT_CHARS_MAX - 120, ERROR_TEXT_CHARS_MAX + 10):
        body = ("x" * size + " " + KEY).encode()
        made = of_response(HttpStatusError(400, {}, body), Redactor([KEY]), NOW_MS)
        assert "sk-" not in made.message
        assert len(made.message) <= ERROR_TEXT_CHARS_MAX


def test_h74_the_key_is_masked_in_a_connection_error(edge: Edge) -> None:
    error = edge.start(edge.provider(f"http://user:{KEY}@127.0.0.1:1/{KEY}", key=KEY)).error
    assert error.kind is ErrorKind.NETWORK
    assert KEY not in error.message


def test_masks_leave_ordinary_words_alone() -> None:
    mask = Redactor(["none", "", "longer-secret", "longer"])
    assert mask("none of it is longer than longer-secret") == "none of it is *** than ***"
    assert mask("basic needs, bearer of news, skeleton sk-1") == "basic needs, bearer of news, skeleton sk-1"


def test_an_error_body_of_any_size_is_bounded(edge: Edge) -> None:
    server = edge.serve(lambda _: Raw(steps=(Repeat(b"x" * ERROR_BODY_BYTES_MAX, 0.0),), status=500))
    error = edge.start(edge.provider(server)).error
    assert error.kind is ErrorKind.PROVIDER_UNAVAILABLE
    assert len(error.message) <= ERROR_TEXT_CHARS_MAX
    assert server.requests[0].http.gone.wait(30)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_refused_and_says_where_to(edge: Edge, status: int) -> None:
    other = edge.serve(by_step([Turn(text="a")]))
    place = f"{other.base_url}/chat/completions"
    server = edge.serve(lambda _: Raw(steps=(), status=status, headers={"Location": place}))
    error = edge.start(edge.provider(server, key=KEY)).error
    assert (error.kind, error.retryable, error.http_status) == (ErrorKind.REJECTED, False, status)
    assert f"it redirects to {place}" in error.message
    assert other.request_count == 0


def test_an_error_keeps_the_partial_answer_and_is_not_retryable(edge: Edge) -> None:
    heard = edge.hear(chunk({"content": "par"}), frame({"error": {"message": "busy", "code": 503}}), DONE)
    assert (heard.text, heard.error.retryable, heard.observed) == ("par", False, True)
