"""What a session's runs did to files: changes that really happened, in order, and what of them still stands.

Laws: a change counts unless its call says that nothing was done; one whose call's outcome is unknown, or that is
still under way, counts as a maybe. An undo goes back to how a file stood before one change, so what stands after it
is what stood then; undoing the undo goes back once more. Nothing is forgotten: a chain holds every change.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.actions import FileChange, WorkspaceChanged
from maka.contracts.commands import CommandChanges
from maka.contracts.content import BlobRef, FunctionResponse, Outcome, SessionOpened
from maka.contracts.events import Committed
from maka.contracts.ids import CallId, EventId, RunId, SessionId
from maka.contracts.limits import WORKSPACE_NAMES_MAX
from projections.chunks import Chunks
from projections.log_order import check_next

_SURE = frozenset({Outcome.OK})
_MAYBE = frozenset({Outcome.OUTCOME_UNKNOWN, Outcome.TIMEOUT})


class Edit(Struct, frozen=True, gc=False, kw_only=True):
    """One change of a file that happened, or may have (not `sure`). Hashes as in FileChange."""

    event_id: EventId
    position: int
    run_id: RunId
    call_id: CallId
    path: str
    before_sha256: str | None
    after_sha256: str | None
    pre_image: BlobRef | None
    mode: int | None = None
    undoes: EventId | None = None
    sure: bool = False
    name: str = ""
    diff: BlobRef | None = None


class Fate(Struct, frozen=True, gc=False):
    """How a call ended."""

    call_id: CallId
    name: str
    outcome: Outcome
    diff: BlobRef | None


class Ran(Struct, frozen=True, gc=False):
    """A command, from its dispatch to its response, and what became different meanwhile."""

    run_id: RunId
    began: int
    ended: int
    changed: WorkspaceChanged


class ChangesFold(Struct, frozen=True, gc=False, kw_only=True):
    """What the changes are made from, as of a position. `calls` maps dispatched open calls to that position."""

    session_id: SessionId
    position: int
    root: str = ""
    edits: Chunks[Edit] = Chunks()
    fates: Chunks[Fate] = Chunks()
    commands: Chunks[Ran] = Chunks()
    calls: Mapping[CallId, int] = {}


def project(items: Iterable[Committed], state: ChangesFold | None = None) -> ChangesFold | None:
    """Fold a session's facts in order of position."""
    for item in items:
        state = fold(state, item)
    return state


def fold(state: ChangesFold | None, item: Committed) -> ChangesFold:
    """Take in one fact of the session. Raises FoldError on a foreign session or a position that doesn't grow."""
    event, content = item.event, item.event.content
    if state is None:
        state = ChangesFold(session_id=event.session_id, position=0)
    check_next(item, state.session_id, state.position)
    state = replace(state, position=item.position)
    if isinstance(content, SessionOpened):
        return replace(state, root=content.real_cwd)
    if event.run_id is None or event.partial:
        return state
    changed: WorkspaceChanged | None = None
    if (actions := event.actions) is not None:
        changed = actions.workspace_changed
        if (change := actions.file_change) is not None:
            edit = _edit(change, event.id, event.run_id, item.position)
            state = replace(state, edits=state.edits.append(edit))
        if (dispatch := actions.tool_dispatch) is not None:
            state = replace(state, calls={**state.calls, dispatch.call_id: item.position})
    if isinstance(content, FunctionResponse):
        return _answered(state, event.run_id, item.position, content, changed)
    return state


def _edit(change: FileChange, event_id: EventId, run_id: RunId, position: int) -> Edit:
    return Edit(
        event_id=event_id,
        position=position,
        run_id=run_id,
        call_id=change.call_id,
        path=change.path,
        before_sha256=change.before_sha256,
        after_sha256=change.after_sha256,
        pre_image=change.pre_image,
        mode=change.mode,
        undoes=change.undoes,
    )


def _answered(
    state: ChangesFold, run_id: RunId, position: int, response: FunctionResponse, changed: WorkspaceChanged | None
) -> ChangesFold:
    began = state.calls.get(response.call_id)
    if began is None:
        return state  # never dispatched, so nothing was done
    commands = state.commands if changed is None else state.commands.append(Ran(run_id, began, position, changed))
    fate = Fate(response.call_id, response.name, response.outcome, response.diff)
    calls = {call_id: at for call_id, at in state.calls.items() if call_id != response.call_id}
    return replace(state, fates=state.fates.append(fate), commands=commands, calls=calls)


# -- what happened ------------------------------------------------------------------------------------------------


class Entry(Struct, frozen=True, gc=False):
    """A change in its file's chain. `below` is what stands under it, `prior` what stood on top before it; -1: none.

    The two differ for an undo alone: under it stands what stood before the change that it goes back to.
    """

    edit: Edit
    below: int
    prior: int


class Chain(Struct, frozen=True, gc=False):
    """All changes of one file that happened, in order; `top` is the one that stands on top."""

    path: str
    entries: tuple[Entry, ...]

    @property
    def top(self) -> int:
        return len(self.entries) - 1

    def standing(self) -> list[Edit]:
        """Return the changes that stand, undos included, oldest first. A maybe counts as done."""
        found: list[Edit] = []
        at = self.top
        while at >= 0:
            found.append(self.entries[at].edit)
            at = self.entries[at].below
        return found[::-1]


class Changes(Struct, frozen=True, gc=False, kw_only=True):
    """The changes of a session as of a position; `edits` in order, `chains` by path, in order of first change."""

    session_id: SessionId
    position: int
    root: str
    edits: tuple[Edit, ...]
    chains: Mapping[str, Chain]
    commands: tuple[Ran, ...]


def changes(state: ChangesFold) -> Changes:
    """Return the changes that happened, or may have."""
    fates = {fate.call_id: fate for fate in state.fates}
    edits = tuple(told for edit in state.edits if (told := _told(edit, fates.get(edit.call_id))) is not None)
    by_path: dict[str, list[Edit]] = {}
    for edit in edits:
        by_path.setdefault(edit.path, []).append(edit)
    return Changes(
        session_id=state.session_id,
        position=state.position,
        root=state.root,
        edits=edits,
        chains={path: _chain(path, found) for path, found in by_path.items()},
        commands=tuple(state.commands),
    )


def _told(edit: Edit, fate: Fate | None) -> Edit | None:
    """Return the change as its call's response tells it; None where it says that nothing was done."""
    if fate is None:
        return edit  # under way
    if fate.outcome not in _SURE | _MAYBE:
        return None
    return replace(edit, sure=fate.outcome in _SURE, name=fate.name, diff=fate.diff)


def _chain(path: str, edits: Iterable[Edit]) -> Chain:
    entries: list[Entry] = []
    places: dict[EventId, int] = {}
    for edit in edits:
        prior = len(entries) - 1
        target = None if edit.undoes is None else places.get(edit.undoes)
        places[edit.event_id] = len(entries)
        entries.append(Entry(edit, prior if target is None else entries[target].prior, prior))
    return Chain(path, tuple(entries))


# -- what commands changed ----------------------------------------------------------------------------------------


def by_commands(found: Changes, run_id: RunId | None = None) -> CommandChanges:
    """Return what became different while commands ran, of all runs or of one, but for our own changes meanwhile."""
    how: dict[str, str] = {}
    more = unlooked = 0
    for ran in found.commands:
        if run_id is not None and ran.run_id != run_id:
            continue
        changed = ran.changed
        unlooked += not changed.looked
        named = ((changed.added, "added"), (changed.modified, "modified"), (changed.deleted, "deleted"))
        counted = changed.added_count + changed.modified_count + changed.deleted_count
        more += counted - sum(len(names) for names, _ in named)
        for names, word in named:
            how.update(dict.fromkeys((name for name in names if not _is_ours(found, ran, name)), word))
    listed = sorted(how)[:WORKSPACE_NAMES_MAX]
    return CommandChanges(
        added=tuple(name for name in listed if how[name] == "added"),
        modified=tuple(name for name in listed if how[name] == "modified"),
        deleted=tuple(name for name in listed if how[name] == "deleted"),
        more=more + len(how) - len(listed),
        unlooked=unlooked,
    )


def _is_ours(found: Changes, ran: Ran, name: str) -> bool:
    chain = found.chains.get(f"{found.root.rstrip('/')}/{name}")
    return chain is not None and any(ran.began < entry.edit.position < ran.ended for entry in chain.entries)


def changed_by_command(found: Changes, path: str, after_position: int) -> bool:
    """Say whether a file became different while a command ran that ended after a position."""
    name = path.removeprefix(found.root.rstrip("/") + "/")
    return any(
        name in (*ran.changed.added, *ran.changed.modified, *ran.changed.deleted)
        for ran in found.commands
        if ran.ended > after_position
    )
