"""PURE: the calls of one step, from the durable step to their starts: the gate, the look ahead, the append, the turns.

Laws: what is refused has an answer and no dispatch. The gate judges by the call alone; then each call's own tool is
asked whether the boundary allows it, which takes file work, and only what passes both is dispatched. Nothing is held
back for a stop: a look has no effect.
Calls of one step start together, but for those on the same file of which one writes: each of these starts when the
answer of the one before it is durable. A call waits for earlier ones alone, so that no two wait for each other.
"""

from msgspec.structs import replace

from actors import mapper, tool_gate
from actors.run_effects import AskPerson, LookAhead, StartTool
from actors.run_ending import append, claim
from actors.run_tools import died, next_request, note_failures, response
from actors.run_types import Deciding, Purpose, Work, failure
from actors.verdicts import ToolAnswer
from maka.contracts.actions import ToolDispatch
from maka.contracts.codec import canonical_json, hash_hex
from maka.contracts.content import NEEDS_DISPATCH, FunctionCall, Outcome
from maka.contracts.errors import FailureClass
from maka.contracts.events import RuntimeEvent
from maka.contracts.ids import CallId
from maka.contracts.tool_ports import AskingTool, BoundedTool, ToolCall, ToolEnv, Turn
from projections import boundary


def step_stored(d: Deciding, events: tuple[RuntimeEvent, ...]) -> None:
    """The step's calls are durable: ask the gate about each, and then the tools of those that it admits."""
    d.set(streams=(), step_seen=d.state.seen, dead={})
    if (limit := d.state.plan.limits.tokens_max) is not None and d.state.tokens >= limit:
        claim(d, failure(FailureClass.BUDGET.value, f"the run used its {limit:,} tokens"))
        return
    calls = tuple(event for event in events if isinstance(event.content, FunctionCall))
    verdicts = tool_gate.check_step(calls, d.env.tools, d.state.failures)
    gated = tuple(_gated(d, call, verdict) for call, verdict in zip(calls, verdicts, strict=True))
    looks = tuple(item for item in gated if item.args is not None and _is_bounded(d, item.name))
    d.set(
        bad_rounds=tool_gate.bad_rounds(d.state.bad_rounds, verdicts),
        gated=gated,
        looking=frozenset(item.call_id for item in looks),
    )
    d.do(*(LookAhead(_call(item), _env(d, item)) for item in looks))
    _dispatch_if_looked(d)


def _gated(d: Deciding, call: RuntimeEvent, verdict: tool_gate.GateVerdict) -> Work:
    call_id, content = CallId(call.id), call.content
    assert isinstance(content, FunctionCall)
    if isinstance(verdict, tool_gate.Admit):
        return Work(call_id=call_id, name=verdict.name, step=d.state.step, args=verdict.args)
    answer = ToolAnswer(outcome=Outcome.REFUSED, text=verdict.text)
    return Work(call_id=call_id, name=content.name, step=d.state.step, args=None, answer=answer)


def _is_bounded(d: Deciding, name: str) -> bool:
    tool: object = d.env.tools.get(name)
    return isinstance(tool, BoundedTool) and not asks(d, name)


def asks(d: Deciding, name: str) -> bool:
    """Say whether a call of this tool is answered by a person."""
    tool: object = d.env.tools.get(name)
    return isinstance(tool, AskingTool)


def looked(d: Deciding, call_id: CallId, refusal: ToolAnswer | None, turn: Turn | None = None) -> None:
    """Take what a call's tool says before the dispatch; with the last word the step's calls are dispatched."""
    if d.state.claim is not None or call_id not in d.state.looking:
        return
    if refusal is not None and refusal.outcome in NEEDS_DISPATCH:
        refusal = replace(refusal, outcome=Outcome.REFUSED)  # nothing has begun, whatever the tool calls it
    found = {"turn": turn} if refusal is None else {"args": None, "answer": refusal}
    gated = tuple(replace(each, **found) if each.call_id == call_id else each for each in d.state.gated)
    d.set(gated=gated, looking=d.state.looking - {call_id})
    _dispatch_if_looked(d)


def _dispatch_if_looked(d: Deciding) -> None:
    if d.state.looking:
        return
    work = d.state.gated
    d.set(gated=())
    facts: list[RuntimeEvent] = []
    for item in work:
        if item.answer is not None:
            facts.append(response(d, item, item.answer))
        elif not asks(d, item.name):
            facts.append(mapper.dispatch(d.who, d.at(), _dispatch(d, item)))
    is_refused = all(item.args is None for item in work)
    request = next_request(d, facts) if is_refused else None
    if facts:
        blobs = tuple(blob for item in work if item.answer is not None for blob in item.answer.blobs)
        append(d, Purpose.DISPATCH, tuple(facts), blobs=blobs, work=work, request=request)
    else:
        dispatches_stored(d, work)  # only questions to a person: nothing is dispatched


def _dispatch(d: Deciding, work: Work) -> ToolDispatch:
    tool = d.env.tools.get(work.name)
    assert tool is not None and work.args is not None, "the gate admits known tools only"
    return ToolDispatch(
        call_id=work.call_id,
        name=work.name,
        operation_id=d.env.ids(),
        args_hash=hash_hex(canonical_json(work.args)),
        recovery_mode=tool.recovery_mode,
    )


def dispatches_stored(d: Deciding, work: tuple[Work, ...]) -> None:
    """The dispatches are durable: start the tools whose turn it is. After a claim they are never started."""
    d.set(work=tuple(item for item in work if item.args is not None))
    note_failures(d, tuple(item for item in work if item.args is None))
    if d.state.claim is not None:
        return
    start_free(d)
    d.do(*(AskPerson(_call(item), _env(d, item)) for item in d.state.work if asks(d, item.name)))


def start_free(d: Deciding) -> None:
    """Start the dispatched calls that wait for no earlier one any more. After a claim none is started."""
    if d.state.claim is not None:
        return
    work: list[Work] = []
    for item in d.state.work:
        is_dispatched = item.wait_id is None and not asks(d, item.name)
        is_new = is_dispatched and not item.started and item.answer is None
        if is_new and item.call_id in d.state.dead:  # since its look, before its dispatch was durable
            item = replace(item, answer=died(d, item.call_id, d.state.dead[item.call_id]))
        elif is_new and not any(_goes_before(earlier, item) for earlier in work):
            d.do(StartTool(_call(item), _env(d, item)))
            item = replace(item, started=True)
        work.append(item)
    d.set(work=tuple(work))


def _goes_before(earlier: Work, later: Work) -> bool:
    """Say whether an open call must have ended before a later one of its step begins."""
    one, other = earlier.turn, later.turn
    return one is not None and other is not None and one.path == other.path and (one.writes or other.writes)


def _call(item: Work) -> ToolCall:
    assert item.args is not None, "the gate refused it"
    return ToolCall(call_id=item.call_id, name=item.name, args=item.args)


def _env(d: Deciding, item: Work) -> ToolEnv:
    return ToolEnv(
        session_id=d.who.session_id,
        cwd=d.state.plan.cwd,
        temp_suffix=f".maka-{item.call_id.rpartition('-')[2]}",
        seen=d.state.step_seen,
        boundary=boundary.for_run(d.state.boundary, d.who.run_id),
    )
