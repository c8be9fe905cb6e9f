"""The timeline: what a person sees of each event."""

import msgspec
import pytest

from maka.cli import bypass, words
from maka.cli.timeline import LIVE_LINES_MAX, LIVE_TAIL_LINES, RESULT_LINES_MAX, Timeline
from maka.cli.views import FinalTextView
from maka.contracts.actions import Question
from maka.contracts.boundary import Expansion, FileEntry
from maka.contracts.ids import CallId, EventId, RunId, SessionId
from maka.contracts.session_events import (
    Complete,
    ErrorEvent,
    Notice,
    PermissionClosureAck,
    ProviderRetry,
    RunEnded,
    RunStarted,
    SandboxBoundaryDecisionAck,
    SandboxBoundaryRequest,
    SessionEvent,
    TextComplete,
    TextDelta,
    ThinkingComplete,
    ThinkingDelta,
    ToolFileChange,
    ToolOutputDelta,
    ToolResultEvent,
    ToolStart,
    Usage,
    UserMessage,
    UserQuestionAnswerAck,
    UserQuestionAsked,
)

S, R, M = SessionId("s"), RunId("r"), EventId("m")
A, B = CallId("a"), CallId("b")


ENDED = RunEnded(
    run_id=R,
    session_id=S,
    status="failed",
    exit="not_ready",
    failure_class="auth",
    abort_source=None,
    stop_reason="error",
    final_text="",
    usage=Usage(input=1_200, output=34),
    duration_ms=65_000,
    steps=1,
    files_changed=("/project/a.py", "/elsewhere/b"),
    boundary="ask",
    position=9,
)


def shown(capsys: pytest.CaptureFixture[str], *events: SessionEvent) -> str:
    timeline = Timeline(cwd="/project", width=100)
    for event in events:
        timeline.event(event)
    timeline.line("|")
    return capsys.readouterr().out.removesuffix("|\n")


def delta(offset: int, text: str, message: EventId = M) -> TextDelta:
    return TextDelta(session_id=S, message_id=message, offset=offset, text=text)


def whole(text: str, *, interrupted: bool = False) -> TextComplete:
    return TextComplete(session_id=S, message_id=M, text=text, interrupted=interrupted)


def start(call: CallId = A, name: str = "Bash", **args: str) -> ToolStart:
    return ToolStart(session_id=S, call_id=call, name=name, args={**args} or {"command": "make"})


def output(text: str, offset: int = 0, call: CallId = A) -> ToolOutputDelta:
    return ToolOutputDelta(session_id=S, call_id=call, stream="stdout", offset=offset, text=text)


def result(text: str = "", call: CallId = A, outcome: str = "ok", exit_code: int | None = None) -> ToolResultEvent:
    return ToolResultEvent(
        session_id=S,
        call_id=call,
        name="Bash",
        result=text,
        outcome=outcome,
        is_error=outcome != "ok",
        duration_ms=1_234,
        exit_code=exit_code,
    )


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([whole("Hello.")], "Hello.\n"),
        ([delta(0, "Hel"), delta(3, "lo."), whole("Hello.")], "Hello.\n"),
        ([delta(0, "Hel"), whole("Hello.")], "Hello.\n"),
        # A snapshot for a reader that joined repeats what was shown; it isn't shown twice.
        ([delta(0, "Hel"), delta(0, "Hello"), delta(5, "."), whole("Hello.")], "Hello.\n"),
        # Lost pieces are healed by the whole text.
        ([delta(0, "He"), delta(4, "o."), whole("Hello.")], "Heo.\nHello.\n"),
        ([delta(0, "Hel"), whole("Hel", interrupted=True)], "Hel\n  (interrupted)\n"),
        ([delta(0, "\n\nHel"), whole("\n\nHel\n")], "Hel\n"),
        ([delta(0, "a\x1b[2Jb"), whole("a\x1b[2Jb")], "ab\n"),
        ([whole("")], ""),
    ],
)
def test_text_is_shown_once_and_whole(
    capsys: pytest.CaptureFixture[str], events: list[SessionEvent], expected: str
) -> None:
    assert shown(capsys, *events).replace("…", "") == expected


def test_a_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(
        capsys,
        RunStarted(session_id=S, profile="scripted", model="demo"),
        UserMessage(session_id=S, text="mend it"),
        ThinkingDelta(session_id=S, message_id=EventId("t"), offset=0, text="Hm."),
        ThinkingComplete(session_id=S, message_id=EventId("t"), text="Hm."),
        delta(0, "I look."),
        whole("I look."),
        start(),
        output("one\ntw"),
        output("o\n", offset=6),
        output("o\n", offset=6),
        result("one\ntwo", exit_code=1, outcome="error"),
        start(B, "Edit", file_path="a.py", old_string="x"),
        ToolFileChange(session_id=S, call_id=B, path="/project/a.py", created=False),
        result("changed a.py", call=B),
        Notice(session_id=S, note="n", text="take care"),
        ProviderRetry(session_id=S, phase="scheduled", attempt=1, attempts_max=10, delay_ms=2_000, reason="rate_limit"),
        ProviderRetry(session_id=S, phase="started", attempt=2, attempts_max=10, delay_ms=0, reason="rate_limit"),
        Complete(session_id=S, run_id=R, status="completed", position=9),
    )
    assert text.splitlines() == [
        "profile scripted · model demo",
        "› mend it",
        "Hm.",
        "I look.",
        "● Bash make",
        "  │ one",
        "  │ two",
        "  ✗ error · exit 1 · 1.2 s",
        "● Edit a.py",
        "  ✎ changed a.py",
        "  │ changed a.py",
        "  ✓ 1.2 s",
        "  take care",
        "  trying again in 2.0 s (1 of 10): rate_limit",
    ]


def test_long_output_keeps_its_head_and_its_tail(capsys: pytest.CaptureFixture[str]) -> None:
    count = LIVE_LINES_MAX + 100
    lines = shown(capsys, start(), output("".join(f"line {n}\n" for n in range(count))), result()).splitlines()
    assert lines[1 : LIVE_LINES_MAX + 1] == [f"  │ line {n}" for n in range(LIVE_LINES_MAX)]
    assert lines[LIVE_LINES_MAX + 1] == f"  │ … {100 - LIVE_TAIL_LINES} lines"
    assert lines[-2] == f"  │ line {count - 1}"


def test_a_result_without_live_output_shows_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, start(name="Read"), result("\n".join("abcdefghij"))).splitlines()
    assert lines[1:-1] == [*(f"  │ {letter}" for letter in "abcdef"), f"  │ … {10 - RESULT_LINES_MAX} lines more"]


def test_calls_at_the_same_time_say_who_speaks(capsys: pytest.CaptureFixture[str]) -> None:
    events: list[SessionEvent] = [
        start(A, command="one"),
        start(B, command="two"),
        output("1\n", call=A),
        output("2\n", call=B),
    ]
    lines = shown(capsys, *events, result(call=B), result(call=A)).splitlines()
    assert lines == [
        "● Bash one",
        "● Bash two",
        "● Bash one …",
        "  │ 1",
        "● Bash two …",
        "  │ 2",
        "  ✓ 1.2 s",
        "● Bash one …",
        "  ✓ 1.2 s",
    ]


def test_the_ending_says_what_was_done_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    timeline = Timeline(cwd="/project", width=100)
    timeline.event(start())
    timeline.event(ErrorEvent(session_id=S, code="auth", message="wrong key"))
    capsys.readouterr()
    timeline.ended(ENDED)
    text = capsys.readouterr().out
    assert "failed (auth)" in text
    assert "1 min 5 s · 1 step · 1 tool call · 1,200 tokens in, 34 out" in text
    assert "files changed: a.py, /elsewhere/b" in text
    assert "wrong key. Check the profile's key: maka doctor." in text


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"command": "make\ntest"}, "make⏎test"),
        ({"path": "a.py", "old_string": "x"}, "a.py"),
        ({"pattern": "def x", "path": "src"}, "def x in src"),
        ({"pattern": "*.py"}, "*.py"),
        ({"depth": 2}, '{"depth":2}'),
        ({}, ""),
    ],
)
def test_a_calls_telling_argument(args: dict[str, object], expected: str) -> None:
    assert words.brief_args(args) == expected


def test_what_is_asked_is_shown_whole_and_revealed(capsys: pytest.CaptureFixture[str]) -> None:
    wait, call = EventId("01234567-89ab"), CallId("c")
    entry = FileEntry(path="/srv/a\u202eb", access="read", scope="exact")
    question = Question(question="Which\x1b[2K one?\nSay.", options=("this\u200b", "that"))
    lines = shown(
        capsys,
        SandboxBoundaryRequest(
            session_id=S,
            request_id=wait,
            call_id=call,
            expansion=Expansion(filesystem=(entry,), network=True),
            justification="it is needed",
        ),
        SandboxBoundaryDecisionAck(
            session_id=S, request_id=wait, decision="allow", scope="once", revision=1, client="cli", covers=(wait,)
        ),
        UserQuestionAsked(session_id=S, request_id=wait, call_id=call, questions=(question,)),
        UserQuestionAnswerAck(session_id=S, request_id=wait, answers=("this\u200b", None)),
        PermissionClosureAck(session_id=S, request_id=wait, reason="stopped"),
    ).splitlines()
    assert lines == [
        "? The model asks for a wider boundary (567-89ab)",
        "  │ read /srv/a\\u202eb",
        "  │ use the network",
        "  │ because: it is needed",
        "  ✓ allowed for this run by cli; it would also do for 567-89ab, which still waits",
        "? The model asks (567-89ab)",
        "  │ Which\\u001b[2K one?⏎Say.",
        "  │   [1] this\\u200b",
        "  │   [2] that",
        '  ✓ answered: "this\\u200b", no answer',
        "  ✗ no longer asked: stopped",
    ]


ASIDE = (
    "These were changed by the command and were moved aside (to *.maka-aside-N): /p/.envrc. "
    "These were changed by the command and could NOT be moved aside: /p/.git/config. Remove them."
)


def test_a_file_that_was_moved_aside_is_told_also_behind_live_output(capsys: pytest.CaptureFixture[str]) -> None:
    told = result(f"made\n\n{ASIDE}\n{{}}\nDo without it.", outcome="error", exit_code=0)
    lines = shown(capsys, start(), output("made\n"), told).splitlines()
    assert lines == ["● Bash make", "  │ made", f"  ! {ASIDE}", "  ✗ error · exit 0 · 1.2 s"]
    FinalTextView(quiet=False).event(told)
    assert capsys.readouterr().err == f"maka: {ASIDE}\n"


@pytest.mark.parametrize("name", ["ask_user_question", "request_sandbox_boundary"])
def test_a_call_that_asks_the_person_is_named_and_its_request_follows(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert shown(capsys, start(name=name, questions="[]")) == f"● {name}\n"


def test_what_ended_a_run_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    timeline = Timeline(cwd="/project", width=200)
    limit = "the step limit of 2 was reached with tools still wanted"
    timeline.event(Notice(session_id=S, note="step_limit", text="The step limit was reached."))
    timeline.event(ErrorEvent(session_id=S, code="tool_step_cap_reached", message=limit))
    timeline.ended(msgspec.structs.replace(ENDED, failure_class="tool_step_cap_reached"))
    text = capsys.readouterr().out
    assert text.count("step limit") == 1
    assert f"{limit}. Go on with --continue, or raise --max-steps." in text


def test_an_answer_that_was_cut_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    cut = msgspec.structs.replace(ENDED, status="completed", failure_class=None, stop_reason="max_tokens")
    Timeline(cwd="/project", width=100).ended(cut)
    assert "The answer was cut at the model's token limit" in capsys.readouterr().out
    FinalTextView(quiet=False).ended(cut)
    assert "The answer was cut at the model's token limit" in capsys.readouterr().err
    FinalTextView(quiet=False).ended(msgspec.structs.replace(cut, stop_reason="end_turn"))
    assert "cut" not in capsys.readouterr().err


def test_a_run_without_limits_says_so_first(capsys: pytest.CaptureFixture[str]) -> None:
    timeline = Timeline(cwd="/a\u202eb", width=100)
    timeline.head(3, bypass.warning("bypass"))
    assert capsys.readouterr().out == "session #3 · /a\\u202eb\nBYPASS: its tools have no limits\n"
