"""Questions to the person: what the model may ask, and what it is told when it asks wrongly."""

from typing import Any

import pytest

from actors import tool_gate
from maka.contracts.actions import Question, UserQuestionRequest
from maka.contracts.ids import CallId, SessionId
from maka.contracts.tool_ports import AskingTool, ToolCall, ToolEnv
from maka.tools.ask_question import AskQuestionTool

ENV = ToolEnv(session_id=SessionId("s"), cwd="/w", temp_suffix=".maka-x")
TOOL = AskQuestionTool()


def ask(questions: list[dict[str, Any]]) -> object:
    call = ToolCall(call_id=CallId("c"), name="ask_user_question", args={"questions": questions})
    return TOOL.prepare(call, ENV)


def test_it_is_answered_by_a_person_and_never_dispatched() -> None:
    assert isinstance(TOOL, AskingTool)


def test_questions_keep_their_order_and_options() -> None:
    asked = ask([{"question": "Which?", "options": ["this", "that"]}, {"question": "Why?"}])
    assert asked == UserQuestionRequest(
        call_id=CallId("c"),
        questions=(Question(question="Which?", options=("this", "that")), Question(question="Why?")),
    )


def test_one_option_is_none() -> None:
    assert "options" in str(ask([{"question": "Which?", "options": ["this"]}]))
    assert "must differ" in str(ask([{"question": "Which?", "options": ["this", "that", "this"]}]))


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"questions": []},
        {"questions": [{"question": "?"}] * 4},
        {"questions": [{"question": ""}]},
        {"questions": [{"question": "?", "options": ["a", "b", "c", "d"]}]},
        {"questions": [{"question": "?", "why": "so"}]},
    ],
)
def test_the_gate_refuses_what_the_schema_does_not_allow(args: dict[str, Any]) -> None:
    with pytest.raises(tool_gate.ArgumentError):
        tool_gate.fitted(args, TOOL.spec.parameters)
