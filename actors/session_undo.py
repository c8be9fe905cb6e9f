"""How an undo is admitted: the session's changes are read, the files looked at, and its run's first append is built.

Laws: nothing runs in the session meanwhile; what the files are is looked at here, and once more by each call before
it writes; an undo that has nothing to put back makes no run.
"""

from msgspec import Struct
from msgspec.structs import replace

from actors import mapper, run_undo
from actors.mapper import At, Who
from actors.recovery import read_run
from actors.run_types import Plan, State
from actors.session_log import SessionLog
from actors.session_protocol import CLOSED, invalid
from actors.wiring import Ports
from maka.contracts.codec import canonical_json, drafts, hash_hex
from maka.contracts.commands import Undo, UndoReceipt
from maka.contracts.content import InvocationOpened, RootKind, RunLimits, SourceKind, SystemNote
from maka.contracts.errors import FoldError, LedgerError, Refusal, RefusalCode
from maka.contracts.events import Cause, Committed, RuntimeEvent
from maka.contracts.ids import InvocationId, RunId, TurnId, is_command_id
from maka.contracts.limits import UNDO_FILES_MAX
from maka.contracts.ports import Append, Appended, CommandKey, Group
from projections import changes, run_state, undo_plan, undo_record
from projections.session_index import Header
from projections.undo_plan import UndoPlan, UndoStep


class Prepared(Struct, frozen=True, kw_only=True):
    """An undo whose run starts once its first append is durable."""

    who: Who
    events: tuple[RuntimeEvent, ...]
    append: Append
    steps: tuple[UndoStep, ...]


def prepare(
    ports: Ports, log: SessionLog, command: Undo, *, live: RunId | None, closing: bool
) -> Prepared | UndoReceipt | Refusal:
    """Return the run of an undo, or the receipt of one that is known or has nothing to do.

    `live` is the session's run, if it has one; once its end is durable it keeps nothing from being undone, also
    before word of that has come here.
    """
    if not is_command_id(command.command_id):
        return invalid("a command id is 1 to 128 letters, digits and _.:- ; choose another")
    key = CommandKey(command.session_id, command.command_id, command_hash(command))
    try:
        if (known := ports.reader.command(key.scope, key.command_id)) is not None:
            return _known(ports, known.position, known.command_hash == key.command_hash)
        if closing:
            return CLOSED
        log.catch_up(ports.reader)
        assert log.header is not None
        busy = live in log.header.open_runs or bool(log.queue)
        return check(command, log.header, busy=busy) or _prepare(ports, log, command, key)
    except (LedgerError, FoldError) as error:
        words = f"the session's changes can't be read ({error}); `maka verify` shows where"
        return Refusal(code=RefusalCode.SESSION_DAMAGED, message=words)


def _prepare(ports: Ports, log: SessionLog, command: Undo, key: CommandKey) -> Prepared | UndoReceipt | Refusal:
    header, run_id = log.header, command.run_id
    assert header is not None
    folded = changes.project(ports.reader.iter_session(command.session_id))
    assert folded is not None, "a session has at least its opening"
    found = changes.changes(folded)
    now = {path: ports.undo.look(header.real_cwd, path) for path in undo_plan.candidates(found, run_id, command.files)}
    plan = undo_plan.plan(found, run_id, now, files=command.files, force=command.force)
    if (refusal := too_many(plan)) is not None:
        return refusal
    commands = changes.by_commands(found, run_id)
    if not plan.steps:
        return UndoReceipt(session_id=command.session_id, left=plan.left, commands=commands)
    note = undo_record.note(plan.left, commands)
    return _opening(ports, log, key, plan, () if note is None else (note,))


def check(command: Undo, header: Header, *, busy: bool) -> Refusal | None:
    """Refuse what can't be undone now."""
    if command.force and not command.files:
        return invalid("force goes with the files that it is for: name them")
    if header.archived:
        return Refusal(code=RefusalCode.SESSION_ARCHIVED, message=f"session #{header.number} is archived")
    if busy and header.waiting:
        words = (
            f"session #{header.number} waits for an answer (maka inbox): give it, or deny; undo when its run has ended"
        )
        return Refusal(code=RefusalCode.NEEDS_ANSWER, message=words)
    if busy:
        words = (
            f"session #{header.number} is at work, or has a message in its queue: let that end, or stop it; then undo"
        )
        return Refusal(code=RefusalCode.SESSION_BUSY, message=words)
    return None


def too_many(plan: UndoPlan) -> Refusal | None:
    """Refuse a plan of more files than one undo takes."""
    if len(plan.steps) <= UNDO_FILES_MAX:
        return None
    return invalid(f"{len(plan.steps):,} files are more than the {UNDO_FILES_MAX:,} of one undo: undo run by run")


def command_hash(command: Undo) -> str:
    """Return the hash that tells a repeated command from another one under the same id."""
    return hash_hex(canonical_json(["undo", command.session_id, command.run_id, command.files, command.force]))


def receipt_of(ports: Ports, run_id: RunId) -> UndoReceipt | Refusal:
    """Return what an undo's run has come to."""
    try:
        found = undo_record.receipt(read_run(ports.reader, InvocationId(run_id)))
    except LedgerError as error:
        return Refusal(code=RefusalCode.INTERNAL, message=f"the undo's own facts can't be read: {error}")
    assert found is not None, "a run has at least its opening"
    return found


def first_state(prepared: Prepared, result: Appended, log: SessionLog, now_s: float) -> State:
    """Return the state of an undo whose first append is durable; `log` includes it."""
    assert log.history is not None and log.boundary is not None
    facts: run_state.RunState | None = None
    for event, (position, seq) in zip(prepared.events, result.places, strict=True):
        facts = run_state.fold(facts, Committed(position=position, seq=seq, event=event))
    opened = prepared.events[0].content
    assert facts is not None and isinstance(opened, InvocationOpened)
    plan = Plan(
        who=prepared.who,
        cwd=opened.configuration.cwd,
        limits=RunLimits(),
        started_s=now_s,
        body=b"",
        undo=prepared.steps,
    )
    return State(plan=plan, facts=facts, history=log.history, seen=log.seen, boundary=log.boundary, step=0)


def _known(ports: Ports, position: int, same: bool) -> UndoReceipt | Refusal:
    if not same:
        words = "this command id was used for another command; use a new id"
        return Refusal(code=RefusalCode.COMMAND_CONFLICT, message=words)
    run_id = ports.reader.read_positions(position - 1, 1)[0].event.run_id
    if run_id is None:
        return Refusal(code=RefusalCode.COMMAND_CONFLICT, message="this command id was no undo; use a new id")
    found = receipt_of(ports, run_id)
    if isinstance(found, UndoReceipt) and found.status is None:
        return Refusal(code=RefusalCode.SESSION_BUSY, message="this undo is still under way; ask again")
    return found


def _opening(ports: Ports, log: SessionLog, key: CommandKey, plan: UndoPlan, notes: tuple[SystemNote, ...]) -> Prepared:
    header, history = log.header, log.history
    assert header is not None and history is not None and header.last_run_id is not None
    # The session's model stays what it was: an undo asks none, and has no other.
    last = ports.reader.read_stream(InvocationId(header.last_run_id), 0, 1)[0].event.content
    assert isinstance(last, InvocationOpened), "a run's first fact is its opening"
    configuration = replace(
        last.configuration,
        cwd=header.real_cwd,
        boundary_revision=header.boundary_revision,
        limits=RunLimits(),
        history_position=history.position,
    )
    opened = replace(last, configuration=configuration, root=RootKind.UNDO, source=SourceKind.FRESH, lineage=None)
    run_id, now_ms = ports.ids(), ports.clock.now_ms()
    who = Who(
        session_id=header.session_id,
        invocation_id=InvocationId(run_id),
        run_id=RunId(run_id),
        turn_id=TurnId(ports.ids()),
    )
    cause = Cause(command_id=key.command_id, command_hash=key.command_hash)
    words = run_undo.opening_words(plan.steps)
    events = (
        mapper.opened(who, At(ports.ids(), now_ms), opened, cause),
        mapper.undo_words(who, At(ports.ids(), now_ms), words, cause),
        *(mapper.undo_note(who, At(ports.ids(), now_ms), note, cause) for note in notes),
    )
    append = Append(groups=(Group(who.invocation_id, 0, drafts(events)),), command=key)
    return Prepared(who=who, events=events, append=append, steps=plan.steps)
