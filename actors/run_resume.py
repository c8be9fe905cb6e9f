"""PURE: a parked run's log -> the state in which its actor goes on, before and after a restart alike.

`resume` is the only way back: what a run needs is what its facts say, so a restart is nothing special.
"""

from collections.abc import Mapping, Sequence

from actors.mapper import Who
from actors.run_types import Plan, State, Work, asked_by
from maka.contracts.content import FunctionCall, InvocationOpened
from maka.contracts.errors import FoldError
from maka.contracts.events import Committed, RuntimeEvent
from maka.contracts.ids import CallId, EventId
from maka.contracts.tool_ports import Asked
from projections import run_state
from projections.boundary import BoundaryState
from projections.model_history import History


def opening_of(items: Sequence[Committed]) -> InvocationOpened:
    """Return a run's opening; raises FoldError where the log has none."""
    content = items[0].event.content if items else None
    if not isinstance(content, InvocationOpened):
        raise FoldError("a run's first fact is its opening")
    return content


def resume_state(
    items: Sequence[Committed],
    history: History,
    seen: Mapping[str, str],
    boundary: BoundaryState,
    *,
    cwd: str,
    now_s: float,
) -> State:
    """Return the state of a run that has not ended. Its time goes on from what its newest request says."""
    facts = run_state.project(items)
    assert facts is not None and facts.terminal is None, "only an open run is resumed"
    run = facts.run
    who = Who(session_id=run.session_id, invocation_id=run.invocation_id, turn_id=run.turn_id, run_id=run.run_id)
    calls, asked, attempt, active_ms, tokens = _gather(items)
    args = {CallId(event.id): event.content.args for event in calls if isinstance(event.content, FunctionCall)}
    work = tuple(
        Work(call_id=call.call_id, name=call.name, step=facts.steps, args=args[call.call_id], wait_id=call.wait_id)
        for call in facts.calls
    )
    limits = opening_of(items).configuration.limits
    return State(
        plan=Plan(who=who, cwd=cwd, limits=limits, started_s=now_s - active_ms / 1000, body=b""),
        facts=facts,
        history=history,
        seen=seen,
        boundary=boundary,
        step=facts.steps,
        attempt=attempt,
        step_calls=calls,
        work=work,
        asked=asked,
        tokens=tokens,
    )


def _gather(
    items: Sequence[Committed],
) -> tuple[tuple[RuntimeEvent, ...], dict[EventId, Asked], int, int, int]:
    """Return the newest step's calls, what was asked, the newest attempt, the active time, the tokens."""
    calls: list[RuntimeEvent] = []
    asked: dict[EventId, Asked] = {}
    attempt, active_ms, tokens = 1, 0, 0
    for item in items:
        event = item.event
        if isinstance(event.content, FunctionCall):
            calls.append(event)
        actions = event.actions
        if actions is None:
            continue
        if (request := actions.model_request) is not None:
            calls, attempt, active_ms = [], request.attempt, max(active_ms, request.active_ms)
        if (usage := actions.token_usage) is not None:
            tokens += usage.input + usage.output
        if (wait := asked_by(actions)) is not None:
            asked[event.id] = wait
            active_ms = max(active_ms, wait.active_ms)
    return tuple(calls), asked, attempt, active_ms, tokens
