"""The gate by example: one table for each check, and their order."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from actors.tool_gate import Admit, Failures, GateVerdict, Refuse, bad_rounds, check_step, must_fail, note
from maka.contracts.actions import RecoveryMode
from maka.contracts.content import FunctionCall
from maka.contracts.events import Author, Role, RuntimeEvent
from maka.contracts.ids import EventId, InvocationId, SessionId
from maka.contracts.limits import BAD_TOOL_ROUNDS_MAX, STEP_CALLS_MAX
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import Tool, ToolCall, ToolEnv, ToolListener

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "limit": {"type": "integer", "minimum": 1, "maximum": 10},
        "note": {"type": "string"},
        "deep": {"type": "boolean"},
        "mode": {"type": "string", "enum": ["fast", "slow"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "at": {
            "type": "object",
            "properties": {"x": {"type": "number"}},
            "required": ["x"],
            "additionalProperties": False,
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}
EMPTY: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


class FakeTool:
    def __init__(self, name: str, schema: Mapping[str, Any], exclusive: bool = False) -> None:
        self.spec = ToolSpec(name=name, description=name, parameters=dict(schema))
        self.recovery_mode: RecoveryMode = "replay_safe"
        self.exclusive = exclusive

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        raise AssertionError("the gate runs nothing")


class Tools:
    def __init__(self, *tools: Tool) -> None:
        self._tools = tools

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools)

    def get(self, name: str) -> Tool | None:
        return next((tool for tool in self._tools if tool.spec.name == name), None)


TOOLS = Tools(FakeTool("Read", SCHEMA), FakeTool("Now", EMPTY), FakeTool("Ask", EMPTY, exclusive=True))


def event(content: FunctionCall) -> RuntimeEvent:
    session = SessionId("s")
    return RuntimeEvent(
        id=EventId("e"),
        session_id=session,
        invocation_id=InvocationId("i"),
        ts=0,
        role=Role.MODEL,
        author=Author.AGENT,
        content=content,
    )


def call(name: str = "Read", **args: Any) -> FunctionCall:
    return FunctionCall(name=name, args=args)


def check(*calls: FunctionCall, failures: Failures | None = None) -> tuple[GateVerdict, ...]:
    return check_step([event(one) for one in calls], TOOLS, failures or Failures())


def refusal(*calls: FunctionCall, failures: Failures | None = None) -> str:
    """The text of the last call's refusal."""
    verdict = check(*calls, failures=failures)[-1]
    assert isinstance(verdict, Refuse), verdict
    assert verdict.text.startswith("not run: ")
    return verdict.text


def test_a_good_call_is_admitted_as_it_is() -> None:
    assert check(call(path="a", limit=3), call("Now")) == (
        Admit(name="Read", args={"path": "a", "limit": 3}),
        Admit(name="Now", args={}),
    )


@pytest.mark.parametrize("name", ["read", "READ", " Read "])
def test_h16_a_name_that_differs_in_case_is_repaired(name: str) -> None:
    assert check(call(name, path="a")) == (Admit(name="Read", args={"path": "a"}),)


@pytest.mark.parametrize("name", ["SearchWeb", "", "Reads", "functions.Read"])
def test_h16_an_unknown_name_is_answered_with_the_real_ones(name: str) -> None:
    assert refusal(call(name, path="a")).endswith("Available tools: Read, Now, Ask")


@pytest.mark.parametrize("text", ["[]", "null", "7", '"x"', "{oops"])
def test_h17_arguments_that_are_no_object_are_refused(text: str) -> None:
    said = refusal(FunctionCall(name="Read", args={}, malformed=text))
    assert said == (
        "not run: arguments must be a JSON object. Read takes: path, limit (optional), note (optional), "
        "deep (optional), mode (optional), tags (optional), at (optional)"
    )


def test_h10_arguments_cut_by_the_output_limit_are_never_run() -> None:
    cut = FunctionCall(name="Read", args={}, malformed='{"path": "a', cut=True)
    assert "cut off by the output limit" in refusal(cut)
    # Also where what came happens to be whole.
    assert "cut off by the output limit" in refusal(FunctionCall(name="Read", args={"path": "a"}, cut=True))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({}, "the field path is missing"),
        ({"path": None}, "the field path must be a string"),
        ({"path": ""}, "the field path must be at least 1 characters"),
        ({"path": 7}, "the field path must be a string"),
        ({"path": "a", "limit": 0}, "the field limit must be at least 1"),
        ({"path": "a", "limit": 11}, "the field limit must be at most 10"),
        ({"path": "a", "limit": "3"}, "the field limit must be an integer"),
        ({"path": "a", "limit": True}, "the field limit must be an integer"),
        ({"path": "a", "limit": 1.5}, "the field limit must be an integer"),
        ({"path": "a", "deep": "yes"}, "the field deep must be true or false"),
        ({"path": "a", "mode": "odd"}, "the field mode must be one of ['fast', 'slow']"),
        ({"path": "a", "tags": "x"}, "the field tags must be an array"),
        ({"path": "a", "tags": ["x", "y", "z"]}, "the field tags must be at most 2 items"),
        ({"path": "a", "tags": ["x", 1]}, "the field tags[1] must be a string"),
        ({"path": "a", "at": {}}, "the field at.x is missing"),
        ({"path": "a", "at": {"x": "1"}}, "the field at.x must be a number"),
        ({"path": "a", "secret-123": 1}, "1 unknown field was given"),
        (
            {"path": "a", "at": {"secret-123": 1}},
            "1 unknown field was given in at, which takes: x",
        ),
    ],
)
def test_arguments_that_dont_fit_are_refused_without_their_values(args: dict[str, Any], says: str) -> None:
    said = refusal(FunctionCall(name="Read", args=args))
    assert said.startswith(f"not run: {says}. Read takes: path, limit (optional)")
    assert "secret-123" not in said


def test_a_tool_without_arguments_says_so() -> None:
    assert refusal(call("Now", when=1)).endswith("Now takes no arguments")


@pytest.mark.parametrize(
    ("args", "fits"),
    [
        ({"path": "a", "limit": None, "note": "", "deep": None, "mode": ""}, {"path": "a"}),
        ({"path": "a", "limit": 3.0}, {"path": "a", "limit": 3}),
        ({"path": "a", "deep": False}, {"path": "a", "deep": False}),
        ({"path": "a", "limit": ""}, {"path": "a"}),
        ({"path": "a", "tags": [], "at": {"x": 1.5}}, {"path": "a", "tags": [], "at": {"x": 1.5}}),
    ],
)
def test_what_providers_send_for_nothing_is_left_out(args: dict[str, Any], fits: dict[str, Any]) -> None:
    assert check(FunctionCall(name="Read", args=args)) == (Admit(name="Read", args=fits),)


def test_an_exclusive_tool_shares_no_step() -> None:
    now, ask = call("Now"), call("Ask")
    assert check(ask) == (Admit(name="Ask", args={}),)
    assert "Ask must be the only call" in refusal(now, ask)
    assert "Ask must be the only call" in refusal(ask, now)
    assert isinstance(check(ask, now)[0], Admit)


def test_calls_over_the_number_of_a_step_are_refused() -> None:
    verdicts = check(*[call("Now") for _ in range(STEP_CALLS_MAX + 2)])
    assert [isinstance(verdict, Admit) for verdict in verdicts] == [True] * STEP_CALLS_MAX + [False] * 2


def test_the_third_identical_call_after_two_failures_isnt_run() -> None:
    again, failures = call(path="a", limit=1), Failures()
    for _ in range(2):
        assert isinstance(check(again, failures=failures)[0], Admit)
        failures = note(failures, again, failed=True)
    assert "failed 2 times" in refusal(FunctionCall(name="Read", args={"limit": 1, "path": "a"}), failures=failures)
    failures = note(failures, again, failed=True)  # the refusal itself
    assert "failed 3 times" in refusal(again, failures=failures)
    assert isinstance(check(call(path="b"), failures=failures)[0], Admit)


@pytest.mark.parametrize(
    "between",
    [(call(path="b"), True), (call(path="b"), False), (call(path="a"), False)],
    ids=["another failed", "another succeeded", "it succeeded"],
)
def test_anything_else_ends_a_row_of_failures(between: tuple[FunctionCall, bool]) -> None:
    again = call(path="a")
    failures = note(note(Failures(), again, failed=True), again, failed=True)
    other, failed = between
    assert isinstance(check(again, failures=note(failures, other, failed=failed))[0], Admit)


def test_calls_that_succeed_are_never_refused() -> None:
    failures = Failures()
    for _ in range(5):
        assert isinstance(check(call(path="a"), failures=failures)[0], Admit)
        failures = note(failures, call(path="a"), failed=False)


def test_the_order_of_checks() -> None:
    """Unavailable wins over exclusive, exclusive over cut, cut over malformed, malformed over repeated."""
    bad = FunctionCall(name="Read", args={}, malformed="7")
    failures = note(note(Failures(), bad, failed=True), bad, failed=True)
    assert "Available tools" in refusal(call("Ask"), FunctionCall(name="None", args={}, cut=True))
    assert "only call" in refusal(call("Ask"), FunctionCall(name="Read", args={}, cut=True))
    assert "cut off" in refusal(FunctionCall(name="Read", args={}, cut=True, malformed="7"))
    assert "JSON object" in refusal(bad, failures=failures)


def test_h16_steps_of_refused_calls_are_bounded() -> None:
    refused, admitted = check(call("SearchWeb")), check(call("SearchWeb"), call("Now"))
    rounds = 0
    for number in range(1, BAD_TOOL_ROUNDS_MAX + 1):
        assert not must_fail(rounds)
        rounds = bad_rounds(rounds, refused)
        assert rounds == number
    assert must_fail(rounds)
    assert bad_rounds(rounds, admitted) == 0
    assert bad_rounds(rounds, ()) == 0
