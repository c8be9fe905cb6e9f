"""Kind A: whole tool calls out of the fragments that real servers send."""

from typing import Any

import pytest

from maka.contracts.model_ports import AssembledCall
from maka.edges.assemble import CallAssembler, CallOverflowError
from maka.edges.chunks import CallFragment
from maka.edges.scripted_model import DONE, chunk, frame
from tests.edges.support import CALLS, STOP, Edge, finish, function, tool_call


def call(
    name: str, args: dict[str, Any] | None, raw: str, call_id: str | None = "k1", cut: bool = False
) -> AssembledCall:
    return AssembledCall(provider_id=call_id, name=name, args=args, raw=raw, cut=cut)


def test_h01_delta_without_index(edge: Edge) -> None:
    heard = edge.hear(
        chunk({"role": "assistant", "content": None}),
        tool_call(id="k1", type="function", function=function("Read", '{"file_path":"a.txt"}')),
        *CALLS,
    )
    assert heard.result.calls == (call("Read", {"file_path": "a.txt"}, '{"file_path":"a.txt"}'),)


def test_h01_fragments_without_index_go_on_with_the_last_call(edge: Edge) -> None:
    heard = edge.hear(
        tool_call(id="k1", function=function("Read", '{"path":')),
        tool_call(function=function(None, '"a"}')),
        tool_call(id="k2", function=function("Read", '{"path":"b"}')),
        *CALLS,
    )
    assert heard.result.calls == (
        call("Read", {"path": "a"}, '{"path":"a"}'),
        call("Read", {"path": "b"}, '{"path":"b"}', "k2"),
    )


def test_h02_two_calls_both_index_0(edge: Edge) -> None:
    heard = edge.hear(
        tool_call(index=0, id="k1", function=function("Read", '{"file_path":"a"}')),
        tool_call(index=0, id="k2", function=function("Read", '{"file_path":"b"}')),
        *CALLS,
    )
    assert [(made.provider_id, made.args) for made in heard.result.calls] == [
        ("k1", {"file_path": "a"}),
        ("k2", {"file_path": "b"}),
    ]


def test_h02_two_whole_calls_without_id_on_one_index(edge: Edge) -> None:
    heard = edge.hear(
        tool_call(index=0, id="", function=function("Read", '{"path":"a"}')),
        tool_call(index=0, id="", function=function("Read", '{"path":"b"}')),
        *CALLS,
    )
    assert [made.args for made in heard.result.calls] == [{"path": "a"}, {"path": "b"}]


def test_h02_a_new_id_without_a_name_goes_on(edge: Edge) -> None:
    heard = edge.hear(
        tool_call(index=0, id="k1", function=function("Read", '{"path":')),
        tool_call(index=0, id="k2", function=function(None, '"a"}')),
        *CALLS,
    )
    assert heard.result.calls == (call("Read", {"path": "a"}, '{"path":"a"}'),)


def test_h03_name_sent_again_in_every_fragment(edge: Edge) -> None:
    heard = edge.hear(
        tool_call(index=0, id="k1", function=function("Read", '{"file_')),
        tool_call(index=0, function=function("Read", 'path":"a"}')),
        tool_call(index=0, function=function("Read", "")),
        *CALLS,
    )
    assert heard.result.calls == (call("Read", {"file_path": "a"}, '{"file_path":"a"}'),)


def test_h03_name_in_parts(edge: Edge) -> None:
    heard = edge.hear(
        tool_call(index=0, id="k1", function=function("Re", "")),
        tool_call(index=0, function=function("ad", "")),
        tool_call(index=0, function=function(None, "{}")),
        *CALLS,
    )
    assert heard.result.calls == (call("Read", {}, "{}"),)


def test_h04_cumulative_arguments(edge: Edge) -> None:
    parts = ('{"p', '{"pattern":', '{"pattern":"x"}')
    heard = edge.hear(
        tool_call(index=0, id="k1", function=function("Grep", parts[0])),
        *(tool_call(index=0, function=function(None, part)) for part in parts[1:]),
        *CALLS,
    )
    assert heard.result.calls == (call("Grep", {"pattern": "x"}, '{"pattern":"x"}'),)


def test_h04_the_whole_sent_again_at_the_end(edge: Edge) -> None:
    heard = edge.hear(
        tool_call(index=0, id="k1", function=function("Grep", '{"pattern"')),
        tool_call(index=0, function=function(None, ':"x"}')),
        tool_call(index=0, function=function(None, '{"pattern":"x"}')),
        *CALLS,
    )
    assert heard.result.calls == (call("Grep", {"pattern": "x"}, '{"pattern":"x"}'),)


def test_h04_two_objects_are_no_arguments(edge: Edge) -> None:
    heard = edge.hear(
        tool_call(index=0, id="k1", function=function("Grep", '{"a":1}')),
        tool_call(index=0, function=function(None, '{"b":2}')),
        *CALLS,
    )
    assert heard.result.calls == (call("Grep", None, '{"a":1}{"b":2}'),)


def test_h05_arguments_as_an_object(edge: Edge) -> None:
    heard = edge.hear(
        tool_call(index=0, id="k1", type="function", function=function("Bash", {"command": "echo ok"})),
        *CALLS,
    )
    assert heard.result.calls == (call("Bash", {"command": "echo ok"}, '{"command":"echo ok"}'),)


def test_h06_empty_text_before_the_tool_call(edge: Edge) -> None:
    heard = edge.hear(
        chunk({"role": "assistant", "content": ""}),
        tool_call(index=0, id="k1", function=function("Bash", '{"command":"echo hi"}')),
        *STOP,
    )
    assert heard.result.finish_reason == "stop"
    assert heard.result.calls == (call("Bash", {"command": "echo hi"}, '{"command":"echo hi"}'),)
    assert heard.batches == []


def test_h10_cut_at_the_token_limit_within_arguments(edge: Edge) -> None:
    raw = '{"file_path":"n.txt","content":"line one\\nli'
    heard = edge.hear(
        tool_call(index=0, id="k0", function=function("Read", '{"path":"whole"}')),
        tool_call(index=1, id="k1", function=function("Write", raw)),
        finish("length"),
        DONE,
    )
    assert heard.result.finish_reason == "length"
    assert heard.result.calls == (
        call("Read", {"path": "whole"}, '{"path":"whole"}', "k0"),
        call("Write", None, raw, cut=True),
    )


def test_h10_cut_before_the_first_argument(edge: Edge) -> None:
    heard = edge.hear(tool_call(index=0, id="k1", function=function("Write", "")), finish("length"), DONE)
    assert heard.result.calls == (call("Write", None, "", cut=True),)


@pytest.mark.parametrize("raw", ["[]", "null", "7", '"text"', "{", "{'a': 1}", "[" * 100_000])
def test_h17_arguments_that_are_no_object(edge: Edge, raw: str) -> None:
    heard = edge.hear(tool_call(index=0, id="k1", function=function("Read", raw)), *CALLS)
    assert heard.result.calls == (call("Read", None, raw),)


def test_a_call_without_arguments_has_none(edge: Edge) -> None:
    heard = edge.hear(tool_call(index=0, id="k1", function=function("List", "")), *CALLS)
    assert heard.result.calls == (call("List", {}, ""),)


def test_a_call_without_id_and_name_can_be_refused(edge: Edge) -> None:
    heard = edge.hear(tool_call(index=0, function=function(None, "{}")), *CALLS)
    assert heard.result.calls == (call("unnamed", {}, "{}", None),)


def test_parallel_calls_woven_together(edge: Edge) -> None:
    heard = edge.hear(
        tool_call(index=0, id="k1", function=function("Read", '{"a"')),
        tool_call(index=1, id="k2", function=function("Glob", '{"b"')),
        tool_call(index=0, function=function(None, ":1}")),
        tool_call(index=1, function=function(None, ":2}")),
        *CALLS,
    )
    assert [(made.name, made.args) for made in heard.result.calls] == [("Read", {"a": 1}), ("Glob", {"b": 2})]


def test_h78_second_choice_first(edge: Edge) -> None:
    choices = [
        {"index": 1, "delta": {"content": "X"}, "finish_reason": None},
        {"index": 0, "delta": {"content": "Y"}, "finish_reason": None},
    ]
    heard = edge.hear(frame({"id": "x", "object": "chat.completion.chunk", "choices": choices}), *STOP)
    assert heard.result.finish_reason == "stop"
    assert heard.text == "Y"


def test_call_arguments_are_bounded() -> None:
    """The longest call of an answer that is too long is let go, and says how long it was; the others are whole."""
    calls = CallAssembler(bytes_max=2_000)
    calls.add(CallFragment(0, "k", "Write", "{" + "x" * 900))
    calls.add(CallFragment(0, "", "", "ü" * 100))
    calls.add(CallFragment(1, "l", "Read", '{"path":"' + "y" * 500))
    calls.add(CallFragment(1, "", "", '"}'))
    calls.add(CallFragment(0, "", "", "z" * 5_000))
    long, short = calls.close("tool_calls")
    assert (long.name, long.args, long.too_long) == ("Write", None, 1 + 900 + 200 + 5_000)
    assert long.raw == "{" + "x" * 900 + "ü" * 100
    assert (short.args, short.too_long) == ({"path": "y" * 500}, None)


def test_call_arguments_without_an_end_are_bounded() -> None:
    calls = CallAssembler(bytes_max=1_000, answer_bytes_max=4_000)
    calls.add(CallFragment(0, "k", "Write", "x" * 4_000))
    with pytest.raises(CallOverflowError):
        calls.add(CallFragment(0, "", "", "x"))


def test_many_empty_calls_are_bounded() -> None:
    calls = CallAssembler(bytes_max=1_000)
    calls.add(CallFragment(0, "k0", "Read", ""))
    calls.add(CallFragment(1, "k1", "Read", ""))
    calls.add(CallFragment(2, "k2", "Read", ""))
    with pytest.raises(CallOverflowError):
        calls.add(CallFragment(3, "k3", "Read", ""))
