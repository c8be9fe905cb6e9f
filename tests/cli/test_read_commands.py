"""What the read commands say of a log."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from maka.contracts.actions import (
    Actions,
    FileChange,
    ProcessEnded,
    ProcessIdentity,
    ProcessStarted,
    Question,
    StateDelta,
    UserQuestionRequest,
)
from maka.contracts.content import FunctionCall, InvocationOpened, Outcome, RootKind, Text
from maka.contracts.events import Author, Role, Status
from maka.contracts.ids import CallId, EventId, RunId
from maka.contracts.ports import Partial
from maka.contracts.session_events import Notice
from projections import stream_facts
from tests.cli.builders import LogBuilder, uid, whole_log
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeHost, FakeReader, install


def reading(monkeypatch: pytest.MonkeyPatch, *logs: LogBuilder) -> FakeReader:
    reader = FakeReader([item for log in logs for item in log.items])
    install(monkeypatch, FakeHost(reader))
    return reader


def test_sessions_are_listed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _, _ = whole_log()
    other = LogBuilder(2, 13, "/other", first_position=100)
    other.open_run("wait for it")
    reading(monkeypatch, log, other)
    code, out, err = cli("sessions")
    head, first, second = out.splitlines()
    assert (code, err) == (0, "")
    assert head.split() == ["status", "boundary", "last", "run", "runs", "model", "last", "activity", "folder", "title"]
    assert first.startswith("#12  idle     ask       completed  1     demo")
    assert first.endswith("/project  mend it")
    assert second.startswith("#13  running  ask       -")
    lines = [json.loads(line) for line in cli("sessions", "--json")[1].splitlines()]
    assert [(line["number"], line["status"], line["lastStatus"]) for line in lines] == [
        (12, "idle", "completed"),
        (13, "running", None),
    ]


def test_an_empty_store_says_how_to_begin(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    reading(monkeypatch)
    code, out, err = cli("sessions")
    assert (code, out) == (0, "")
    assert "maka run" in err


def test_show_is_the_conversation_with_tools_and_ending(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log, run, _ = whole_log()
    reading(monkeypatch, log)
    code, out, _ = cli("show", "12")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "session #12 · /project · idle"
    start = next(index for index, line in enumerate(lines) if run in line)
    assert lines[start + 1 :] == [
        "› mend it",
        "I look.",
        "● Edit /project/a.py",
        "  │ changed a.py",
        "  ✎ changed /project/a.py",
        "  ✓",
        "Done.",
        "completed · 1.5 s · 2 steps · 300 tokens in, 30 out",
        "files changed: /project/a.py",
    ]
    view = json.loads(cli("show", "12", "--json")[1])
    assert view["header"]["number"] == 12
    assert [item["type"] for item in view["turns"][0]["items"]] == ["said", "said", "tool", "said"]


def test_show_follows_what_streams_and_what_waits(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder()
    log.open_run()
    log.queue("and then this")
    reader = reading(monkeypatch, log)
    reader.streaming = [Partial(stream_id=EventId("x"), kind="text", generation=1, text="I am just")]
    out = cli("show", "@last")[1]
    assert "I am just (streaming)" in out
    assert "waits › and then this" in out


def test_show_cuts_long_results_unless_asked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder()
    run = log.open_run()
    call = log.call(run)
    log.dispatch(run, call)
    log.answer(run, call, result="\n".join(f"line {number}" for number in range(40)))
    reading(monkeypatch, log)
    assert "… 30 lines more (--full)" in cli("show", "12")[1]
    assert "line 39" in cli("show", "12", "--full")[1]


def test_log_says_position_seq_who_and_what(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log, run, _ = whole_log()
    reading(monkeypatch, log)
    lines = cli("log", "12")[1].splitlines()
    assert len(lines) == 1 + len(log.items)
    assert lines[1].split() == [
        "1",
        "1",
        "-",
        "system",
        *["session", "#12", "opened", "in", "/project,", "boundary", "ask"],
    ]
    assert lines[3].split(maxsplit=4)[2:] == [run[-8:], "user", 'says "mend it"']
    assert lines[-1].endswith("reason end_turn, 1.5 s · ENDED completed")
    facts = [json.loads(line) for line in cli("log", "12", "--json")[1].splitlines()]
    assert [fact["position"] for fact in facts] == [item.position for item in log.items]
    of_run = cli("log", run[-9:])[1].splitlines()
    assert len(of_run) == len(log.items)


def test_log_at_a_fact_shows_what_the_model_had_seen(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder()
    run = log.open_run()
    call = log.call(run)
    log.dispatch(run, call)
    dispatched = log.items[-1].position
    log.answer(run, call)
    second = log.request(run, 2).position
    log.finish(run)
    reading(monkeypatch, log)

    out = cli("log", "12", "--at", str(dispatched))[1].splitlines()
    assert out == [
        f"As of position {dispatched}: session running, 1 run.",
        f"Run {run} was running, step 1.",
        f"  open call Edit ({call}): dispatched",
        "The model had seen 1 message:",
        "[user]",
        "  mend it",
    ]
    moment = json.loads(cli("log", run, "--at", str(second), "--json")[1])
    assert [message["role"] for message in moment["messages"]] == ["user", "assistant", "tool"]
    assert moment["openRuns"][0]["calls"] == []
    assert json.loads(cli("log", "12", "--at", "1", "--json")[1])["messages"] == []
    code, _, err = cli("log", "12", "--at", "999")
    assert code == 2
    assert f"from 1 to {log.items[-1].position}" in err


def test_an_end_of_several_run_ids_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder()
    for number, text in ((0xA0007, "one"), (0xB0007, "two")):
        log.finish(log.open_run(text, run_id=uid(number)), step=1)
    reading(monkeypatch, log)
    code, _, err = cli("log", "0007")
    assert (code, err) == (2, "maka: '0007' is the end of the ids of 2 runs: give more of it.\n")
    assert cli("log", "a0007")[0] == 0


def test_export_is_the_facts_in_camel_case(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _, call = whole_log()
    reading(monkeypatch, log)
    lines = [json.loads(line) for line in cli("export", "12")[1].splitlines()]
    assert [(line["position"], line["seq"]) for line in lines] == [(item.position, item.seq) for item in log.items]
    answer = next(line for line in lines if line.get("content", {}).get("kind") == "function_response")
    assert answer["content"]["callId"] == call
    assert answer["sessionId"] == log.session_id


def test_a_session_that_failed_says_why(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder()
    run = log.open_run()
    call = log.call(run, "Bash")
    log.answer(run, call, "Bash", Outcome.NOT_STARTED)
    log.end(run, Status.ABORTED, StateDelta(abort_source="cli.interrupt", duration_ms=5, steps=1))
    reading(monkeypatch, log)
    out = cli("show", "12")[1]
    assert "  ✗ not_started" in out
    assert "aborted (cli.interrupt) · 5 ms · 1 step" in out


def test_show_says_that_a_call_waits_and_that_an_answer_was_cut(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder()
    run = log.open_run()
    log.finish(run, step=1)
    cut = StateDelta(stop_reason="max_tokens", duration_ms=5, steps=1)
    log.end(log.open_run("more"), Status.COMPLETED, cut)
    run = log.open_run("ask me")
    call = log.call(run, "ask_user_question")
    asked = UserQuestionRequest(call_id=call, questions=(Question(question="Which?"),))
    log.add(run, None, Actions(user_question_request=asked), role=Role.SYSTEM, author=Author.SYSTEM)
    reading(monkeypatch, log)
    out = cli("show", "12")[1]
    assert out.count("The answer was cut at the model's token limit") == 1
    assert "● ask_user_question\n  … waits for an answer\n" in out
    assert "not started" not in out


def test_what_was_put_right_after_a_background_command_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log, run, call = whole_log()
    identity = ProcessIdentity(pid=7, group=7, start_ticks=1, boot_id="b")
    started = ProcessStarted(
        call_id=call, process=identity, command="make", background=True, shell_id="b1", run_id=RunId(run)
    )
    aside = "These were changed by the command and were moved aside (to *.maka-aside-N): /project/.envrc."
    ended = ProcessEnded(
        call_id=call, process=identity, how="exited", exit_code=0, shell_id="b1", note=f"{aside}\n{{}}"
    )
    log.add(None, None, Actions(process_started=started), role=Role.SYSTEM, author=Author.TOOL)
    last = log.add(None, None, Actions(process_ended=ended), role=Role.SYSTEM, author=Author.HOST)
    reading(monkeypatch, log)
    assert f"exited with code 0\n  ! {aside}\n" in cli("show", "12")[1]
    assert f"process 7 (b1) exited, exit code 0: {aside}" in cli("log", "12")[1]
    (notice,) = stream_facts.events_of(last.event)
    assert isinstance(notice, Notice)
    assert notice.text == f"b1 in the background: exited with code 0. {aside}"


def test_show_of_an_undo_names_no_model_and_says_who_speaks(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _, _ = whole_log()
    opened = log.items[1].event.content
    assert isinstance(opened, InvocationOpened)
    run = log.new_id()
    log.add(run, replace(opened, root=RootKind.UNDO), role=Role.SYSTEM, author=Author.SYSTEM, hidden=True)
    log.add(run, Text(text="Files were set back."), role=Role.USER, author=Author.HOST)
    call = log.add(run, FunctionCall(name="undo", args={"path": "/project/a.py"}), role=Role.SYSTEM, author=Author.USER)
    change = FileChange(
        call_id=CallId(call.event.id),
        path="/project/a.py",
        before_sha256="2" * 64,
        after_sha256=None,
        pre_image=None,
        temp_name="t",
    )
    log.add(run, None, Actions(file_change=change), role=Role.SYSTEM, author=Author.SYSTEM)
    log.answer(run, CallId(call.event.id), "undo", result="removed")
    log.end(run, Status.COMPLETED, StateDelta(stop_reason="undo", duration_ms=5, steps=0))
    reading(monkeypatch, log)
    lines = cli("show", "12")[1].splitlines()
    start = next(index for index, line in enumerate(lines) if f"· undo · run {run}" in line)
    assert lines[start + 1 :] == [
        "maka › Files were set back.",
        "● undo /project/a.py",
        "  │ removed",
        "  ✎ removed /project/a.py",
        "  ✓",
        "completed · 5 ms",
        "files changed: /project/a.py",
    ]


def test_models_reads_no_store(cli: Cli, surroundings: Path) -> None:
    code, out, err = cli("models")
    assert code == 0
    assert "ollama" in out
    assert str(surroundings / "config.toml") in err
    assert not (surroundings / "state").exists()
