"""How a run is shown where no timeline is: JSON lines, or the final text alone."""

from collections.abc import Callable

from maka.cli import words
from maka.cli.asking import answers_line, decision_line, how_to_answer
from maka.cli.follow import Left, View
from maka.cli.output import OutputClosedError, discard_output, note, write_json, write_said
from maka.cli.revealed import brief
from maka.cli.words import short_id
from maka.contracts.session_events import (
    ErrorEvent,
    MessageWaiting,
    Notice,
    ProviderRetry,
    RunEnded,
    SandboxBoundaryDecisionAck,
    SessionEvent,
    ToolResultEvent,
    UserQuestionAnswerAck,
)


def left_lines(left: Left) -> list[str]:
    """Say that a run was left waiting, and how to answer it: a line for each request."""
    session = f"session #{left.parked.waits[0].session_number}" if left.parked.waits else "the session"
    what = f"The message is queued behind a run of {session} that" if left.ahead else f"The run of {session}"
    return [f"{what} waits for a person: {how_to_answer(wait)}" for wait in left.parked.waits]


class JsonView:
    """One event per line, then the record."""

    def event(self, event: SessionEvent) -> None:
        write_json(event)

    def ended(self, ended: RunEnded) -> None:
        write_json(ended)

    def left(self, left: Left) -> None:
        write_json(left.record())
        for line in left_lines(left):
            note(f"maka: {line}")


class FinalTextView:
    """The final text to stdout; waits, notices and the ending to stderr, or just a failure when `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._error: str | None = None

    def event(self, event: SessionEvent) -> None:
        match event:
            case ErrorEvent():
                self._error = event.message
            case ProviderRetry() if event.phase == "scheduled":
                self._say(words.retry(event))
            case Notice() if words.is_told(event.note):
                self._say(brief(event.text, 500))
            case ToolResultEvent():
                for text in words.aside_lines(event.result):
                    self._say(text)
            case SandboxBoundaryDecisionAck():
                self._say(f"{short_id(event.request_id)}: {decision_line(event)}")
            case UserQuestionAnswerAck():
                self._say(f"{short_id(event.request_id)}: {answers_line(event.answers, event.client)}")
            case MessageWaiting() if event.queued:
                self._say(f"{words.counted(event.queued, 'message')} in the queue")
            case _:
                pass

    def ended(self, ended: RunEnded) -> None:
        if ended.final_text:
            write_said(ended.final_text if ended.final_text.endswith("\n") else ended.final_text + "\n")
        if ended.status != "completed":
            note(f"maka: {words.failure_line(ended, self._error)}")
        else:
            self._say(f"{ended.status}: {words.ending(ended)}")
            if remark := words.cut_answer(ended.stop_reason):
                self._say(remark)

    def left(self, left: Left) -> None:
        for line in left_lines(left):
            note(f"maka: {line}")

    def _say(self, text: str) -> None:
        if not self._quiet:
            note(f"maka: {text}")


class GuardedView:
    """Shows until whoever reads stdout has gone; then says so once, and the run's end is still waited for."""

    def __init__(self, inner: View, on_closed: Callable[[], None]) -> None:
        self._inner: View | None = inner
        self._on_closed = on_closed

    def event(self, event: SessionEvent) -> None:
        if self._inner is not None:
            try:
                self._inner.event(event)
            except OutputClosedError:
                self._close()

    def ended(self, ended: RunEnded) -> None:
        if self._inner is not None:
            try:
                self._inner.ended(ended)
            except OutputClosedError:
                self._close()

    def left(self, left: Left) -> None:
        if self._inner is not None:
            try:
                self._inner.left(left)
            except OutputClosedError:
                self._close()

    def _close(self) -> None:
        self._inner = None
        discard_output()
        self._on_closed()
