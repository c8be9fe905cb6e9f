"""The record of one run: how it stands or ended, what it said last, did, used and changed.

Only its terminal says that a run ended; a figure that isn't known is absent, never understated.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.content import FunctionCall, FunctionResponse, InvocationOpened, Outcome, Route, Text
from maka.contracts.errors import FoldError, exit_code
from maka.contracts.events import Committed, Role, Status
from maka.contracts.ids import CallId, RunId, SessionId, TurnId
from maka.contracts.session_events import RunEnded, Usage
from projections import run_state
from projections.run_state import RunState
from projections.usage import Tally, count


class RunRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """One run as of `position`. `status` is opening, running or parked, or the terminal's word.

    `final_text` is the text of the newest step (empty where it had none), `tools` counts calls by name, `usage` is
    summed over the steps, `duration_ms` is the terminal's, else the time between the first and the newest fact.
    `files_changed` holds each path once; a change whose call reports an error isn't one.
    """

    session_id: SessionId
    run_id: RunId
    turn_id: TurnId
    profile: str
    provider: str
    model: str
    status: str
    failure_class: str | None = None
    abort_source: str | None = None
    stop_reason: str | None = None
    error: str | None = None
    recovered: str | None = None
    final_text: str = ""
    steps: int = 0
    started_ts: int
    duration_ms: int
    usage: Usage
    files_changed: tuple[str, ...] = ()
    tools: dict[str, int] = {}
    open_calls: tuple[CallId, ...] = ()
    position: int


class RunFold(Struct, frozen=True, gc=False, kw_only=True):
    """What the record is made from: the run's state, and what is counted beside it.

    `changing` are file changes of open calls; `changed` those of ended ones, as ordered keys.
    """

    state: RunState
    route: Route
    text: str = ""
    tally: Tally = Tally()
    changing: tuple[tuple[CallId, str], ...] = ()
    changed: Mapping[str, None] = {}
    tools: Mapping[str, int] = {}


def project(items: Iterable[Committed], state: RunFold | None = None) -> RunFold | None:
    """Fold a run's facts in order of seq."""
    for item in items:
        state = fold(state, item)
    return state


def fold(state: RunFold | None, item: Committed) -> RunFold:
    """Take in one fact of the run. Raises FoldError on a log that breaks a rule."""
    event, content = item.event, item.event.content
    if state is None:
        run = run_state.fold(None, item)
        assert isinstance(content, InvocationOpened)
        return RunFold(state=run, route=content.route)
    run = run_state.fold(state.state, item)
    tally, text, changing = count(state.tally, event), state.text, state.changing
    if event.partial:
        return replace(state, state=run)
    if (actions := event.actions) is not None:
        if actions.model_request is not None:
            text = ""
        if (change := actions.file_change) is not None:
            changing = (*changing, (change.call_id, change.path))
    if isinstance(content, Text) and event.role is Role.MODEL:
        text = f"{text}\n\n{content.text}" if text else content.text
    state = replace(state, state=run, tally=tally, text=text, changing=changing)
    if isinstance(content, FunctionCall):
        return replace(state, tools={**state.tools, content.name: state.tools.get(content.name, 0) + 1})
    return _settled(state, content) if changing and isinstance(content, FunctionResponse) else state


def _settled(state: RunFold, response: FunctionResponse) -> RunFold:
    """Take in that a call has ended: what it set out to change was changed, unless it reports an error."""
    rest = tuple(change for change in state.changing if change[0] != response.call_id)
    if response.outcome is Outcome.ERROR:
        return replace(state, changing=rest)
    done = {path: None for owner, path in state.changing if owner == response.call_id}
    return replace(state, changing=rest, changed={**state.changed, **done})


def record(fold_state: RunFold) -> RunRecord:
    """Return the record of a folded run."""
    state, end = fold_state.state, fold_state.state.terminal
    lasted = max(0, state.last_ts - state.started_ts)
    if end is not None and end.duration_ms is not None:
        lasted = max(0, end.duration_ms)
    files = dict.fromkeys((*fold_state.changed, *(path for _, path in fold_state.changing)))
    return RunRecord(
        session_id=state.run.session_id,
        run_id=state.run.run_id,
        turn_id=state.run.turn_id,
        profile=fold_state.route.profile,
        provider=fold_state.route.provider,
        model=fold_state.route.model,
        status=end.status.value if end is not None else state.phase.value,
        failure_class=end.failure_class if end is not None else None,
        abort_source=end.abort_source if end is not None else None,
        stop_reason=end.stop_reason if end is not None else None,
        error=end.error.message if end is not None and end.error is not None else None,
        recovered=end.recovery.verdict if end is not None and end.recovery is not None else None,
        final_text=fold_state.text,
        steps=end.steps if end is not None and end.steps is not None else state.steps,
        started_ts=state.started_ts,
        duration_ms=lasted,
        usage=fold_state.tally.usage(),
        files_changed=tuple(files),
        tools=dict(fold_state.tools),
        open_calls=tuple(call.call_id for call in state.calls),
        position=state.position,
    )


def run_ended(ended: RunRecord, boundary: str) -> RunEnded:
    """Return the closing line of a run; raises FoldError while it has no terminal.

    `boundary` is its session's profile, which the facts of the run alone don't tell.
    """
    if ended.status not in (Status.COMPLETED, Status.FAILED, Status.ABORTED):
        raise FoldError(f"run {ended.run_id} hasn't ended: it is {ended.status}")
    code = exit_code(Status(ended.status), ended.failure_class, ended.abort_source)
    return RunEnded(
        run_id=ended.run_id,
        session_id=ended.session_id,
        status=ended.status,
        exit=code.name.lower(),
        failure_class=ended.failure_class,
        abort_source=ended.abort_source,
        stop_reason=ended.stop_reason,
        final_text=ended.final_text,
        usage=ended.usage,
        duration_ms=ended.duration_ms,
        steps=ended.steps,
        files_changed=ended.files_changed,
        boundary=boundary,
        position=ended.position,
    )
