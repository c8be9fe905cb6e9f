"""May this append be stored? One pure answer for the LMDB store, the memory twin and `verify`.

Laws: an append is judged whole, on the tails that are committed or staged before it; a retry of what is stored is a
success wherever it stands; everything else is one `Refusal`, never an exception. What lies outside the invocation is
asked through `Lookup`.
"""

from hashlib import sha256
from typing import Protocol

from msgspec import Struct

from maka.contracts import limits as bounds
from maka.contracts.codec import Draft
from maka.contracts.content import BlobRef, FunctionResponse, InvocationOpened, SessionOpened, Text, Thinking
from maka.contracts.errors import Refusal, RefusalCode
from maka.contracts.events import RuntimeEvent, Status
from maka.contracts.ids import CallId, CommandId, InvalidIdError, InvocationId, RunId, id_bytes, is_command_id
from maka.contracts.ports import Append, Group, KnownCommand
from projections.append_calls import Refused
from projections.append_tail import Book, Tail

SETTLE_EVENTS = 3
"""What a settlement writes beside responses and closed waits: unfinished thinking, unfinished text, the terminal."""


class Limits(Struct, frozen=True, kw_only=True):
    """The bounds that an append is held to; smaller ones make tests short."""

    groups_max: int = bounds.GROUPS_MAX
    events_max: int = bounds.EVENTS_MAX
    run_bytes_max: int = bounds.RUN_BYTES_MAX
    event_bytes_max: int = bounds.EVENT_BYTES_MAX
    settlement_bytes_max: int = bounds.SETTLEMENT_BYTES_MAX
    calls_max: int = bounds.STEP_CALLS_MAX
    untaken_max: int = bounds.QUEUED_MESSAGES_MAX
    processes_max: int = bounds.BACKGROUND_PROCESSES_MAX
    blob_bytes_max: int = bounds.BLOB_INLINE_BYTES_MAX


class Stored(Struct, frozen=True):
    """Where an event is, and the SHA-256 of its payload."""

    position: int
    seq: int
    digest: bytes


class Lookup(Protocol):
    """What an append's verdict needs from the store: committed facts and those staged before it in the batch."""

    def tail(self, invocation_id: InvocationId) -> Tail | None: ...

    def stored(self, key: bytes) -> Stored | None:
        """Find an event, or the opening of a run, by the 16 bytes of its id."""
        ...

    def command(self, scope: str, command_id: CommandId) -> KnownCommand | None: ...

    def places(self, position: int, count: int) -> tuple[tuple[int, int], ...]:
        """Return (position, seq) of each event from a position on."""
        ...

    def blob_size(self, sha256: str) -> int | None: ...


class Admitted(Struct, frozen=True):
    """The append may be stored, or (`known`) is stored at these places.

    `keys` are the 16 bytes of each event's id, in order; `tails` all that changes, control streams included.
    """

    places: tuple[tuple[int, int], ...]
    known: bool = False
    keys: tuple[bytes, ...] = ()
    run_keys: dict[bytes, Stored] = {}
    tails: dict[InvocationId, Tail] = {}
    blobs: dict[str, bytes] = {}


def admit(append: Append, lookup: Lookup, position: int, limits: Limits) -> Admitted | Refusal:
    """Say whether an append may be stored with its first event at `position`."""
    try:
        return _admit(append, lookup, position, limits)
    except Refused as refused:
        return refused.refusal
    except InvalidIdError as error:
        return Refusal(code=RefusalCode.INVALID_EVENT, message=str(error))


def check_fact(event: RuntimeEvent, size: int, event_bytes_max: int | None = None) -> None:
    """Raise Refused for a fact that no log may hold, whatever came before it."""
    if event.partial:
        raise _invalid(event, "a partial is never a fact: send it as a partial")
    if event.status is Status.STREAMING or event.status is Status.CANCELLED:
        raise _invalid(event, f"status {event.status} isn't written: only completed, failed and aborted end a run")
    if event_bytes_max is not None and size > event_bytes_max:
        raise _invalid(event, f"{size} bytes are over the bound of {event_bytes_max}: move large values to a blob")


def named_blobs(event: RuntimeEvent) -> tuple[BlobRef, ...]:
    """Return the stored values that a fact names."""
    content, actions = event.content, event.actions
    found: list[BlobRef | None] = []
    if isinstance(content, Text | Thinking):
        found.append(content.whole)
    elif isinstance(content, FunctionResponse):
        found += (content.whole, content.diff)
    elif isinstance(content, InvocationOpened):
        found += (content.configuration.prompt, content.configuration.tools)
    if actions is not None:
        if actions.file_change is not None:
            found.append(actions.file_change.pre_image)
        if actions.process_ended is not None:
            found.append(actions.process_ended.output)
        found.extend(artifact.blob for artifact in actions.artifact_delta)
    return tuple(ref for ref in found if ref is not None)


def command_scope(event: RuntimeEvent) -> str:
    """Return the scope of the command that caused a fact: empty where the fact opened its session."""
    return "" if isinstance(event.content, SessionOpened) else event.session_id


def _admit(append: Append, lookup: Lookup, position: int, limits: Limits) -> Admitted:
    keys = _check_shape(append, limits)
    if append.command is not None:
        places = _known_command(append, lookup)
        if places is not None:
            return Admitted(places, known=True)
    places = _known_events(append, keys, lookup)
    if places is not None:
        return Admitted(places, known=True)
    blobs = {sha256(blob).hexdigest(): blob for blob in append.blobs}
    book = Book(lookup.tail)
    new_places: list[tuple[int, int]] = []
    run_keys: dict[bytes, Stored] = {}
    answered: set[CallId] = set()
    for group in append.groups:
        before = _check_tail(book.get(group.invocation_id), group)
        for draft in group.drafts:
            event = draft.event
            tail = book.enter(event, position, len(draft.payload), answered)
            if tail.seq == 1 and tail.run_id is not None:
                run_keys[_unused_run(tail.run_id, lookup, {*keys, *run_keys})] = Stored(position, 1, draft.digest)
            _check_blobs(event, blobs, lookup)
            new_places.append((position, tail.seq))
            position += 1
        _check_room(book.get(group.invocation_id), before, append.settlement, limits)
    return Admitted(tuple(new_places), keys=keys, run_keys=run_keys, tails=book.changed, blobs=blobs)


def _check_shape(append: Append, limits: Limits) -> tuple[bytes, ...]:
    """Check what needs no store; return the key of each event's id."""
    groups = append.groups
    if len(groups) > limits.groups_max:
        raise Refused(RefusalCode.LIMIT_EXCEEDED, f"{len(groups)} groups; an append has at most {limits.groups_max}")
    if not groups or not all(group.drafts for group in groups):
        raise Refused(RefusalCode.INVALID_EVENT, "an append has at least one group, and each group an event")
    if len(groups) > 1 and len({group.invocation_id for group in groups}) < len(groups):
        raise Refused(RefusalCode.INVALID_EVENT, "two groups for one invocation: put their events into one")
    if any(len(blob) > limits.blob_bytes_max for blob in append.blobs):
        raise Refused(
            RefusalCode.LIMIT_EXCEEDED, f"a blob over {limits.blob_bytes_max} bytes is stored before its append"
        )
    keys: list[bytes] = []
    for group in groups:
        for draft in group.drafts:
            event = draft.event
            check_fact(event, len(draft.payload), limits.event_bytes_max)
            if event.invocation_id != group.invocation_id:
                raise Refused(
                    RefusalCode.IDENTITY_CONFLICT, f"event {event.id} is of another invocation than its group"
                )
            keys.append(id_bytes(event.id))
            _check_cause(append, draft)
    if len(keys) > 1 and len(set(keys)) < len(keys):
        raise Refused(RefusalCode.IDENTITY_CONFLICT, "an event id occurs twice in one append")
    return tuple(keys)


def _check_cause(append: Append, draft: Draft) -> None:
    """The commands index is rebuilt from causes, so all events of a command's append, and no others, carry its own."""
    command, event = append.command, draft.event
    if command is None:
        if event.cause is not None:
            raise _invalid(event, "only the events of a command's own append carry its cause")
        return
    cause = event.cause
    if cause is None or (cause.command_id, cause.command_hash) != (command.command_id, command.command_hash):
        raise _invalid(event, "each event of a command's append carries the command's id and hash as its cause")
    if not is_command_id(command.command_id):
        raise _invalid(event, "a command id is 1 to 128 letters, digits and _.:-, and starts with a letter or digit")
    opens = isinstance(event.content, SessionOpened)
    if opens and sum(len(group.drafts) for group in append.groups) > 1:
        raise _invalid(event, "a command that makes a session appends session_opened alone")
    if command.scope != command_scope(event):
        raise _invalid(event, "a command's scope is its session, or empty where it makes the session")


def _known_command(append: Append, lookup: Lookup) -> tuple[tuple[int, int], ...] | None:
    key = append.command
    known = lookup.command(key.scope, key.command_id) if key is not None else None
    if key is None or known is None:
        return None
    if known.command_hash != key.command_hash:
        why = f"command {key.command_id} was given before with another content: use a new id"
        raise Refused(RefusalCode.COMMAND_CONFLICT, why)
    return lookup.places(known.position, known.count)


def _known_events(append: Append, keys: tuple[bytes, ...], lookup: Lookup) -> tuple[tuple[int, int], ...] | None:
    """Return the stored places of an exact retry; raise Refused for ids that were used for something else."""
    places: list[tuple[int, int]] = []
    new = 0
    stored = map(lookup.stored, keys)
    for group in append.groups:
        for draft, found in zip(group.drafts, stored, strict=False):
            if found is None:
                new += 1
            elif found.digest != draft.digest:
                why = f"event id {draft.event.id} is stored with another payload: mint a new id"
                raise Refused(RefusalCode.IDENTITY_CONFLICT, why)
            else:
                places.append((found.position, found.seq))
    if places and new:
        raise Refused(RefusalCode.IDENTITY_CONFLICT, f"{len(places)} of the events are stored already, {new} aren't")
    return tuple(places) or None


def _check_tail(tail: Tail | None, group: Group) -> Tail | None:
    if tail is not None and tail.sealed:
        raise Refused(RefusalCode.RUN_SEALED, f"run {tail.run_id} has ended: nothing comes after its terminal")
    seq = tail.seq if tail is not None else 0
    if group.expected_seq != seq:
        why = f"invocation {group.invocation_id} is at seq {seq}, not {group.expected_seq}: read its tail again"
        raise Refused(RefusalCode.APPEND_CONFLICT, why)
    return tail


def _unused_run(run_id: RunId, lookup: Lookup, staged: set[bytes]) -> bytes:
    key = id_bytes(run_id)
    if key in staged or lookup.stored(key) is not None:
        raise Refused(RefusalCode.IDENTITY_CONFLICT, f"run {run_id} has an invocation already: mint a new run id")
    return key


def _check_blobs(event: RuntimeEvent, inline: dict[str, bytes], lookup: Lookup) -> None:
    for ref in named_blobs(event):
        blob = inline.get(ref.sha256)
        size = len(blob) if blob is not None else lookup.blob_size(ref.sha256)
        if size != ref.size_bytes:
            why = f"event {event.id} names blob {ref.sha256[:64]} of {ref.size_bytes} bytes: store that value first"
            raise Refused(RefusalCode.MISSING_BLOB, why)


def _check_room(tail: Tail | None, before: Tail | None, settlement: bool, limits: Limits) -> None:
    """Every tail that is left must be one that can still be settled, within the bounds."""
    assert tail is not None, "a group left no tail"
    if len(tail.untaken) > limits.untaken_max:
        raise Refused(RefusalCode.LIMIT_EXCEEDED, f"{limits.untaken_max} messages wait already: let one be taken first")
    if len(tail.processes) > limits.processes_max:
        raise Refused(RefusalCode.LIMIT_EXCEEDED, f"{limits.processes_max} background processes live: end one first")
    if len(tail.calls) > limits.calls_max:
        raise Refused(RefusalCode.LIMIT_EXCEEDED, f"more than {limits.calls_max} calls are open: answer some first")
    if tail.run_id is None:
        return
    events, size = tail.seq, tail.bytes
    if settlement and tail.sealed:
        # Only what ends the run may use the room: a run that spent it on anything else could never be ended.
        added = size - (before.bytes if before is not None else 0)
        if added > limits.settlement_bytes_max:
            why = f"a settlement of {added} bytes is over {limits.settlement_bytes_max}: cut its texts"
            raise Refused(RefusalCode.LIMIT_EXCEEDED, why)
    else:
        events += 2 * len(tail.calls) + len(tail.waits) + SETTLE_EVENTS
        size += limits.settlement_bytes_max
    if events > limits.events_max or size > limits.run_bytes_max:
        why = f"{tail.seq} events and {tail.bytes} bytes leave no room to settle: end this run and start another"
        raise Refused(RefusalCode.LIMIT_EXCEEDED, why)


def _invalid(event: RuntimeEvent, why: str) -> Refused:
    return Refused(RefusalCode.INVALID_EVENT, f"event {event.id[:64]}: {why}")
