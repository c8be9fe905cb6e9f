"""One batch: appends judged in order over what is committed, and what they change, staged.

Used by both stores, so that they can't disagree. Nothing is stored here: a store writes the staged rows in one
transaction and swaps them in only after its commit.
"""

from typing import Protocol

from msgspec import Struct

from maka.contracts.codec import Draft
from maka.contracts.errors import FoldError, LedgerDamagedError, Refusal, RefusalCode
from maka.contracts.events import Committed
from maka.contracts.ids import CommandId, InvocationId, SessionId, id_bytes
from maka.contracts.ports import Append, Appended, AppendResult, CommandKey, KnownCommand, LedgerHead
from maka.storage.keys import chained, event_key
from projections import session_index
from projections.append_rules import Admitted, Limits, Stored, admit
from projections.append_tail import Tail
from projections.session_index import Header


class Standing(Protocol):
    """What is committed, as a batch asks for it. Raises LedgerDamagedError where rows can't be read."""

    def tail(self, invocation_id: InvocationId) -> Tail | None: ...

    def stored(self, key: bytes) -> Stored | None: ...

    def command(self, scope: str, command_id: CommandId) -> KnownCommand | None: ...

    def places(self, position: int, count: int) -> tuple[tuple[int, int], ...]: ...

    def blob_size(self, sha256: str) -> int | None: ...

    def header(self, session_id: SessionId) -> Header | None: ...


class NewEvent(Struct, frozen=True, gc=False):
    """An event with its places: `key` of its row, `id_key` and `session` as 16 bytes, `chain` through it."""

    position: int
    seq: int
    key: bytes
    id_key: bytes
    session: bytes
    chain: bytes
    draft: Draft


class Batch:
    """Stages appends. Its public attributes are what a store writes; `head` is the one after the batch."""

    def __init__(self, standing: Standing, head: LedgerHead, epoch: int, limits: Limits) -> None:
        self._standing = standing
        self._first = head.position + 1
        self._epoch = epoch
        self._limits = limits
        self.head = head
        self.events: list[NewEvent] = []
        self.keys: dict[bytes, Stored] = {}
        self.tails: dict[InvocationId, Tail] = {}
        self.headers: dict[SessionId, Header] = {}
        self.commands: dict[tuple[str, str], KnownCommand] = {}
        self.blobs: dict[str, bytes] = {}

    def add(self, append: Append) -> AppendResult:
        """Judge one append and stage it; a refused one leaves no trace."""
        try:
            verdict = admit(append, self, self.head.position + 1, self._limits)
            if isinstance(verdict, Refusal):
                return verdict
            if verdict.known:
                return Appended(verdict.places, known=True)
            headers = self._fold_headers(append, verdict)
        except LedgerDamagedError as error:
            return Refusal(code=RefusalCode.SESSION_DAMAGED, message=str(error))
        self._stage(append, verdict, headers)
        return Appended(verdict.places)

    def _fold_headers(self, append: Append, verdict: Admitted) -> dict[SessionId, Header]:
        headers: dict[SessionId, Header] = {}
        places = iter(verdict.places)
        for group in append.groups:
            for draft in group.drafts:
                session_id = draft.event.session_id
                header = headers.get(session_id) or self.headers.get(session_id) or self._standing.header(session_id)
                position, seq = next(places)
                headers[session_id] = _fold(header, Committed(position=position, seq=seq, event=draft.event))
        return headers

    def _stage(self, append: Append, verdict: Admitted, headers: dict[SessionId, Header]) -> None:
        places, keys, chain = iter(verdict.places), iter(verdict.keys), self.head.hash
        position = self.head.position
        for group in append.groups:
            invocation = id_bytes(group.invocation_id)
            session = id_bytes(group.drafts[0].event.session_id)
            for draft in group.drafts:
                (position, seq), id_key = next(places), next(keys)
                key = event_key(invocation, seq)
                chain = chained(chain, position, key, self._epoch, draft.digest)
                self.events.append(NewEvent(position, seq, key, id_key, session, chain, draft))
                self.keys[id_key] = Stored(position, seq, draft.digest)
        self.keys.update(verdict.run_keys)
        self.tails.update(verdict.tails)
        self.headers.update(headers)
        self.blobs.update(verdict.blobs)
        if append.command is not None:
            self._stage_command(append.command, verdict.places)
        self.head = LedgerHead(position, chain)

    def _stage_command(self, command: CommandKey, places: tuple[tuple[int, int], ...]) -> None:
        known = KnownCommand(command.command_hash, places[0][0], len(places))
        self.commands[command.scope, command.command_id] = known

    # Lookup: the batch over what is committed.

    def tail(self, invocation_id: InvocationId) -> Tail | None:
        tail = self.tails.get(invocation_id)
        return tail if tail is not None else self._standing.tail(invocation_id)

    def stored(self, key: bytes) -> Stored | None:
        return self.keys.get(key) or self._standing.stored(key)

    def command(self, scope: str, command_id: CommandId) -> KnownCommand | None:
        return self.commands.get((scope, command_id)) or self._standing.command(scope, command_id)

    def places(self, position: int, count: int) -> tuple[tuple[int, int], ...]:
        if position < self._first:
            return self._standing.places(position, count)
        first = position - self._first
        return tuple((new.position, new.seq) for new in self.events[first : first + count])

    def blob_size(self, sha256: str) -> int | None:
        blob = self.blobs.get(sha256)
        return len(blob) if blob is not None else self._standing.blob_size(sha256)


def _fold(header: Header | None, item: Committed) -> Header:
    try:
        return session_index.fold(header, item)
    except FoldError as error:
        # The rules admitted the fact, so the header's row is missing, or isn't what its facts say.
        session_id = item.event.session_id
        words = f"session {session_id}: its header can't take the fact ({error}): run `maka verify --rebuild`"
        raise LedgerDamagedError(words, session_id=session_id) from error
