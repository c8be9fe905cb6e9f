"""ask_user_question: the model asks the person; the run waits, costs nothing, and goes on with the answer.

Never dispatched: it has no effect but the question itself, which is a fact of its own.
"""

from collections.abc import Callable
from typing import Any, cast

from maka.contracts.actions import Question, RecoveryMode, UserQuestionRequest
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import Asked, ToolCall, ToolEnv, ToolListener

QUESTIONS_MAX = 3
OPTIONS_MIN, OPTIONS_MAX = 2, 3
CHARS_MAX = 2_000


class AskQuestionTool:
    """One to three questions, each with two or three options, or without any for free text."""

    recovery_mode: RecoveryMode = "replay_safe"
    exclusive = False
    spec = ToolSpec(
        name="ask_user_question",
        description=(
            "Ask the person one to three questions when you can't go on without their word. Each has two or three "
            "options, or none for free text. The run waits for the answer, which may take long: ask only what matters."
        ),
        parameters={
            "type": "object",
            "properties": {
                "questions": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": QUESTIONS_MAX,
                    "items": {
                        "type": "object",
                        "properties": {
                            "question": {"type": "string", "minLength": 1, "maxLength": CHARS_MAX},
                            "options": {
                                "type": "array",
                                "maxItems": OPTIONS_MAX,
                                "items": {"type": "string", "minLength": 1, "maxLength": CHARS_MAX},
                            },
                        },
                        "required": ["question"],
                        "additionalProperties": False,
                    },
                }
            },
            "required": ["questions"],
            "additionalProperties": False,
        },
    )

    def prepare(self, call: ToolCall, env: ToolEnv) -> Asked | str:
        del env
        given = cast("list[dict[str, Any]]", call.args["questions"])
        questions = tuple(map(_question, given))
        if any(len(each.options) == 1 for each in questions):
            return f"a question has {OPTIONS_MIN} or {OPTIONS_MAX} options, or none for free text"
        if any(len(set(each.options)) < len(each.options) for each in questions):
            return "the options of a question must differ: an answer names one of them"
        return UserQuestionRequest(call_id=call.call_id, questions=questions)

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        raise AssertionError("a question is asked, not dispatched")


def _question(given: dict[str, Any]) -> Question:
    return Question(question=str(given["question"]), options=tuple(map(str, given.get("options") or ())))
