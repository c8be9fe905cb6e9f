"""What a session loses when its next request goes to another provider or model, in words for the person.

A report alone: the ledger keeps the original, and model_history decides what is carried.
"""

from msgspec import Struct

from maka.contracts.content import Route
from projections.history_items import Step
from projections.history_messages import carried, wire_ids
from projections.model_history import History


class ReplayPlan(Struct, frozen=True, kw_only=True, rename="camel"):
    """The report for one route. `losses` is empty where everything is carried."""

    profile: str
    changes_model: bool
    losses: tuple[str, ...]


def plan(history: History, route: Route, *, keeps_reasoning: bool) -> ReplayPlan:
    """Report what a request to `route` can't carry of a session's history."""
    turns = history.all_turns()
    kept, thinking_lost = carried(turns, keeps_reasoning=keeps_reasoning, route=route)
    calls = (call for turn in kept for item in turn.items if isinstance(item, Step) for call in item.calls)
    _, replaced = wire_ids(calls)
    losses: list[str] = []
    if thinking_lost:
        losses.append(f"the thinking of {thinking_lost} steps isn't sent: it belongs to another model, or isn't taken")
    if replaced:
        losses.append(f"the ids of {replaced} tool calls are replaced: they were reused or not well-formed")
    last = turns[-1].route if turns else route
    changes = (last.provider, last.model) != (route.provider, route.model)
    return ReplayPlan(profile=route.profile, changes_model=changes, losses=tuple(losses))
