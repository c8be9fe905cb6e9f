"""Checks that hold after every case: what a strict provider would refuse, and what a log must never show."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from maka.contracts.content import FunctionCall, FunctionResponse
from maka.contracts.events import Committed, is_terminal
from maka.contracts.model_ports import ChatMessage

NAME_PATTERN = "[A-Za-z0-9_-]{1,64}"


def check_messages(messages: Sequence[ChatMessage], *, id_pattern: str = "[A-Za-z0-9_-]{1,40}") -> None:
    """Assert that a strict Chat Completions provider takes these messages.

    Known roles; no empty message; each call has valid arguments and exactly one result, in call order, right behind
    its message; no result without a call; ids well-formed and unique in the whole history.
    """
    ids: set[str] = set()
    expected: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert expected, "a result without a call"
            assert message.call_id == expected.pop(0), "results aren't in call order"
            assert message.text, "an empty result"
            assert not message.calls
            continue
        assert not expected, f"calls without results: {expected}"
        assert message.call_id is None
        if message.role == "user":
            assert message.text, "an empty user message"
            assert message.text.strip(), "a blank user message"
            assert not message.calls
            continue
        assert message.role == "assistant", f"unknown role {message.role}"
        assert message.calls or (message.text and message.text.strip()), "an empty assistant message"
        for call in message.calls:
            assert re.fullmatch(id_pattern, call.id), f"an id that providers refuse: {call.id!r}"
            assert call.id not in ids, f"an id twice: {call.id}"
            assert re.fullmatch(NAME_PATTERN, call.name), f"a name that providers refuse: {call.name!r}"
            ids.add(call.id)
            msgspec.json.decode(call.arguments, type=dict[str, Any])
            expected.append(call.id)
    assert not expected, f"calls without results: {expected}"


def check_endings(items: Iterable[Committed]) -> None:
    """Assert that each run has at most one terminal, as its last fact, with every call answered exactly once."""
    ended: set[str] = set()
    calls: Counter[str] = Counter()
    for item in items:
        event = item.event
        assert event.invocation_id not in ended, f"a fact after the terminal, at {item.position}"
        if isinstance(event.content, FunctionCall):
            calls[event.id] = 1
        if isinstance(event.content, FunctionResponse):
            calls[event.content.call_id] -= 1
            assert calls[event.content.call_id] == 0, f"a response too many, at {item.position}"
        if is_terminal(event):
            ended.add(event.invocation_id)
