"""The live timeline of a run: text as it streams, tool calls with their output, and the ending.

Append-only: nothing on the screen is ever redrawn, so it reads the same in a terminal, a log and a pipe.
"""

from collections import deque
from pathlib import Path

from maka.cli import words
from maka.cli.asking import answers_line, decision_line, request_head, request_lines
from maka.cli.follow import Left
from maka.cli.output import printable
from maka.cli.revealed import brief, revealed
from maka.cli.screen import Screen
from maka.cli.views import left_lines
from maka.contracts.ids import CallId
from maka.contracts.session_events import (
    ErrorEvent,
    MessageWaiting,
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
    UserMessage,
    UserQuestionAnswerAck,
    UserQuestionAsked,
)

LIVE_LINES_MAX = 30
LIVE_TAIL_LINES = 5
RESULT_LINES_MAX = 6
LINE_CHARS_MAX = 400
NAME_CHARS_MAX = 80


class LiveCall:
    """What was shown of one tool call that runs."""

    def __init__(self, name: str, brief: str) -> None:
        self.name = name
        self.brief = brief
        self.pending: dict[str, str] = {}
        self.characters: dict[str, int] = {}
        self.lines = 0
        self.held: deque[str] = deque(maxlen=LIVE_TAIL_LINES)


class Timeline:
    """Shows one run's events. Used by one thread."""

    def __init__(self, *, cwd: str, no_color: bool = False, width: int | None = None) -> None:
        self._screen = Screen(no_color=no_color, width=width)
        self._cwd = cwd
        self._shown: dict[str, str] = {}
        self._streaming: str | None = None
        self._calls: dict[CallId, LiveCall] = {}
        self._speaker: CallId | None = None
        self._tools = 0
        self._error: str | None = None

    def event(self, event: SessionEvent) -> None:
        """Show one event."""
        match event:
            case RunStarted():
                self._line(f"profile {revealed(event.profile)} · model {revealed(event.model)}", "dim")
            case UserMessage():
                self._line(f"› {printable(event.text)}", "bold")
            case TextDelta() | ThinkingDelta():
                self._delta(event)
            case TextComplete() | ThinkingComplete():
                self._whole(event)
            case ToolStart():
                self._tool_start(event)
            case ToolOutputDelta():
                self._tool_output(event)
            case ToolFileChange():
                self._line(f"  ✎ {'created' if event.created else 'changed'} {self._path(event.path)}", "yellow")
            case ToolResultEvent():
                self._tool_result(event)
            case SandboxBoundaryRequest() | UserQuestionAsked():
                self._line(request_head(event), "bold magenta")
                for text in request_lines(event):
                    self._line(text, "magenta")
            case SandboxBoundaryDecisionAck() | UserQuestionAnswerAck() | PermissionClosureAck():
                self._line(f"  {_answered(event)}", "magenta")
            case ProviderRetry() | MessageWaiting() | Notice() | ErrorEvent():
                self._remark(event)
            case _:
                self._end_stream()

    def ended(self, ended: RunEnded) -> None:
        """Show how the run ended."""
        self._end_stream()
        lines = [words.ending(ended, self._tools)]
        if ended.files_changed:
            lines.append("files changed: " + ", ".join(self._path(path) for path in ended.files_changed))
        if ended.status != "completed":
            lines.append(words.failure_line(ended, self._error))
        elif remark := words.cut_answer(ended.stop_reason):
            lines.append(remark)
        style = "green" if ended.status == "completed" else "red"
        self._screen.frame(words.verdict(ended.status, ended.failure_class, ended.abort_source), lines, style)

    def left(self, left: Left) -> None:
        """Show that the run waits, and how to answer it."""
        self._end_stream()
        self._screen.frame("needs an answer", left_lines(left), "magenta")

    def line(self, text: str) -> None:
        """Show a line of the command's own."""
        self._line(text, "")

    def head(self, number: int, warning: str) -> None:
        """Show whose run it is, and plainly where its tools have no limits."""
        self._line(f"session #{number} · {revealed(self._cwd)}", "")
        if warning:
            self._line(warning, "bold red")

    def _line(self, text: str, style: str) -> None:
        self._end_stream()
        self._screen.line(text, style)

    def _end_stream(self) -> None:
        if self._streaming is not None:
            self._streaming = None
            self._screen.end_line()

    def _delta(self, event: TextDelta | ThinkingDelta) -> None:
        shown = self._shown.get(event.message_id, "")
        if event.offset > len(shown):
            shown += "…" * (event.offset - len(shown))  # a gap; the complete text heals it
        new = event.text[len(shown) - event.offset :]
        self._shown[event.message_id] = shown + new
        if new:
            self._stream(event.message_id, new, "dim italic" if isinstance(event, ThinkingDelta) else "")

    def _stream(self, message_id: str, text: str, style: str) -> None:
        if self._streaming != message_id:
            self._end_stream()
            self._streaming = message_id
            text = text.lstrip("\n")
        self._screen.piece(printable(text), style)

    def _whole(self, event: TextComplete | ThinkingComplete) -> None:
        shown = self._shown.pop(event.message_id, "")
        style = "dim italic" if isinstance(event, ThinkingComplete) else ""
        rest = event.text[len(shown) :] if event.text.startswith(shown) else "\n" + event.text
        if len(shown) > len(event.text):  # the record keeps less of a very long one than was shown
            rest = ""
        if rest.strip("\n") or (rest and self._streaming == event.message_id):
            self._stream(event.message_id, rest.rstrip("\n"), style)
        self._end_stream()
        if event.interrupted:
            self._line("  (interrupted)", "dim")

    def _tool_start(self, event: ToolStart) -> None:
        self._tools += 1
        call = LiveCall(event.name, words.call_args(event.name, event.args))
        self._calls[event.call_id] = call
        self._introduce(event.call_id, call)

    def _introduce(self, call_id: CallId, call: LiveCall, again: str = "") -> None:
        self._end_stream()
        name = brief(call.name, NAME_CHARS_MAX)
        self._screen.parts(("● ", "cyan"), (name, "bold cyan"), (f" {call.brief}{again}".rstrip(), ""))
        self._speaker = call_id

    def _tool_output(self, event: ToolOutputDelta) -> None:
        call = self._calls.get(event.call_id)
        if call is None:
            return
        seen = call.characters.get(event.stream, 0)
        new = event.text[max(seen - event.offset, 0) :]
        call.characters[event.stream] = max(seen, event.offset + len(event.text))
        *whole, rest = (call.pending.get(event.stream, "") + new).split("\n")
        call.pending[event.stream] = rest[-LINE_CHARS_MAX:]
        for text in whole:
            self._output_line(event.call_id, call, text)

    def _output_line(self, call_id: CallId, call: LiveCall, text: str) -> None:
        call.lines += 1
        if call.lines > LIVE_LINES_MAX:
            call.held.append(text)
            return
        if self._speaker != call_id:
            self._introduce(call_id, call, " …")
        self._result_line(text)

    def _result_line(self, text: str) -> None:
        clean = printable(text.rstrip("\r")).replace("\n", " ")
        cut = clean if len(clean) <= LINE_CHARS_MAX else clean[:LINE_CHARS_MAX] + "…"
        self._line(f"  │ {cut}", "dim")

    def _tool_result(self, event: ToolResultEvent) -> None:
        call = self._calls.pop(event.call_id, None) or LiveCall(event.name, "")
        for text in [text for text in call.pending.values() if text]:
            self._output_line(event.call_id, call, text)
        if self._speaker != event.call_id:
            self._introduce(event.call_id, call, " …")
        if call.lines:
            self._held_tail(call)
        else:
            self._result_head(event.result)
        for text in words.aside_lines(event.result):
            self._line(f"  ! {text}", "bold yellow")
        parts = [] if event.outcome == "ok" else [event.outcome]
        parts += [] if event.exit_code is None else [f"exit {event.exit_code}"]
        parts += [] if event.duration_ms is None else [words.duration(event.duration_ms)]
        mark, style = ("✗", "red") if event.is_error else ("✓", "green")
        self._line(f"  {mark} {' · '.join(parts)}".rstrip(), style)
        self._speaker = None

    def _held_tail(self, call: LiveCall) -> None:
        hidden = call.lines - LIVE_LINES_MAX - len(call.held)
        if hidden > 0:
            self._line(f"  │ … {words.counted(hidden, 'line')}", "dim")
        for text in call.held:
            self._result_line(text)

    def _result_head(self, result: str) -> None:
        lines = result.strip("\n").split("\n")
        for text in lines[:RESULT_LINES_MAX]:
            self._result_line(text)
        if len(lines) > RESULT_LINES_MAX:
            self._line(f"  │ … {words.counted(len(lines) - RESULT_LINES_MAX, 'line')} more", "dim")

    def _remark(self, event: ProviderRetry | MessageWaiting | Notice | ErrorEvent) -> None:
        match event:
            case ProviderRetry():
                if event.phase == "scheduled":
                    self._line(f"  {words.retry(event)}", "yellow")
            case MessageWaiting():
                if event.queued:
                    self._line(f"  {words.counted(event.queued, 'message')} in the queue", "dim")
            case Notice() if words.is_told(event.note):
                self._line(f"  {revealed(event.text)}", "yellow")
            case ErrorEvent():
                # Told at the end, with what to do about it.
                self._error = event.message
            case _:
                pass

    def _path(self, path: str) -> str:
        return brief(relative_path(path, self._cwd), LINE_CHARS_MAX)


def _answered(event: SandboxBoundaryDecisionAck | UserQuestionAnswerAck | PermissionClosureAck) -> str:
    match event:
        case SandboxBoundaryDecisionAck():
            return decision_line(event)
        case UserQuestionAnswerAck():
            return answers_line(event.answers, event.client)
        case PermissionClosureAck():
            return f"✗ no longer asked: {revealed(event.reason)}"


def relative_path(path: str, cwd: str) -> str:
    """Return a path as seen from a folder, where it lies in it."""
    try:
        return str(Path(path).relative_to(cwd))
    except ValueError:
        return path
