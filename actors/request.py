"""PURE: a session's history -> the next model request, within the window.

The level rises when the estimate passes the share of the window, or when a provider said that the request didn't
fit; it holds through a committed position, so that what was sent once stays the same from request to request. A raise
is an append of its own, since it needs the committed positions of what it abridges.
"""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from actors.run_types import Built, NeedsRaise, Wanted, failure
from maka.contracts.actions import ModelRequest
from maka.contracts.codec import hash_hex
from maka.contracts.content import InvocationOpened, Route
from maka.contracts.errors import FailureClass
from maka.contracts.model_ports import ChatRequest, Provider, ToolSpec
from projections import window as windows
from projections.model_history import PROJECTOR_VERSION, History, Rendered, render
from projections.settlement import Ending
from projections.window import Window


class Kit(Struct, frozen=True, kw_only=True):
    """What stays the same for all requests of a run. `overhead_chars` is the length of prompt and tools."""

    system: str
    specs: tuple[ToolSpec, ...]
    prompt_hash: str
    tools_hash: str
    overhead_chars: int
    route: Route
    keeps_reasoning: bool
    context_window: int | None
    encode: Callable[[ChatRequest], bytes]


def kit_of(provider: Provider, system: str, specs: tuple[ToolSpec, ...]) -> tuple[Kit, bytes, bytes]:
    """Return a run's kit, and the bytes of its system prompt and its tool catalogue, which are stored once."""
    profile, prompt, tools = provider.profile, system.encode(), msgspec.json.encode(specs)
    kit = Kit(
        system=system,
        specs=specs,
        prompt_hash=hash_hex(prompt),
        tools_hash=hash_hex(tools),
        overhead_chars=len(system) + len(tools),
        route=Route(profile=profile.name, provider=provider.kind, model=profile.model),
        keeps_reasoning=profile.send_reasoning_back,
        context_window=profile.context_window,
        encode=provider.encode,
    )
    return kit, prompt, tools


def kit_from_record(opening: InvocationOpened, provider: Provider | None, prompt: bytes, tools: bytes) -> Kit:
    """Return the kit of a run that goes on, from what its opening names.

    Without a provider it can end, but not ask.
    """
    configuration = opening.configuration
    return Kit(
        system=prompt.decode(),
        specs=msgspec.json.decode(tools, type=tuple[ToolSpec, ...]),
        prompt_hash=configuration.prompt.sha256,
        tools_hash=configuration.tools.sha256,
        overhead_chars=len(prompt) + len(tools),
        route=opening.route,
        keeps_reasoning=provider is not None and provider.profile.send_reasoning_back,
        context_window=configuration.context_window,
        encode=_cannot_ask if provider is None else provider.encode,
    )


def _cannot_ask(_: ChatRequest) -> bytes:
    raise AssertionError("a run that was revived to be stopped asks nothing")


def build(
    kit: Kit, history: History, wanted: Wanted, *, raise_through: int | None, rise: bool = False
) -> Built | NeedsRaise | Ending:
    """Build a request. `raise_through` is the committed position that a raise may hold through, None for no raise.

    `rise` forces one level more, after a provider's overflow. Returns the run's ending where nothing fits any more.
    """
    window = history.window
    if rise:
        if raise_through is None:
            return NeedsRaise()
        higher = windows.raised(window, raise_through)
        if higher is None or window.level >= windows.LEVEL_MAX:
            return overflow()
        window = higher
    while True:
        rendered = _render(kit, history, window)
        if not _too_long(kit, history, rendered, window):
            return _built(kit, rendered, window, wanted)
        if raise_through is None:
            return NeedsRaise()
        higher = windows.raised(window, raise_through)
        if higher is None:
            size = kit.overhead_chars + rendered.chars
            fits = kit.context_window is None or windows.fits(size, kit.context_window)
            return _built(kit, rendered, window, wanted) if fits else overflow()
        window = higher


def overflow() -> Ending:
    """Return the ending of a run whose history can't be made to fit."""
    message = "the conversation no longer fits the model's window"
    return failure(FailureClass.CONTEXT_OVERFLOW.value, message)


def _render(kit: Kit, history: History, window: Window) -> Rendered:
    budget = None
    if kit.context_window is not None:
        budget = windows.budget_chars(kit.context_window, kit.overhead_chars)
    return render(
        history,
        level=window.level,
        through_position=window.through_position,
        keeps_reasoning=kit.keeps_reasoning,
        route=kit.route,
        budget=budget,
    )


def _too_long(kit: Kit, history: History, rendered: Rendered, window: Window) -> bool:
    if kit.context_window is None:
        return False
    known = history.estimate() if window == history.window else None
    estimate = windows.estimate_tokens(kit.overhead_chars + rendered.chars, known)
    return windows.should_raise(estimate, kit.context_window)


def _built(kit: Kit, rendered: Rendered, window: Window, wanted: Wanted) -> Built:
    body = kit.encode(ChatRequest(system=kit.system, messages=rendered.messages, tools=kit.specs))
    action = ModelRequest(
        step=wanted.step,
        attempt=wanted.attempt,
        request_hash=hash_hex(body),
        prompt_hash=kit.prompt_hash,
        tools_hash=kit.tools_hash,
        projector_version=PROJECTOR_VERSION,
        history_seq=wanted.history_seq,
        window_level=window.level,
        window_position=window.through_position,
        active_ms=wanted.active_ms,
        losses=rendered.losses,
    )
    return Built(body=body, action=action)
