"""What a request to the person looks like, and its answer: the same lines in the timeline, the inbox and `show`.

Everything that a person judges is shown whole and revealed. Law: a text of the model begins no line: its line breaks
are signs, and where a terminal has to fold it, each further line has a mark that no option and no prompt has.
"""

import shutil
import sys
from collections.abc import Sequence

from maka.cli.revealed import brief, revealed
from maka.cli.words import short_id
from maka.contracts.actions import Question
from maka.contracts.boundary import Expansion
from maka.contracts.session_events import SandboxBoundaryDecisionAck, SandboxBoundaryRequest, UserQuestionAsked
from projections.boundary import expansion_words
from projections.inbox import Closed, PendingWait
from projections.turn_view import Asking

WHY_CHARS_MAX = 4_000
ANSWER_CHARS_MAX = 200
GUTTER = "  │ "
FOLDED = "  ↳ "
"""Before what goes on with the line above."""
_SCOPES = {"once": "for this run", "session": "for this session", "workspace": "for this workspace"}

Asked = PendingWait | SandboxBoundaryRequest | UserQuestionAsked | Asking


def questions_of(asked: Asked) -> tuple[Question, ...]:
    """Return the questions that are asked; none where a wider boundary is."""
    return () if isinstance(asked, SandboxBoundaryRequest) else asked.questions


def request_lines(asked: Asked) -> list[str]:
    """Say what is asked: permissions or questions, whole, and why."""
    if isinstance(asked, UserQuestionAsked) or asked.expansion is None:
        return _question_lines(questions_of(asked))
    return _boundary_lines(asked.expansion, asked.justification or "")


def request_head(asked: Asked) -> str:
    """Return the line above a request."""
    what = "The model asks" if questions_of(asked) else "The model asks for a wider boundary"
    return f"? {what} ({short_id(request_id(asked))})"


def request_id(asked: Asked) -> str:
    """Return what an answer to a request names."""
    return asked.id if isinstance(asked, PendingWait) else asked.request_id


def how_to_answer(wait: PendingWait) -> str:
    """Return the command line that answers a request."""
    name = short_id(wait.id)
    if wait.expansion is not None:
        return f"maka answer {name} allow|deny [--scope once|session|workspace]"
    return " ".join(["maka answer", name, *("--option N" if each.options else "--text …" for each in wait.questions)])


def decision_line(ack: SandboxBoundaryDecisionAck) -> str:
    """Say what a person decided, and which other requests the grant would satisfy."""
    also = f"; it would also do for {', '.join(map(short_id, ack.covers))}, which still waits" if ack.covers else ""
    return decided(ack.decision, ack.scope, ack.client) + also


def decided(decision: str, scope: str | None, client: str | None) -> str:
    """Say a decision in a few words."""
    if decision == "allow":
        return f"✓ allowed {_SCOPES.get(scope or 'session', '')}{by(client)}"
    return f"✗ denied{by(client)}"


def answers_line(answers: Sequence[str | None], client: str | None) -> str:
    """Say what a person answered."""
    if not any(answers):
        return f"✗ left unanswered{by(client)}"
    said = ", ".join("no answer" if each is None else f'"{brief(each, ANSWER_CHARS_MAX)}"' for each in answers)
    return f"✓ answered{by(client)}: {said}"


def outcome_line(asking: Asking) -> str | None:
    """Say what became of a request; None while it waits."""
    if asking.end_position is None:
        return None
    if asking.answers is not None:
        return answers_line(asking.answers, asking.client)
    if asking.decision is not None:
        return decided(asking.decision, asking.scope, asking.client)
    return f"✗ no longer asked: {revealed(asking.closed or 'closed')}"


def closed_words(closed: Closed) -> str:
    """Say what became of a request that no longer waits."""
    if closed.answers is not None:
        return answers_line(closed.answers, closed.client)
    if closed.decision is not None:
        return decided(closed.decision, closed.scope, closed.client)
    return f"closed: {revealed(closed.reason or '')}"


def by(client: str | None) -> str:
    """Say who answered, where that is known."""
    return f" by {brief(client, ANSWER_CHARS_MAX)}" if client else ""


def _boundary_lines(expansion: Expansion, justification: str) -> list[str]:
    lines = [line for words in expansion_words(expansion) for line in _item(revealed(words))]
    why = justification.strip()
    return [*lines, *_item(f"because: {brief(why, WHY_CHARS_MAX)}")] if why else lines


def _question_lines(questions: Sequence[Question]) -> list[str]:
    lines: list[str] = []
    for number, question in enumerate(questions, 1):
        mark = f"{number}. " if len(questions) > 1 else ""
        lines += _item(mark + revealed(question.question.strip("\n")))
        for place, option in enumerate(question.options, 1):
            lines += _item(f"  [{place}] {revealed(option)}")
    return lines


def _item(text: str) -> list[str]:
    """Return a revealed text behind the gutter, folded where a terminal would fold it without a mark."""
    if not (sys.stdout.isatty() or sys.stderr.isatty()):
        return [GUTTER + text]
    return folded(text, shutil.get_terminal_size().columns)


def folded(text: str, columns: int) -> list[str]:
    """Return a text of one line as lines of at most so many columns (of at least 20), each with its mark."""
    from rich.cells import chop_cells

    width = max(columns, 20) - len(GUTTER)
    first, *more = chop_cells(text, width) or [""]
    return [GUTTER + first, *(FOLDED + line for line in more)]
