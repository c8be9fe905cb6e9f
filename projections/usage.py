"""Tokens by session, run and model. Absent rather than understated: a sum over a step without a figure is None."""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.actions import TokenUsage
from maka.contracts.content import InvocationOpened
from maka.contracts.events import Committed, RuntimeEvent, is_terminal
from maka.contracts.ids import InvocationId, RunId, SessionId
from maka.contracts.session_events import Usage
from projections.chunks import Chunks
from projections.log_order import LogOrder, advance


class Tally(Struct, frozen=True, gc=False, kw_only=True):
    """One run's sum. A figure is None once a step lacked it; `waiting` says that the newest step has told nothing."""

    step: int = 0
    waiting: bool = False
    input: int | None = 0
    output: int | None = 0
    cached_input: int | None = 0
    reasoning: int | None = 0

    def usage(self) -> Usage:
        """Return the sums; all are unknown without any step, or while a step that was asked for told nothing."""
        if self.waiting or self.step == 0:
            return Usage()
        return Usage(input=self.input, output=self.output, cached_input=self.cached_input, reasoning=self.reasoning)


def count(tally: Tally, event: RuntimeEvent) -> Tally:
    """Take in one fact of the run. Another attempt of a step is no other step."""
    actions = event.actions
    if actions is None or event.partial:
        return tally
    if (request := actions.model_request) is not None:
        if tally.waiting and request.step != tally.step:
            tally = replace(tally, input=None, output=None, cached_input=None, reasoning=None)
        tally = replace(tally, step=request.step, waiting=True)
    return tally if actions.token_usage is None else _told(tally, actions.token_usage)


def _told(tally: Tally, tokens: TokenUsage) -> Tally:
    return Tally(
        step=max(tally.step, tokens.step),
        input=_sum(tally.input, tokens.input),
        output=_sum(tally.output, tokens.output),
        cached_input=_sum(tally.cached_input, tokens.cached_input),
        reasoning=_sum(tally.reasoning, tokens.reasoning),
    )


def total(usages: Iterable[Usage]) -> Usage:
    """Return the sum of several usages; a figure that one of them lacks is None."""
    result = Usage(input=0, output=0, cached_input=0, reasoning=0)
    for usage in usages:
        result = Usage(
            input=_sum(result.input, usage.input),
            output=_sum(result.output, usage.output),
            cached_input=_sum(result.cached_input, usage.cached_input),
            reasoning=_sum(result.reasoning, usage.reasoning),
        )
    return result


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


class RunUsage(Struct, frozen=True, kw_only=True, rename="camel"):
    """The tokens of one run. `asked` says whether any request was made."""

    run_id: RunId
    model: str
    asked: bool
    usage: Usage


class Totals(Struct, frozen=True, kw_only=True, rename="camel"):
    """The tokens of a session: all in all, by run in order of opening, by model."""

    session_id: SessionId
    position: int
    usage: Usage
    runs: tuple[RunUsage, ...]
    models: dict[str, Usage]


class UsageFold(Struct, frozen=True, kw_only=True):
    """What the totals are made from: the runs that ended, and the tallies of open ones."""

    order: LogOrder
    runs: Chunks[RunUsage] = Chunks()
    open: Mapping[InvocationId, tuple[RunId, str, Tally]] = {}


def project(items: Iterable[Committed], state: UsageFold | None = None) -> UsageFold | None:
    """Fold a session's facts in order of position."""
    for item in items:
        state = fold(state, item)
    return state


def fold(state: UsageFold | None, item: Committed) -> UsageFold:
    """Take in one fact of the session. Raises FoldError on a log that breaks its order."""
    event = item.event
    order = advance(state.order if state is not None else None, item)
    state = UsageFold(order=order) if state is None else replace(state, order=order)
    if event.run_id is None:
        return state
    if isinstance(event.content, InvocationOpened):
        opened = (event.run_id, event.content.route.model, Tally())
        return replace(state, open={**state.open, event.invocation_id: opened})
    run_id, model, tally = state.open[event.invocation_id]
    counted = (run_id, model, count(tally, event))
    if not is_terminal(event):
        return replace(state, open={**state.open, event.invocation_id: counted})
    others = {key: value for key, value in state.open.items() if key != event.invocation_id}
    return replace(state, runs=state.runs.append(_run_usage(*counted)), open=others)


def _run_usage(run_id: RunId, model: str, tally: Tally) -> RunUsage:
    return RunUsage(run_id=run_id, model=model, asked=tally.step > 0, usage=tally.usage())


def totals(state: UsageFold) -> Totals:
    """Return the totals as of the state's position. Runs that never asked a model don't make a sum unknown."""
    runs = (*state.runs, *(_run_usage(*run) for run in state.open.values()))
    asked = [run for run in runs if run.asked]
    models = {
        model: total(run.usage for run in asked if run.model == model) for model in sorted({run.model for run in asked})
    }
    return Totals(
        session_id=state.order.session_id,
        position=state.order.position,
        usage=total(run.usage for run in asked),
        runs=runs,
        models=models,
    )
