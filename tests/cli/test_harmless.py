"""No text of a model, a tool, a file or a folder acts on a terminal, hides, or passes for a line of ours."""

import re
from functools import partial
from pathlib import Path

import pytest

import maka.cli
from maka.cli.asking import FOLDED, GUTTER, folded
from maka.cli.timeline import Timeline
from maka.contracts.actions import (
    Actions,
    ArtifactDelta,
    BoundaryChanged,
    BoundaryRequest,
    FileChange,
    ProcessIdentity,
    ProcessStarted,
    Question,
    StateDelta,
    ToolDispatch,
    UserQuestionRequest,
    WorkspaceChanged,
)
from maka.contracts.boundary import Expansion, FileEntry
from maka.contracts.content import FunctionCall, FunctionResponse, Outcome, SystemNote, Text, Thinking
from maka.contracts.events import Author, Role
from maka.contracts.ids import CallId, EventId, RunId, SessionId
from maka.contracts.session_events import (
    Notice,
    ProviderRetry,
    RunStarted,
    SandboxBoundaryRequest,
    SessionEvent,
    TextComplete,
    ThinkingComplete,
    ToolFileChange,
    ToolOutputDelta,
    ToolResultEvent,
    ToolStart,
    UserMessage,
    UserQuestionAsked,
)
from tests.cli.builders import BLOB, LogBuilder
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeHost, FakeReader, install

SIGNS = "\x1b[2J\x07\x9b\u202e\u200b\u2066\U000e0041"
SAID = f"said{SIGNS}"
NAME = f"name{SIGNS}\nFORGED"
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
EXPANSION = Expansion(filesystem=(FileEntry(path=f"/srv/{NAME}", access="write", scope="subtree"),))
QUESTION = Question(question=f"Clean up?\nFORGED\n  [1] keep all{SIGNS}", options=(f"delete {NAME}", "keep all"))


def evil_log() -> tuple[LogBuilder, str]:
    """Return a session in which every text of others is as bad as it can be; its run waits for a person."""
    log = LogBuilder(cwd=f"/project/{NAME}")
    run = log.open_run(SAID)
    log.add(run, Thinking(text=SAID))
    log.add(run, Text(text=SAID))
    call = log.call(run, NAME, f"/project/{NAME}")
    sent = ToolDispatch(
        call_id=call, name=NAME, operation_id=log.new_id(), args_hash="0" * 64, recovery_mode="idempotent"
    )
    change = FileChange(
        call_id=call, path=f"/project/{NAME}", before_sha256=None, after_sha256="2" * 64, pre_image=None, temp_name="t"
    )
    identity = ProcessIdentity(pid=1 << 30, group=1 << 30, start_ticks=1, boot_id="b")
    shell = ProcessStarted(
        call_id=call, process=identity, command=NAME, background=True, shell_id="b1", run_id=RunId(run)
    )
    looked = WorkspaceChanged(call_id=call, added=(NAME,), added_count=1)
    system = partial(log.add, role=Role.SYSTEM, author=Author.SYSTEM)
    system(run, None, Actions(tool_dispatch=sent))
    system(run, None, Actions(file_change=change))
    system(None, None, Actions(process_started=shell))
    told = FunctionResponse(call_id=call, name=NAME, result=SAID, outcome=Outcome.OK, is_error=False)
    kept = ArtifactDelta(call_id=call, kind="output", name=NAME, blob=BLOB)
    log.add(run, told, Actions(artifact_delta=(kept,), workspace_changed=looked), role=Role.TOOL, author=Author.TOOL)
    system(run, SystemNote(note="n", data={"text": NAME}))
    wider = BoundaryChanged(profile="ask", revision=1, grants=EXPANSION, client=NAME)
    log.add(None, None, Actions(boundary_changed=wider), role=Role.SYSTEM, author=Author.USER)
    log.queue(SAID)
    log.request(run, 2)
    calls = [CallId(log.add(run, FunctionCall(name=name, args={"a": NAME})).event.id) for name in (NAME, "b")]
    asked = BoundaryRequest(call_id=calls[0], expansion=EXPANSION, justification=NAME)
    system(run, None, Actions(state_delta=StateDelta(boundary_request=asked)))
    question = UserQuestionRequest(call_id=calls[1], questions=(QUESTION,))
    system(run, None, Actions(user_question_request=question))
    return log, run


COMMANDS = (
    ("sessions",),
    ("show", "12"),
    ("show", "12", "--full"),
    ("log", "12"),
    ("log", "12", "--at", "AT"),
    ("artifacts", "12"),
    ("diff", "12"),
    ("undo", "12", "--dry-run"),
    ("ps",),
    ("inbox",),
    ("rules", "12"),
    ("show", NAME),
    ("answer", NAME, "allow"),
    ("artifacts", "12", "99"),
    (NAME,),
    ("run", "--cwd", NAME, "x"),
    ("run", "-m", NAME, "x"),
    ("run", "--base-url", NAME, "--model", "m", "x"),
    ("run", "--base-url", "https://models.example/v1", "--model", "m", "--allow", NAME, "x"),
    ("verify", "--head", NAME),
    ("models",),
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words).encode("unicode_escape").decode())
def test_every_command_shows_signs_as_escapes(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    log, _ = evil_log()
    reader = FakeReader(log.items, {"0" * 64: SAID.encode()})
    install(monkeypatch, FakeHost(reader))
    _, out, err = cli(*(str(log.items[-1].position) if word == "AT" else word for word in words))
    text = out + err
    assert text
    assert not HARMFUL.search(text)
    if words[0] in ("sessions", "show", "log", "artifacts", "ps", "inbox", "rules", "diff", "undo"):
        assert not re.search("^ *FORGED", text, re.MULTILINE)


def test_the_live_view_shows_signs_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    session, call, message = SessionId("s"), CallId("c"), EventId("m")
    events: list[SessionEvent] = [
        RunStarted(session_id=session, profile=NAME, model=NAME),
        UserMessage(session_id=session, text=SAID),
        ThinkingComplete(session_id=session, message_id=message, text=SAID),
        TextComplete(session_id=session, message_id=message, text=SAID),
        ToolStart(session_id=session, call_id=call, name=NAME, args={"a": NAME}),
        ToolOutputDelta(session_id=session, call_id=call, stream="stdout", offset=0, text=f"{SAID}\n"),
        ToolFileChange(session_id=session, call_id=call, path=NAME, created=True),
        ToolResultEvent(
            session_id=session, call_id=call, name=NAME, result=SAID, outcome="ok", is_error=False, duration_ms=1
        ),
        Notice(session_id=session, note="n", text=NAME),
        ProviderRetry(session_id=session, phase="scheduled", attempt=1, attempts_max=2, delay_ms=1, reason=NAME),
        SandboxBoundaryRequest(
            session_id=session, request_id=message, call_id=call, expansion=EXPANSION, justification=NAME
        ),
        UserQuestionAsked(session_id=session, request_id=message, call_id=call, questions=(QUESTION,)),
    ]
    timeline = Timeline(cwd=NAME, width=100)
    timeline.head(1, NAME)
    for event in events:
        timeline.event(event)
    text = capsys.readouterr().out
    assert not HARMFUL.search(text)
    assert "\n  │   [1] keep all" not in text, "a question has no option lines of its own"
    assert "  │ Clean up?⏎FORGED⏎  [1] keep all" in text


@pytest.mark.parametrize("command", ["show 12", "inbox"])
def test_a_question_begins_no_line(cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    log, _ = evil_log()
    install(monkeypatch, FakeHost(FakeReader(log.items)))
    lines = cli(*command.split())[1].splitlines()
    options = [line for line in lines if line.strip(" │").startswith("[")]
    assert [line.split("]")[0] for line in options] == ["  │   [1", "  │   [2"]
    assert options[0].startswith("  │   [1] delete name")


def test_a_text_that_a_terminal_would_fold_has_a_mark_on_each_further_line() -> None:
    """Blanks up to the edge would else put the rest where a line begins."""
    lines = folded("Clean up?".ljust(36) + "  [1] keep all", 40)
    assert lines == [f"{GUTTER}{'Clean up?'.ljust(36)}", f"{FOLDED}  [1] keep all"]
    assert folded("", 40) == [GUTTER]
    assert all(len(line) <= 20 for line in folded("x" * 100, 5))


def test_one_file_writes() -> None:
    """Whoever prints past `maka.cli.output` prints past its escapes."""
    ways = re.compile(r"\bprint\(|\becho\(|std(?:out|err)\.(?:buffer|write)|\bConsole\(|styled_stdout\(|print_exc")
    folder = Path(maka.cli.__file__).parent
    found = {path.name for path in folder.glob("*.py") if ways.search(path.read_text("utf-8"))}
    assert found == {"output.py", "screen.py"}
