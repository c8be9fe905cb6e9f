"""What a strict provider refuses: the rules that a scripted server holds a request body to.

Law: whatever these rules accept, any OpenAI-compatible server accepts. They are kept stricter than each single one.
"""

import re
from typing import Any

from msgspec import Struct

from maka.edges.loose_json import decode, mapping, sequence, text

_BODY_KEYS = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "seed",
        "stop",
        "response_format",
        "reasoning_effort",
    }
)
_MESSAGE_KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class Strictness(Struct, frozen=True, kw_only=True):
    """How strict a server is. `reasoning_field` is one that must come back beside tool calls."""

    reasoning_field: str | None = None


def complaint(body: object, rules: Strictness) -> str | None:
    """Return why a strict provider refuses this body, or None."""
    whole = mapping(body)
    messages = sequence(whole.get("messages"))
    if unknown := sorted(whole.keys() - _BODY_KEYS):
        return f"unrecognized request argument: {unknown[0]}"
    if not text(whole.get("model")):
        return "you must provide a model"
    if not messages:
        return "[] is too short - 'messages'"
    return _tools(whole) or _each_message(messages, rules) or _pairing(messages)


def _tools(whole: dict[str, Any]) -> str | None:
    if "tools" not in whole:
        return None
    tools = sequence(whole["tools"])
    names = [text(mapping(mapping(tool).get("function")).get("name")) for tool in tools]
    if not tools:
        return "[] is too short - 'tools'"
    if bad := [name for name in names if _NAME.fullmatch(name) is None]:
        return f"invalid tool name {bad[0]!r}"
    return "tool names must be unique" if len(set(names)) < len(names) else None


def _each_message(messages: list[Any], rules: Strictness) -> str | None:
    for place, message in enumerate(map(mapping, messages)):
        if why := _message(message, place, rules):
            return f"messages[{place}]: {why}"
    return None


def _message(message: dict[str, Any], place: int, rules: Strictness) -> str | None:
    role = text(message.get("role"))
    known = _MESSAGE_KEYS.get(role)
    if known is None:
        return f"unknown role {role!r}"
    if unknown := sorted(message.keys() - known - {rules.reasoning_field}):
        return f"unknown key {unknown[0]!r}"
    if role == "system" and place:
        return "a system message must be the first"
    calls = sequence(message.get("tool_calls"))
    if "tool_calls" in message and not calls:
        return "[] is too short - 'tool_calls'"
    content = message.get("content")
    if not (isinstance(content, str) and content) and not (calls and content is None) and role != "tool":
        return "content must not be empty"
    if role == "tool" and not isinstance(content, str):
        return "the content of a tool result must be a string"
    if calls and rules.reasoning_field and not text(message.get(rules.reasoning_field)):
        return f"{rules.reasoning_field!r} must be passed back with tool calls"
    return next((why for call in calls if (why := _call(mapping(call)))), None)


def _call(call: dict[str, Any]) -> str | None:
    function = mapping(call.get("function"))
    if call.keys() != {"id", "type", "function"} or function.keys() != {"name", "arguments"}:
        return "a tool call has exactly id, type and function(name, arguments)"
    if _CALL_ID.fullmatch(text(call["id"])) is None:
        return f"invalid tool call id {call['id']!r}"
    if _NAME.fullmatch(text(function["name"])) is None:
        return f"invalid function name {function['name']!r}"
    try:
        arguments = decode(text(function["arguments"]))
    except ValueError:
        return "arguments must be JSON"
    return None if isinstance(arguments, dict) else "arguments must be a JSON object"


def _pairing(messages: list[Any]) -> str | None:
    """Check that each call is answered exactly once, right behind it, and that the model is next to speak."""
    open_ids: set[str] = set()
    role = ""
    for place, message in enumerate(map(mapping, messages)):
        role = text(message.get("role"))
        if role == "tool":
            answered = text(message.get("tool_call_id"))
            if answered not in open_ids:
                return f"messages[{place}]: a tool result without its call ({answered!r})"
            open_ids.remove(answered)
            continue
        if open_ids:
            return f"messages[{place}]: tool calls without a result: {sorted(open_ids)}"
        ids = [text(mapping(call).get("id")) for call in sequence(message.get("tool_calls"))]
        if len(set(ids)) < len(ids):
            return f"messages[{place}]: tool call ids must be unique"
        open_ids = set(ids)
    if open_ids:
        return f"tool calls without a result: {sorted(open_ids)}"
    return "the last message must not be the assistant's" if role == "assistant" else None
