"""Kind C through the whole path: what a provider's rules ask of the next request."""

import pytest

from maka.config import with_profile
from maka.contracts.content import FunctionCall, FunctionResponse, Outcome, Text, Thinking
from maka.edges.scripted_model import DONE, Call, Raw, Strictness, Turn, chunk
from tests.e2e.harness import Maka, World, profile_of
from tests.edges.support import CALLS, STOP, finish, function, tool_call

LOOK = Turn(thinking="look", calls=(Call(name="Read", args={"path": "a.txt"}),))


@pytest.mark.parametrize("sent_back", [True, False])
def test_h14_reasoning_content_must_go_back_with_tool_calls(world: World, sent_back: bool) -> None:
    (world.workspace / "a.txt").write_text("alpha\n")
    strict = Strictness(reasoning_field="reasoning_content" if sent_back else None)
    fields = {"send_reasoning_back": True} if sent_back else {}
    maka = world.open([LOOK, Turn(text="done", thinking="hm")], strict=strict, **fields)
    assert maka.run().status == "completed"
    assistant = maka.model.requests[1].messages[2]
    assert assistant.get("reasoning_content") == ("look" if sent_back else None)
    assert [thinking.text for thinking in maka.contents(Thinking)] == ["look", "hm"]


def test_h15_a_turn_of_thinking_only(world: World) -> None:
    maka = world.open([Raw(steps=(chunk({"reasoning_content": "hmm"}), finish("stop"), DONE))])
    ended = maka.run("ask")
    assert (ended.status, ended.failure_class, ended.final_text) == ("failed", "empty_answer", "")
    maka.model.says(Turn(text="now"))
    assert maka.run("again").status == "completed"
    assert "assistant" not in [role for role, _ in maka.model.roles()]


def search_web(number: int) -> Raw:
    return Raw(steps=(tool_call(index=0, id=f"k{number}", function=function("SearchWeb", "{}")), *CALLS))


def test_h16_unknown_tool_name(world: World) -> None:
    maka = world.open([search_web(1), Turn(text="without it, then")])
    assert maka.run().status == "completed"
    (answer,) = maka.contents(FunctionResponse)
    assert answer.outcome is Outcome.REFUSED
    assert "Read, Write, Edit, Bash, Glob, Grep" in answer.result


NO_NAMES = ("functions.Read", "read file", "Nope\u202e", "Read\n", "", "x" * 80)


@pytest.mark.parametrize("name", NO_NAMES, ids=ascii)
def test_h16_a_name_that_no_provider_takes_back(world: World, name: str) -> None:
    """The strict server of each world would refuse it in this and in every later request."""
    maka = world.open([Turn(calls=(Call(name=name, args={}),)), Turn(text="without it, then")])
    assert maka.run("one").status == "completed"
    assert maka.contents(FunctionCall)[0].name == (name or "unnamed"), "the fact is what the model wrote"
    assert "Available tools" in maka.contents(FunctionResponse)[0].result or name == "Read\n"
    maka.model.says(Turn(text="good"))
    assert maka.run("two").status == "completed"


def test_h16_the_number_of_such_rounds_is_bounded(world: World) -> None:
    maka = world.open([search_web(1)])
    ended = maka.run()
    assert (ended.status, ended.failure_class) == ("failed", "invalid_tool_calls")
    assert maka.model.count == ended.steps <= 5


def test_h17_arguments_are_json_but_no_object(world: World) -> None:
    odd = ("[]", "null", "7")
    turns = [
        Raw(steps=(tool_call(index=0, id=f"k{number}", function=function("Read", arguments)), *CALLS))
        for number, arguments in enumerate(odd)
    ]
    maka = world.open([*turns, Turn(text="enough")])
    ended = maka.run()
    assert (ended.status, ended.steps) == ("completed", 4)
    assert [call.malformed for call in maka.contents(FunctionCall)] == list(odd)
    answers: list[FunctionResponse] = maka.contents(FunctionResponse)
    assert [answer.outcome for answer in answers] == [Outcome.REFUSED] * 3
    assert all("must be a JSON object" in answer.result for answer in answers)


def read_as_call_0(path: str) -> list[Raw | Turn]:
    call = tool_call(index=0, id="call_0", function=function("Read", f'{{"path":"{path}"}}'))
    return [Raw(steps=(call, *CALLS)), Turn(text=f"read {path}")]


def test_h18_tool_call_ids_reused_in_later_turns(world: World) -> None:
    (world.workspace / "a.txt").write_text("alpha\n")
    (world.workspace / "b.txt").write_text("beta\n")
    maka = world.open(read_as_call_0("a.txt"))
    assert maka.run("one").status == "completed"
    maka.model.says(*read_as_call_0("b.txt"))
    assert maka.run("two").status == "completed"
    maka.reopen()
    maka.model.says(Turn(text="both"))
    assert maka.run("three").status == "completed"
    assert [role for role, _ in maka.model.roles()] == 2 * ["user", "assistant", "tool", "assistant"] + ["user"]
    results = [content for role, content in maka.model.roles() if role == "tool"]
    assert [("alpha" in result, "beta" in result) for result in results] == [(True, False), (False, True)]
    ids = [call["id"] for message in maka.model.requests[-1].messages for call in message.get("tool_calls", ())]
    assert len(set(ids)) == 2, "an id of our own ties each pair"


def two_providers(world: World) -> Maka:
    """Return a Maka with a first provider that takes anything, and a second one that is strict."""
    call = tool_call(index=0, id="functions.Read:0", function=function("Read", '{"path":"a.txt"}'))
    first = world.model(
        [Raw(steps=(chunk({"reasoning_content": "look"}), call, *CALLS)), Turn(text="one")], strict=None
    )
    second = world.model([Turn(text="two")])
    maka = world.maka(first, send_reasoning_back=True)
    maka.config = with_profile(maka.config, profile_of(second, "second"))
    return maka.open()


def test_h80_change_of_provider_in_mid_session(world: World) -> None:
    (world.workspace / "a.txt").write_text("alpha\n")
    maka = two_providers(world)
    assert maka.run("first").status == "completed"
    ended = maka.run("second", profile="second")
    assert (ended.status, ended.final_text) == ("completed", "two")
    assert "thinking_left_out: 1" in maka.actions("model_request")[-1].losses, "the loss is reported"
    assert [thinking.text for thinking in maka.contents(Thinking)] == ["look"], "the ledger keeps the original"
    refs = [item.event.refs for item in maka.facts() if isinstance(item.event.content, FunctionCall)]
    assert [ref.tool_call_id for ref in refs if ref is not None] == ["functions.Read:0"]


def test_an_answer_of_blanks_is_empty_too(world: World) -> None:
    maka = world.open([Raw(steps=(chunk({"content": "  \n"}), *STOP))])
    assert maka.run("ask").failure_class == "empty_answer"
    maka.model.says(Turn(text="now"))
    assert maka.run("again").status == "completed"
    assert maka.contents(Text)[-1].text == "now"
