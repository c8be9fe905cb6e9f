"""How a session's run is opened: provider, prompt and tools are looked up, and the first append is built."""

from msgspec import Struct

from actors import request, session_protocol
from actors.session_log import SessionLog
from actors.session_protocol import Admission, Opening
from actors.wiring import Ports
from maka.contracts.content import RunLimits
from maka.contracts.errors import LedgerError, Refusal, RefusalCode, RefusedError
from maka.contracts.ids import MessageId
from maka.contracts.model_ports import Provider
from maka.contracts.ports import Append, CommandKey


class Order(Struct, frozen=True):
    """What a run is started for. `message_id` is that of a queued message."""

    text: str
    profile: str
    limits: RunLimits
    message_id: MessageId | None = None


class Opened(Struct, frozen=True, kw_only=True):
    """A run that starts when its first append is durable."""

    opening: Opening
    provider: Provider
    kit: request.Kit


def prepare(
    ports: Ports, log: SessionLog, order: Order, key: CommandKey | None, *, fallback: str
) -> tuple[Append, Opened] | Refusal:
    """Return a run's first append and what starts when it is durable.

    `fallback` is the profile to use where a queued message's own is gone, as it may be after a restart.
    """
    try:
        provider = _provider(ports, order, fallback)
        prepared = _admission(ports, log, provider, order.limits)
    except RefusedError as error:
        return error.refusal
    except LedgerError as error:
        return Refusal(code=RefusalCode.LEDGER_FULL, message=str(error))
    admission, blobs = prepared
    opening = session_protocol.open_run(admission, order.text, ports.ids, key=key, message_id=order.message_id)
    if isinstance(opening, Refusal):
        return opening
    append = Append(groups=opening.append.groups, blobs=blobs, command=key)
    return append, Opened(opening=opening, provider=provider, kit=admission.kit)


def _admission(
    ports: Ports, log: SessionLog, provider: Provider, limits: RunLimits
) -> tuple[Admission, tuple[bytes, ...]]:
    assert log.header is not None and log.history is not None
    system = ports.prompt(log.header.real_cwd)
    kit, prompt, tools = request.kit_of(provider, system, ports.catalog.specs())
    prompt_ref, prompt_inline = ports.blobs.put(prompt)
    tools_ref, tools_inline = ports.blobs.put(tools)
    admission = Admission(
        header=log.header,
        history=log.history,
        kit=kit,
        prompt=prompt_ref,
        tools=tools_ref,
        limits=limits,
        now_ms=ports.clock.now_ms(),
        now_s=ports.clock.monotonic_s(),
    )
    return admission, tuple(data for data in (prompt_inline, tools_inline) if data is not None)


def _provider(ports: Ports, order: Order, fallback: str) -> Provider:
    try:
        return ports.providers(order.profile)
    except RefusedError:
        if order.message_id is None or not fallback or fallback == order.profile:
            raise
        return ports.providers(fallback)
