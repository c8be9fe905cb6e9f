"""Sessions and the kernel in the deterministic world: admission, queue, commands, recovery, shutdown, passivation."""

from typing import Any

import pytest

from actors.messages import Shutdown
from maka.contracts.commands import MessageAccepted, SessionCreated, StopReceipt
from maka.contracts.errors import Refusal, RefusalCode
from maka.contracts.events import Status
from maka.contracts.ids import InvocationId, RunId, SessionId
from maka.contracts.limits import PROMPT_CHARS_MAX, QUEUED_MESSAGES_MAX, SESSIONS_IDLE_MAX
from maka.contracts.model_ports import ChatRequest
from projections import run_record, session_index
from tests.sim.checkers import Checker
from tests.sim.host import SimHost
from tests.sim.outside import Said, SimReply


def echo(request: ChatRequest) -> Said:
    """Answer with the newest words, at once."""
    last = request.messages[-1].text or ""
    return Said(text=(f"you said {last}",))


def hang_on(word: str) -> Any:
    """Answer like echo, but never end where the newest words hold `word`."""

    def script(request: ChatRequest) -> Said:
        last = request.messages[-1].text or ""
        return Said(text=("thinking about it",), hangs=True) if word in last else echo(request)

    return script


def refused(reply: SimReply) -> RefusalCode:
    assert isinstance(reply.value, Refusal), reply.value
    return reply.value.code


def record_of(host: SimHost, run_id: RunId) -> run_record.RunRecord:
    folded = run_record.project(host.store.read_stream(InvocationId(run_id)))
    assert folded is not None
    return run_record.record(folded)


def status_of(host: SimHost, run_id: RunId | None) -> tuple[Status, str]:
    assert run_id is not None
    record = record_of(host, run_id)
    return Status(record.status), record.final_text


def finish(host: SimHost) -> None:
    host.world.run()
    Checker(host).settled()


def test_a_message_becomes_a_run_and_its_answer_is_the_log() -> None:
    host = SimHost(1, echo)
    session_id = host.session()
    reply = host.send(session_id, "hello")
    finish(host)
    assert isinstance(reply.value, MessageAccepted)
    assert status_of(host, reply.value.run_id) == (Status.COMPLETED, "you said hello")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", RefusalCode.INVALID_INPUT),
        (" \n", RefusalCode.INVALID_INPUT),
        ("x" * (PROMPT_CHARS_MAX + 1), RefusalCode.INVALID_INPUT),
    ],
)
def test_a_bad_prompt_is_refused_and_nothing_is_written(text: str, code: RefusalCode) -> None:
    host = SimHost(1, echo)
    session_id = host.session()
    before = host.store.head()
    reply = host.send(session_id, text)
    host.world.run()
    assert refused(reply) is code
    assert host.store.head() == before


def test_a_prompt_that_no_window_fits_is_refused_at_admission() -> None:
    host = SimHost(1, echo, window=300)
    session_id = host.session()
    before = host.store.head()
    reply = host.send(session_id, "x" * 4_000)
    host.world.run()
    assert refused(reply) is RefusalCode.INVALID_INPUT
    assert host.store.head() == before


@pytest.mark.parametrize("name", ["", "a" * 512, "x/../y", "nul\0", "01900000-0000-7000-8000-0000000000ff"])
def test_h42_an_unknown_or_malformed_session_is_refused(name: str) -> None:
    host = SimHost(1, echo)
    host.world.run()
    reply = host.send(SessionId(name), "hello")
    host.world.run()
    assert refused(reply) in (RefusalCode.INVALID_INPUT, RefusalCode.UNKNOWN_SESSION)


def test_h67_twenty_prompts_at_once_are_one_run_each_in_order() -> None:
    host = SimHost(3, echo)
    session_id = host.session()
    replies = [host.send(session_id, f"prompt {number}") for number in range(20)]
    finish(host)
    assert all(isinstance(reply.value, MessageAccepted) for reply in replies)
    answers = [item.event.content for item in host.session_facts(session_id) if item.event.role.value == "model"]
    assert [answer.text for answer in answers] == [f"you said prompt {number}" for number in range(20)]  # type: ignore[union-attr]


def test_a_queued_message_survives_a_crash_and_runs_next() -> None:
    host = SimHost(4, hang_on("wait"))
    session_id = host.session()
    host.send(session_id, "wait")
    queued = host.send(session_id, "second")
    host.world.run(until=lambda: queued.value is not None)
    assert queued.value.message_id is not None
    host.crash()
    finish(host)
    header = session_index.decode(host.store.header_of(session_id) or b"")
    assert (header.untaken, header.run_count, header.last_status) == ((), 2, Status.COMPLETED)


def test_the_queue_is_bounded() -> None:
    host = SimHost(5, hang_on("wait"))
    session_id = host.session()
    host.send(session_id, "wait")
    replies = [host.send(session_id, f"m{number}") for number in range(QUEUED_MESSAGES_MAX + 1)]
    host.world.run()
    assert refused(replies[-1]) is RefusalCode.QUEUE_FULL
    assert all(isinstance(reply.value, MessageAccepted) for reply in replies[:-1])


def test_the_same_command_id_is_one_run_and_another_text_is_a_conflict() -> None:
    host = SimHost(6, echo)
    session_id = host.session()
    replies = [host.send(session_id, "hello", command_id="once") for _ in range(3)]
    other = host.send(session_id, "other", command_id="once")
    finish(host)
    assert len({reply.value for reply in replies}) == 1
    assert refused(other) is RefusalCode.COMMAND_CONFLICT
    host.crash()
    again = host.send(session_id, "hello", command_id="once")
    finish(host)
    assert again.value == replies[0].value


def test_a_repeated_create_is_one_session_and_numbers_go_on_after_a_restart() -> None:
    host = SimHost(7, echo)
    first, second = host.create("make"), host.create("make")
    host.world.run()
    assert first.value == second.value
    host.crash()
    third, fourth = host.create("make"), host.create()
    host.world.run()
    assert third.value == first.value
    assert isinstance(fourth.value, SessionCreated)
    assert fourth.value.number > first.value.number


def test_an_unknown_profile_is_refused_at_once() -> None:
    host = SimHost(8, echo)
    session_id = host.session()
    host.provider_name = "other"
    reply = host.send(session_id, "hello")
    host.world.run()
    assert refused(reply) is RefusalCode.NOT_READY


def test_stopping_an_idle_session_says_so() -> None:
    host = SimHost(9, echo)
    session_id = host.session()
    reply = host.stop(session_id)
    host.world.run()
    assert reply.value == StopReceipt(session_id=session_id)


def test_a_stop_never_overtakes_its_own_message() -> None:
    """Both are data in kernel and session: whatever the schedule, the run is started, then stopped."""
    for seed in range(40):
        host = SimHost(seed, hang_on("wait"))
        session_id = host.session()
        sent, stopped = host.send(session_id, "wait"), host.stop(session_id)
        finish(host)
        assert isinstance(stopped.value, StopReceipt)
        assert stopped.value.run_id == sent.value.run_id
        assert stopped.value.status == "aborted"


def test_recovery_comes_before_every_command() -> None:
    """A command sent at once after a restart finds the open runs of the dead owner closed."""
    host = SimHost(10, hang_on("wait"))
    session_id = host.session()
    first = host.send(session_id, "wait")
    host.world.run(until=lambda: first.value is not None)
    host.crash()
    second = host.send(session_id, "go on")
    finish(host)
    assert host.recovered.value == 1
    assert status_of(host, first.value.run_id)[0] is Status.FAILED
    assert status_of(host, second.value.run_id)[0] is Status.COMPLETED


def test_recovery_twice_adds_nothing() -> None:
    host = SimHost(11, hang_on("wait"))
    session_id = host.session()
    first = host.send(session_id, "wait")
    host.world.run(until=lambda: first.value is not None)
    host.crash()
    host.world.run()
    head = host.store.head()
    host.crash()
    host.world.run()
    assert host.store.head() == head


def test_shutdown_ends_every_run_and_refuses_what_comes_after() -> None:
    host = SimHost(12, hang_on("wait"))
    sessions = [host.session() for _ in range(5)]
    replies = [host.send(session_id, "wait") for session_id in sessions]
    host.send(sessions[0], "queued")
    host.world.run()
    over = SimReply()
    host.kernel.tell(Shutdown(reply=over))
    late = host.send(sessions[0], "late")
    finish(host)
    assert over.value is True
    assert refused(late) is RefusalCode.SHUTTING_DOWN
    for reply in replies:
        assert record_of(host, reply.value.run_id).abort_source == "host.shutdown"
    header = session_index.decode(host.store.header_of(sessions[0]) or b"")
    assert len(header.untaken) == 1, "a queued message waits for the next start"


def test_idle_sessions_are_let_go_and_come_back() -> None:
    host = SimHost(13, echo)
    sessions = [host.session() for _ in range(SESSIONS_IDLE_MAX + 8)]
    host.world.run()
    actors = [actor for actor in host.world.actors if type(actor).__name__ == "SessionActor"]
    assert len(actors) == SESSIONS_IDLE_MAX
    reply = host.send(sessions[0], "hello again")
    finish(host)
    assert status_of(host, reply.value.run_id) == (Status.COMPLETED, "you said hello again")
