"""Kind B: how a stream ends, and what counts as its verdict."""

import pytest

from maka.contracts.model_ports import ErrorKind, ProviderError, UsageReport
from maka.edges.scripted_model import DONE, End, Gate, Raw, Repeat, Turn, by_step, chunk, frame
from tests.edges.support import STOP, Edge, Heard, finish, function, tool_call

USAGE = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}


def incomplete(heard: Heard) -> bool:
    return (heard.error.kind, heard.error.retryable, heard.observed) == (ErrorKind.INCOMPLETE_ANSWER, False, True)


def test_h07_error_object_inside_a_200_stream(edge: Edge) -> None:
    error = frame({"error": {"message": "upstream full", "code": 502}})
    heard = edge.hear(chunk({"content": "par"}), error, *STOP)
    assert heard.text == "par"
    assert heard.error == ProviderError(
        kind=ErrorKind.PROVIDER_UNAVAILABLE,
        message="the provider refused the request (HTTP 502): upstream full",
        http_status=502,
    )
    assert heard.observed is True


def test_h07_an_error_before_anything_may_be_asked_again(edge: Edge) -> None:
    heard = edge.hear(chunk({"role": "assistant"}), frame({"error": {"message": "busy", "code": 503}}), DONE)
    assert (heard.error.retryable, heard.observed) == (True, False)


def test_h07_an_error_beside_choices_and_as_an_event(edge: Edge) -> None:
    both = frame({"error": "no more", "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]})
    assert "no more" in edge.hear(chunk({"content": "a"}), both, DONE).error.message
    named = b'event: error\ndata: {"message":"gone"}\n\n'
    assert "gone" in edge.hear(named, DONE).error.message
    assert edge.hear(chunk({"content": "a"}), finish("error"), DONE).error.kind is ErrorKind.PROVIDER_UNAVAILABLE


@pytest.mark.parametrize("chopped", [False, True])
def test_h08_200_with_something_that_is_not_sse(edge: Edge, chopped: bool) -> None:
    page = b"<html>sign in</html>"
    steps = tuple(page[place : place + 1] for place in range(len(page))) if chopped else (page,)
    heard = edge.hear(*steps, headers={"Content-Type": "text/html"})
    assert (heard.error.kind, heard.error.retryable, heard.observed) == (ErrorKind.REJECTED, False, False)
    assert "no events in the answer" in heard.error.message
    assert "text/html" in heard.error.message
    assert "<html>sign in</html>" in heard.error.message


def test_h08_an_error_as_plain_json_keeps_its_words(edge: Edge) -> None:
    body = b'{"error":{"message":"model not loaded","code":503}}'
    heard = edge.hear(body, headers={"Content-Type": "application/json"})
    assert "model not loaded" in heard.error.message
    assert heard.error.http_status == 503


def test_h08_an_endless_page_is_given_up(edge: Edge) -> None:
    heard = edge.hear(Repeat(b"<p>more</p>" * 1_000, 0.0), headers={"Content-Type": "text/html"})
    assert heard.error.kind is ErrorKind.REJECTED


def test_h08_an_empty_event_stream_may_be_asked_again(edge: Edge) -> None:
    heard = edge.hear()
    assert (heard.error.kind, heard.error.retryable) == (ErrorKind.PROVIDER_UNAVAILABLE, True)


def test_h09_clean_end_without_finish_reason(edge: Edge) -> None:
    heard = edge.hear(chunk({"content": "The answer is"}))
    assert heard.text == "The answer is"
    assert incomplete(heard)


def test_h09_done_without_finish_reason(edge: Edge) -> None:
    assert incomplete(edge.hear(chunk({"content": "a"}), DONE))
    assert incomplete(edge.hear(tool_call(index=0, id="k", function=function("Read", "{}")), DONE))
    assert edge.hear(chunk({"role": "assistant", "content": ""}), DONE).error.retryable


@pytest.mark.parametrize("end", [End.CUT, End.RESET])
def test_a_broken_connection_keeps_what_came(edge: Edge, end: End) -> None:
    heard = Heard()
    gate = Gate()
    heard.on_batch = gate.open  # a reset may destroy bytes under way, so they are waited for
    server = edge.serve(lambda _: Raw(steps=(chunk({"content": "par"}), gate), end=end))
    edge.start(edge.provider(server), heard).wait()
    assert heard.text == "par"
    assert (heard.error.kind, heard.error.retryable, heard.observed) == (ErrorKind.NETWORK, False, True)


@pytest.mark.parametrize("end", [End.CUT, End.RESET])
def test_a_broken_connection_before_anything_may_be_asked_again(edge: Edge, end: End) -> None:
    heard = edge.hear(end=end)
    assert (heard.error.kind, heard.error.retryable, heard.observed) == (ErrorKind.NETWORK, True, False)


def test_a_cut_after_the_finish_changes_nothing(edge: Edge) -> None:
    assert edge.hear(chunk({"content": "a"}), finish("stop"), end=End.CUT).result.finish_reason == "stop"


def test_a_server_that_keeps_the_line_open_after_the_finish(edge: Edge) -> None:
    heard = edge.hear(chunk({"content": "a"}), finish("stop"), end=End.HANG, profile={"idle_s": 0.05})
    assert heard.result.finish_reason == "stop"


def test_h11_last_chunk_carries_usage_and_no_choices(edge: Edge) -> None:
    heard = edge.hear(chunk({"content": "hi"}), finish("stop"), frame({"choices": [], "usage": USAGE}), DONE)
    assert heard.result.usage == UsageReport(input=3, output=1, total=4)
    assert heard.text == "hi"


def test_h12_frames_that_are_no_objects(edge: Edge) -> None:
    odd = (b"data: null\n\n", b"data: 7\n\n", b"data: []\n\n", b'data: {"choices":null}\n\n', b"data: {}\n\n")
    heard = edge.hear(chunk({"content": "a"}), *odd, chunk({"content": "b"}), *STOP)
    assert heard.result.finish_reason == "stop"
    assert heard.text == "ab"


def test_a_frame_that_is_not_json(edge: Edge) -> None:
    heard = edge.hear(chunk({"content": "a"}), b"data: {broken\n\n", *STOP)
    assert heard.error.kind is ErrorKind.PROVIDER_UNAVAILABLE
    assert "not JSON" in heard.error.message
    assert heard.text == "a"


def test_h13_keep_alive_comments_hide_a_dead_stream(edge: Edge) -> None:
    server = edge.serve(lambda _: Raw(steps=(chunk({"content": "a"}), Repeat(b": ping\n\n", 0.01))))
    heard = edge.start(edge.provider(server, idle_s=0.2)).wait()
    assert (heard.error.kind, heard.error.retryable, heard.observed) == (ErrorKind.TIMEOUT, False, True)
    assert "stalled: no data for 0.2 s" in heard.error.message
    assert server.requests[0].http.gone.wait(30)


def test_h13_stop_works_meanwhile(edge: Edge) -> None:
    server = edge.serve(lambda _: Raw(steps=(chunk({"content": "a"}), Repeat(b": ping\n\n", 0.01))))
    heard = edge.start(edge.provider(server))
    assert heard.first_batch.wait(30)
    heard.cancel()
    assert heard.error.kind is ErrorKind.CANCELLED
    assert server.requests[0].http.gone.wait(30)


@pytest.mark.parametrize("head", [True, False])
def test_no_first_event_in_time(edge: Edge, head: bool) -> None:
    gate = Gate()
    steps = (Repeat(b": ping\n\n", 0.01),) if head else ()
    server = edge.serve(lambda _: Raw(steps=steps, head_gate=None if head else gate))
    heard = edge.start(edge.provider(server, first_event_s=0.2)).wait()
    assert (heard.error.kind, heard.error.retryable, heard.observed) == (ErrorKind.TIMEOUT, True, False)
    assert "no event within 0.2 s" in heard.error.message
    assert server.requests[0].http.gone.wait(30)


def test_watchdogs_of_zero_are_off(edge: Edge) -> None:
    gate = Gate()
    server = edge.serve(by_step([Turn(text="a", gate=gate)]))
    heard = edge.start(edge.provider(server, first_event_s=0, idle_s=0))
    assert gate.reached.wait(30)
    assert not heard.over.is_set()
    gate.open()
    assert heard.result.finish_reason == "stop"


def test_h79_last_frame_without_its_blank_line(edge: Edge) -> None:
    heard = edge.hear(chunk({"content": "a"}), finish("stop")[:-1])
    assert heard.text == "a"
    assert incomplete(heard)


def test_h79_stream_starts_with_a_byte_order_mark(edge: Edge) -> None:
    heard = edge.hear(b"\xef\xbb\xbf" + chunk({"content": "a"}), *STOP)
    assert heard.result.finish_reason == "stop"
    assert heard.text == "a"


def test_a_content_filter_is_no_short_answer(edge: Edge) -> None:
    heard = edge.hear(chunk({"content": "a"}), finish("content_filter"), DONE)
    assert (heard.error.kind, heard.error.code) == (ErrorKind.REJECTED, "content_filter")
