"""One turn as a person sees it: what was said, what the tools did, how it ended. Built from one run's facts.

Everything that is shown names the position of its fact. A call and its response are one activity, in call order.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.actions import Actions, Question, StateDelta
from maka.contracts.boundary import Expansion
from maka.contracts.content import (
    BlobRef,
    FunctionCall,
    FunctionResponse,
    InvocationOpened,
    RootKind,
    SystemNote,
    Text,
    Thinking,
)
from maka.contracts.events import Author, Committed, Role
from maka.contracts.ids import CallId, EventId, RunId, TurnId
from maka.contracts.session_events import Usage
from projections import run_record
from projections.run_record import RunFold


class Said(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", tag_field="type", tag="said", omit_defaults=True
):
    """Words of the user, the assistant, its thinking, or Maka itself (`who`: host) in the user's lane."""

    position: int
    ts: int
    who: str
    text: str
    interrupted: bool = False
    whole: BlobRef | None = None


class FileChanged(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A file that a call set out to change; hashes are SHA-256, None where no file was."""

    path: str
    before_sha256: str | None
    after_sha256: str | None
    pre_image: BlobRef | None = None


class ToolActivity(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", tag_field="type", tag="tool", omit_defaults=True
):
    """A call and what became of it; `outcome` and `result` are None while it is open."""

    position: int
    ts: int
    call_id: CallId
    name: str
    args: dict[str, Any]
    malformed: str | None = None
    dispatched: bool = False
    outcome: str | None = None
    is_error: bool = False
    result: str | None = None
    result_position: int | None = None
    duration_ms: int | None = None
    exit_code: int | None = None
    diff: BlobRef | None = None
    whole: BlobRef | None = None
    files: tuple[FileChanged, ...] = ()


class Noted(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", tag_field="type", tag="note", omit_defaults=True
):
    """A notice of the system: its kind and its data."""

    position: int
    ts: int
    note: str
    data: dict[str, Any] = {}


class Asking(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", tag_field="type", tag="asking", omit_defaults=True
):
    """A request to the person (an expansion, or questions) and what became of it; open while `end_position` is None.

    `decision` and `scope` answer an expansion, `answers` the questions; `closed` says why nobody answered.
    """

    position: int
    ts: int
    request_id: EventId
    call_id: CallId
    expansion: Expansion | None = None
    justification: str | None = None
    questions: tuple[Question, ...] = ()
    end_position: int | None = None
    decision: str | None = None
    scope: str | None = None
    answers: tuple[str | None, ...] | None = None
    client: str | None = None
    closed: str | None = None


Shown = Said | ToolActivity | Noted | Asking


class TurnView(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One turn. `position` and `last_position` are those of its first and newest fact; the rest is its run's record.

    An `undo` asks no model: its `profile` and `model` are those that the session had. `boundary` is the session's
    profile when the run began.
    """

    turn_id: TurnId
    run_id: RunId
    position: int
    last_position: int
    started_ts: int
    profile: str
    model: str
    boundary: str
    status: str
    failure_class: str | None = None
    abort_source: str | None = None
    stop_reason: str | None = None
    undo: bool = False
    error: str | None = None
    recovered: str | None = None
    duration_ms: int = 0
    steps: int = 0
    usage: Usage = Usage()
    files_changed: tuple[str, ...] = ()
    items: tuple[Shown, ...] = ()


def build_turn(facts: Iterable[Committed], boundary: str) -> TurnView:
    """Return the view of one run's facts, given whole and in order, and of the profile that it began with.

    Raises FoldError on a log that breaks a rule.
    """
    builder = _Builder()
    folded: RunFold | None = None
    first = 0
    for fact in facts:
        first = first or fact.position
        folded = run_record.fold(folded, fact)
        builder.take(fact)
    assert folded is not None
    record = run_record.record(folded)
    return TurnView(
        turn_id=record.turn_id,
        run_id=record.run_id,
        position=first,
        last_position=record.position,
        started_ts=record.started_ts,
        profile=record.profile,
        model=record.model,
        boundary=boundary,
        status=record.status,
        failure_class=record.failure_class,
        abort_source=record.abort_source,
        stop_reason=record.stop_reason,
        undo=builder.undo,
        error=record.error,
        recovered=record.recovered,
        duration_ms=record.duration_ms,
        steps=record.steps,
        usage=record.usage,
        files_changed=record.files_changed,
        items=tuple(builder.items),
    )


class _Builder:
    """Collects what is shown; `places` finds the activity of a call again, `waits` a request."""

    def __init__(self) -> None:
        self.items: list[Shown] = []
        self.places: dict[CallId, int] = {}
        self.waits: dict[EventId, int] = {}
        self.undo = False

    def take(self, fact: Committed) -> None:
        event = fact.event
        if event.actions is not None:
            self._act(event.actions)
            self._ask(fact, event.actions)
        content = event.content
        if isinstance(content, InvocationOpened):
            self.undo = content.root is RootKind.UNDO
        if content is None or isinstance(content, InvocationOpened):
            return
        if isinstance(content, FunctionResponse):
            self._answer(fact.position, content)
        elif isinstance(content, FunctionCall):
            self.places[CallId(event.id)] = len(self.items)
            self.items.append(_called(fact, content))
        elif isinstance(content, Text):
            self.items.append(_said(fact, content, _speaker(fact)))
        elif isinstance(content, Thinking):
            self.items.append(_said(fact, content, "thinking"))
        elif isinstance(content, SystemNote):
            note = Noted(position=fact.position, ts=event.ts, note=content.note, data=content.data)
            self.items.append(note)

    def _answer(self, position: int, response: FunctionResponse) -> None:
        index = self.places[response.call_id]
        activity = self.items[index]
        assert isinstance(activity, ToolActivity)
        self.items[index] = replace(
            activity,
            outcome=response.outcome.value,
            is_error=response.is_error,
            result=response.result,
            result_position=position,
            duration_ms=None if response.duration_ms is None else max(0, response.duration_ms),
            exit_code=response.exit_code,
            diff=response.diff,
            whole=response.whole,
        )

    def _act(self, actions: Actions) -> None:
        if (dispatch := actions.tool_dispatch) is not None:
            self._amend(dispatch.call_id, dispatched=True)
        if (change := actions.file_change) is not None:
            changed = FileChanged(
                path=change.path,
                before_sha256=change.before_sha256,
                after_sha256=change.after_sha256,
                pre_image=change.pre_image,
            )
            self._amend(change.call_id, changed=changed)

    def _ask(self, fact: Committed, actions: Actions) -> None:
        asked, delta = _asking(fact, actions), actions.state_delta or StateDelta()
        if asked is not None:
            self.waits[asked.request_id] = len(self.items)
            self.items.append(asked)
        if (given := actions.user_question_answer) is not None:
            self._close(given.request_id, fact, answers=given.answers, client=given.client)
        if (decided := delta.boundary_decision) is not None:
            how = {"decision": decided.decision, "scope": decided.scope, "client": decided.client}
            self._close(decided.request_id, fact, **how)
        if delta.wait_closed is not None:
            self._close(delta.wait_closed, fact, closed=delta.wait_closed_reason or "closed")

    def _close(self, request_id: EventId, fact: Committed, **how: Any) -> None:
        index = self.waits.get(request_id)
        if index is not None:
            self.items[index] = replace(self.items[index], end_position=fact.position, **how)

    def _amend(self, call_id: CallId, *, dispatched: bool = False, changed: FileChanged | None = None) -> None:
        index = self.places.get(call_id)
        activity = self.items[index] if index is not None else None
        if index is None or not isinstance(activity, ToolActivity):
            return
        files = activity.files if changed is None else (*activity.files, changed)
        self.items[index] = replace(activity, dispatched=activity.dispatched or dispatched, files=files)


def _speaker(fact: Committed) -> str:
    if fact.event.role is Role.MODEL:
        return "assistant"
    return "host" if fact.event.author is Author.HOST else fact.event.role.value


def _asking(fact: Committed, actions: Actions) -> Asking | None:
    request_id, position, ts = EventId(fact.event.id), fact.position, fact.event.ts
    if (asked := actions.user_question_request) is not None:
        return Asking(position=position, ts=ts, request_id=request_id, call_id=asked.call_id, questions=asked.questions)
    if actions.state_delta is None or (wider := actions.state_delta.boundary_request) is None:
        return None
    return Asking(
        position=position,
        ts=ts,
        request_id=request_id,
        call_id=wider.call_id,
        expansion=wider.expansion,
        justification=wider.justification,
    )


def _called(fact: Committed, content: FunctionCall) -> ToolActivity:
    return ToolActivity(
        position=fact.position,
        ts=fact.event.ts,
        call_id=CallId(fact.event.id),
        name=content.name,
        args=content.args,
        malformed=content.malformed,
    )


def _said(fact: Committed, content: Text | Thinking, who: str) -> Said:
    return Said(
        position=fact.position,
        ts=fact.event.ts,
        who=who,
        text=content.text,
        interrupted=content.interrupted,
        whole=content.whole,
    )
