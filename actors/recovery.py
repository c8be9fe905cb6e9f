"""At start, before anything is admitted: what a dead owner left, and what to do about it.

Reads open work only, so it costs what is open, not what is stored. It calls no model and runs no tool: it names the
processes to kill and the temp files to unlink first, then the runs to close. A damaged run is left for its session.
"""

from msgspec import Struct
from msgspec.structs import replace

from actors.base import Log
from maka.contracts.actions import ProcessIdentity
from maka.contracts.content import FunctionResponse
from maka.contracts.errors import FoldError, LedgerDamagedError
from maka.contracts.events import Committed
from maka.contracts.ids import CallId, InvocationId, SessionId
from maka.contracts.limits import READ_POSITIONS_MAX
from maka.contracts.ports import LedgerReader
from projections import background


class Leftover(Struct, frozen=True, kw_only=True):
    """A run without a terminal, or a control stream with work left, with what may be left of it on the machine."""

    session_id: SessionId
    invocation_id: InvocationId
    processes: tuple[ProcessIdentity, ...] = ()
    temp_files: tuple[str, ...] = ()


class Inventory(Struct, frozen=True, kw_only=True):
    """What recovery has to do: runs to close; control streams with processes to end, of sessions to go on with."""

    runs: tuple[Leftover, ...]
    control: tuple[Leftover, ...]


def read_run(reader: LedgerReader, invocation_id: InvocationId) -> list[Committed]:
    """Return all of a run's facts, by short snapshots. Raises LedgerDamagedError."""
    items: list[Committed] = []
    while page := reader.read_stream(invocation_id, len(items), READ_POSITIONS_MAX):
        items += page
    return items


def take_inventory(reader: LedgerReader, log: Log) -> Inventory:
    """Read the open work."""
    runs: list[Leftover] = []
    control: list[Leftover] = []
    for work in reader.open_work():
        left = Leftover(session_id=work.session_id, invocation_id=work.invocation_id)
        try:
            items = read_run(reader, work.invocation_id)
            if work.run_id is None:
                live = background.project(items)
                processes = () if live is None else tuple(shell.process for shell in live.live.values())
                control.append(replace(left, processes=processes))
            else:
                runs.append(_leftover(work.session_id, work.invocation_id, items))
        except (LedgerDamagedError, FoldError) as error:
            log.error("run_damaged", session_id=work.session_id, error_kind=str(error))
            if work.run_id is None:
                control.append(left)  # its own actor says what is wrong
    return Inventory(runs=tuple(runs), control=tuple(control))


def _leftover(session_id: SessionId, invocation_id: InvocationId, items: list[Committed]) -> Leftover:
    processes: dict[CallId, ProcessIdentity] = {}
    temp_files: dict[CallId, list[str]] = {}
    for item in items:
        content, actions = item.event.content, item.event.actions
        if isinstance(content, FunctionResponse):
            processes.pop(content.call_id, None)
            temp_files.pop(content.call_id, None)
        if actions is not None and actions.process_started is not None:
            processes[actions.process_started.call_id] = actions.process_started.process
        if actions is not None and (change := actions.file_change) is not None:
            directory = change.path.rpartition("/")[0]
            temp_files.setdefault(change.call_id, []).append(f"{directory}/{change.temp_name}")
    return Leftover(
        session_id=session_id,
        invocation_id=invocation_id,
        processes=tuple(processes.values()),
        temp_files=tuple(path for paths in temp_files.values() for path in paths),
    )
