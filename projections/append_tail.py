"""Where an invocation stands, and what its next fact does to that.

Laws: a stream begins with its opening and keeps its identity; a terminal comes last and finds nothing open; a message
is taken once; a background process ends once, after its start. A fact that breaks one raises `Refused`; a tail never
changes in place.
"""

from collections.abc import Callable

from msgspec import Struct

from maka.contracts.actions import Actions, ProcessIdentity
from maka.contracts.content import FunctionCall, FunctionResponse, InvocationOpened, SessionOpened, Text
from maka.contracts.errors import RefusalCode
from maka.contracts.events import Role, RuntimeEvent, Status
from maka.contracts.ids import CallId, InvocationId, MessageId, RunId, SessionId, TurnId, id_bytes
from projections.append_calls import (
    Calls,
    OpenCall,
    Refused,
    Waits,
    has_wait,
    refuse,
    with_dispatch,
    with_response,
    with_waits,
)


class Tail(Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """The end of an invocation, as far as the next append must know it.

    `waits` maps the id of a request to its call. `open_since` is the position that made this invocation open work, 0
    when it is none. `untaken` and `processes` (live background ones) belong to control streams. `bytes` counts
    payloads.
    """

    seq: int
    position: int
    bytes: int
    session_id: SessionId
    turn_id: TurnId | None = None
    run_id: RunId | None = None
    sealed: bool = False
    open_since: int = 0
    calls: Calls = {}
    waits: Waits = {}
    untaken: tuple[MessageId, ...] = ()
    processes: tuple[str, ...] = ()


def unopened(event: RuntimeEvent, position: int) -> Tail:
    """Return the tail before event 1, which has to be the opening of its stream."""
    if isinstance(event.content, SessionOpened):
        if event.run_id or event.turn_id or event.invocation_id != InvocationId(event.session_id):
            refuse(RefusalCode.IDENTITY_CONFLICT, event, "a control stream has its session's id, no run and no turn")
        return Tail(seq=0, position=0, bytes=0, session_id=event.session_id)
    if not isinstance(event.content, InvocationOpened):
        refuse(RefusalCode.IDENTITY_CONFLICT, event, "the first fact of a stream is its opening: append that first")
    if event.run_id is None or event.turn_id is None or event.invocation_id == InvocationId(event.session_id):
        refuse(RefusalCode.IDENTITY_CONFLICT, event, "a run has a run id, a turn id and an invocation id of its own")
    return Tail(
        seq=0,
        position=0,
        bytes=0,
        session_id=event.session_id,
        turn_id=event.turn_id,
        run_id=event.run_id,
        open_since=position,
    )


def fold(tail: Tail, event: RuntimeEvent, position: int, size: int, answered: set[CallId]) -> Tail:
    """Take in the next fact, of `size` payload bytes, at `position`; raises Refused where it breaks a rule.

    `answered` collects the calls whose wait was answered in the same append: their response needs no dispatch.
    """
    if event.run_id != tail.run_id or event.session_id != tail.session_id or event.turn_id != tail.turn_id:
        refuse(RefusalCode.IDENTITY_CONFLICT, event, "session, turn and run must be those of the stream's opening")
    content, actions = event.content, event.actions
    if isinstance(content, InvocationOpened | SessionOpened) and tail.seq:
        refuse(RefusalCode.IDENTITY_CONFLICT, event, "a stream is opened once")
    if tail.run_id is None:
        return _control(tail, event, position, size)
    calls, waits = tail.calls, tail.waits
    if isinstance(content, FunctionCall):
        calls = {**calls, CallId(event.id): OpenCall()}
    if actions is not None:
        if actions.message_queued is not None or actions.message_retracted is not None:
            refuse(RefusalCode.INVALID_EVENT, event, "messages are queued and retracted in the control stream")
        if actions.process_ended is not None or (actions.process_started and actions.process_started.background):
            refuse(RefusalCode.INVALID_EVENT, event, "what outlives a run is a fact of the control stream")
        if actions.tool_dispatch is not None:
            calls = with_dispatch(calls, event, actions.tool_dispatch.call_id)
        if has_wait(actions):
            calls, waits = with_waits(calls, waits, event, answered)
    if isinstance(content, FunctionResponse):
        calls = with_response(calls, event, content, answered)
    sealed = event.status is not None
    if sealed:
        _check_terminal(tail, event, calls, waits)
    return Tail(
        seq=tail.seq + 1,
        position=position,
        bytes=tail.bytes + size,
        session_id=tail.session_id,
        turn_id=tail.turn_id,
        run_id=tail.run_id,
        sealed=sealed,
        open_since=0 if sealed else tail.open_since,
        calls=calls,
        waits=waits,
    )


def taken_message(event: RuntimeEvent) -> MessageId | None:
    """Return the queued message that this fact takes: a user's words in a run that name it."""
    if event.refs is None or event.run_id is None or event.role is not Role.USER or not isinstance(event.content, Text):
        return None
    return event.refs.message_id


def take_message(control: Tail, message_id: MessageId, event: RuntimeEvent, position: int) -> Tail:
    """Return the control stream's tail without a message, which must be waiting there."""
    untaken = _without(control.untaken, message_id, event)
    return _control_tail(control, control.seq, control.position, control.bytes, position, untaken, control.processes)


def _control(tail: Tail, event: RuntimeEvent, position: int, size: int) -> Tail:
    if event.status is not None:
        refuse(RefusalCode.INVALID_EVENT, event, "a control stream never ends: it takes no status")
    if isinstance(event.content, FunctionCall):
        refuse(RefusalCode.INVALID_EVENT, event, "calls belong to a run")
    untaken, processes, actions = tail.untaken, tail.processes, event.actions
    if isinstance(event.content, FunctionResponse):
        with_response({}, event, event.content, set())
    if actions is not None:
        if actions.tool_dispatch is not None:
            with_dispatch({}, event, actions.tool_dispatch.call_id)
        with_waits({}, {}, event, set())
        if actions.message_queued is not None:
            untaken = (*untaken, MessageId(event.id))
        if actions.message_retracted is not None:
            untaken = _without(untaken, actions.message_retracted.message_id, event)
        processes = _processes(processes, event, actions)
    return _control_tail(tail, tail.seq + 1, position, tail.bytes + size, position, untaken, processes)


def _processes(live: tuple[str, ...], event: RuntimeEvent, actions: Actions) -> tuple[str, ...]:
    if (started := actions.process_started) is not None:
        key = _process_key(started.process)
        if not started.background:
            refuse(RefusalCode.INVALID_EVENT, event, "a process of a run's own belongs to that run")
        if key in live:
            refuse(RefusalCode.PAIRING_VIOLATION, event, f"process {started.process.pid} was started already")
        live = (*live, key)
    if (ended := actions.process_ended) is not None:
        key = _process_key(ended.process)
        if key not in live:
            refuse(RefusalCode.PAIRING_VIOLATION, event, f"process {ended.process.pid} isn't live: ended or unknown")
        live = tuple(other for other in live if other != key)
    return live


def _without(untaken: tuple[MessageId, ...], message_id: MessageId, event: RuntimeEvent) -> tuple[MessageId, ...]:
    if message_id not in untaken:
        refuse(RefusalCode.MESSAGE_TAKEN, event, f"message {message_id} isn't waiting: taken, retracted or unknown")
    return tuple(waiting for waiting in untaken if waiting != message_id)


def _control_tail(
    tail: Tail,
    seq: int,
    last_position: int,
    size: int,
    now_position: int,
    untaken: tuple[MessageId, ...],
    processes: tuple[str, ...],
) -> Tail:
    return Tail(
        seq=seq,
        position=last_position,
        bytes=size,
        session_id=tail.session_id,
        open_since=(tail.open_since or now_position) if untaken or processes else 0,
        untaken=untaken,
        processes=processes,
    )


def _process_key(process: ProcessIdentity) -> str:
    return f"{process.boot_id}:{process.pid}:{process.start_ticks}"


def _check_terminal(tail: Tail, event: RuntimeEvent, calls: Calls, waits: Waits) -> None:
    if not tail.seq:
        refuse(RefusalCode.INVALID_EVENT, event, "an opening can't be the end as well")
    if calls or waits:
        what = f"calls {', '.join(calls)}" if calls else f"requests {', '.join(waits)}"
        refuse(RefusalCode.PAIRING_VIOLATION, event, f"{what} are open: settle them before the terminal")
    delta = event.actions.state_delta if event.actions is not None else None
    if event.status is Status.FAILED and (delta is None or delta.failure_class is None):
        refuse(RefusalCode.INVALID_EVENT, event, "a failed terminal says its failure class")
    if event.status is Status.ABORTED and (delta is None or delta.abort_source is None):
        refuse(RefusalCode.INVALID_EVENT, event, "an aborted terminal says its source")


class Book:
    """The tails that change, over those that stand: the working copy of one append, or of one replay."""

    __slots__ = ("_standing", "changed")

    def __init__(self, standing: Callable[[InvocationId], Tail | None]) -> None:
        self._standing = standing
        self.changed: dict[InvocationId, Tail] = {}

    def get(self, invocation_id: InvocationId) -> Tail | None:
        """Return the newest tail of an invocation."""
        tail = self.changed.get(invocation_id)
        return tail if tail is not None else self._standing(invocation_id)

    def enter(self, event: RuntimeEvent, position: int, size: int, answered: set[CallId]) -> Tail:
        """Take in the next fact of its invocation; raises Refused where it breaks a rule."""
        tail = self.get(event.invocation_id)
        if tail is None:
            tail = self._open(event, position)
        elif tail.sealed:
            raise Refused(RefusalCode.RUN_SEALED, f"run {tail.run_id} has ended: nothing comes after its terminal")
        tail = fold(tail, event, position, size, answered)
        self.changed[event.invocation_id] = tail
        message_id = taken_message(event)
        if message_id is not None:
            control = self._control_of(event)
            self.changed[InvocationId(event.session_id)] = take_message(control, message_id, event, position)
        return tail

    def _open(self, event: RuntimeEvent, position: int) -> Tail:
        tail = unopened(event, position)
        for value in (event.session_id, event.invocation_id, event.run_id, event.turn_id):
            if value is not None:
                id_bytes(value)
        if event.run_id is not None:
            self._control_of(event)
        return tail

    def _control_of(self, event: RuntimeEvent) -> Tail:
        control = self.get(InvocationId(event.session_id))
        if control is None or control.run_id is not None:
            raise Refused(RefusalCode.UNKNOWN_SESSION, f"session {event.session_id} was never opened: create it first")
        return control
