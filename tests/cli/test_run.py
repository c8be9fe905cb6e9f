"""`maka run` against a host in memory: what is sent, what is shown, and how it ends."""

import io
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from maka.cli.interrupts import Interrupts
from maka.contracts.actions import StateDelta
from maka.contracts.commands import StopReceipt
from maka.contracts.content import RunLimits
from maka.contracts.errors import OutcomeUnknownError
from maka.contracts.events import Status
from maka.contracts.ids import EventId, MessageId, RunId
from maka.contracts.session_events import (
    Abort,
    Complete,
    ErrorEvent,
    MessageWaiting,
    RunStarted,
    SessionEvent,
    TextComplete,
    TextDelta,
)
from maka.subscription import SubscriptionLostError
from tests.cli.builders import LogBuilder, whole_log
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeSubscription
from tests.cli.scenes import MODEL, scene


def completed(log: LogBuilder, run: str) -> list[SessionEvent | Callable[[], None]]:
    last = log.items[-1].position
    session, message = log.session_id, EventId("m")
    return [
        TextDelta(session_id=session, run_id=RunId(run), message_id=message, offset=0, text="Do"),
        TextComplete(session_id=session, run_id=RunId(run), message_id=message, text="Done.", position=last - 2),
        Complete(session_id=session, run_id=RunId(run), status="completed", position=last),
    ]


def test_to_a_pipe_the_final_text_alone(cli: Cli, monkeypatch: pytest.MonkeyPatch, surroundings: Path) -> None:
    log, run, _ = whole_log()
    host, manager = scene(monkeypatch, log, completed(log, run), run=run)
    code, out, err = cli(
        "run", *MODEL, "--cwd", str(surroundings), "--max-steps", "7", "--timeout", "2.5", "mend", stdin=b"this"
    )
    assert (code, out) == (0, "Done.\n")
    assert "completed: 1.5 s · 2 steps · 300 tokens in, 30 out" in err
    limits = RunLimits(steps_max=7, active_s_max=2.5)
    assert manager.sent == [(log.session_id, "mend\n\nthis", "environment", limits)]
    assert manager.created == [os.path.realpath(surroundings)]
    assert manager.subscribed == [1]
    assert host.closed == 1


def test_quiet_says_the_final_text_and_nothing_else(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log, run, _ = whole_log()
    scene(monkeypatch, log, completed(log, run), run=run)
    assert cli("run", *MODEL, "--quiet", "mend") == (0, "Done.\n", "")


def test_json_is_one_event_a_line_and_the_record_last(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log, run, _ = whole_log()
    scene(monkeypatch, log, completed(log, run), run=run)
    code, out, err = cli("run", *MODEL, "--json", "mend")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [line["type"] for line in lines] == ["text_delta", "text_complete", "complete", "run_ended"]
    assert lines[-1] == {
        "type": "run_ended",
        "runId": run,
        "sessionId": log.session_id,
        "status": "completed",
        "exit": "completed",
        "failureClass": None,
        "abortSource": None,
        "stopReason": "end_turn",
        "finalText": "Done.",
        "usage": {"input": 300, "output": 30, "cachedInput": None, "reasoning": None},
        "durationMs": 1_500,
        "steps": 2,
        "filesChanged": ["/project/a.py"],
        "boundary": "ask",
        "position": log.items[-1].position,
    }


def test_the_final_text_goes_into_a_file_too(cli: Cli, monkeypatch: pytest.MonkeyPatch, surroundings: Path) -> None:
    log, run, _ = whole_log()
    scene(monkeypatch, log, completed(log, run), run=run)
    file = surroundings / "answer.txt"
    assert cli("run", *MODEL, "-o", str(file), "mend")[0] == 0
    assert file.read_text("utf-8") == "Done."


@pytest.mark.parametrize(
    ("failure_class", "code", "advice"),
    [
        ("auth", 2, "key"),
        ("network", 75, "server"),
        ("tool_step_cap_reached", 5, "--max-steps"),
        ("rejected", 1, "model"),
    ],
)
def test_a_failure_is_one_line_with_what_to_do(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, failure_class: str, code: int, advice: str
) -> None:
    log = LogBuilder()
    run = log.open_run()
    end = log.end(run, Status.FAILED, StateDelta(failure_class=failure_class, duration_ms=10, steps=1))
    events: list[SessionEvent | Callable[[], None]] = [
        ErrorEvent(session_id=log.session_id, run_id=RunId(run), code=failure_class, message="it said no"),
        Complete(session_id=log.session_id, run_id=RunId(run), status="failed", position=end.position),
    ]
    scene(monkeypatch, log, events, run=run)
    found, out, err = cli("run", *MODEL, "mend")
    assert (found, out) == (code, "")
    assert len(err.splitlines()) == 1
    assert f"failed ({failure_class}): it said no" in err
    assert advice in err


def queued() -> tuple[LogBuilder, str, str, MessageId]:
    log = LogBuilder()
    first = log.open_run("the first")
    message = log.queue("ours")
    log.finish(first, step=1)
    second = log.open_run("ours", message)
    log.finish(second, "Ours is done.", step=1)
    return log, first, second, message


def test_a_queued_message_is_followed_to_the_run_that_takes_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log, first, second, message = queued()
    opened = {item.event.run_id: item.position for item in reversed(log.items) if item.event.run_id}
    session = log.session_id
    events: list[SessionEvent | Callable[[], None]] = [
        MessageWaiting(session_id=session, queued=1, position=5),
        TextDelta(session_id=session, run_id=RunId(first), message_id=EventId("x"), offset=0, text="not ours"),
        Complete(session_id=session, run_id=RunId(first), status="completed", position=8),
        RunStarted(session_id=session, run_id=RunId(second), profile="p", model="m", position=opened[RunId(second)]),
        Complete(session_id=session, run_id=RunId(second), status="completed", position=log.items[-1].position),
    ]
    scene(monkeypatch, log, events, run=None, message=message)
    code, out, err = cli("run", *MODEL, "--json", "ours")
    types = [json.loads(line)["type"] for line in out.splitlines()]
    assert (code, types) == (0, ["queue_update", "run_started", "complete", "run_ended"])
    assert json.loads(out.splitlines()[-1])["finalText"] == "Ours is done."
    assert "waits its turn" in err


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that types Ctrl-C and waits until the stop is answered."""
    entered: list[Interrupts] = []
    enter = Interrupts.__enter__

    def remember(self: Interrupts) -> Interrupts:
        entered.append(self)
        return enter(self)

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert entered[0].answered.wait(20)

    monkeypatch.setattr(Interrupts, "__enter__", remember)
    return interrupt


def test_ctrl_c_stops_with_a_receipt(cli: Cli, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None]) -> None:
    log = LogBuilder()
    run = log.open_run()
    end = log.end(run, Status.ABORTED, StateDelta(abort_source="cli.interrupt", duration_ms=10, steps=1))
    aborted = Abort(session_id=log.session_id, run_id=RunId(run), reason="cli.interrupt", position=end.position)
    _, manager = scene(monkeypatch, log, [interrupt, aborted], run=run)
    code, out, err = cli("run", *MODEL, "--json", "mend")
    assert (code, manager.stops) == (130, ["cli.interrupt"])
    assert [json.loads(line)["type"] for line in out.splitlines()] == ["abort", "run_ended"]
    assert f"Stopped run {run}" in err


def test_ctrl_c_behind_another_run_leaves_the_message_in_the_queue(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None]
) -> None:
    log, _, _, message = queued()
    scene(monkeypatch, log, [interrupt], run=None, message=message)
    code, out, err = cli("run", *MODEL, "ours")
    assert (code, out) == (130, "")
    assert "stays in the queue" in err


def test_a_stop_that_gets_no_answer_is_said(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None]
) -> None:
    log, run, _ = whole_log()
    _, manager = scene(monkeypatch, log, [interrupt], run=run)

    def no_answer(session_id: str, source: str) -> StopReceipt:
        raise OutcomeUnknownError("stop")

    monkeypatch.setattr(manager, "stop", no_answer)
    code, _, err = cli("run", *MODEL, "mend")
    assert code == 130
    assert "The stop got no answer" in err


def test_events_that_came_too_fast_are_read_again(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log, run, _ = whole_log()
    shown = log.items[-3].position
    text = TextComplete(
        session_id=log.session_id, run_id=RunId(run), message_id=EventId("m"), text="Done.", position=shown
    )

    def lose() -> None:
        raise SubscriptionLostError

    _, manager = scene(monkeypatch, log, [text, lose, *completed(log, run)[-1:]], run=run)
    assert cli("run", *MODEL, "mend")[:2] == (0, "Done.\n")
    assert manager.subscribed == [1, shown]
    assert len(manager.sent) == 1


def test_a_reader_that_leaves_stops_the_run(surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from maka.cli.program import run_program

    log = LogBuilder()
    run = log.open_run()
    end = log.end(run, Status.ABORTED, StateDelta(abort_source="cli.output_closed", duration_ms=10, steps=1))
    events: list[SessionEvent | Callable[[], None]] = [
        TextDelta(session_id=log.session_id, run_id=RunId(run), message_id=EventId("m"), offset=0, text="x"),
        Abort(session_id=log.session_id, run_id=RunId(run), reason="cli.output_closed", position=end.position),
    ]
    _, manager = scene(monkeypatch, log, events, run=run)
    read, write = os.pipe()
    os.close(read)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(), "utf-8"))
    with os.fdopen(write, "w", encoding="utf-8") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert run_program(["run", *MODEL, "--json", "mend"]) == 6
    assert manager.stops == ["cli.output_closed"]


def test_a_named_session_goes_on(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log, run, _ = whole_log()
    _, manager = scene(monkeypatch, log, completed(log, run), run=run)
    assert cli("run", *MODEL, "--session", "#12", "more")[0] == 0
    assert manager.created == []
    assert manager.subscribed == [log.items[-1].position]


def test_the_newest_session_of_the_folder_is_continued_and_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, surroundings: Path
) -> None:
    real = os.path.realpath(surroundings)
    log = LogBuilder(cwd=real)
    run = log.open_run()
    log.finish(run, step=1)
    _, manager = scene(monkeypatch, log, completed(log, run), run=run)
    link = surroundings / "link"
    link.symlink_to(surroundings)
    code, _, err = cli("run", *MODEL, "--continue", "--cwd", str(link), "more")
    assert code == 0
    assert manager.created == []
    assert "going on with session #12: mend it" in err


def test_a_session_stays_in_its_folder(cli: Cli, monkeypatch: pytest.MonkeyPatch, surroundings: Path) -> None:
    log, run, _ = whole_log()
    _, manager = scene(monkeypatch, log, completed(log, run), run=run)
    code, out, err = cli("run", *MODEL, "--session", "12", "--cwd", str(surroundings), "more")
    assert (code, out, manager.sent) == (2, "", [])
    assert "works in /project" in err


def test_a_ledger_that_failed_ends_the_command(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log, run, _ = whole_log()
    events: list[SessionEvent | Callable[[], None]] = []
    host, _ = scene(monkeypatch, log, events, run=run)

    def fail(self: FakeSubscription, timeout_s: float) -> None:
        host.failed.set()

    monkeypatch.setattr(FakeSubscription, "get", fail)
    code, out, err = cli("run", *MODEL, "mend")
    assert (code, out) == (75, "")
    assert "what is durable" in err
