"""Kind B through the whole path: how a stream ends decides how its run ends, and what was seen is kept."""

import pytest

from maka.contracts.content import Error, FunctionResponse, Outcome, Text
from maka.contracts.events import Role
from maka.contracts.session_events import TextDelta
from maka.edges.scripted_model import DONE, Raw, Repeat, Step, Turn, chunk, frame
from tests.e2e.harness import Maka, World
from tests.edges.support import STOP, finish, function, tool_call

USAGE = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
UPSTREAM = frame({"error": {"message": "upstream full", "code": 502}})
FAILURES: dict[str, tuple[Raw, str, str, str]] = {
    # case: what the server sends, the failure class, words of the error, what is kept of the answer
    "h07_error_object_inside_a_200_stream": (
        Raw(steps=(chunk({"content": "par"}), UPSTREAM, *STOP)),
        "provider_unavailable",
        "upstream full",
        "par",
    ),
    "h08_200_with_something_that_is_not_sse": (
        Raw(steps=(b"<html>sign in</html>",), headers={"Content-Type": "text/html"}),
        "rejected",
        "no events in the answer",
        "",
    ),
    "h09_clean_end_without_finish_reason": (
        Raw(steps=(chunk({"content": "The answer is"}),)),
        "incomplete_answer",
        "without a finish reason",
        "The answer is",
    ),
    "h79_last_frame_without_its_blank_line": (
        Raw(steps=(chunk({"content": "a"}), finish("stop")[:-1])),
        "incomplete_answer",
        "without a finish reason",
        "a",
    ),
}


def said(maka: Maka) -> list[Text]:
    """Return the texts of the model in the ledger."""
    return [
        item.event.content
        for item in maka.facts()
        if isinstance(item.event.content, Text) and item.event.role is Role.MODEL
    ]


@pytest.mark.parametrize("case", FAILURES)
def test_a_broken_end_is_a_failure_that_keeps_what_came(world: World, case: str) -> None:
    reply, failure_class, words, kept = FAILURES[case]
    maka = world.open([reply])
    ended = maka.run("ask")
    assert (ended.status, ended.failure_class, ended.final_text) == ("failed", failure_class, kept)
    (error,) = maka.contents(Error)
    assert error.code == failure_class
    assert words in error.message
    assert [(text.text, text.interrupted) for text in said(maka)] == ([(kept, True)] if kept else [])
    maka.model.says(Turn(text="yes"))
    assert maka.run("again").status == "completed"
    assistant = [("assistant", kept)] if kept else []
    assert maka.model.roles() == [("user", "ask"), *assistant, ("user", "again")]


def cut_write(number: int) -> Raw:
    arguments = '{"path":"n.txt","content":"line one\\nli'
    call = tool_call(index=0, id=f"k{number}", function=function("Write", arguments))
    return Raw(steps=(call, finish("length"), DONE))


def test_h10_cut_at_the_token_limit_within_tool_arguments(world: World) -> None:
    maka = world.open([cut_write(1), Turn(text="smaller, then")])
    assert maka.run().status == "completed"
    (answer,) = maka.contents(FunctionResponse)
    assert answer.outcome is Outcome.REFUSED
    assert "cut off by the output limit" in answer.result
    assert not (world.workspace / "n.txt").exists()


def test_h10_a_model_that_is_always_cut_is_bounded(world: World) -> None:
    maka = world.open([cut_write(1)])
    ended = maka.run()
    assert (ended.status, ended.failure_class) == ("failed", "invalid_tool_calls")
    assert maka.model.count == ended.steps <= 5
    assert not (world.workspace / "n.txt").exists()


WHOLE: dict[str, tuple[tuple[Step, ...], str]] = {
    "h11_last_chunk_carries_usage_and_no_choices": (
        (chunk({"content": "hi"}), finish("stop"), frame({"choices": [], "usage": USAGE}), DONE),
        "hi",
    ),
    "h12_a_frame_that_is_valid_json_but_no_object": (
        (chunk({"content": "a"}), b"data: null\n\n", chunk({"content": "b"}), *STOP),
        "ab",
    ),
    "h79_stream_starts_with_a_byte_order_mark": ((b"\xef\xbb\xbf" + chunk({"content": "a"}), *STOP), "a"),
}


@pytest.mark.parametrize("case", WHOLE)
def test_an_odd_but_whole_answer_is_completed(world: World, case: str) -> None:
    steps, text = WHOLE[case]
    maka = world.open([Raw(steps=steps)])
    ended = maka.run()
    assert (ended.status, ended.final_text) == ("completed", text)
    usages = [(usage.input, usage.output, usage.total) for usage in maka.actions("token_usage")]
    assert usages == ([(3, 1, 4)] if case.startswith("h11") else [])
    assert ended.usage.input == (3 if usages else None), "what isn't known is absent"


def test_h13_keep_alive_comments_hide_a_dead_stream(world: World) -> None:
    maka = world.open([Raw(steps=(chunk({"content": "a"}), Repeat(b": ping\n\n", 0.02)))], idle_s=0.3)
    ended = maka.run()
    assert (ended.failure_class, ended.exit, ended.final_text) == ("timeout", "try_again", "a")
    assert maka.model.requests[0].http.gone.wait(30), "the connection is closed"


def test_h13_stop_works_meanwhile(world: World) -> None:
    maka = world.open([Raw(steps=(chunk({"content": "a"}), Repeat(b": ping\n\n", 0.02)))])
    live = maka.send()
    live.until(TextDelta)
    receipt = maka.manager.stop(maka.session_id, "test")
    assert (receipt.status, receipt.was) == ("aborted", "streaming")
    assert live.end().final_text == "a"
    assert maka.model.requests[0].http.gone.wait(30)
