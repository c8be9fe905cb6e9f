"""One line per fact: who produced it and what it says or does."""

from collections.abc import Iterator
from typing import assert_never

from msgspec import Struct

from maka.cli import words
from maka.cli.asking import answers_line, by, decided
from maka.cli.output import one_line
from maka.cli.revealed import brief, revealed
from maka.cli.words import short_id
from maka.contracts.actions import Actions, ProcessEnded, StateDelta, WorkspaceChanged
from maka.contracts.content import (
    Content,
    Error,
    FunctionCall,
    FunctionResponse,
    InvocationOpened,
    RootKind,
    SessionOpened,
    SystemNote,
    Text,
    Thinking,
)
from maka.contracts.events import Committed, RuntimeEvent, is_terminal
from projections.background import first_line
from projections.boundary import expansion_words

TEXT_CHARS_MAX = 120


class FactLine(Struct, frozen=True, kw_only=True):
    """A fact as listed: its places, its source, and the words of its content and actions.

    `boundary` is the session's profile as of the fact.
    """

    position: int
    seq: int
    run: str
    who: str
    what: str
    boundary: str | None


def fact_line(item: Committed, boundary: str | None) -> FactLine:
    """Say a fact in one line, given the profile that is in force with it."""
    event = item.event
    source = event.author if event.author in (event.role, "agent") else f"{event.role}/{event.author}"
    parts = [part for part in _parts(event) if part]
    return FactLine(
        position=item.position,
        seq=item.seq,
        run=short_id(event.run_id) if event.run_id is not None else "-",
        who=str(source),
        what=" · ".join(parts) or "(nothing)",
        boundary=boundary,
    )


def _parts(event: RuntimeEvent) -> Iterator[str]:
    if event.content is not None:
        yield _content(event.content)
    if event.actions is not None:
        yield from _actions(event.actions)
    if event.refs is not None and event.refs.message_id is not None:
        yield f"takes message {short_id(event.refs.message_id)}"
    if is_terminal(event):
        yield f"ENDED {event.status}"


def _content(content: Content) -> str:
    match content:
        case Text():
            return f'says "{one_line(content.text, TEXT_CHARS_MAX)}"' + (" (interrupted)" * content.interrupted)
        case Thinking():
            return f'thinks "{one_line(content.text, TEXT_CHARS_MAX)}"' + (" (interrupted)" * content.interrupted)
        case FunctionCall():
            args = "malformed arguments"
            if content.malformed is None:
                args = words.call_args(content.name, content.args)
            return f"calls {brief(content.name, TEXT_CHARS_MAX)} {args}".rstrip()
        case FunctionResponse():
            return (
                f"{brief(content.name, TEXT_CHARS_MAX)} {content.outcome}: {one_line(content.result, TEXT_CHARS_MAX)}"
            )
        case Error():
            return f"error {content.code}: {one_line(content.message, TEXT_CHARS_MAX)}"
        case SystemNote():
            return f"notice {content.note}"
        case InvocationOpened():
            route, source = content.route, content.source
            if content.root is RootKind.UNDO:
                return "undo opened: no model is asked"
            return f"run opened ({source}): profile {revealed(route.profile)}, model {revealed(route.model)}"
        case SessionOpened():
            title = f' "{one_line(content.title, TEXT_CHARS_MAX)}"' if content.title else ""
            return f"session #{content.number} opened in {revealed(content.cwd)}{title}, boundary {content.boundary}"
        case _:
            assert_never(content)


def _actions(actions: Actions) -> Iterator[str]:
    if (request := actions.model_request) is not None:
        level = f", window level {request.window_level}" if request.window_level else ""
        yield f"asks the model: step {request.step}, attempt {request.attempt}{level}"
    if (usage := actions.token_usage) is not None:
        yield f"{usage.input:,} tokens in, {usage.output:,} out"
    if (dispatch := actions.tool_dispatch) is not None:
        yield f"dispatches {brief(dispatch.name, TEXT_CHARS_MAX)} ({short_id(dispatch.call_id)})"
    if (started := actions.process_started) is not None:
        name = f" in the background as {started.shell_id}" if started.background else ""
        yield f"process {started.process.pid}{name} of {brief(started.command, TEXT_CHARS_MAX)}"
    if (ended := actions.process_ended) is not None:
        yield _ended(ended)
    if (change := actions.file_change) is not None:
        verb = "creates" if change.before_sha256 is None else "removes" if change.after_sha256 is None else "changes"
        yield f"{verb} {revealed(change.path)}" + (
            f" (undoes {short_id(change.undoes)})" if change.undoes is not None else ""
        )
    if (found := actions.workspace_changed) is not None:
        yield _workspace(found)
    if actions.state_delta is not None:
        yield from _boundary(actions.state_delta)
        yield _state(actions.state_delta)
    yield from _session_actions(actions)


def _ended(ended: ProcessEnded) -> str:
    code = "" if ended.exit_code is None else f", exit code {ended.exit_code}"
    by = "" if ended.by is None else f" by {revealed(ended.by)}"
    output = "" if ended.output is None else f", {ended.output.size_bytes:,} bytes of output kept"
    note = f": {brief(first_line(ended.note), TEXT_CHARS_MAX)}" if ended.note else ""
    return f"process {ended.process.pid} ({ended.shell_id}) {ended.how}{by}{code}{output}{note}"


def _workspace(found: WorkspaceChanged) -> str:
    if not found.looked:
        return f"nobody looked what changed meanwhile: {found.why}"
    counts = ((found.added_count, "added"), (found.modified_count, "modified"), (found.deleted_count, "deleted"))
    told = [f"{count:,} {word}" for count, word in counts if count]
    return f"files meanwhile: {', '.join(told)}" if told else ""


def _session_actions(actions: Actions) -> Iterator[str]:
    if (queued := actions.message_queued) is not None:
        yield f'message waits: "{one_line(queued.text, TEXT_CHARS_MAX)}"'
    if (retracted := actions.message_retracted) is not None:
        yield f"message {short_id(retracted.message_id)} retracted"
    if (changed := actions.session_changed) is not None:
        yield "renamed" if changed.title is not None else ("archived" if changed.archived else "unarchived")
    if actions.configuration_changed is not None:
        yield "configuration changed"
    if (boundary := actions.boundary_changed) is not None:
        yield f"boundary {boundary.profile}, revision {boundary.revision}{by(boundary.client)}"
        yield from (f"allows {brief(words_, TEXT_CHARS_MAX)}" for words_ in expansion_words(boundary.grants))
        yield from (f"takes back {short_id(origin)}" for origin in boundary.revoked)
    if (asked := actions.user_question_request) is not None:
        yield from (f'asks "{brief(each.question, TEXT_CHARS_MAX)}"' for each in asked.questions)
    if (given := actions.user_question_answer) is not None:
        yield f"{answers_line(given.answers, given.client)} ({short_id(given.request_id)})"
    for artifact in actions.artifact_delta:
        yield f"keeps {artifact.kind} {brief(artifact.name, TEXT_CHARS_MAX)}"


def _boundary(delta: StateDelta) -> Iterator[str]:
    if (asked := delta.boundary_request) is not None:
        yield from (f"asks to {brief(words_, TEXT_CHARS_MAX)}" for words_ in expansion_words(asked.expansion))
        yield f"because {brief(asked.justification, TEXT_CHARS_MAX)}"
    if (decision := delta.boundary_decision) is not None:
        yield f"{decided(decision.decision, decision.scope, decision.client)} ({short_id(decision.request_id)})"


def _state(delta: StateDelta) -> str:
    named = {
        "reason": delta.stop_reason,
        "class": delta.failure_class,
        "source": delta.abort_source,
        "recovery": delta.recovery.verdict if delta.recovery is not None else None,
        "wait closed": delta.wait_closed_reason,
    }
    words_ = [f"{name} {one_line(value, TEXT_CHARS_MAX)}" for name, value in named.items() if value]
    if delta.duration_ms is not None:
        words_.append(words.duration(delta.duration_ms))
    return ", ".join(words_)
