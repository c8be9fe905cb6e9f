"""A session's background shells: processes that outlive their runs, from the facts of its control stream.

Laws: a shell is named by the fact of its start, and has at most one end; what the facts call live is live only while
its owner is, which facts can't say.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.actions import ProcessEnded, ProcessIdentity, ProcessStarted
from maka.contracts.background_ports import ShellEnd
from maka.contracts.content import BlobRef
from maka.contracts.errors import FoldError, LedgerDamagedError
from maka.contracts.events import Committed
from maka.contracts.ids import CallId, InvocationId, RunId, SessionId
from maka.contracts.limits import READ_POSITIONS_MAX
from maka.contracts.ports import LedgerReader
from projections.chunks import Chunks

LIVE = "running"


class Shell(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One background shell. `status` is running, or how it ended; `position` is that of its start's fact.

    Times are Unix ms; `by` says who stopped it; `output` is what is kept of what an ended one printed.
    """

    shell_id: str
    session_id: SessionId
    run_id: RunId | None
    call_id: CallId
    command: str
    process: ProcessIdentity
    position: int
    started_ts: int
    status: str = LIVE
    exit_code: int | None = None
    by: str | None = None
    ended_ts: int | None = None
    output: BlobRef | None = None
    note: str | None = None
    survivors: tuple[int, ...] = ()

    @property
    def is_live(self) -> bool:
        return self.status == LIVE


class Background(Struct, frozen=True, gc=False, kw_only=True):
    """The shells of a session, as of a seq of its control stream; `live` in the order of their starts."""

    seq: int = 0
    live: Mapping[CallId, Shell] = {}
    ended: Chunks[Shell] = Chunks()

    @property
    def next_id(self) -> str:
        """Return the name of the next shell."""
        return f"b{len(self.live) + len(self.ended) + 1}"


def project(items: Iterable[Committed], state: Background | None = None) -> Background | None:
    """Fold many facts of one session, in order."""
    for item in items:
        state = fold(state, item)
    return state


def fold(state: Background | None, item: Committed) -> Background:
    """Take in one fact of a session; those of its runs change nothing. Raises FoldError on a broken log."""
    state = state or Background()
    event, actions = item.event, item.event.actions
    if event.run_id is not None:
        return state
    if item.seq != state.seq + 1:
        raise FoldError(f"position {item.position}: seq {item.seq} of the control stream doesn't follow {state.seq}")
    state = replace(state, seq=item.seq)
    if actions is None:
        return state
    if (started := actions.process_started) is not None:
        shell = _started(started, item, state.next_id)
        state = replace(state, live={**state.live, shell.call_id: shell})
    if (ended := actions.process_ended) is not None:
        if ended.call_id not in state.live:
            raise FoldError(f"position {item.position}: process {ended.process.pid} isn't live")
        live = {call_id: shell for call_id, shell in state.live.items() if call_id != ended.call_id}
        shell = _ended(state.live[ended.call_id], ended, event.ts)
        state = replace(state, live=live, ended=state.ended.append(shell))
    return state


def _started(fact: ProcessStarted, item: Committed, name: str) -> Shell:
    return Shell(
        shell_id=fact.shell_id or name,
        session_id=item.event.session_id,
        run_id=fact.run_id,
        call_id=fact.call_id,
        command=fact.command,
        process=fact.process,
        position=item.position,
        started_ts=item.event.ts,
    )


def _ended(shell: Shell, fact: ProcessEnded, ts: int) -> Shell:
    return replace(
        shell,
        status=fact.how,
        exit_code=fact.exit_code,
        by=fact.by,
        ended_ts=ts,
        output=fact.output,
        note=fact.note,
        survivors=fact.survivors,
    )


def just_ended(shell: Shell, end: ShellEnd) -> Shell:
    """Return a live shell as it is after an end that no fact names yet."""
    return replace(shell, status=end.how, exit_code=end.exit_code, by=end.by, note=end.note, survivors=end.survivors)


def shells(state: Background | None) -> list[Shell]:
    """Return all shells, in the order of their starts."""
    if state is None:
        return []
    return sorted((*state.ended, *state.live.values()), key=lambda shell: shell.position)


def read(reader: LedgerReader, session_id: SessionId) -> list[Shell]:
    """Read a session's shells from its control stream. Raises LedgerDamagedError and FoldError."""
    state: Background | None = None
    while page := reader.read_stream(InvocationId(session_id), 0 if state is None else state.seq, READ_POSITIONS_MAX):
        state = project(page, state)
    return shells(state)


def live(reader: LedgerReader) -> list[Shell]:
    """Return the shells of every session that the facts call live, oldest first. Costs what is open.

    A damaged session hides none but its own.
    """
    found: list[Shell] = []
    for work in reader.open_work():
        if work.run_id is None:
            found += (shell for shell in _readable(reader, work.session_id) if shell.is_live)
    return sorted(found, key=lambda shell: shell.position)


def read_all(reader: LedgerReader, sessions: Iterable[SessionId]) -> list[Shell]:
    """Return the shells of some sessions, ended ones too, oldest first."""
    found = [shell for session_id in sessions for shell in _readable(reader, session_id)]
    return sorted(found, key=lambda shell: shell.position)


def _readable(reader: LedgerReader, session_id: SessionId) -> list[Shell]:
    try:
        return read(reader, session_id)
    except (FoldError, LedgerDamagedError):
        return []  # `maka sessions` and `maka verify` name it


def status_words(shell: Shell) -> str:
    """Say in a few words what a shell is doing, or how it ended."""
    return LIVE if shell.is_live else how_it_ended(shell.status, exit_code=shell.exit_code, by=shell.by)


def first_line(note: str) -> str:
    """Return what a note of an end says to people; what follows is for the model."""
    return note.strip("\n").partition("\n")[0]


def how_it_ended(how: str, *, exit_code: int | None, by: str | None) -> str:
    """Say in a few words how a shell ended, as its fact has it."""
    code = "" if exit_code is None else f" (exit code {exit_code})"
    match how:
        case "exited":
            return f"exited with code {exit_code or 0}"
        case "killed":
            return f"killed by a signal{code}"
        case "timeout":
            return f"timed out and was ended{code}"
        case "stopped":
            return f"stopped by {by}" if by else "stopped"
        case "limit":
            return f"ended, since it met a limit{code}"
        case "not_started":
            return "ended before it began"
        case "orphaned":
            return "orphaned: Maka ended while it ran, and what was left of it was killed"
        case _:
            return f"ended; how isn't known{code}"
