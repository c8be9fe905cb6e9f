"""Sessions by name: `#12`, `12`, `@last`, or a unique end of the id; runs by a unique end of theirs.

An end has at least four characters: fewer name one by accident.
"""

from collections.abc import Sequence
from typing import NoReturn

from maka.cli.output import note
from maka.cli.words import ID_END_CHARS_MIN, counted, is_end
from maka.contracts.codec import CodecError
from maka.contracts.content import InvocationOpened
from maka.contracts.errors import Refusal, RefusalCode, RefusedError
from maka.contracts.ids import RunId, SessionId
from maka.contracts.ports import LedgerReader
from maka.session_reads import read_header
from projections.session_index import Header, SessionStatus, decode

_LISTED_MAX = 5
_CONTINUED = (SessionStatus.IDLE, SessionStatus.WAITING)


def read_headers(reader: LedgerReader) -> list[Header]:
    """Return every session's header, in order of number; says so where one can't be read."""
    headers: list[Header] = []
    lost = 0
    for data in reader.header_bytes():
        try:
            headers.append(decode(data))
        except CodecError:
            lost += 1
    if lost:
        note(f"maka: {counted(lost, 'session')} can't be listed, since the header is damaged: maka verify --rebuild")
    return sorted(headers, key=lambda header: header.number)


def find_session(headers: Sequence[Header], name: str) -> Header:
    """Return the session that a name means; raises RefusedError where there is none, or more than one."""
    found = matching_sessions(headers, name)
    if not found and name and any(header.session_id.endswith(name.lower()) for header in headers):
        _refuse(
            f"{name!r} is too short to name a session: give at least {ID_END_CHARS_MIN} characters of its id's end."
        )
    if not found:
        _refuse(f"There is no session {name!r}: see maka sessions.")
    if len(found) > 1:
        listed = ", ".join(f"#{header.number}" for header in found[:_LISTED_MAX])
        _refuse(f"{name!r} is the end of the ids of {len(found)} sessions ({listed}): give more of it.")
    return found[0]


def matching_sessions(headers: Sequence[Header], name: str) -> list[Header]:
    """Return the sessions that a name could mean: one by number or `@last`, several by the end of the id."""
    if name == "@last":
        return [max(headers, key=lambda header: header.position)] if headers else []
    number = name.removeprefix("#")
    if number.isascii() and number.isdecimal():
        by_number = [header for header in headers if header.number == int(number)]
        if by_number or name.startswith("#"):
            return by_number
    return [header for header in headers if is_end(name, header.session_id)]


def find_session_or_run(reader: LedgerReader, name: str) -> tuple[Header, RunId | None]:
    """Return the session that a name means, and the run where it means one, by the end of its id."""
    headers = read_headers(reader)
    if not matching_sessions(headers, name):
        runs = _matching_runs(reader, name)
        if len(runs) > 1:
            why = f"{name!r} is the end of the ids of {len(runs)} runs: give more of it."
            raise RefusedError(Refusal(code=RefusalCode.INVALID_INPUT, message=why))
        if runs:
            session_id, run_id = runs[0]
            return read_header(reader, session_id), run_id
    return find_session(headers, name), None


def _matching_runs(reader: LedgerReader, name: str) -> list[tuple[SessionId, RunId]]:
    found: list[tuple[SessionId, RunId]] = []
    position = 0
    while len(name) >= ID_END_CHARS_MIN and (items := reader.read_positions(position)):
        position = items[-1].position
        for item in items:
            run_id = item.event.run_id
            opens = isinstance(item.event.content, InvocationOpened)
            if opens and run_id is not None and is_end(name, run_id):
                found.append((item.event.session_id, run_id))
    return found


def session_to_continue(headers: Sequence[Header], real_cwd: str) -> Header:
    """Return the newest session of a real folder that is neither busy nor archived.

    One that waits for a person isn't busy: to pass it over in silence would lose sight of it. One without a run (its
    only message was refused) is taken only where no other is.
    """
    fitting = [
        header
        for header in headers
        if header.real_cwd == real_cwd and not header.archived and header.status in _CONTINUED
    ]
    if not fitting:
        _refuse(f"No idle session of {real_cwd} is there to continue: leave out --continue, or see maka sessions.")
    return max(fitting, key=lambda header: (header.run_count > 0, header.position))


def _refuse(message: str) -> NoReturn:
    raise RefusedError(Refusal(code=RefusalCode.UNKNOWN_SESSION, message=message))
