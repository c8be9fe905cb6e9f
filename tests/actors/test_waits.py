"""Parked runs: durable, without actors, revived by the first answer, before and after a restart alike."""

# pyright: reportPrivateUsage=false

from actors.messages import Shutdown
from actors.run import RunActor
from maka.contracts.commands import AnswerTaken, BoundarySet, StopReceipt
from maka.contracts.content import Outcome, RunLimits
from maka.contracts.errors import FailureClass, Refusal, RefusalCode
from maka.contracts.ids import EventId, InvocationId
from maka.contracts.model_ports import ChatRequest
from projections import boundary, run_record, session_index
from tests.actors.case import Case, asks, then
from tests.sim.checkers import Checker
from tests.sim.outside import Said, SimReply

DONE = Said(text=("thank you",))


def wait_of(case: Case) -> EventId:
    waits = case.host.waits(case.session_id)
    assert waits, "nothing waits"
    return waits[0]


def park(case: Case) -> None:
    """Run until nothing can happen any more: the run waits, and nobody lives in it."""
    case.host.world.run()
    assert len(case.host.waits(case.session_id)) >= 1
    assert not [actor for actor in case.host.world.actors if type(actor).__name__ in ("RunActor", "BackendActor")]


def refused(reply: SimReply) -> RefusalCode:
    assert isinstance(reply.value, Refusal), reply.value
    return reply.value.code


def record(case: Case) -> run_record.RunRecord:
    folded = run_record.project(case.host.store.read_stream(InvocationId(case.sent.value.run_id)))
    assert folded is not None
    return run_record.record(folded)


def test_an_answer_revives_a_parked_run() -> None:
    case = Case(then(asks("Ask", "Quick"), DONE))
    park(case)
    reply = case.host.answer(case.session_id, wait_of(case), "blue")
    ended = case.finish()
    assert isinstance(reply.value, AnswerTaken)
    assert (ended.status, ended.final_text) == ("completed", "thank you")
    told = [message.text or "" for message in case.requests()[-1].messages if message.role == "tool"]
    assert any("blue" in text for text in told)


def test_h28_a_restart_leaves_a_parked_run_answerable() -> None:
    case = Case(then(asks("Ask"), DONE))
    park(case)
    head = case.host.store.head()
    case.host.crash()
    case.host.world.run()
    assert case.host.store.head() == head, "a restart adds nothing"
    reply = case.host.answer(case.session_id, wait_of(case), "blue")
    assert case.finish().status == "completed"
    assert isinstance(reply.value, AnswerTaken)


def test_h28_by_policy_a_restart_closes_a_parked_run_with_a_visible_reason() -> None:
    case = Case(then(asks("Ask"), DONE))
    park(case)
    wait = wait_of(case)
    case.host.waits_keep = False
    case.host.crash()
    ended = case.finish()
    assert (ended.status, ended.failure_class) == ("failed", "app_restarted")
    late = case.host.answer(case.session_id, wait)
    case.host.world.run()
    assert refused(late) is RefusalCode.WAIT_CLOSED


def test_h27_the_first_answer_wins() -> None:
    for seed in range(20):
        case = Case(then(asks("Ask"), DONE), seed=seed)
        park(case)
        wait = wait_of(case)
        replies = [case.host.answer(case.session_id, wait, answer) for answer in ("yes", "no", "maybe")]
        case.finish()
        taken = [reply for reply in replies if isinstance(reply.value, AnswerTaken)]
        assert len(taken) == 1
        others = [reply for reply in replies if reply is not taken[0]]
        assert {refused(reply) for reply in others} == {RefusalCode.WAIT_CLOSED}


def test_h26_an_answer_after_a_stop_changes_nothing() -> None:
    case = Case(then(asks("Ask"), DONE))
    park(case)
    wait = wait_of(case)
    stopped = case.host.stop(case.session_id)
    late = case.host.answer(case.session_id, wait)
    ended = case.finish()
    assert isinstance(stopped.value, StopReceipt)
    assert (ended.status, ended.abort_source) == ("aborted", "test.button")
    assert refused(late) is RefusalCode.WAIT_CLOSED
    assert case.outcomes() == [Outcome.ABORTED]
    assert case.host.waits(case.session_id) == ()


def test_h22_a_stop_while_parked_is_an_ending_and_the_turn_stays_in_the_history() -> None:
    case = Case(then(asks("Ask", text="may I?"), DONE))
    park(case)
    receipt = case.host.stop(case.session_id)
    case.finish()
    assert receipt.value.was == "waiting for a person"
    case.host.send(case.session_id, "what did I ask before?")
    case.host.world.run()
    texts = [message.text for message in case.requests()[-1].messages if message.role != "tool"]
    assert texts == ["do it", "may I?", "what did I ask before?"]


def test_h82_an_old_answer_is_not_used_for_a_later_question() -> None:
    case = Case(then(asks("Ask"), asks("Ask"), DONE))
    park(case)
    first = wait_of(case)
    case.host.answer(case.session_id, first, "yes")
    park(case)
    case.host.crash()
    case.host.world.run()
    again = case.host.answer(case.session_id, first, "yes")
    case.host.world.run()
    assert refused(again) is RefusalCode.WAIT_CLOSED
    assert len(case.host.waits(case.session_id)) == 1, "the second question is still open"
    case.host.answer(case.session_id, wait_of(case), "no")
    assert case.finish().status == "completed"


def test_h29_each_of_two_questions_has_its_own_answer() -> None:
    case = Case(then(asks("Ask", "Ask"), DONE))
    park(case)
    one, two = case.host.waits(case.session_id)
    case.host.answer(case.session_id, two, "second")
    park(case)
    assert case.host.waits(case.session_id) == (one,)
    case.host.answer(case.session_id, one, "first")
    assert case.finish().status == "completed"
    told = [message.text for message in case.requests()[-1].messages if message.role == "tool"]
    assert told == ["Answer 1: first", "Answer 1: second"]


def test_a_message_behind_a_parked_run_waits_and_runs_after_it() -> None:
    case = Case(then(asks("Ask"), DONE, Said(text=("next",))))
    park(case)
    queued = case.host.send(case.session_id, "and then this")
    case.host.world.run()
    assert queued.value.message_id is not None
    case.host.answer(case.session_id, wait_of(case))
    case.finish()
    assert [request.messages[-1].text for request in case.requests()][-1] == "and then this"


def test_shutdown_leaves_a_parked_run_parked() -> None:
    case = Case(then(asks("Ask"), DONE))
    park(case)
    head = case.host.store.head()
    over = SimReply()
    case.host.kernel.tell(Shutdown(reply=over))
    case.host.world.run()
    assert over.value is True
    assert case.host.store.head() == head


def test_parked_time_does_not_count_and_active_time_goes_on() -> None:
    """A limit of 10 s: 6 s of work, a day of waiting, then 4 s more are left."""

    def slow(request: ChatRequest) -> Said:
        return asks("Ask") if len(request.messages) == 1 else Said(text=("on and on",), hangs=True)

    case = Case(slow, limits=RunLimits(active_s_max=10.0))
    case.host.world.now_s += 6.0
    park(case)
    case.host.world.now_s += 86_400.0
    case.host.crash()
    case.host.world.run()
    answered_s = case.host.world.now_s
    case.host.answer(case.session_id, wait_of(case))
    case.host.world.run()
    assert 3.0 <= case.host.world.now_s - answered_s <= 5.0, "the rest of the limit, not all of it"
    ended = record(case)
    assert (ended.status, ended.failure_class) == ("failed", FailureClass.DEADLINE)
    assert 9_000 <= (ended.duration_ms or 0) <= 11_000


def test_the_time_limit_does_not_end_a_run_that_has_just_parked() -> None:
    """Its session lets it go, and takes it for one without actors from then on."""
    case = Case(then(asks("Ask"), DONE), limits=RunLimits(active_s_max=5.0))
    case.until(lambda: any(isinstance(actor, RunActor) and parked(actor) for actor in case.host.world.actors))
    case.host.world.pass_time(late_s=60.0)
    case.host.world.run()
    assert len(case.host.waits(case.session_id)) == 1
    stopped = case.host.stop(case.session_id)
    case.host.world.run()
    assert isinstance(stopped.value, StopReceipt) and stopped.value.status == "aborted"


def parked(run: RunActor) -> bool:
    state = run._state
    return state.in_flight is None and bool(state.work) and all(work.wait_id is not None for work in state.work)


def test_an_answer_of_the_wrong_kind_is_refused_and_the_wait_stays() -> None:
    case = Case(then(asks("Ask"), DONE))
    park(case)
    wait = wait_of(case)
    reply = case.host.decide(case.session_id, wait, "allow")
    case.host.world.run()
    assert refused(reply) is RefusalCode.INVALID_INPUT
    assert case.host.waits(case.session_id) == (wait,)


def test_an_answer_to_nothing_is_refused() -> None:
    case = Case(then(DONE))
    case.finish()
    reply = case.host.answer(case.session_id, "01900000-0000-7000-8000-0000000000ff")
    case.host.world.run()
    assert refused(reply) is RefusalCode.WAIT_CLOSED


def test_a_wait_beside_a_tool_parks_when_the_tool_has_ended() -> None:
    for seed in range(20):
        case = Case(then(asks("Process", "Ask", "File"), DONE), seed=seed)
        park(case)
        assert sorted(case.outcomes()) == [Outcome.OK, Outcome.OK]
        case.host.answer(case.session_id, wait_of(case))
        assert case.finish().status == "completed"


def test_an_answer_that_comes_while_tools_still_run_is_taken() -> None:
    case = Case(then(asks("Hang", "Ask"), DONE))
    case.until(lambda: bool(case.host.waits(case.session_id)))
    reply = case.host.answer(case.session_id, wait_of(case))
    case.until(lambda: reply.value is not None)
    assert isinstance(reply.value, AnswerTaken)
    case.host.stop(case.session_id)
    case.host.world.run()
    Checker(case.host).settled()
    assert sorted(case.outcomes()) == sorted([Outcome.OK, Outcome.ABORTED])


def test_a_grant_can_be_taken_back_while_the_run_that_got_it_goes_on() -> None:
    """The session's own view is older than the run's decision, so it looks at the log first."""
    case = Case(then(asks("Ask", args={"path": "/boundary"}), Said(text=("on and on",), hangs=True)))
    case.until(lambda: bool(case.host.waits(case.session_id)))
    taken = case.host.decide(case.session_id, wait_of(case), "allow")
    case.until(lambda: taken.value is not None)
    assert isinstance(taken.value, AnswerTaken)
    origin = case.host.store.read_positions(taken.value.position - 1, 1)[0].event.id
    changed = case.host.change_boundary(case.session_id, revoked=(EventId(origin),))
    case.host.world.run()
    assert isinstance(changed.value, BoundarySet), changed.value
    assert changed.value.revision == 2
    header = session_index.decode(case.host.store.header_of(case.session_id) or b"")
    state = boundary.project(case.host.session_facts(case.session_id))
    assert state is not None
    assert (header.boundary_revision, state.boundary.revision, state.boundary.grants) == (2, 2, ())
