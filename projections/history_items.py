"""What a model saw and said, as turns of steps: the material of model_history and of the window.

A step is one answer of the model with the results of its calls, in call order, wherever the responses stand in the
log. It begins at a model request; where a log has none, at the first words after an answer.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.codec import hash_hex
from maka.contracts.content import FunctionCall, FunctionResponse, Route, Text, Thinking
from maka.contracts.events import Committed, ModelVisibility, Role, RuntimeEvent
from maka.contracts.ids import CallId, RunId
from maka.contracts.limits import ERROR_TEXT_CHARS_MAX

_JOIN = "\n\n"
_NO_OUTPUT = "(no output)"
_NAME_CHARS_MAX = 64
_NO_NAME_CHARS = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_ONLY_MARKS = re.compile(r"[_-]*")
_HASH_CHARS = 8


class Call(Struct, frozen=True, gc=False, kw_only=True):
    """A tool call. `name` is one that providers take, `arguments` JSON text of an object.

    `result` is None while the call is open.
    """

    call_id: CallId
    provider_id: str | None
    name: str
    arguments: str
    result: str | None = None


class Step(Struct, frozen=True, gc=False, kw_only=True):
    """One answer of the model. `position` is that of its newest fact."""

    position: int
    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


class Said(Struct, frozen=True, gc=False, kw_only=True):
    """Words in the user's lane: a person's, or a note of the window about what it left out."""

    position: int
    text: str


Item = Said | Step


class Turn(Struct, frozen=True, gc=False, kw_only=True):
    """One run, as the model took part in it. `position` is that of its opening."""

    run_id: RunId
    position: int
    route: Route
    items: tuple[Item, ...]


def is_visible(event: RuntimeEvent) -> bool:
    """Say whether a fact can be part of what a model sees."""
    return not event.partial and event.model_visibility is ModelVisibility.VISIBLE and event.role is not Role.SYSTEM


def is_request(event: RuntimeEvent) -> bool:
    """Say whether the fact is a request to a model."""
    return event.actions is not None and event.actions.model_request is not None


def chars_of(item: Item) -> int:
    """Return the characters that an item costs in a request."""
    if isinstance(item, Said):
        return len(item.text)
    calls = sum(len(call.name) + len(call.arguments) + len(call.result or "") for call in item.calls)
    return len(item.text) + len(item.reasoning) + calls


def build(facts: Iterable[Committed]) -> tuple[Item, ...]:
    """Return the items of one run's facts; expects visible facts and model requests, in order, correctly paired."""
    builder = _Builder()
    for fact in facts:
        builder.take(fact)
    return tuple(builder.items)


class _Builder:
    """Collects one run's items; `step` indexes the step that model content goes to."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.step: int | None = None
        self.answered = False
        self.places: dict[CallId, tuple[int, int]] = {}

    def take(self, fact: Committed) -> None:
        event, content = fact.event, fact.event.content
        if is_request(event):
            self.step = None
        match content:
            case FunctionCall():
                self._extend(fact, call=_call(event, content))
            case FunctionResponse():
                self._answer(fact.position, content)
            case Text() if event.role is Role.USER:
                self.step = None
                if content.text.strip():
                    self.items.append(Said(position=fact.position, text=content.text))
            case Text() if event.role is Role.MODEL:
                self._extend(fact, text=content.text)
            case Thinking():
                self._extend(fact, reasoning=content.text)
            case _:
                pass

    def _extend(self, fact: Committed, *, text: str = "", reasoning: str = "", call: Call | None = None) -> None:
        if self.step is None or self.answered:
            self.items.append(Step(position=fact.position))
            self.step, self.answered = len(self.items) - 1, False
        step = self.items[self.step]
        assert isinstance(step, Step)
        calls = step.calls
        if call is not None:
            self.places[call.call_id] = (self.step, len(calls))
            calls = (*calls, call)
        self.items[self.step] = Step(
            position=fact.position,
            text=_joined(step.text, text),
            reasoning=_joined(step.reasoning, reasoning),
            calls=calls,
        )

    def _answer(self, position: int, response: FunctionResponse) -> None:
        at, index = self.places[response.call_id]
        step = self.items[at]
        assert isinstance(step, Step)
        calls = list(step.calls)
        calls[index] = replace(calls[index], result=response.result or _NO_OUTPUT)
        self.items[at] = replace(step, position=position, calls=tuple(calls))
        self.answered = self.answered or at == self.step


def _joined(text: str, more: str) -> str:
    return f"{text}{_JOIN}{more}" if text and more else text or more


def _call(event: RuntimeEvent, content: FunctionCall) -> Call:
    return Call(
        call_id=CallId(event.id),
        provider_id=event.refs.tool_call_id if event.refs is not None else None,
        name=sent_name(content.name),
        arguments=arguments_text(content),
    )


def sent_name(name: str) -> str:
    """Return the name that a call is sent back with: providers take 1 to 64 letters, digits, `_` and `-`.

    A model may write anything, and a name that is refused would be in every later request. What isn't taken becomes
    `_`; where that leaves no word, or must be cut, a hash of the whole tells two such names apart.
    """
    mended = _NO_NAME_CHARS.sub("_", name)
    if len(mended) <= _NAME_CHARS_MAX and (mended == name != "" or _ONLY_MARKS.fullmatch(mended) is None):
        return mended
    mark = hash_hex(name.encode("utf-8", "surrogatepass"))[:_HASH_CHARS]
    word = mended[: _NAME_CHARS_MAX - _HASH_CHARS - 1]
    return f"{'unnamed' if _ONLY_MARKS.fullmatch(word) else word}_{mark}"


def arguments_text(content: FunctionCall) -> str:
    """Return a call's arguments as JSON text of an object, also where the model's own text was none."""
    value: dict[str, Any] = content.args
    if content.malformed is not None:
        value = {"malformed_arguments": content.malformed[:ERROR_TEXT_CHARS_MAX]}
    return msgspec.json.encode(value).decode()
