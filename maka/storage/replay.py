"""The whole log folded again: what every rebuildable row must hold, and which facts no append would have let in.

Laws: facts come in order of position; the first broken rule fences its session, since what follows can't be judged,
and no other. Where one append ended and the next began isn't stored, so an answered wait excuses its call's response
for the rest of the run.
"""

from msgspec import Struct

from maka.contracts.content import SessionOpened
from maka.contracts.errors import FoldError
from maka.contracts.events import Committed, RuntimeEvent
from maka.contracts.ids import CallId, InvalidIdError, InvocationId, SessionId, id_bytes
from maka.contracts.ports import KnownCommand
from maka.storage.keys import command_key, number, pack_command, pack_open, pack_tail, session_key, session_number_key
from projections import session_index
from projections.append_calls import Refused
from projections.append_rules import check_fact, command_scope
from projections.append_tail import Book, Tail
from projections.session_index import Header


class Row(Struct, frozen=True):
    """A row that must be in a rebuildable database, and the session that it is about."""

    database: str
    key: bytes
    value: bytes
    session_id: SessionId


class Replay:
    """Takes in a log. `fenced` are the sessions whose rules and folds can't be followed any further."""

    def __init__(self) -> None:
        self._book = Book(lambda _: None)
        self._answered: dict[InvocationId, set[CallId]] = {}
        self._headers: dict[SessionId, Header] = {}
        self._commands: dict[bytes, tuple[KnownCommand, SessionId]] = {}
        self.fenced: set[SessionId] = set()

    @property
    def sessions(self) -> int:
        """The number of sessions that were opened."""
        return len(self._headers)

    def session_of(self, invocation_id: InvocationId) -> SessionId | None:
        """Return the session of an invocation that was opened in this log."""
        tail = self._book.get(invocation_id)
        return tail.session_id if tail is not None else None

    def take(self, fact: Committed, size: int) -> str | None:
        """Take in the next fact, of `size` payload bytes; return what rule it breaks."""
        event = fact.event
        if event.session_id in self.fenced:
            return None
        try:
            check_fact(event, size)
            before = self._book.get(event.invocation_id)
            if fact.seq != (before.seq if before is not None else 0) + 1:
                return self._fence(
                    event, f"seq {fact.seq} doesn't follow seq {before.seq if before is not None else 0}"
                )
            answered = self._answered.setdefault(event.invocation_id, set())
            tail = self._book.enter(event, fact.position, size, answered)
            if tail.sealed:
                del self._answered[event.invocation_id]
            self._headers[event.session_id] = session_index.fold(self._headers.get(event.session_id), fact)
            return self._take_cause(fact)
        except Refused as refused:
            return self._fence(event, refused.refusal.message)
        except (FoldError, InvalidIdError) as error:
            return self._fence(event, str(error))

    def event_rows(self, fact: Committed) -> list[Row]:
        """Return the rows that one fact has by itself."""
        event, place = fact.event, number(fact.position)
        session = event.session_id
        rows = [
            Row("by_session", session_key(id_bytes(session), fact.position), b"", session),
            Row("event_ids", id_bytes(event.id), place, session),
        ]
        if isinstance(opened := event.content, SessionOpened):
            rows.append(Row("session_numbers", session_number_key(opened.number, id_bytes(session)), place, session))
        if fact.seq == 1 and event.run_id is not None:
            rows.append(Row("event_ids", id_bytes(event.run_id), place, session))
        return rows

    def folded_rows(self) -> list[Row]:
        """Return the rows that the whole log leaves behind, without those of fenced sessions."""
        rows: list[Row] = []
        for invocation_id, tail in self._book.changed.items():
            if tail.session_id not in self.fenced:
                rows += _tail_rows(id_bytes(invocation_id), tail)
        for session_id, header in self._headers.items():
            if session_id not in self.fenced:
                rows.append(Row("session_headers", id_bytes(session_id), session_index.encode(header), session_id))
        for key, (command, session_id) in self._commands.items():
            if session_id not in self.fenced:
                rows.append(Row("commands", key, pack_command(command), session_id))
        return rows

    def fence(self, session_id: SessionId) -> None:
        """Stop judging a session whose log can't be read."""
        self.fenced.add(session_id)

    def _fence(self, event: RuntimeEvent, why: str) -> str:
        self.fence(event.session_id)
        return why

    def _take_cause(self, fact: Committed) -> str | None:
        event = fact.event
        if event.cause is None:
            return None
        key = command_key(command_scope(event), event.cause.command_id)
        known, _ = self._commands.get(key, (None, None))
        if known is None:
            known = KnownCommand(event.cause.command_hash, fact.position, 0)
        elif known.command_hash != event.cause.command_hash or known.position + known.count != fact.position:
            return self._fence(event, f"command {event.cause.command_id} caused more than one append")
        grown = KnownCommand(known.command_hash, known.position, known.count + 1)
        self._commands[key] = (grown, event.session_id)
        return None


def _tail_rows(key: bytes, tail: Tail) -> list[Row]:
    rows = [Row("tails", key, pack_tail(tail), tail.session_id)]
    if tail.open_since:
        rows.append(Row("open_work", key, pack_open(tail), tail.session_id))
    return rows
