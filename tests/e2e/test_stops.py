"""Kind E through the whole path: a stop ends a run once, whatever it is doing, and its receipt tells what happened."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from maka.contracts.content import FunctionResponse, Outcome, Text
from maka.contracts.errors import LedgerFullError, RefusalCode, RefusedError
from maka.contracts.events import Role
from maka.contracts.ports import Append
from maka.contracts.session_events import RunEnded, TextDelta, ToolOutputDelta
from maka.edges import child_process, process_end
from maka.edges.chat_stream import ChatStream
from maka.edges.scripted_model import Call, Gate, Raw, Turn, chunk
from tests.e2e import checks
from tests.e2e.harness import WAIT_S, Maka, World
from tests.edges.support import STOP


def model_texts(maka: Maka) -> list[tuple[str, bool]]:
    return [
        (item.event.content.text, item.event.content.interrupted)
        for item in maka.facts()
        if isinstance(item.event.content, Text) and item.event.role is Role.MODEL
    ]


def settles(appends: Sequence[Append]) -> bool:
    return any(append.settlement for append in appends)


def test_a_stop_after_the_end_changes_nothing(world: World) -> None:
    maka = world.open([Turn(text="done")])
    assert maka.manager.stop(maka.session_id, "test").was == "idle"
    maka.run()
    assert maka.manager.stop(maka.session_id, "test").abort_source is None


def test_h23_one_failed_settlement_must_not_block_all_later_stops(world: World) -> None:
    world.haste.hold()
    maka = world.open([Turn(text="so far", gate=Gate())])
    live = maka.send()
    live.until_said("so far")
    refused: list[int] = []

    def no_room_once(appends: Sequence[Append]) -> None:
        if settles(appends) and not refused:
            refused.append(len(appends))
            raise LedgerFullError("no room: nothing was stored")

    world.faults.before = no_room_once
    with pytest.raises(RefusedError) as first:
        maka.manager.stop(maka.session_id, "first")
    assert first.value.refusal.code is RefusalCode.LEDGER_FULL
    receipt = maka.manager.stop(maka.session_id, "second")
    assert (receipt.status, receipt.abort_source) == ("aborted", "first"), "the first source stays"
    assert live.end().status == "aborted"
    assert model_texts(maka) == [("so far", True)]


def test_h23_without_a_second_stop_the_run_ends_when_there_is_room(world: World) -> None:
    world.haste.hold()
    maka = world.open([Turn(text="so far", gate=Gate())])
    live = maka.send()
    live.until_said("so far")
    room = threading.Event()

    def no_room(appends: Sequence[Append]) -> None:
        if settles(appends) and not room.is_set():
            raise LedgerFullError("no room: nothing was stored")

    world.faults.before = no_room
    with pytest.raises(RefusedError):
        maka.manager.stop(maka.session_id, "first")
    room.set()
    world.haste.release()
    ended = live.end()
    assert (ended.status, ended.abort_source) == ("aborted", "first")


@pytest.fixture
def deaf_stream(world: World) -> threading.Event:
    """Let no stream hear that it was cancelled; the event is set when one has said its last word all the same."""
    over = threading.Event()
    real: Callable[..., None] = ChatStream._over  # pyright: ignore[reportPrivateUsage]

    def said_all(stream: ChatStream, error: BaseException | None) -> None:
        real(stream, error)
        over.set()

    def hear_nothing(stream: ChatStream) -> None:
        return

    world.patch.setattr(ChatStream, "cancel", hear_nothing)
    world.patch.setattr(ChatStream, "_over", said_all)
    return over


@pytest.mark.parametrize("settled_first", [True, False])
def test_h24_complete_after_stop(world: World, deaf_stream: threading.Event, settled_first: bool) -> None:
    gate, settling, go_on = Gate(), threading.Event(), threading.Event()
    maka = world.open([Raw(steps=(chunk({"content": "a"}), gate, chunk({"content": "b"}), *STOP))])
    live = maka.send()
    live.until(TextDelta)

    def hold(appends: Sequence[Append]) -> None:
        if settles(appends):
            settling.set()
            assert go_on.wait(WAIT_S)

    if settled_first:
        go_on.set()
    world.faults.before = hold
    with ThreadPoolExecutor() as pool:
        stop = pool.submit(maka.manager.stop, maka.session_id, "test")
        assert settling.wait(WAIT_S)
        if settled_first:
            assert stop.result(WAIT_S).status == "aborted"
        gate.open()
        assert deaf_stream.wait(WAIT_S), "the provider has said it all"
        go_on.set()
        assert stop.result(WAIT_S).abort_source == "test"
    ended = live.end()
    assert (ended.status, ended.final_text) == ("aborted", "a")
    assert model_texts(maka) == [("a", True)]
    assert live.streamed == "a"


def test_h25_two_stops_at_the_same_moment(world: World) -> None:
    maka = world.open([Turn(text="so far", gate=Gate())])
    live = maka.send()
    live.until_said("so far")
    together = threading.Barrier(20)

    def stop(number: int) -> str | None:
        together.wait(WAIT_S)
        receipt = maka.manager.stop(maka.session_id, f"client.{number}")
        # One that comes after the end meets an idle session.
        return receipt.abort_source if receipt.run_id is not None and receipt.was != "ending" else None

    with ThreadPoolExecutor(20) as pool:
        sources = set(pool.map(stop, range(20))) - {None}
    assert sources == {live.end().abort_source}


def test_a_stop_keeps_a_long_text_whole(world: World) -> None:
    words = "x" * 100_000 + "END"
    maka = world.open([Turn(text=words, chunk_chars=5_000, gate=Gate())])
    live = maka.send()
    live.until_said("END")
    assert maka.manager.stop(maka.session_id, "test").status == "aborted"
    live.end()
    (text,) = [content for content in maka.contents(Text) if content.interrupted]
    assert len(text.text) < len(words) / 2, "the event keeps head and tail"
    assert text.whole is not None
    assert maka.host.reader.blob(text.whole.sha256) == words.encode()


def with_sleepers(**args: int) -> Turn:
    command = "echo ready; sleep 30011 & sleep 30022; wait"
    return Turn(calls=(Call(name="Bash", args={"command": command, **args}),))


@pytest.mark.usefixtures("each_sandbox")
def test_h50_children_survive_no_stop(world: World) -> None:
    maka = world.open([with_sleepers()])
    live = maka.send()
    live.until(ToolOutputDelta)
    both = {"sleep 30011", "sleep 30022"}
    checks.eventually(lambda: both <= set(checks.living_in(world.workspace)), "they sleep")
    receipt = maka.manager.stop(maka.session_id, "test")
    assert [(call.name, call.outcome) for call in receipt.calls] == [("Bash", "aborted")]
    assert receipt.was == "running tools"
    assert not checks.living_in(world.workspace)
    live.end()
    (answer,) = maka.contents(FunctionResponse)
    assert "ready" in answer.result, "what it printed until then is kept"


@pytest.mark.usefixtures("each_sandbox")
def test_h50_children_survive_no_timeout(world: World) -> None:
    maka = world.open([with_sleepers(timeout_ms=300), Turn(text="too slow")])
    assert maka.run().final_text == "too slow"
    (answer,) = maka.contents(FunctionResponse)
    assert answer.outcome is Outcome.TIMEOUT
    assert "ready" in answer.result
    assert not checks.living_in(world.workspace)


def with_daemon(sleeps: int) -> Turn:
    """A call whose child is a daemon: orphaned, in a session of its own, without the call's output."""
    daemon = f"(setsid sh -c 'sleep {sleeps} & exit' >/dev/null 2>&1 &)"
    until = f"until pgrep -fx 'sleep {sleeps}' >/dev/null; do sleep 0.01; done"
    return Turn(calls=(Call(name="Bash", args={"command": f"{daemon}; {until}; echo ready; exec sleep 30044"}),))


@pytest.mark.usefixtures("each_sandbox")
def test_h50_a_daemon_survives_no_stop(world: World) -> None:
    maka = world.open([with_daemon(30033)])
    live = maka.send()
    live.until(ToolOutputDelta)
    checks.eventually(lambda: {"sleep 30033", "sleep 30044"} <= set(checks.living_in(world.workspace)), "they sleep")
    receipt = maka.manager.stop(maka.session_id, "test")
    assert [(call.name, call.outcome) for call in receipt.calls] == [("Bash", "aborted")]
    assert not checks.living_in(world.workspace)
    live.end()


def test_a_receipt_tells_what_could_not_be_ended(world: World) -> None:
    def no_right(*_: object) -> None:
        """As with a child of another user."""

    maka = world.open([with_daemon(30055)])
    live = maka.send()
    live.until(ToolOutputDelta)
    with world.patch.context() as patch:
        for name in ("_send", "_send_group"):
            patch.setattr(process_end, name, no_right)
        patch.setattr(process_end, "KILL_GRACE_S", 0.0)
        patch.setattr(child_process, "TERM_GRACE_S", 0.0)
        receipt = maka.manager.stop(maka.session_id, "test")
    assert [(call.name, call.outcome) for call in receipt.calls] == [("Bash", "outcome_unknown")]
    live.end()
    (answer,) = maka.contents(FunctionResponse)
    assert "could not be ended and may still run" in answer.result
    (started,) = maka.actions("process_started")
    assert str(started.process.pid) in answer.result
    checks.eventually(lambda: {"sleep 30055", "sleep 30044"} <= set(checks.living_in(world.workspace)), "they sleep")
    assert process_end.end_left_over([started.process]) == [started.process]


def test_a_stop_among_several_tools_tells_the_truth_of_each(world: World) -> None:
    calls = (
        Call(name="Write", args={"path": "w.txt", "content": "x"}),
        Call(name="Bash", args={"command": "echo ready; exec tail -f /dev/null"}),
        Call(name="Nothing", args={}),
    )
    maka = world.open([Turn(calls=calls)])
    live = maka.send()
    live.until(ToolOutputDelta)
    maka.manager.stop(maka.session_id, "test")
    ended: RunEnded = live.end()
    assert ended.status == "aborted"
    outcomes = {answer.name: answer.outcome for answer in maka.contents(FunctionResponse)}
    assert outcomes["Nothing"] is Outcome.REFUSED
    assert outcomes["Bash"] is Outcome.ABORTED
    assert (outcomes["Write"] is Outcome.OK) == (world.workspace / "w.txt").exists()
