"""From steps to messages that a strict provider accepts: ids, thinking, and words for what couldn't be carried.

A provider's id of a call is kept where it is well-formed and new in this history, since some servers know their own;
any other gets an id of ours that follows from the call, so that the same call has the same id in every request.
Likewise a tool's name: the fact keeps what the model wrote, and a name that providers refuse is sent in a form that
they take. That the model meant no tool of ours is what the call's result says.
"""

import re
from collections.abc import Iterable

from msgspec.structs import replace

from maka.contracts.content import Route
from maka.contracts.ids import CallId
from maka.contracts.model_ports import ChatCall, ChatMessage
from projections.history_items import Call, Item, Said, Step, Turn, chars_of

_PROVIDER_ID = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)


class Messages:
    """Collects a request's messages. Ids are given over all turns, so that leaving some out changes no other's."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        self.items: list[ChatMessage] = []
        self.chars = 0
        self._ids, self.ids_replaced = wire_ids(
            call for turn in turns for item in turn.items if isinstance(item, Step) for call in item.calls
        )

    def add(self, item: Item) -> None:
        """Add what was said, or a step: the assistant's message and one tool message for each answered call."""
        self.chars += chars_of(item)
        if isinstance(item, Said):
            self.items.append(ChatMessage(role="user", text=item.text))
            return
        calls = tuple(
            ChatCall(id=self._ids[call.call_id], name=call.name, arguments=call.arguments) for call in item.calls
        )
        message = ChatMessage(role="assistant", text=item.text or None, reasoning=item.reasoning or None, calls=calls)
        self.items.append(message)
        for call in item.calls:
            self.items.append(ChatMessage(role="tool", text=call.result, call_id=self._ids[call.call_id]))


def carried(turns: Iterable[Turn], *, keeps_reasoning: bool, route: Route | None) -> tuple[list[Turn], int]:
    """Return the turns with what a request to `route` can carry, and the number of steps that lose their thinking.

    Thinking goes back only to the provider and model that thought it. A call without its response isn't carried, and
    neither is a step of which nothing is left: no provider takes an empty message.
    """
    kept: list[Turn] = []
    lost = 0
    for turn in turns:
        thinks = keeps_reasoning and (route is None or _same_model(route, turn.route))
        items: list[Item] = []
        for item in turn.items:
            if isinstance(item, Step):
                calls = tuple(call for call in item.calls if call.result is not None)
                text = item.text if item.text.strip() else ""
                if not calls and not text:
                    lost += bool(item.reasoning)
                    continue
                lost += bool(item.reasoning) and not thinks
                item = replace(item, text=text, calls=calls, reasoning=item.reasoning if thinks else "")
            items.append(item)
        kept.append(replace(turn, items=tuple(items)))
    return kept, lost


def _same_model(one: Route, other: Route) -> bool:
    return (one.provider, one.model) == (other.provider, other.model)


def wire_ids(calls: Iterable[Call]) -> tuple[dict[CallId, str], int]:
    """Return the id that each call is sent with, and how many provider ids had to be replaced.

    The first call with an id keeps it, so that ids already sent don't change when a later answer repeats one.
    """
    ids: dict[CallId, str] = {}
    used: set[str] = set()
    replaced = 0
    for call in calls:
        wire = call.provider_id
        if wire is None or wire in used or _PROVIDER_ID.fullmatch(wire) is None:
            replaced += wire is not None
            wire = _own_id(call.call_id, used)
        used.add(wire)
        ids[call.call_id] = wire
    return ids, replaced


def _own_id(call_id: CallId, used: set[str]) -> str:
    plain = "call_" + call_id.replace("-", "")[:32]
    wire, count = plain, 0
    while wire in used:  # a server may have echoed ours as its own
        count += 1
        wire = f"{plain[: 40 - len(str(count))]}{count}"
    return wire
