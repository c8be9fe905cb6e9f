"""What waits is listed once, oldest first, until it is answered, closed, or its run has ended."""

from maka.contracts.actions import (
    Actions,
    BoundaryChanged,
    BoundaryDecision,
    BoundaryRequest,
    Question,
    StateDelta,
    UserQuestionAnswer,
    UserQuestionRequest,
)
from maka.contracts.boundary import Expansion
from maka.contracts.ids import EventId
from projections import inbox
from tests.builders import RunLog, SessionLog, log

NET = Expansion(network=True)


def waits(session: SessionLog) -> list[inbox.PendingWait]:
    state = inbox.project(session)
    assert state is not None
    return list(state.waits.values())


def boundary(run: RunLog) -> EventId:
    request = BoundaryRequest(call_id=run.call("b"), expansion=NET, justification="to fetch it")
    return run.add(actions=Actions(state_delta=StateDelta(boundary_request=request)))


def question(run: RunLog) -> EventId:
    questions = (Question(question="Which one?", options=("this", "that")),)
    return run.add(
        actions=Actions(user_question_request=UserQuestionRequest(call_id=run.call("q"), questions=questions))
    )


def test_each_open_request_is_there_with_all_that_an_answer_needs() -> None:
    session = log(number=7)
    run = session.run()
    first, second = boundary(run), question(run)
    one, two = waits(session)
    assert (one.id, one.session_number, one.run_id, one.expansion) == (first, 7, run.run_id, NET)
    assert one.justification == "to fetch it"
    assert (two.id, two.questions[0].options) == (second, ("this", "that"))


def test_an_answer_a_decision_and_a_closure_take_it_away() -> None:
    session = log()
    run = session.run()
    first, second, third = boundary(run), question(run), question(run)
    decision = BoundaryDecision(request_id=first, decision="deny")
    run.add(actions=Actions(state_delta=StateDelta(boundary_decision=decision)))
    assert [wait.id for wait in waits(session)] == [second, third]
    run.add(actions=Actions(user_question_answer=UserQuestionAnswer(request_id=second, answers=("this",))))
    run.unwait(third)
    assert waits(session) == []


def test_a_request_was_asked_where_its_fact_is_whatever_became_of_it() -> None:
    session = log()
    run = session.run()
    first, second = boundary(run), question(run)
    said = run.add(actions=Actions(user_question_answer=UserQuestionAnswer(request_id=second, answers=("this",))))
    asked = [inbox.was_asked(session, one) for one in (first, second, said, EventId(first[-6:]))]
    assert asked == [True, True, False, False]


def test_a_session_without_requests_has_none() -> None:
    session = log()
    session.run().complete()
    assert waits(session) == []


def test_what_waits_has_the_profile_that_the_session_has_now() -> None:
    session = log()
    first = session.run()
    boundary(first)
    assert [wait.boundary for wait in waits(session)] == ["ask"]
    session.control(actions=Actions(boundary_changed=BoundaryChanged(profile="bypass", revision=1)))
    question(first)
    assert [wait.boundary for wait in waits(session)] == ["bypass", "bypass"]
