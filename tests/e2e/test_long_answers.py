"""Answers longer than a fact, through the whole path: nothing crashes, nothing is lost unsaid, the session goes on."""

from collections.abc import Iterator

import msgspec
import pytest

from maka.contracts.content import Error, FunctionCall, FunctionResponse, Outcome, Text, Thinking
from maka.contracts.limits import ANSWER_CALL_BYTES_MAX, ANSWER_CHARS_MAX, EVENT_BYTES_MAX, SSE_LINE_BYTES_MAX
from maka.edges.scripted_model import Raw, Step, Turn, chunk
from tests.e2e.harness import Maka, World
from tests.edges.support import CALLS, STOP, function, tool_call

PIECE = 256 << 10
BIG = 1_100_000


def pieces(text: str) -> Iterator[str]:
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def big_call(name: str, **args: str) -> Raw:
    first, *rest = pieces(msgspec.json.encode(args).decode())
    steps: list[Step] = [tool_call(index=0, id="k", function=function(name, first))]
    steps += [tool_call(index=0, function=function(None, piece)) for piece in rest]
    return Raw(steps=(*steps, *CALLS))


def big_words(field: str, text: str) -> Raw:
    said = [chunk({field: piece}) for piece in pieces(text)]
    return Raw(steps=(*said, *([chunk({"content": "so"})] if field != "content" else []), *STOP))


def goes_on(maka: Maka) -> None:
    """Assert that the session takes a further message; the server of each world is strict."""
    maka.model.says(Turn(text="yes"))
    assert maka.run("again").status == "completed"


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("Write", {"path": "n.txt", "content": "x" * BIG}),
        ("Write", {"path": "n.txt", "content": "\x01" * (BIG // 6)}),
        ("Write", {"path": "n.txt", "content": "ü" * (BIG // 2)}),
        ("Bash", {"command": "echo " + "x" * BIG}),
        ("Nope", {"x": "x" * BIG}),
        ("Write", {"path": "n.txt", "content": "x" * 4_200_000}),
        ("Write", {"path": "n.txt", "content": "x" * 20_000_000}),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(str(value)):,}",
)
def test_h58_a_call_with_too_much_in_it_is_answered_and_not_run(world: World, tool: str, args: dict[str, str]) -> None:
    maka = world.open([big_call(tool, **args), Turn(text="in parts, then")])
    ended = maka.run()
    assert (ended.status, ended.steps) == ("completed", 2)
    (call,) = maka.contents(FunctionCall)
    size = len(msgspec.json.encode(args))
    assert call.args == {}
    assert call.malformed.startswith(f"[arguments of {size:,} bytes, too long to be kept"), "the record says so"
    assert '{"path":"n.txt"' in call.malformed or tool != "Write"
    (answer,) = maka.contents(FunctionResponse)
    assert answer.outcome is Outcome.REFUSED
    assert (f"{size:,} bytes, and at most 1,000,000" in answer.result) == (tool != "Nope")
    assert list(world.workspace.iterdir()) == []
    goes_on(maka)


def test_h58_a_call_of_nearly_the_bound_runs(world: World) -> None:
    maka = world.open([big_call("Write", path="n.txt", content="x" * 999_000), Turn(text="done")])
    assert maka.run().status == "completed"
    assert (world.workspace / "n.txt").stat().st_size == 999_000
    goes_on(maka)


OTHERS = ["Read", "Write", "Edit", "Glob", "ask_user_question"]


@pytest.mark.parametrize("tool", ["Bash", "Grep", *(pytest.param(tool, marks=pytest.mark.slow) for tool in OTHERS)])
def test_a_long_value_in_any_field_of_a_call_that_is_kept_breaks_nothing(world: World, tool: str) -> None:
    """A refusal, an error: whatever the tool makes of it, its facts and its result are within bounds."""
    fields = ("path", "content", "old_string", "new_string", "command", "pattern", "glob", "questions")
    replies = [big_call(tool, **{**dict.fromkeys(fields, "a"), field: "x" * 990_000}) for field in fields[:3]]
    replies += [big_call(tool, **{field: "x" * 990_000}) for field in fields]
    maka = world.open([])
    for reply in replies:
        maka.model.says(reply, Turn(text="done"))
        assert maka.run(session=maka.new_session()).status == "completed"


def test_names_and_ids_of_any_length_are_kept_in_short(world: World) -> None:
    call = tool_call(index=0, id="i" * BIG, function=function("n" * BIG, "{}"))
    maka = world.open([Raw(steps=(call, *CALLS)), Turn(text="done")])
    assert maka.run().status == "completed"
    (called,) = maka.contents(FunctionCall)
    assert f"{BIG - 200:,} characters left out" in called.name
    goes_on(maka)


@pytest.mark.parametrize("text", ["x" * BIG, "\x01" * BIG, "ü" * BIG, "x" * 10 + "\x01" * 2 * BIG])
@pytest.mark.parametrize("field", ["content", "reasoning_content"])
def test_words_longer_than_a_fact_keep_head_and_tail_and_are_whole_in_a_blob(
    world: World, field: str, text: str
) -> None:
    maka = world.open([big_words(field, text)])
    assert maka.run().status == "completed"
    said: list[Text | Thinking] = [*maka.contents(Text), *maka.contents(Thinking)]
    (kept,) = (each for each in said if each.whole is not None)
    assert kept.whole is not None
    assert "characters left out" in kept.text
    assert len(kept.text.encode()) > EVENT_BYTES_MAX // 10
    assert maka.host.reader.blob(kept.whole.sha256) == text.encode()
    goes_on(maka)


def test_words_without_an_end_end_the_run_with_what_came(world: World) -> None:
    maka = world.open([big_words("content", "x" * (ANSWER_CHARS_MAX + PIECE))])
    ended = maka.run()
    assert (ended.status, ended.failure_class, ended.exit) == ("failed", "answer_too_long", "failed")
    (error,) = maka.contents(Error)
    assert "went on for more than 4,194,304 characters" in error.message
    goes_on(maka)


def test_one_frame_longer_than_any_is_no_passing_failure(world: World) -> None:
    maka = world.open([Raw(steps=(chunk({"content": "x" * SSE_LINE_BYTES_MAX}), *STOP))])
    ended = maka.run()
    assert (ended.status, ended.failure_class, maka.model.count) == ("failed", "answer_too_long", 1)
    goes_on(maka)


def test_h58_arguments_without_an_end_end_the_run(world: World) -> None:
    piece = tool_call(index=0, function=function(None, "x" * (4 << 20)))
    start = tool_call(index=0, id="k", function=function("Write", '{"path":"n.txt","content":"'))
    maka = world.open([Raw(steps=(start, *[piece] * (ANSWER_CALL_BYTES_MAX >> 22), *CALLS))])
    ended = maka.run()
    assert (ended.status, ended.failure_class, maka.model.count) == ("failed", "answer_too_long", 1)
    assert "ask for less at a time" in maka.contents(Error)[0].message
    goes_on(maka)
