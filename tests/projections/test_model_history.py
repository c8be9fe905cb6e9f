"""What a model is sent: one table of situations, then the faults that histories are known for."""

import pytest
from msgspec.structs import replace

from maka.contracts.content import FunctionCall, Outcome, Route, Text
from maka.contracts.errors import FoldError
from maka.contracts.events import Committed, ModelVisibility, Role
from maka.contracts.ids import CallId
from maka.contracts.model_ports import ChatCall, ChatMessage
from projections import model_history, replay_plan
from projections.model_history import Rendered
from tests.builders import SessionLog, log
from tests.checkers import check_messages


def history_of(items: SessionLog | list[Committed]) -> model_history.History:
    history = model_history.project(items)
    assert history is not None
    return history


def rendered(session: SessionLog, *, keeps_reasoning: bool = False, route: Route | None = None) -> Rendered:
    result = model_history.render(
        history_of(session), level=0, through_position=0, keeps_reasoning=keeps_reasoning, route=route
    )
    check_messages(result.messages)
    return result


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", text=text)


def assistant(text: str | None = None, *calls: ChatCall, reasoning: str | None = None) -> ChatMessage:
    return ChatMessage(role="assistant", text=text, calls=calls, reasoning=reasoning)


def tool(call_id: str, text: str) -> ChatMessage:
    return ChatMessage(role="tool", text=text, call_id=call_id)


def test_a_step_is_one_message_and_its_results_follow_in_call_order() -> None:
    session = log()
    run = session.run("fix it")
    run.request()
    run.thinking("first look")
    run.text("I'll look.")
    run.usage()
    one = run.call("Read", {"path": "a"}, provider_id="k1")
    two = run.call("Bash", {"command": "ls"}, provider_id="k2")
    run.dispatch(one)
    run.dispatch(two, "Bash")
    run.answer(two, "files", name="Bash")
    run.answer(one, "text of a")
    run.request()
    run.text("Done.")
    run.complete()
    messages = rendered(session).messages
    assert messages == (
        user("fix it"),
        assistant(
            "I'll look.",
            ChatCall(id="k1", name="Read", arguments='{"path":"a"}'),
            ChatCall(id="k2", name="Bash", arguments='{"command":"ls"}'),
        ),
        tool("k1", "text of a"),
        tool("k2", "files"),
        assistant("Done."),
    )


def test_words_that_come_while_tools_run_follow_the_results() -> None:
    session = log()
    run = session.run("go")
    run.request()
    call = run.call(provider_id="k1")
    run.dispatch(call)
    run.user("hurry up")
    run.answer(call, "late")
    run.request()
    run.text("Yes.")
    run.complete()
    messages = rendered(session).messages
    assert [message.role for message in messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert messages[3] == user("hurry up")


def test_words_after_an_answer_are_a_new_step_where_a_log_has_no_requests() -> None:
    session = log()
    run = session.run("go")
    call = run.call(provider_id="k1")
    run.answer(call, "no", Outcome.NOT_STARTED)
    run.text("So be it.")
    run.complete()
    assert [message.role for message in rendered(session).messages] == ["user", "assistant", "tool", "assistant"]


def test_a_stop_leaves_what_was_seen_and_the_next_message_follows() -> None:
    session = log()
    run = session.run("go")
    run.request()
    run.text("I was just", interrupted=True)
    run.abort()
    nothing = session.run("again")
    nothing.request()
    nothing.fail("network")
    session.run("third").request()
    messages = rendered(session).messages
    assert messages == (user("go"), assistant("I was just"), user("again"), user("third"))


def test_what_a_model_must_not_see_is_not_there() -> None:
    session = log()
    session.queue("still waiting")
    run = session.run("go")
    run.request()
    run.thinking("secret thoughts")
    hidden = run.call("Inner", provider_id="h1")
    session.items[-1] = _hidden(session.items[-1])
    run.dispatch(hidden, "Inner")
    run.answer(hidden, "hidden result", name="Inner")
    run.add(content=Text(text="a system text"))
    run.text("partial words")
    session.items[-1] = _partial(session.items[-1])
    run.text("seen")
    run.usage()
    run.complete()
    assert rendered(session).messages == (user("go"), assistant("seen"))


def _hidden(item: Committed) -> Committed:
    return replace(item, event=replace(item.event, model_visibility=ModelVisibility.HIDDEN))


def _partial(item: Committed) -> Committed:
    return replace(item, event=replace(item.event, partial=True))


def test_malformed_arguments_become_an_object() -> None:
    session = log()
    run = session.run("go")
    run.request()
    for text in ("[]", "null", "7", '{"a":', "ü" * 5_000):
        call = run.call(malformed=text)
        run.answer(call, "the arguments must be an object", Outcome.REFUSED)
    run.complete()
    calls = rendered(session).messages[1].calls
    assert calls[0].arguments == '{"malformed_arguments":"[]"}'
    assert all(len(call.arguments) < 2_100 for call in calls)


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("functions.Read", "functions_Read"),
        ("read file", "read_file"),
        ("Nope\u202e", "Nope_"),
        ("", "unnamed_e3b0c442"),
        ("工具", "unnamed_5ca6730d"),
        ("-", "-"),
        ("x" * 80, "x" * 55 + "_d929cdee"),
        ("x" * 64, "x" * 64),
    ],
)
def test_h16_a_name_that_no_provider_takes_is_sent_as_one_that_it_does(name: str, sent: str) -> None:
    session = log()
    run = session.run("go")
    run.request()
    run.answer(run.call(name, {}, provider_id="k1"), "not run", Outcome.REFUSED)
    _, asked, answered = rendered(session).messages
    assert asked == assistant(None, ChatCall(id="k1", name=sent, arguments="{}"))
    assert answered == tool("k1", "not run")


def test_an_open_call_is_refused_and_can_be_looked_past() -> None:
    session = log()
    run = session.run("go")
    run.request()
    run.text("Two calls.")
    run.call(provider_id="k1")
    answered = run.call(provider_id="k2")
    run.answer(answered, "no", Outcome.NOT_STARTED)
    history = history_of(session)
    with pytest.raises(FoldError, match="open calls"):
        model_history.render(history, level=0, through_position=0, keeps_reasoning=False)
    seen = model_history.render(history, level=0, through_position=0, keeps_reasoning=False, open_calls="leave_out")
    check_messages(seen.messages)
    assert [call.id for call in seen.messages[1].calls] == ["k2"]


@pytest.mark.parametrize("broken", ["orphan", "twice", "over_open_calls", "after_terminal", "second_opening"])
def test_a_broken_log_is_refused(broken: str) -> None:
    session = log()
    run = session.run("go")
    run.request()
    call = run.call()
    if broken == "orphan":
        run.answer(CallId(session.ids()))
    elif broken == "twice":
        run.answer(call, outcome=Outcome.NOT_STARTED)
        run.answer(call, outcome=Outcome.NOT_STARTED)
    elif broken == "over_open_calls":
        run.complete()
    elif broken == "after_terminal":
        run.answer(call, outcome=Outcome.NOT_STARTED)
        run.complete()
        run.text("and another thing")
    else:
        session.commit(session.of(run)[0].event)
    with pytest.raises(FoldError):
        model_history.project(session)


def test_h15_a_turn_of_thinking_only_leaves_no_empty_message() -> None:
    session = log()
    run = session.run("go")
    run.request()
    run.thinking("hmm")
    run.text("  \n")
    run.fail("empty_answer")
    session.run("again").request()
    for keeps in (False, True):
        result = rendered(session, keeps_reasoning=keeps)
        assert result.messages == (user("go"), user("again"))
        assert result.losses == ("thinking_left_out: 1",)


def test_h14_thinking_goes_back_with_its_calls_where_the_provider_wants_it() -> None:
    session = log()
    run = session.run("go")
    run.request()
    run.thinking("look")
    call = run.call(provider_id="k1")
    run.dispatch(call)
    run.answer(call, "text")
    run.request()
    kept = rendered(session, keeps_reasoning=True, route=run.route)
    assert kept.messages[1].reasoning == "look"
    assert kept.losses == ()
    assert rendered(session).messages[1].reasoning is None


def test_h18_call_ids_reused_in_later_turns() -> None:
    session = log()
    for path in ("a", "b"):
        run = session.run(f"read {path}")
        run.request()
        call = run.call("Read", {"path": path}, provider_id="call_0")
        run.dispatch(call)
        run.answer(call, f"text of {path}")
        run.request()
        run.text(f"It says {path}.")
        run.complete()
    session.run("third").request()
    result = rendered(session)
    pairs = [
        (message.calls[0].arguments, after.text)
        for message, after in zip(result.messages, result.messages[1:], strict=False)
        if message.calls
    ]
    assert pairs == [('{"path":"a"}', "text of a"), ('{"path":"b"}', "text of b")]
    assert result.messages[1].calls[0].id == "call_0", "the first keeps its id"
    assert result.losses == ("call_ids_replaced: 1",)
    # After a restart the same bytes are folded anew: the same request comes out.
    assert rendered(session) == result


def test_h18_an_id_of_ours_that_a_server_uses_is_no_second_one() -> None:
    session = log()
    run = session.run("go")
    run.request()
    second_id = session.ids()
    first = run.call(provider_id="call_" + second_id.replace("-", ""))
    second = CallId(run.add(role=Role.MODEL, content=FunctionCall(name="Read", args={}), event_id=second_id))
    for call in (first, second):
        run.answer(call, "no", Outcome.NOT_STARTED)
    run.complete()
    ids = [call.id for call in rendered(session).messages[1].calls]
    assert len(set(ids)) == 2


def test_h80_a_change_of_provider_in_mid_session() -> None:
    session = log()
    first = Route(profile="a", provider="one", model="m")
    second = Route(profile="b", provider="two", model="n")
    run = session.run("read a", first)
    run.request()
    run.thinking("I think as the first")
    call = run.call(provider_id="functions.Read:0")
    run.dispatch(call)
    run.answer(call, "text of a")
    run.request()
    run.text("Read.")
    run.complete()
    session.run("and now?", second).request()
    result = rendered(session, keeps_reasoning=True, route=second)
    assert all(message.reasoning is None for message in result.messages)
    assert result.losses == ("thinking_left_out: 1", "call_ids_replaced: 1")
    report = replay_plan.plan(history_of(session), second, keeps_reasoning=True)
    assert len(report.losses) == 2
    assert "thinking of 1 step" in report.losses[0]
    assert not report.changes_model
    assert replay_plan.plan(history_of(session), first, keeps_reasoning=True).changes_model
    # The ledger keeps the original.
    assert any(item.event.refs and item.event.refs.tool_call_id == "functions.Read:0" for item in session)


def test_h76_order_is_that_of_positions_when_the_clock_steps_back() -> None:
    session = log()
    session.run("before").complete()
    session.now_ms -= 3_600_000
    session.run("after").complete()
    assert rendered(session).messages == (user("before"), user("after"))
