"""What is asked: the body's bytes, the headers, and the way to the server."""

import pytest

from maka.contracts.ids import IdSource
from maka.contracts.model_ports import (
    ChatCall,
    ChatMessage,
    ChatRequest,
    ErrorKind,
    ModelProfile,
    Provider,
    ToolSpec,
)
from maka.contracts.ports import Clock, Timers
from maka.edges.chat_request import encode_request
from maka.edges.clock import SystemClock
from maka.edges.ids import UuidSource
from maka.edges.loopback import is_loopback
from maka.edges.scripted_model import DONE, Call, Fault, Strictness, Turn, by_step, chunk
from maka.edges.timers import ThreadTimers
from tests.edges.support import CALLS, HELLO, Edge, Heard, function, tool_call

READ = ToolSpec(name="Read", description="Read a file", parameters={"type": "object"})
THOUGHT = ChatRequest(
    system="be brief",
    messages=(
        ChatMessage(role="user", text="look"),
        ChatMessage(
            role="assistant", reasoning="hm", calls=(ChatCall(id="k1", name="Read", arguments='{"path":"a"}'),)
        ),
        ChatMessage(role="tool", call_id="k1", text="A"),
    ),
    tools=(READ,),
)


def profile(**fields: object) -> ModelProfile:
    return ModelProfile(name="t", base_url="http://localhost:1/v1", model="m", **fields)  # type: ignore[arg-type]


def test_the_body_word_for_word() -> None:
    assert encode_request(profile(max_output_tokens=9, extra_body={"top_p": 0.5}), THOUGHT) == (
        b'{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"look"},'
        b'{"role":"assistant","content":null,"tool_calls":[{"id":"k1","type":"function",'
        b'"function":{"name":"Read","arguments":"{\\"path\\":\\"a\\"}"}}]},'
        b'{"role":"tool","tool_call_id":"k1","content":"A"}],"stream":true,"stream_options":{"include_usage":true},'
        b'"tools":[{"type":"function","function":{"name":"Read","description":"Read a file",'
        b'"parameters":{"type":"object"}}}],"max_tokens":9,"top_p":0.5}'
    )


def test_no_empty_keys() -> None:
    body = encode_request(profile(), HELLO)
    assert body == (
        b'{"model":"m","messages":[{"role":"user","content":"hello"}],'
        b'"stream":true,"stream_options":{"include_usage":true}}'
    )


def test_extra_body_may_replace_and_remove_but_not_the_streaming() -> None:
    extra: dict[str, object] = {
        "stream": False,
        "messages": [],
        "tools": [],
        "stream_options": None,
        "max_completion_tokens": 5,
    }
    body = encode_request(profile(max_output_tokens=9, extra_body=extra), HELLO)
    assert body == (
        b'{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true,"max_completion_tokens":5}'
    )


def test_h14_reasoning_goes_back_with_tool_calls_where_the_profile_says_so(edge: Edge) -> None:
    first = (chunk({"reasoning_content": "look"}), tool_call(index=0, id="k1", function=function("Read", "{}")), *CALLS)
    heard = edge.hear(*first)
    assert heard.said("thinking") == "look"
    server = edge.serve(by_step([Turn(text="fine")]), strict=Strictness(reasoning_field="reasoning_content"))
    refused = edge.start(edge.provider(server), request=THOUGHT).error
    assert (refused.kind, refused.http_status) == (ErrorKind.REJECTED, 400)
    assert "must be passed back" in refused.message
    assert edge.start(edge.provider(server, send_reasoning_back=True), request=THOUGHT).result.finish_reason == "stop"


def test_h14_off_by_default_for_servers_that_refuse_unknown_keys(edge: Edge) -> None:
    server = edge.serve(by_step([Turn(text="fine")]), strict=Strictness())
    assert edge.start(edge.provider(server), request=THOUGHT).result.finish_reason == "stop"
    refused = edge.start(edge.provider(server, send_reasoning_back=True), request=THOUGHT).error
    assert "unknown key 'reasoning_content'" in refused.message


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "my_thoughts"])
def test_thinking_is_found_where_the_provider_puts_it(edge: Edge, field: str) -> None:
    heard = edge.hear(chunk({field: "hm"}), chunk({"content": "a"}, "stop"), DONE, profile={"reasoning_field": field})
    assert (heard.said("thinking"), heard.text) == ("hm", "a")


def test_content_in_parts(edge: Edge) -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    parts = [thinking, {"type": "thinking", "thinking": "!"}, {"type": "text", "text": "a"}, "odd"]
    heard = edge.hear(chunk({"content": parts}), chunk({"refusal": "no"}, "stop"), DONE)
    assert (heard.said("thinking"), heard.text) == ("hm!", "ano")


def test_the_bytes_arrive_unchanged(edge: Edge) -> None:
    server = edge.serve(by_step([Turn(text="a")]))
    provider = edge.provider(server)
    body = b'{"stream" : true,\n "model":"m", "messages":[{"role":"user","content":"\xc3\xa9"}], "n":1.0}'
    heard = Heard()
    heard.attach(provider.start(body, heard))
    assert heard.result.finish_reason == "stop"
    assert server.requests[0].http.body == body


def test_the_wire_says_what_the_profile_says(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the client's library reads from the environment goes to a server of the person's choice."""
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer other\nX-Secret: environment")
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    server = edge.serve(by_step([Turn(text="a")]))
    edge.start(edge.provider(server, key="my-key", headers={"X-Title": "maka"})).wait()
    headers = dict(server.requests[0].http.headers)
    assert headers.pop("authorization") == "Bearer my-key"
    assert headers.pop("x-title") == "maka"
    assert "environment" not in str(headers)
    assert set(headers) == {
        "host",
        "connection",
        "user-agent",
        "accept",
        "accept-encoding",
        "content-type",
        "content-length",
    }


def test_the_room_fits_its_ports(edge: Edge) -> None:
    """What is checked here is checked by the type checkers."""
    provider: Provider = edge.provider("http://127.0.0.1:1/v1")
    clock: Clock = SystemClock()
    timers: Timers = ThreadTimers()
    source: IdSource = UuidSource()
    assert (provider.kind, provider.profile.name) == ("openai_chat", "t")
    assert clock.now_ms()
    assert source() != source()
    timers.after(0, lambda: None).cancel()


def test_a_server_without_a_key_gets_a_word_for_one(edge: Edge) -> None:
    server = edge.serve(by_step([Turn(text="a")]))
    edge.start(edge.provider(server, key="")).wait()
    assert server.requests[0].http.headers["authorization"] == "Bearer none"


def test_loopback_is_never_reached_through_a_proxy(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    server = edge.serve(by_step([Turn(text="a")]))
    assert edge.start(edge.provider(server)).result.finish_reason == "stop"


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:11434/v1", True),
        ("http://127.0.0.1/v1", True),
        ("http://127.9.9.9:1", True),
        ("http://[::1]:8080/v1", True),
        ("http://llm.localhost/v1", True),
        ("https://api.openai.com/v1", False),
        ("http://10.0.0.1/v1", False),
        ("http://localhost.example/v1", False),
        ("http://[broken", False),
        ("", False),
    ],
)
def test_what_is_this_machine(url: str, local: bool) -> None:
    assert is_loopback(url) is local


@pytest.mark.parametrize(
    ("url", "kind", "retryable"),
    [
        ("http://127.0.0.1:1/v1", ErrorKind.NETWORK, True),
        ("ftp://127.0.0.1/v1", ErrorKind.REJECTED, False),
        ("127.0.0.1:8080/v1", ErrorKind.REJECTED, False),
        ("", ErrorKind.REJECTED, False),
    ],
)
def test_a_server_that_cannot_be_asked(edge: Edge, url: str, kind: ErrorKind, retryable: bool) -> None:
    heard = edge.start(edge.provider(url))
    assert (heard.error.kind, heard.error.retryable, heard.observed) == (kind, retryable, False)
    assert "can't" in heard.error.message


def test_a_connection_serves_the_next_request(edge: Edge) -> None:
    server = edge.serve(by_step([Turn(text="a", calls=(Call(name="Read", args={}),))]))
    provider = edge.provider(server)
    for _ in range(3):
        assert edge.start(provider).result.finish_reason == "tool_calls"
        edge.settle()
    assert server.connection_count == 1


def test_a_refusal_of_the_model(edge: Edge) -> None:
    server = edge.serve(lambda _: Fault(status=404, error={"message": "The model `m` does not exist", "code": "x"}))
    error = edge.start(edge.provider(server)).error
    assert (error.kind, error.http_status, error.code, error.retryable) == (ErrorKind.REJECTED, 404, "x", False)
    assert "The model `m` does not exist" in error.message
