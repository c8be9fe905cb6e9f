"""One data frame -> what it says: pieces of text and thinking, fragments of calls, the finish, usage, an error.

Laws: only the choice whose `index` is 0 counts, wherever it stands; a frame that is valid JSON but says nothing known
is an empty chunk, never an error; a frame that isn't JSON raises.
"""

from typing import Any

from msgspec import Struct

from maka.contracts.model_ports import UsageReport
from maka.edges.loose_json import count, decode, mapping, sequence, text
from maka.edges.usage import read_usage

TEXT = "text"
THINKING = "thinking"


class CallFragment(Struct, frozen=True):
    """A piece of a tool call. `arguments` is text to be joined, or an object that is whole."""

    index: int | None
    id: str
    name: str
    arguments: str | dict[str, Any] | None


class Chunk(Struct, frozen=True, kw_only=True):
    """What one frame says. `error` is the provider's error object."""

    provider_id: str | None = None
    pieces: tuple[tuple[str, str], ...] = ()
    fragments: tuple[CallFragment, ...] = ()
    finish_reason: str | None = None
    usage: UsageReport | None = None
    error: Any = None


class BadChunkError(ValueError):
    """A frame that is no JSON, or no UTF-8."""


EMPTY = Chunk()


def read_chunk(data: bytes, reasoning_field: str) -> Chunk:
    """Read a frame's data. `reasoning_field` is where this provider puts thinking; usual names are known too."""
    try:
        value = decode(data)
    except UnicodeDecodeError:
        raise BadChunkError("the stream holds bytes that are not UTF-8") from None
    except ValueError as error:
        raise BadChunkError(f"the stream holds an event that is not JSON ({error})") from None
    whole = mapping(value)
    if not whole:
        return EMPTY
    if whole.get("error"):
        return Chunk(error=whole["error"])
    choice = _first_choice(whole.get("choices"))
    # Some proxies stream whole messages; one that sends both repeats in `message` what the deltas said.
    delta = mapping(choice["delta"] if "delta" in choice else choice.get("message"))
    usage = whole.get("usage") or choice.get("usage") or mapping(whole.get("x_groq")).get("usage")
    return Chunk(
        provider_id=text(whole.get("id")) or None,
        pieces=_pieces(delta, reasoning_field) if delta else (),
        fragments=tuple(map(_fragment, sequence(delta.get("tool_calls")))) if delta else (),
        finish_reason=text(choice.get("finish_reason")) or None,
        usage=read_usage(usage) if usage else None,
    )


def _first_choice(choices: object) -> dict[str, Any]:
    for choice in map(mapping, sequence(choices)):
        if not choice.get("index"):  # 0, null or absent
            return choice
    return {}


def _pieces(delta: dict[str, Any], reasoning_field: str) -> tuple[tuple[str, str], ...]:
    pieces: list[tuple[str, str]] = []
    for name in (reasoning_field, "reasoning_content", "reasoning"):
        if thinking := text(delta.get(name)):
            pieces.append((THINKING, thinking))
            break
    content = delta.get("content")
    if isinstance(content, str):
        if content:
            pieces.append((TEXT, content))
    else:
        pieces += _parts(content)
    if refusal := text(delta.get("refusal")):
        pieces.append((TEXT, refusal))
    return tuple(pieces)


def _parts(content: object) -> list[tuple[str, str]]:
    """Read content that is a list of parts, where thinking may itself be a list of parts."""
    pieces: list[tuple[str, str]] = []
    for part in map(mapping, sequence(content)):
        thinking = part.get("thinking")
        if said := text(part.get("text")):
            pieces.append((TEXT, said))
        elif thought := text(thinking):
            pieces.append((THINKING, thought))
        else:
            pieces += [(THINKING, said) for item in sequence(thinking) if (said := text(mapping(item).get("text")))]
    return pieces


def _fragment(value: object) -> CallFragment:
    call = mapping(value)
    function = mapping(call.get("function"))
    arguments = function.get("arguments")
    return CallFragment(
        index=count(call.get("index")),
        id=text(call.get("id")),
        name=text(function.get("name")),
        arguments=arguments if isinstance(arguments, str) else mapping(arguments) or None,
    )
