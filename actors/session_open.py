"""How a session's run is opened: provider, prompt and tools are looked up, and the first append is built."""

from collections.abc import Sequence
from itertools import chain

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
from maka.contracts.ids import MessageId
from maka.contracts.model_ports import Provider
from maka.contracts.ports import Append, CommandKey, LedgerReader
from projections import boundary
from projections.session_index import Placed


class Order(Struct, frozen=True):
    """What a run is started for. `message_id` is that of a queued message."""

    text: str
    profile: str
    limits: RunLimits
    message_id: MessageId | None = None


class Opened(Struct, frozen=True, kw_only=True):
    """A run that starts when its first append is durable."""

    append: Append
    opening: Opening
    provider: Provider
    kit: request.Kit


class Pending(Struct, frozen=True, kw_only=True):
    """The append in flight, and who waits for it."""

    tag: int
    reply: ReplyTo[Reply] | None
    opened: Opened | Prepared | None

    def answer(self, reply: Reply) -> None:
        """Tell whoever waits, if anybody does."""
        if self.reply is not None:
            self.reply.set(reply)


def stored_outcome(reader: LedgerReader, key: CommandKey) -> Reply | None:
    """Return the outcome of a command that was handled before, or the refusal of its id for another one."""
    known = reader.command(key.scope, key.command_id)
    if known is None:
        return None
    stored = reader.read_positions(known.position - 1, 1)[0]
    return session_protocol.check_known(known, key) or session_protocol.outcome_of(stored)


def boundary_change(ports: Ports, log: SessionLog, command: ChangeBoundary) -> Append | Reply:
    """Return the append of a person's change of the boundary, its stored outcome, or why it can't be."""
    if (stored := stored_outcome(ports.reader, session_protocol.key_of(command))) is not None:
        return stored
    try:
        log.catch_up(ports.reader)  # a run's decision may be newer than what is known here
    except (LedgerError, FoldError) as error:
        words = f"the session's boundary can't be read ({error}); `maka verify` shows where"
        return Refusal(code=RefusalCode.SESSION_DAMAGED, message=words)
    assert log.boundary is not None
    at = At(ports.ids(), ports.clock.now_ms())
    return session_protocol.change_boundary(command, log.boundary, log.control_seq, at)


def take_message(
    ports: Ports, log: SessionLog, command: SendMessage, *, busy: bool, closing: bool
) -> Append | Opened | Reply:
    """Return what becomes of a message: the run that it opens, its place in the queue, or why it isn't taken."""
    key = session_protocol.key_of(command)
    if (stored := stored_outcome(ports.reader, key)) is not None:
        return stored
    if closing:
        return session_protocol.CLOSED
    assert log.header is not None, "a session without one refuses everything"
    if (refusal := session_protocol.check_message(command, log.header, waiting=len(log.queue))) is not None:
        return refusal
    if busy or log.queue:
        return session_protocol.queue_message(command, log.control_seq, At(ports.ids(), ports.clock.now_ms()))
    return _open(ports, log, Order(command.text, command.profile, command.limits), key, fallback="")


def open_next(ports: Ports, log: SessionLog, *, fallback: str) -> Opened | Refusal | None:
    """Return the run of the oldest message that waits, if one does.

    `fallback` is the profile to use where the message's own is gone, as it may be after a restart.
    """
    waiting = next(iter(log.queue.values()), None)
    if waiting is None:
        return None
    queued = waiting.queued
    order = Order(queued.text, queued.profile or "", queued.limits or RunLimits(), waiting.message_id)
    return _open(ports, log, order, None, fallback=fallback)


def _open(ports: Ports, log: SessionLog, order: Order, key: CommandKey | None, *, fallback: str) -> Opened | Refusal:
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
    return Opened(append=append, opening=opening, provider=provider, kit=admission.kit)


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


def carried_grants(reader: LedgerReader, before: Sequence[Placed]) -> tuple[CarriedGrant, ...]:
    """Return the grants to a directory that hold by now; none where one of its sessions can't be read.

    `before` are its sessions, newest first. The newest one began with what held then; what others changed since is in
    those whose facts go on after its first.
    """
    if not before:
        return ()
    newest, *others = before
    try:
        facts = reader.iter_session(newest.session_id)
        first = next(facts)
        state = boundary.project(chain([first], facts))
        late = [one for one in others if one.boundary_revision and one.position > first.position]
        changes = [boundary.changes_since(reader.iter_session(one.session_id), first.position) for one in late]
    except (LedgerError, FoldError, StopIteration):
        return ()
    return () if state is None else boundary.carried_by(state, changes)
