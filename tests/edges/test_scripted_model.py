"""The scripted server itself, and the demo's script on the real sample project."""

import copy
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maka.contracts.codec import canonical_json
from maka.contracts.model_ports import ChatCall, ChatMessage, ChatRequest, ErrorKind
from maka.edges import demo_script as demo
from maka.edges.openai_chat import OpenAIChat
from maka.edges.scripted_model import Call, Strictness, Turn, by_step, in_order
from maka.edges.scripted_rules import complaint
from tests.cli.real import BARE_PYTEST
from tests.edges.support import HELLO, Edge

SAMPLE = Path(demo.__file__).resolve().parents[1] / "sample"
GOOD: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "k1", "type": "function", "function": {"name": "Read", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "k1", "content": ""},
    ],
}


def good_call(body: dict[str, Any]) -> dict[str, Any]:
    call: dict[str, Any] = body["messages"][2]["tool_calls"][0]
    return call


def broken(change: "Change") -> dict[str, Any]:
    body = copy.deepcopy(GOOD)
    change(body)
    return body


def test_a_strict_provider_takes_a_good_body() -> None:
    assert complaint(GOOD, Strictness()) is None


Change = Callable[[dict[str, Any]], object]
REFUSED: list[tuple[Change, str]] = [
    (lambda body: body.update(speed=1), "unrecognized request argument: speed"),
    (lambda body: body.update(model=""), "must provide a model"),
    (lambda body: body.update(messages=[]), "too short - 'messages'"),
    (lambda body: body.update(tools=[]), "too short - 'tools'"),
    (lambda body: body.update(tools=[{"function": {"name": "a b"}}]), "invalid tool name"),
    (lambda body: body.update(tools=[{"function": {"name": "a"}}] * 2), "must be unique"),
    (lambda body: body["messages"].append({"role": "boss", "content": "x"}), "unknown role"),
    (lambda body: body["messages"].append({"role": "system", "content": "x"}), "must be the first"),
    (lambda body: body["messages"].append({"role": "user", "content": ""}), "must not be empty"),
    (lambda body: body["messages"].append({"role": "user"}), "must not be empty"),
    (lambda body: body["messages"].append({"role": "assistant", "content": ""}), "must not be empty"),
    (lambda body: body["messages"].append({"role": "assistant", "content": None}), "must not be empty"),
    (lambda body: body["messages"].append({"role": "assistant", "content": "x"}), "last message"),
    (lambda body: body["messages"].append({"role": "assistant", "content": "x", "tool_calls": []}), "too short"),
    (lambda body: body["messages"][2].update(content=""), "must not be empty"),
    (lambda body: body["messages"][2].update(reasoning="x"), "unknown key 'reasoning'"),
    (lambda body: body["messages"][2]["tool_calls"].append(good_call(body)), "ids must be unique"),
    (lambda body: good_call(body).update(index=0), "exactly id, type and function"),
    (lambda body: good_call(body).update(id="functions.Read:0"), "invalid tool call id"),
    (lambda body: good_call(body)["function"].update(name=""), "invalid function name"),
    (lambda body: good_call(body)["function"].update(arguments="{"), "must be JSON"),
    (lambda body: good_call(body)["function"].update(arguments="[]"), "must be a JSON object"),
    (lambda body: body["messages"][3].update(content=None), "must be a string"),
    (lambda body: body["messages"][3].update(tool_call_id="k2"), "without its call"),
    (lambda body: body["messages"].append(body["messages"][3]), "without its call"),
    (lambda body: body["messages"].pop(), "without a result"),
    (lambda body: body["messages"].insert(3, {"role": "user", "content": "x"}), "without a result"),
]


@pytest.mark.parametrize(("change", "why"), REFUSED)
def test_what_a_strict_provider_refuses(change: Change, why: str) -> None:
    assert why in (complaint(broken(change), Strictness()) or "")


def test_the_server_refuses_in_strict_mode(edge: Edge) -> None:
    server = edge.serve(by_step([Turn(text="a")]), strict=Strictness())
    provider = edge.provider(server)
    assert edge.start(provider).result.finish_reason == "stop"
    lone = ChatRequest(system="", messages=(*HELLO.messages, ChatMessage(role="tool", call_id="k", text="x")))
    error = edge.start(provider, request=lone).error
    assert (error.kind, error.http_status, error.code) == (ErrorKind.REJECTED, 400, "invalid_request_error")


def test_turns_are_chosen_by_what_a_session_has_said(edge: Edge) -> None:
    server = edge.serve(by_step([Turn(calls=(Call(name="Read", args={"path": "a"}),)), Turn(text="done")]))
    provider = edge.provider(server)
    (call,) = edge.start(provider).result.calls
    assert call.provider_id is not None
    later = ChatRequest(
        system="",
        messages=(
            *HELLO.messages,
            ChatMessage(role="assistant", calls=(ChatCall(id=call.provider_id, name=call.name, arguments=call.raw),)),
            ChatMessage(role="tool", call_id=call.provider_id, text="A"),
        ),
    )
    heard = edge.start(provider, request=later).wait()
    assert (heard.text, heard.result.finish_reason) == ("done", "stop")
    assert edge.start(provider).result.finish_reason == "tool_calls"
    assert server.requests[1].tool_results() == ["A"]


def test_in_order_and_the_memory_of_requests(edge: Edge) -> None:
    server = edge.serve(in_order([Turn(text="one"), Turn(text="two")]), keep=2)
    provider = edge.provider(server)
    heard = [edge.start(provider).wait().text for _ in range(3)]
    assert heard == ["one", "two", "two"]
    assert server.request_count == 3
    assert [request.number for request in server.requests] == [2, 3]
    assert server.wait_until(lambda: True)


def test_a_script_with_a_bug_is_shown(edge: Edge) -> None:
    def script(request: object) -> Turn:
        raise KeyError("oops")

    assert "script failed: KeyError: 'oops'" in edge.start(edge.provider(edge.serve(script))).error.message


def test_closing_ends_streams_under_way() -> None:
    edge = Edge()
    server = edge.serve(by_step([Turn(text="a", pace_s=0.01, chunk_chars=1, gate=None), Turn(text="b")]))
    provider = edge.provider(server)
    heard = edge.start(provider)
    assert heard.first_batch.wait(30)
    server.close()
    server.close()
    assert heard.wait().verdicts
    assert edge.start(provider).error.kind is ErrorKind.NETWORK
    edge.close()


class Hands:
    """Does what the demo's script asks for on a copy of the sample, as plainly as possible."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def do(self, name: str, args: dict[str, Any]) -> str:
        path = self.root / str(args.get("path", ""))
        match name:
            case "Bash":
                assert args == {"command": demo.TESTS}
                env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
                env |= BARE_PYTEST
                command = [sys.executable, *demo.TESTS.split()[1:], "-p", "no:cacheprovider"]
                done = subprocess.run(command, cwd=self.root, env=env, capture_output=True, text=True, check=False)
                return done.stdout + done.stderr
            case "Grep":
                lines = [
                    f"{found.relative_to(self.root)}:{number}:{line}"
                    for found in sorted(path.rglob("*.py"))
                    for number, line in enumerate(found.read_text().splitlines(), 1)
                    if args["pattern"] in line
                ]
                return "\n".join(lines)
            case "Read":
                return path.read_text()
            case "Edit":
                before = path.read_text()
                assert before.count(args["old_string"]) == 1
                path.write_text(before.replace(args["old_string"], args["new_string"]))
                return "Edited"
            case _:
                raise AssertionError(name)


def play(
    edge: Edge, provider: OpenAIChat, do: Callable[[str, dict[str, Any]], str], task: str
) -> tuple[str, list[str]]:
    """Run a model/tool loop as plainly as possible; returns the last text and the names of the tools."""
    messages = [ChatMessage(role="user", text=task)]
    used: list[str] = []
    while True:
        heard = edge.start(provider, request=ChatRequest(system="s", messages=tuple(messages)))
        calls = heard.result.calls
        if not calls:
            return heard.text, used
        asked = tuple(
            ChatCall(id=call.provider_id or "", name=call.name, arguments=canonical_json(call.args).decode())
            for call in calls
        )
        messages.append(ChatMessage(role="assistant", text=heard.text or None, calls=asked))
        for call in calls:
            used.append(call.name)
            messages.append(ChatMessage(role="tool", call_id=call.provider_id, text=do(call.name, call.args or {})))


@pytest.fixture
def scripted(edge: Edge) -> OpenAIChat:
    return edge.provider(edge.serve(demo.demo_script(pace_s=0), strict=Strictness()))


def test_the_demo_mends_the_sample(edge: Edge, scripted: OpenAIChat, tmp_path: Path) -> None:
    shutil.copytree(SAMPLE, tmp_path / "w", ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    hands = Hands(tmp_path / "w")
    said, used = play(edge, scripted, hands.do, demo.TASK)
    assert used == ["Bash", "Grep", "Read", "Edit", "Bash"]
    assert said.startswith("Fixed: all 16 tests pass.")
    said, used = play(edge, scripted, hands.do, demo.TASK)
    assert (said, used) == ("All 16 tests pass: there is nothing to fix.", ["Bash"])


RED = "FAILED tests/test_a.py::test_b - x\n2 failed, 14 passed in 0.1s"


@pytest.mark.parametrize(
    ("results", "said"),
    [
        (["No module named pytest"], "couldn't run the tests. What came back: No module named pytest"),
        ([""], "couldn't run the tests. What came back: (nothing)"),
        (["3 passed, 1 error in 0.1s", ""], "no such place"),
        ([RED, "nothing found"], "no such place: nothing found"),
        ([RED, "bookings/interval.py:1:x", "other text"], "so I change nothing"),
        ([RED, "interval.py", demo.BUG, "not unique", RED], "2 tests still fail after my change"),
        ([RED, "interval.py", demo.BUG, "ok", "killed"], "couldn't run the tests again. What came back: killed"),
        ([RED, "interval.py", demo.BUG, "ok", "16 passed, 1 error in 1s"], "1 tests still fail"),
    ],
)
def test_the_demo_claims_only_what_came_back(edge: Edge, scripted: OpenAIChat, results: list[str], said: str) -> None:
    left = iter(results)
    text, _ = play(edge, scripted, lambda name, args: next(left), demo.TASK)
    assert said in text
    assert "Fixed" not in text


def test_the_demo_says_that_it_knows_one_task(edge: Edge, scripted: OpenAIChat) -> None:
    said, used = play(edge, scripted, lambda name, args: "", "write a poem")
    assert "scripted model" in said
    assert used == []
