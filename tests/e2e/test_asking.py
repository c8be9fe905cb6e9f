"""Asking through the whole path: two clients, a stop, and the very bytes that are run."""

import threading

import pytest

from maka.contracts.actions import ProcessStarted
from maka.contracts.commands import AnswerTaken
from maka.contracts.content import FunctionCall
from maka.contracts.errors import RefusalCode, RefusedError
from maka.contracts.events import Committed
from maka.contracts.session_events import PermissionClosureAck, ToolStart, UserQuestionAnswerAck, UserQuestionAsked
from maka.edges.scripted_model import Call, Turn
from tests.e2e.harness import WAIT_S, Maka, World, asked_and_killed

ASKS = Turn(calls=(Call(name="ask_user_question", args={"questions": [{"question": "Which?"}]}),))
SURE = Turn(calls=(Call(id="same", name="ask_user_question", args={"questions": [{"question": "Sure?"}]}),))
ROUNDS = 10
HIDING = ("printf %s 'a\u202etxt.hs'", "printf %s 'notes\u200b.txt' # \u2066x\u2069", "printf 'a'\nprintf 'b'")


Outcomes = dict[str, AnswerTaken | RefusalCode | str]


def answer(maka: Maka, request: str, client: str, together: threading.Barrier, outcomes: Outcomes) -> None:
    together.wait(WAIT_S)
    try:
        outcomes[client] = maka.manager.answer(maka.session_id, request, answers=(client,), client=client)
    except RefusedError as error:
        outcomes[client] = error.refusal.code
        outcomes[f"{client} is told"] = error.refusal.message


def test_h27_two_clients_answer_at_once(world: World) -> None:
    """Two threads answer at the same moment: one is taken, the other is told; one decision is in the log."""
    maka = world.open([ASKS, Turn(text="thanks")])
    for _ in range(ROUNDS):
        live = maka.send()
        request = live.until(UserQuestionAsked).request_id
        together, outcomes = threading.Barrier(2), Outcomes()

        clients = [
            threading.Thread(target=answer, args=(maka, request, name, together, outcomes))
            for name in ("desk", "phone")
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join(WAIT_S)
        (winner,) = (name for name, outcome in outcomes.items() if isinstance(outcome, AnswerTaken))
        code, told = (outcome for name, outcome in outcomes.items() if name != winner)
        assert code is RefusalCode.WAIT_CLOSED
        assert f'answered by "{winner}": "{winner}", position' in str(told)
        ack = live.until(UserQuestionAnswerAck)
        assert (ack.request_id, ack.answers, ack.client) == (request, (winner,), winner)
        assert live.end().status == "completed"
        live.close()
    assert len(maka.actions("user_question_answer")) == ROUNDS


def test_h26_answer_comes_after_the_request_is_gone(world: World) -> None:
    maka = world.open([ASKS, Turn(text="thanks")])
    live = maka.send()
    request = live.until(UserQuestionAsked).request_id
    other = maka.follow(maka.session_id)  # a client that came later finds the request, and is told of its end
    assert other.until(UserQuestionAsked).request_id == request
    maka.manager.stop(maka.session_id, "test.button")
    for client in (live, other):
        closed = client.until(PermissionClosureAck)
        assert (closed.request_id, bool(closed.reason)) == (request, True)
    with pytest.raises(RefusedError) as late:
        maka.manager.answer(maka.session_id, request, answers=("late",))
    assert late.value.refusal.code is RefusalCode.WAIT_CLOSED
    assert maka.manager.pending() == []
    assert live.end().abort_source == "test.button"


def test_h82_an_old_answer_is_not_used_for_the_same_question_again(world: World) -> None:
    """The owner is killed between the two; both calls have one id and ask the same."""
    maka = world.maka(world.model([SURE, SURE, Turn(text="thanks")]))
    second = asked_and_killed(world, maka.model, "do it", "yes")
    maka.open()
    (wait,) = maka.manager.pending()
    session = wait.session_id
    first, again = [item.event.id for item in maka.facts(session) if asks(item)]
    assert again == wait.id == second
    with pytest.raises(RefusedError) as late:
        maka.manager.answer(session, first, answers=("yes",))
    assert late.value.refusal.code is RefusalCode.WAIT_CLOSED
    assert [each.id for each in maka.manager.pending()] == [second], "it still waits"
    assert maka.model.count == 2, "and the run with it"
    events = maka.follow(session)
    maka.manager.answer(session, second, answers=("no",))
    assert events.end().status == "completed"
    assert maka.model.requests[-1].tool_results() == ["Answer 1: yes", "Answer 1: no"]


def asks(item: Committed) -> bool:
    return item.event.actions is not None and item.event.actions.user_question_request is not None


def test_a_message_sent_while_it_waits_is_queued_and_runs_next(world: World) -> None:
    maka = world.open([ASKS, Turn(text="thanks")])
    live = maka.send("first")
    request = live.until(UserQuestionAsked).request_id
    queued = maka.manager.send_message(maka.session_id, "second", profile="scripted")
    assert queued.run_id is None and queued.message_id is not None
    maka.reopen()
    events = maka.follow(maka.session_id)
    maka.manager.answer(maka.session_id, request, answers=("so",))
    assert events.end().final_text == "thanks"
    again = events.until(UserQuestionAsked, lambda asked: asked.request_id != request)
    maka.manager.answer(maka.session_id, again.request_id, answers=(None,))
    assert events.end().final_text == "thanks"


def test_half_a_character_in_an_answer_harms_nothing(world: World) -> None:
    maka = world.open([ASKS, Turn(text="thanks")])
    live = maka.send()
    request = live.until(UserQuestionAsked).request_id
    maka.manager.answer(maka.session_id, request, answers=("half \ud83d",), client="test")
    assert live.end().status == "completed"


def test_h32_the_bytes_that_are_shown_are_the_bytes_that_run(world: World) -> None:
    """Hidden characters in a command: the event, the call, the process and the shell all have the same ones."""
    for command in HIDING:
        maka = world.open([Turn(calls=(Call(name="Bash", args={"command": command}),)), Turn(text="ran")])
        live = maka.send(session=maka.new_session())
        session = live.accepted.session_id
        started = live.until(ToolStart)
        assert started.args["command"] == command
        assert live.end().status == "completed"
        (call,) = maka.contents(FunctionCall, session)
        (process,) = maka.actions("process_started", session)
        assert isinstance(process, ProcessStarted)
        assert call.args["command"] == process.command == command
        said = maka.model.requests[-1].tool_results()[-1]
        assert said.encode().startswith(("a\u202etxt.hs".encode(), "notes\u200b.txt".encode(), b"ab"))
        maka.close()
