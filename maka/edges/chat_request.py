"""A neutral request -> the body of a Chat Completions call. Pure, so equal requests give equal bytes.

Laws: no empty `tools`, no key without a value, no reasoning unless the profile wants it back. `extra_body` may set
whatever the profile's provider knows, but not the messages or the streaming, which the answer's reader relies on.
"""

from typing import Any

import msgspec

from maka.contracts.model_ports import ChatCall, ChatMessage, ChatRequest, ModelProfile, ToolSpec

_OURS = ("messages", "stream", "tools")
_encoder = msgspec.json.Encoder()


def encode_request(profile: ModelProfile, request: ChatRequest) -> bytes:
    """Return the JSON body. Raises UnicodeEncodeError on a lone surrogate, which no committed fact can hold."""
    body: dict[str, Any] = {
        "model": profile.model,
        "messages": _messages(profile, request),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    # Newer models of one provider know `max_completion_tokens` alone, so the profile may say that instead.
    if profile.max_output_tokens is not None and "max_completion_tokens" not in profile.extra_body:
        body["max_tokens"] = profile.max_output_tokens
    body.update((key, value) for key, value in profile.extra_body.items() if key not in _OURS)
    return _encoder.encode({key: value for key, value in body.items() if value is not None})


def _messages(profile: ModelProfile, request: ChatRequest) -> list[dict[str, Any]]:
    system = [{"role": "system", "content": request.system}] if request.system else []
    return [*system, *(_message(profile, message) for message in request.messages)]


def _message(profile: ModelProfile, message: ChatMessage) -> dict[str, Any]:
    shape: dict[str, Any] = {"role": message.role}
    if message.role == "tool":
        shape["tool_call_id"] = message.call_id
    # Null beside tool calls is what every provider takes; several refuse the empty string there.
    shape["content"] = message.text or (None if message.calls else "")
    if message.calls:
        shape["tool_calls"] = [_call(call) for call in message.calls]
    if profile.send_reasoning_back and message.reasoning:
        shape[profile.reasoning_field] = message.reasoning
    return shape


def _call(call: ChatCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}
