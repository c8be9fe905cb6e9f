"""Asking through the whole path: two clients, a stop, and the very bytes that are run."""

import threading
from typing import Any

import pytest

from maka.contracts.actions import ProcessStarted
from maka.contracts.commands import AnswerTaken
from maka.contracts.content import FunctionCall
from maka.contracts.errors import Refusal, RefusalCode, RefusedError
from maka.contracts.events import Committed
from maka.contracts.ids import EventId, SessionId
from maka.contracts.session_events import (
    PermissionClosureAck,
    SandboxBoundaryRequest,
    ToolStart,
    UserQuestionAnswerAck,
    UserQuestionAsked,
)
from maka.edges.scripted_model import Call, Turn
from tests.e2e import checks
from tests.e2e.harness import WAIT_S, Maka, World, asked_and_killed, by_prompt

ASKS = Turn(calls=(Call(name="ask_user_question", args={"questions": [{"question": "Which?"}]}),))
SURE = Turn(calls=(Call(id="same", name="ask_user_question", args={"questions": [{"question": "Sure?"}]}),))
WIDENS = Turn(
    calls=(Call(name="request_sandbox_boundary", args={"expansion": {"network": True}, "justification": "asked"}),)
)
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


@pytest.mark.parametrize("restarted", [False, True])
def test_an_answer_that_names_another_sessions_open_request_is_told_where_it_waits(
    world: World, restarted: bool
) -> None:
    """Both are parked: neither wait is closed, neither run goes on, and each is answered after that."""
    maka = world.open(by_prompt(ask=[ASKS, Turn(text="asked")], widen=[WIDENS, Turn(text="widened")]))
    first, second = maka.session_id, maka.new_session()
    question = maka.send("ask", first).until(UserQuestionAsked).request_id
    expansion = maka.send("widen", second).until(SandboxBoundaryRequest).request_id
    if restarted:
        maka.reopen()
    before, asked = checks.everything(maka.store), maka.model.count
    strays: tuple[tuple[SessionId, EventId, SessionId, dict[str, Any]], ...] = (
        (second, question, first, {"answers": ("stray",)}),
        (first, expansion, second, {"decision": "allow", "scope": "workspace"}),
        (first, expansion, second, {"decision": "deny"}),
    )
    for named, request, waiting, given in strays:
        refusal = refused(maka, named, request, **given)
        assert refusal.code is RefusalCode.INVALID_INPUT
        number = 1 + (waiting == second)
        assert refusal.message == (
            f"session {named} never asked {request}: it waits in session #{number}, {waiting}: answer it there; "
            "this answer changed nothing"
        )
    assert [wait.id for wait in maka.manager.pending()] == [question, expansion]
    maka.reopen()
    assert checks.everything(maka.store) == before
    assert maka.model.count == asked
    one, two = maka.follow(first), maka.follow(second)
    maka.manager.answer(first, question, answers=("so",))
    maka.manager.answer(second, expansion, decision="deny")
    assert (one.end().final_text, two.end().final_text) == ("asked", "widened")


def test_an_answer_for_an_earlier_run_leaves_the_one_that_waits_now(world: World) -> None:
    """It is told what became of that request; to a session that never asked it, it is told that."""
    maka = world.open([ASKS, Turn(text="thanks")])
    first = maka.send().until(UserQuestionAsked).request_id
    maka.manager.stop(maka.session_id, "test.button")
    live = maka.send("again")
    second = live.until(UserQuestionAsked, lambda asked: asked.request_id != first).request_id
    other = maka.new_session()
    before = checks.everything(maka.store)
    refusal = refused(maka, maka.session_id, first, answers=("late",))
    assert refusal.code is RefusalCode.WAIT_CLOSED
    assert refusal.message.startswith(f"request {first} no longer waits (closed: ")
    for session, request in ((other, first), (maka.session_id, first[-6:]), (maka.session_id, other)):
        refusal = refused(maka, session, request, answers=("late",))
        assert refusal.code is RefusalCode.INVALID_INPUT
        assert refusal.message.startswith(f"session {session} never asked {request}: `maka inbox` lists")
    assert checks.everything(maka.store) == before
    maka.manager.answer(maka.session_id, second, answers=("so",))
    assert live.end().status == "completed"


def refused(maka: Maka, session: str, request: str, **given: Any) -> Refusal:
    with pytest.raises(RefusedError) as error:
        maka.manager.answer(session, request, **given)
    return error.value.refusal


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
