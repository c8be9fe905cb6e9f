"""What waits for a person: requests by name, and runs that are parked."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct

from maka.cli.asking import closed_words
from maka.cli.words import ID_END_CHARS_MIN, is_end, short_id
from maka.contracts.errors import Refusal, RefusalCode, RefusedError
from maka.contracts.events import Committed
from maka.contracts.ids import InvocationId, RunId, SessionId
from maka.contracts.ports import LedgerReader
from projections import inbox, run_state, session_index
from projections.inbox import PendingWait

if TYPE_CHECKING:
    from maka.config import Config

NOT_KEPT = (
    '[waits] on_restart = "close" in config.toml: what waits ends when Maka starts next, and an answer from the command'
    ' line is a start. To answer it, set "keep"'
)


class Parked(Struct, frozen=True, kw_only=True):
    """A run that nothing but a person's answers is missing from. `boundary` is the session's profile now."""

    run_id: RunId
    session_id: SessionId
    boundary: str
    waits: tuple[PendingWait, ...]


def find_wait(reader: LedgerReader, name: str) -> PendingWait:
    """Return the open request that a unique end of its id names, of at least four characters.

    Raises RefusedError: with WAIT_CLOSED, and what became of it, where it was answered or closed before.
    """
    waits = inbox.pending(reader)
    if len(name) < ID_END_CHARS_MIN:
        what = f"{name!r} is too short to name a request"
        _refuse(RefusalCode.INVALID_INPUT, f"{what}: give at least {ID_END_CHARS_MIN} characters of its end.")
    found = [wait for wait in waits if is_end(name, wait.id)]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(short_id(wait.id) for wait in found)
        _refuse(RefusalCode.INVALID_INPUT, f"{name!r} is the end of {len(found)} requests ({listed}): give more of it.")
    if name and (closed := inbox.closing(_all(reader), name.lower())) is not None:
        what = f"no longer waits ({closed_words(closed)}, position {closed.position})"
        _refuse(RefusalCode.WAIT_CLOSED, f"Request {short_id(closed.id)} {what}; this answer changed nothing.")
    _refuse(RefusalCode.INVALID_INPUT, f"No request {name[:64]!r} waits: see maka inbox.")


def check_kept(config: "Config", what: str) -> None:
    """Refuse what leaves a run waiting, or answers one, where the next start ends it. Raises RefusedError."""
    if not config.waits_keep:
        _refuse(RefusalCode.INVALID_INPUT, f"{what}: {NOT_KEPT}.")


def parked_run(reader: LedgerReader, session_id: SessionId) -> Parked | None:
    """Return a session's run if it waits for a person and does nothing else."""
    data = reader.header_of(session_id)
    header = None if data is None else session_index.decode(data)
    if header is None or not header.waiting:
        return None
    for run_id in header.open_runs:
        state = run_state.project(_stream(reader, InvocationId(run_id)))
        if state is not None and state.phase is run_state.Phase.PARKED:
            waiting = inbox.project(reader.iter_session(session_id))
            waits = [] if waiting is None else [wait for wait in waiting.waits.values() if wait.run_id == run_id]
            return Parked(run_id=run_id, session_id=session_id, boundary=header.boundary, waits=tuple(waits))
    return None


def _stream(reader: LedgerReader, invocation_id: InvocationId) -> Iterable[Committed]:
    after_seq = 0
    while items := reader.read_stream(invocation_id, after_seq):
        yield from items
        after_seq = items[-1].seq


def _all(reader: LedgerReader) -> Iterator[Committed]:
    position = 0
    while items := reader.read_positions(position):
        position = items[-1].position
        yield from items


def _refuse(code: RefusalCode, message: str) -> NoReturn:
    raise RefusedError(Refusal(code=code, message=message))
