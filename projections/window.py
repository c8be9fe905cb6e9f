"""Fitting a history into a model's window: a deterministic floor in four levels, and when to raise it.

A level holds for everything through one position and never goes back, so what was sent once stays the same from
request to request and only grows at its end; what came later is untouched. Each level includes the ones before it.

1: tool outputs older than the last 4 steps become one line.  2: all but the last step's.
3: every output, text and argument is cut to 2,000 characters, the newest user message excepted.
4: the oldest whole turns, then the oldest whole steps of the newest turn, become one line.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.limits import WINDOW_RAISE_SHARE
from projections.history_items import Call, Item, Said, Step, Turn, chars_of
from projections.shorten import head_and_tail

LEVEL_MAX = 4
CHARS_PER_TOKEN = 4

_RAW_STEPS = 4
_CUT_CHARS = 2_000
_ARGUMENTS_SHOWN = 200
_TURN_CHARS = 80
_TURNS_SHOWN = 20
_BUDGET_SHARE = 0.5


class Window(Struct, frozen=True, gc=False, order=True):
    """How much is left out: a level, and the position through which it holds."""

    level: int = 0
    through_position: int = 0


class Estimate(Struct, frozen=True, kw_only=True):
    """What the next request is measured by: the last reported input, and the characters that came since."""

    input_tokens: int
    chars_since: int


def estimate_tokens(chars: int, reported: Estimate | None) -> int:
    """Estimate a request's tokens: from the last reported input where there is one, else from all its characters.

    `chars` counts messages, prompt and tools.
    """
    if reported is None:
        return ceil(chars / CHARS_PER_TOKEN)
    return reported.input_tokens + ceil(reported.chars_since / CHARS_PER_TOKEN)


def should_raise(estimate: int, context_window: int) -> bool:
    """Say whether the window must be raised before the next request."""
    return estimate > context_window * WINDOW_RAISE_SHARE


def fits(chars: int, context_window: int) -> bool:
    """Say whether so many characters can fit a window at all; a prompt that doesn't is refused at admission."""
    return not should_raise(ceil(chars / CHARS_PER_TOKEN), context_window)


def raised(window: Window, position: int) -> Window | None:
    """Return the next window, which holds through `position`; None where nothing more can be left out."""
    if window.level < LEVEL_MAX:
        return Window(window.level + 1, position)
    return Window(LEVEL_MAX, position) if position > window.through_position else None


def budget_chars(context_window: int, overhead_chars: int) -> int:
    """Return the characters that level 4 leaves of a history, where prompt and tools take `overhead_chars`.

    Half of the window, so that the next requests have room before the window must rise again.
    """
    return max(0, int(context_window * CHARS_PER_TOKEN * _BUDGET_SHARE) - overhead_chars)


def abridge(turns: Sequence[Turn], window: Window, budget: int | None) -> list[Turn]:
    """Return the turns as the window leaves them. `budget` bounds the characters that level 4 keeps."""
    if window.level <= 0:
        return list(turns)
    through = window.through_position
    steps = [
        (at, index)
        for at, turn in enumerate(turns)
        for index, item in enumerate(turn.items)
        if isinstance(item, Step) and item.position <= through
    ]
    raw = set(steps[-_RAW_STEPS:] if window.level == 1 else steps[-1:])
    newest = max((item.position for turn in turns for item in turn.items if _is_said(item, through)), default=0)
    result: list[Turn] = []
    for at, turn in enumerate(turns):
        items = list(turn.items)
        for index, item in enumerate(items):
            if item.position > through:
                continue
            if isinstance(item, Step) and (at, index) not in raw:
                item = replace(item, calls=tuple(map(_one_line, item.calls)))
            if window.level >= 3 and not (isinstance(item, Said) and item.position == newest):
                item = _cut(item)
            items[index] = item
        result.append(replace(turn, items=tuple(items)))
    return _left_out(result, through, budget) if window.level >= LEVEL_MAX and budget is not None else result


def _is_said(item: Item, through: int) -> bool:
    return isinstance(item, Said) and item.position <= through


def _one_line(call: Call) -> Call:
    if call.result is None:
        return call
    shown = head_and_tail(call.arguments, _ARGUMENTS_SHOWN).replace("\n", " ")
    line = f"[left out: the output of {call.name} {shown}, {len(call.result):,} characters]"
    return replace(call, result=line) if len(line) < len(call.result) else call


def _cut(item: Item) -> Item:
    if isinstance(item, Said):
        return replace(item, text=head_and_tail(item.text, _CUT_CHARS))
    calls = tuple(
        replace(
            call,
            arguments=_cut_arguments(call.arguments),
            result=None if call.result is None else head_and_tail(call.result, _CUT_CHARS),
        )
        for call in item.calls
    )
    text, reasoning = head_and_tail(item.text, _CUT_CHARS), head_and_tail(item.reasoning, _CUT_CHARS)
    return replace(item, text=text, reasoning=reasoning, calls=calls)


def _cut_arguments(arguments: str) -> str:
    """Cut arguments to about the bound, keeping a JSON object with the same keys where that is possible."""
    if len(arguments) <= _CUT_CHARS:
        return arguments
    value: dict[str, Any] = msgspec.json.decode(arguments, type=dict[str, Any])
    share = _CUT_CHARS // max(1, len(value))
    small = {key: _cut_value(each, share) for key, each in value.items()}
    text = msgspec.json.encode(small).decode()
    if len(text) <= 2 * _CUT_CHARS:
        return text
    return msgspec.json.encode({"abridged_arguments": head_and_tail(arguments, _CUT_CHARS // 2)}).decode()


def _cut_value(value: Any, keep: int) -> Any:
    if isinstance(value, str):
        return head_and_tail(value, keep)
    text = msgspec.json.encode(value).decode()
    return value if len(text) <= keep else head_and_tail(text, keep)


def _left_out(turns: list[Turn], through: int, budget: int) -> list[Turn]:
    """Leave out the oldest whole turns, then the oldest steps of the newest turn, until the rest fits."""
    chars = sum(chars_of(item) for turn in turns for item in turn.items if item.position <= through)
    # The newest turn that the level reaches stays, and so does one that has grown since, with all that follow.
    last = max((at for at, turn in enumerate(turns) if turn.position <= through), default=0)
    last = next((at for at in range(last) if any(item.position > through for item in turns[at].items)), last)
    dropped = 0
    while dropped < last and chars > budget:
        chars -= sum(map(chars_of, turns[dropped].items))
        dropped += 1
    kept = turns[dropped:]
    if kept and chars > budget:
        kept[0] = replace(kept[0], items=_without_old_steps(kept[0].items, through, chars - budget))
    if dropped and kept:
        note = Said(position=kept[0].position, text=_turns_note(turns[:dropped]))
        kept[0] = replace(kept[0], items=(note, *kept[0].items))
    return kept


def _without_old_steps(items: tuple[Item, ...], through: int, surplus: int) -> tuple[Item, ...]:
    places = [index for index, item in enumerate(items) if isinstance(item, Step) and item.position <= through]
    gone: list[int] = []
    for index in places[:-1]:
        if surplus <= 0:
            break
        surplus -= chars_of(items[index])
        gone.append(index)
    if not gone:
        return items
    note = f"[left out, since the model's window is too small: the first {len(gone)} steps of this turn]"
    kept: list[Item] = [item for index, item in enumerate(items) if index not in set(gone) or index == gone[0]]
    return tuple(Said(position=item.position, text=note) if item is items[gone[0]] else item for item in kept)


def _turns_note(turns: Sequence[Turn]) -> str:
    """Say in one line which turns are gone, by how each began; of very many, the newest."""
    begun = [next((item.text for item in turn.items if isinstance(item, Said)), "") for turn in turns[-_TURNS_SHOWN:]]
    lines = [" ".join(text.split()) for text in begun]
    shown = "; ".join(f"“{line[:_TURN_CHARS]}”" for line in lines if line)
    return f"[left out, since the model's window is too small: the first {len(turns)} turns. They began: {shown}]"
