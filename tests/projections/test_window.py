"""The window: what each level leaves out, when it rises, and that it never goes back."""

import msgspec
import pytest

from maka.contracts.model_ports import ChatMessage
from projections import model_history, window
from projections.window import Estimate, Window
from tests.builders import RunLog, SessionLog, log
from tests.checkers import check_messages

LONG = "0123456789" * 1_000


def step(run: RunLog, number: int, result: str = LONG) -> None:
    run.request()
    run.text(f"step {number}")
    call = run.call("Read", {"path": f"f{number}", "content": LONG}, provider_id=f"{run.run_id[-4:]}_{number}")
    run.dispatch(call)
    run.answer(call, result)


def session_of(turns: int, steps: int) -> SessionLog:
    session = log()
    for turn in range(turns):
        run = session.run(f"turn {turn} " + LONG)
        for number in range(steps):
            step(run, number)
        run.request()
        if turn < turns - 1:
            run.text("done")
            run.complete()
    return session


def history_of(session: SessionLog) -> model_history.History:
    history = model_history.project(session)
    assert history is not None
    return history


def messages_at(session: SessionLog, level: int, budget: int | None = None) -> tuple[ChatMessage, ...]:
    history = history_of(session)
    result = model_history.render(
        history, level=level, through_position=history.position, keeps_reasoning=False, budget=budget
    )
    check_messages(result.messages)
    return result.messages


def results(messages: tuple[ChatMessage, ...]) -> list[str]:
    return [message.text or "" for message in messages if message.role == "tool"]


@pytest.mark.parametrize(("level", "whole"), [(0, 10), (1, 4), (2, 1)])
def test_older_outputs_become_one_line(level: int, whole: int) -> None:
    """Level 1 keeps the outputs of the last 4 steps, level 2 those of the last one; words stay."""
    outputs = results(messages_at(session_of(2, 5), level))
    assert [text == LONG for text in outputs] == [False] * (10 - whole) + [True] * whole
    for text in outputs[: 10 - whole]:
        assert text.startswith("[left out: the output of Read {")
        assert text.endswith("10,000 characters]")
        assert "\n" not in text


def test_a_short_output_is_not_made_longer() -> None:
    session = log()
    run = session.run("go")
    for number in range(6):
        step(run, number, "ok")
    run.request()
    assert results(messages_at(session, 2)) == ["ok"] * 6


def test_level_3_cuts_everything_but_the_newest_user_message() -> None:
    messages = messages_at(session_of(2, 3), 3)
    users = [message.text or "" for message in messages if message.role == "user"]
    assert len(users[0]) < 2_100
    assert users[1] == "turn 1 " + LONG
    for message in messages:
        if message.role != "user":
            assert len(message.text or "") < 2_100
        for call in message.calls:
            assert len(call.arguments) < 4_100
            assert set(msgspec.json.decode(call.arguments)) == {"path", "content"}


def test_level_4_leaves_out_whole_turns_then_whole_steps() -> None:
    session = session_of(3, 4)
    messages = messages_at(session, 4, budget=20_000)
    text = "\n".join(message.text or "" for message in messages)
    assert "[left out, since the model's window is too small: the first" in text
    assert "“turn 0 " in text
    assert ("turn 2 " + LONG) in text, "the newest request stays whole"
    tiny = messages_at(session, 4, budget=0)
    assert [message.role for message in tiny] == ["user", "user", "user", "assistant", "tool"]
    assert "the first 2 turns" in (tiny[0].text or "")
    assert "the first 3 steps of this turn" in (tiny[2].text or "")


def test_level_4_of_a_single_turn_leaves_out_steps_alone() -> None:
    messages = messages_at(session_of(1, 4), 4, budget=0)
    assert [message.role for message in messages] == ["user", "user", "assistant", "tool"]
    assert messages[0].text == "turn 0 " + LONG
    assert messages[1].text == "[left out, since the model's window is too small: the first 3 steps of this turn]"


def test_what_comes_after_the_position_is_untouched() -> None:
    session = session_of(1, 6)
    history = history_of(session)
    through = history.position
    run = session.run("more")
    for number in range(6, 9):
        step(run, number)
    history = history_of(session)
    result = model_history.render(history, level=2, through_position=through, keeps_reasoning=False)
    assert [text == LONG for text in results(result.messages)] == [False] * 5 + [True] * 4


def test_the_window_is_the_newest_requests_and_never_goes_back() -> None:
    session = log()
    run = session.run("go")
    for level, through in ((1, 3), (2, 9), (1, 9), (0, 0)):
        run.request(level=level, through=through, same_step=True)
    assert history_of(session).window == Window(2, 9)


def test_estimate_from_reported_tokens_and_what_came_since() -> None:
    session = log()
    run = session.run("x" * 400)
    history = history_of(session)
    assert history.estimate() is None
    assert window.estimate_tokens(400 + 100, history.estimate()) == 125
    run.request()
    run.text("y" * 40)
    run.usage(1_000, 10)
    call = run.call("Read", {})
    run.dispatch(call)
    run.answer(call, "z" * 54)
    assert history_of(session).estimate() == Estimate(input_tokens=1_000, chars_since=40 + len("Read{}") + 54)
    assert window.estimate_tokens(9_999, history_of(session).estimate()) == 1_025
    # After the window rose, the reported tokens say nothing about the shorter request.
    run.request(level=1, through=history_of(session).position)
    assert history_of(session).estimate() is None


@pytest.mark.parametrize(("estimate", "raises"), [(80, False), (81, True)])
def test_the_window_rises_above_four_fifths(estimate: int, raises: bool) -> None:
    assert window.should_raise(estimate, 100) is raises
    assert window.fits(estimate * 4, 100) is not raises


def test_the_window_rises_level_by_level_and_then_along_with_the_log() -> None:
    windows = [Window()]
    while (higher := window.raised(windows[-1], 100)) is not None:
        windows.append(higher)
    assert windows == [Window(), *(Window(level, 100) for level in (1, 2, 3, 4))]
    assert window.raised(Window(4, 100), 120) == Window(4, 120)


@pytest.mark.parametrize("turns", [1, 3])
def test_each_level_leaves_less(turns: int) -> None:
    session = session_of(turns, 6)
    history = history_of(session)
    chars: list[int] = []
    for level in range(window.LEVEL_MAX + 1):
        result = model_history.render(
            history, level=level, through_position=history.position, keeps_reasoning=False, budget=10_000
        )
        check_messages(result.messages)
        chars.append(result.chars)
    assert chars == sorted(chars, reverse=True)
    assert len(set(chars)) == len(chars)


def test_the_budget_of_level_4_leaves_room_for_what_comes() -> None:
    budget = window.budget_chars(1_000, overhead_chars=500)
    assert budget == 1_500
    assert window.fits(budget + 500, 1_000)
    assert window.budget_chars(10, overhead_chars=500) == 0
