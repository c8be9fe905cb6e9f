"""Deaths and what becomes of them: noticed by message or sweep, ended in a durable fact, or lived through."""

from typing import Any

from actors.messages import LedgerDied, Sweep
from actors.messages_ledger import PutPartialText
from actors.messages_run import StopRun
from maka.contracts.commands import MessageAccepted
from maka.contracts.content import FunctionResponse, Outcome, Text
from maka.contracts.errors import Refusal, RefusalCode
from maka.contracts.events import is_terminal
from maka.contracts.limits import SESSION_RELOADS_MAX, SESSION_RELOADS_WINDOW_S, SETTLE_WAIT_S
from maka.contracts.session_events import TextDelta, ToolOutputDelta
from tests.actors.case import Case, asks, then
from tests.sim.checkers import Checker
from tests.sim.host import SimHost, fail_commit
from tests.sim.outside import Said, SimReply


def living(host: SimHost, name: str) -> list[Any]:
    return [actor for actor in host.world.actors if type(actor).__name__ == name]


def crash(host: SimHost, name: str) -> None:
    """Let each actor of this class meet a bug now."""
    for actor in living(host, name):

        def broken(_: object) -> None:
            raise RuntimeError("planted")

        actor.receive = broken
        actor.actor_ref.tell("a message that nobody can handle")


def test_a_dead_runs_tools_end_before_its_terminal() -> None:
    for seed in range(20):
        case = Case(lambda _: asks("Hang", "Process"), seed=seed)
        case.until(lambda case=case: bool(case.shown(ToolOutputDelta)))  # type: ignore[misc]
        crash(case.host, "RunActor")
        before_s = case.host.world.now_s
        record = case.finish()
        assert (record.status, record.failure_class) == ("failed", "interrupted_tool")
        assert case.host.world.now_s - before_s < SETTLE_WAIT_S, "the tools were cancelled, not waited out"
        assert living(case.host, "ToolActor") == living(case.host, "BackendActor") == []


def test_a_tool_that_never_ends_holds_the_verdict_back_for_three_seconds_at_most() -> None:
    case = Case(lambda _: asks("Deaf"))
    case.until(lambda: bool(case.shown(ToolOutputDelta)))
    crash(case.host, "RunActor")
    before_s = case.host.world.now_s
    case.until(lambda: any(is_terminal(item.event) for item in case.host.session_facts(case.session_id)))
    assert SETTLE_WAIT_S <= case.host.world.now_s - before_s < SETTLE_WAIT_S + 1
    assert case.outcomes() == [Outcome.OUTCOME_UNKNOWN]


def test_h47_the_session_goes_on_after_its_run_died() -> None:
    case = Case(then(Said(text=("so far",), hangs=True), Said(text=("fine",))))
    case.until(lambda: bool(case.shown(TextDelta)))
    crash(case.host, "RunActor")
    assert case.finish().failure_class == "actor_crashed"
    again = case.host.send(case.session_id, "go on")
    case.host.world.run()
    Checker(case.host).settled()
    assert isinstance(again.value, MessageAccepted)


def test_a_run_lives_through_its_sessions_death() -> None:
    for seed in range(20):
        case = Case(then(asks("Process", "File"), Said(text=("all done",))), seed=seed)
        case.until(lambda case=case: bool(case.requests()))  # type: ignore[misc]
        crash(case.host, "SessionActor")
        record = case.finish()
        assert (record.status, record.final_text) == ("completed", "all done")


def test_a_stop_reaches_a_run_whose_session_died() -> None:
    case = Case(lambda _: Said(text=("so far",), hangs=True))
    case.until(lambda: bool(case.shown(TextDelta)))
    crash(case.host, "SessionActor")
    case.host.world.run()
    reply = case.host.stop(case.session_id)
    assert case.finish().status == "aborted"
    assert reply.value.status == "aborted"


def test_a_session_that_crashes_too_often_is_fenced_and_its_runs_are_closed() -> None:
    case = Case(lambda _: Said(text=("so far",), hangs=True))
    case.until(lambda: bool(case.shown(TextDelta)))
    for _ in range(SESSION_RELOADS_MAX + 1):
        crash(case.host, "SessionActor")
        case.host.world.run()
    record = case.finish()
    assert (record.status, record.failure_class) == ("failed", "actor_crashed")
    assert living(case.host, "RunActor") == []
    refused = case.host.send(case.session_id, "again")
    case.host.world.run()
    assert isinstance(refused.value, Refusal)
    assert refused.value.code is RefusalCode.INTERNAL
    other = case.host.session()
    sent = case.host.send(other, "hello")
    case.host.world.run(until=lambda: sent.value is not None)
    assert isinstance(sent.value, MessageAccepted), "no other session is touched"


def test_crashes_far_apart_do_not_fence_a_session() -> None:
    case = Case(lambda _: Said(text=("so far",), hangs=True))
    case.until(lambda: bool(case.shown(TextDelta)))
    for _ in range(2 * SESSION_RELOADS_MAX):
        crash(case.host, "SessionActor")
        case.host.world.run()
        case.host.world.now_s += SESSION_RELOADS_WINDOW_S
    case.host.stop(case.session_id)
    assert case.finish().status == "aborted"


def test_a_silent_death_is_noticed_by_the_second_sweep() -> None:
    case = Case(lambda _: Said(text=("so far",), hangs=True))
    case.until(lambda: bool(case.shown(TextDelta)))
    (run,) = living(case.host, "RunActor")
    run.actor_stopped.set()
    case.host.world.actors.remove(run)
    case.host.kernel.tell(Sweep())
    case.host.world.run()
    assert not any(is_terminal(item.event) for item in case.host.session_facts(case.session_id))
    case.host.kernel.tell(Sweep())
    assert case.finish().failure_class == "actor_crashed"


def test_a_silent_death_of_a_session_is_noticed_by_a_sweep() -> None:
    """Its queue goes on although nobody uses it."""
    case = Case(then(Said(text=("so far",), hangs=True), Said(text=("fine",))))
    case.until(lambda: bool(case.shown(TextDelta)))
    queued = case.host.send(case.session_id, "and then")
    case.until(lambda: queued.value is not None)
    (session,) = living(case.host, "SessionActor")
    session.actor_stopped.set()
    case.host.world.actors.remove(session)
    (run,) = living(case.host, "RunActor")
    stopped = SimReply()
    run.address.tell(StopRun(source="test.button", reply=stopped))
    case.host.world.run()
    assert len(case.requests()) == 1, "nobody knows yet"
    case.host.kernel.tell(Sweep())
    case.finish()
    assert len(case.requests()) == 2


def test_a_sweep_finds_nothing_where_all_is_well() -> None:
    case = Case(then(asks("Process"), Said(text=("all done",))))
    for _ in range(200):
        case.host.kernel.tell(Sweep())
        case.host.world.step()
    assert case.finish().status == "completed"


def test_after_the_ledgers_death_every_effect_is_cancelled_and_nothing_is_appended() -> None:
    case = Case(lambda _: asks("Hang", "Process"))
    case.until(lambda: bool(case.shown(ToolOutputDelta)))
    head = case.host.store.head()
    case.host.store.before = lambda _: fail_commit(1, AssertionError("an append"))(1)
    case.host.kernel.tell(LedgerDied(reason="EIO at sync"))
    late = case.host.send(case.session_id, "late")
    case.host.world.run()
    assert case.host.store.head() == head
    assert isinstance(late.value, Refusal)
    for name in ("RunActor", "ToolActor", "BackendActor", "SessionActor"):
        assert living(case.host, name) == [], name
    case.host.crash()
    case.finish()


def test_the_verdict_of_a_dead_run_keeps_what_its_calls_really_said() -> None:
    """An answer that was durable before the crash stays as it is."""
    case = Case(lambda _: asks("Quick", "Hang"))
    case.until(lambda: Outcome.OK in case.outcomes())
    crash(case.host, "RunActor")
    case.finish()
    contents = [item.event.content for item in case.host.session_facts(case.session_id)]
    answers = [(each.name, each.outcome) for each in contents if isinstance(each, FunctionResponse)]
    assert answers == [("Quick", Outcome.OK), ("Hang", Outcome.OUTCOME_UNKNOWN)]


def test_text_that_was_on_its_way_to_the_ledger_is_in_a_dead_runs_ending() -> None:
    """Partials wait a moment for a batch to go with; a run that is closed meanwhile must not lose them."""
    for seed in range(20):
        case = Case(lambda _: Said(text=("seen ", "words"), hangs=True), seed=seed)
        case.until(lambda case=case: len(case.shown(TextDelta)) == 2)  # type: ignore[misc]
        case.until(lambda case=case: any(part for part in partials_on_their_way(case)))  # type: ignore[misc]
        crash(case.host, "RunActor")
        case.finish()
        texts = [item.event.content for item in case.host.session_facts(case.session_id)]
        assert [text.text for text in texts if isinstance(text, Text) and text.interrupted] == ["seen words"]


def partials_on_their_way(case: Case) -> list[Any]:
    (ledger,) = living(case.host, "LedgerActor")
    waiting = [envelope.message for envelope in ledger.actor_inbox.data]
    return [message for message in waiting if isinstance(message, PutPartialText)]
