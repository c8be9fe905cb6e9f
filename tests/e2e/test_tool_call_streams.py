"""Kind A through the whole path: odd fragments of a tool call become one call that runs once."""

from typing import Any

import pytest

from maka.contracts.content import FunctionCall, FunctionResponse, Outcome
from maka.edges.scripted_model import DONE, Raw, Step, Turn, chunk, frame
from tests.e2e.harness import World
from tests.edges.support import CALLS, STOP, finish, function, tool_call

Asked = list[tuple[str, dict[str, Any]]]
READ_A, READ_B = '{"path":"a.txt"}', '{"path":"b.txt"}'
CASES: dict[str, tuple[tuple[Step, ...], Asked]] = {
    "h01_delta_without_index": (
        (
            chunk({"role": "assistant", "content": None}),
            tool_call(id="k1", type="function", function=function("Read", READ_A)),
            *CALLS,
        ),
        [("Read", {"path": "a.txt"})],
    ),
    "h02_two_calls_both_index_0": (
        (
            tool_call(index=0, id="k1", function=function("Read", READ_A)),
            tool_call(index=0, id="k2", function=function("Read", READ_B)),
            *CALLS,
        ),
        [("Read", {"path": "a.txt"}), ("Read", {"path": "b.txt"})],
    ),
    "h03_name_sent_again_in_every_fragment": (
        (
            tool_call(index=0, id="k1", function=function("Read", '{"pa')),
            tool_call(index=0, function=function("Read", 'th":"a.txt"}')),
            *CALLS,
        ),
        [("Read", {"path": "a.txt"})],
    ),
    "h04_cumulative_arguments": (
        (
            tool_call(index=0, id="k1", function=function("Grep", '{"p')),
            tool_call(index=0, function=function(None, '{"pattern":')),
            tool_call(index=0, function=function(None, '{"pattern":"alpha"}')),
            *CALLS,
        ),
        [("Grep", {"pattern": "alpha"})],
    ),
    "h05_arguments_as_an_object": (
        (tool_call(index=0, id="k1", type="function", function=function("Bash", {"command": "cat a.txt"})), *CALLS),
        [("Bash", {"command": "cat a.txt"})],
    ),
    "h06_empty_text_before_the_tool_call": (
        (
            chunk({"role": "assistant", "content": ""}),
            tool_call(index=0, id="k1", function=function("Bash", '{"command":"cat a.txt"}')),
            *STOP,
        ),
        [("Bash", {"command": "cat a.txt"})],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_odd_fragments_become_calls_that_run_once(world: World, case: str) -> None:
    steps, asked = CASES[case]
    (world.workspace / "a.txt").write_text("alpha\n")
    (world.workspace / "b.txt").write_text("beta\n")
    maka = world.open([Raw(steps=steps), Turn(text="seen")])
    ended = maka.run()
    assert (ended.status, ended.final_text, ended.steps) == ("completed", "seen", 2)
    calls: list[FunctionCall] = maka.contents(FunctionCall)
    assert [(call.name, call.args) for call in calls] == asked
    answers: dict[str, FunctionResponse] = {answer.call_id: answer for answer in maka.contents(FunctionResponse)}
    assert [answer.outcome for answer in answers.values()] == [Outcome.OK] * len(asked)
    results = [content for role, content in maka.model.roles() if role == "tool"]
    in_call_order = [item.event.id for item in maka.facts() if isinstance(item.event.content, FunctionCall)]
    assert results == [answers[call_id].result for call_id in in_call_order], "the model sees what the ledger keeps"
    assert ["alpha" in result for result in results] == [True, False][: len(asked)]


def test_h78_second_choice_first(world: World) -> None:
    both = [
        {"index": 1, "delta": {"content": "X"}, "finish_reason": None},
        {"index": 0, "delta": {"content": "Y"}, "finish_reason": None},
    ]
    maka = world.open([Raw(steps=(frame({"choices": both}), finish("stop"), DONE))])
    assert maka.run().final_text == "Y"
