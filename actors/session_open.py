"""How a session's run is opened: provider, prompt and tools are looked up, and the first append is built."""

from msgspec import Struct

from actors import request, session_protocol
from actors.address import ReplyTo
from actors.mapper import At
from actors.session_log import SessionLog
from actors.session_protocol import Admission, Opening
from actors.session_undo import Prepared
from actors.wiring import Ports
from maka.contracts.boundary import CarriedGrant
from maka.contracts.commands import ChangeBoundary, Reply, SendMessage
from maka.contracts.content import RunLimits
from maka.contracts.errors import FoldError, LedgerError, Refusal, RefusalCode, RefusedError
from maka.contracts.ids import MessageId, SessionId
from maka.contracts.model_ports import Provider
from maka.contracts.ports import Append, CommandKey, LedgerReader
from projections import boundary


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


class Pending(Struct, frozen=True, kw_only=True):
    """The append in flight, and who waits for it."""

    tag: int
    reply: ReplyTo[Reply] | None
    opened: Opened | Prepared | None


def stored_outcome(reader: LedgerReader, key: CommandKey) -> Reply | None:
    """Return the outcome of a command that was handled before, or the refusal of its id for another one."""
    known = reader.command(key.scope, key.command_id)
    if known is None:
        return None
    stored = reader.read_positions(known.position - 1, 1)[0]
    return session_protocol.check_known(known, key) or session_protocol.outcome_of(stored)


def admit(
    ports: Ports, log: SessionLog, command: SendMessage, *, busy: bool, closing: bool
) -> Append | tuple[Append, Opened] | Reply:
    """Return what a message becomes: a run's first append, a place in the queue, its stored outcome, or a refusal."""
    key = session_protocol.key_of(command)
    if (stored := stored_outcome(ports.reader, key)) is not None:
        return stored
    if closing:
        return Refusal(code=RefusalCode.SHUTTING_DOWN, message="the host is shutting down; try again later")
    assert log.header is not None, "a session that refuses nothing is known"
    refusal = session_protocol.check_message(command, log.header, waiting=len(log.queue))
    if refusal is not None:
        return refusal
    if busy or log.queue:
        at = At(ports.ids(), ports.clock.now_ms())
        return session_protocol.queue_message(command, log.control_seq, at)
    return prepare(ports, log, Order(command.text, command.profile, command.limits), key, fallback="")


def boundary_change(ports: Ports, log: SessionLog, command: ChangeBoundary) -> Append | Reply:
    """Return the append of a person's change of the boundary, its stored outcome, or why it can't be."""
    if (stored := stored_outcome(ports.reader, session_protocol.key_of(command))) is not None:
        return stored
    assert log.boundary is not None
    at = At(ports.ids(), ports.clock.now_ms())
    return session_protocol.change_boundary(command, log.boundary, log.control_seq, at)


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


def carried_grants(reader: LedgerReader, before: SessionId | None) -> tuple[CarriedGrant, ...]:
    """Return the workspace grants of the newest session of the same directory; none where it can't be read."""
    if before is None:
        return ()
    try:
        state = boundary.project(reader.iter_session(before))
    except (LedgerError, FoldError):
        return ()
    return () if state is None else boundary.carried_by(state)
