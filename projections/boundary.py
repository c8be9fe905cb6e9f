"""A session's boundary, folded from its control stream and its runs' decisions in order of position.

Laws: a decision that allows is the grant, exactly as it was asked for; a grant once ends with its run; a grant taken
back is gone; the revision counts each change that a person made. What the ledger doesn't say isn't allowed.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.actions import Actions, BoundaryChanged, BoundaryDecision
from maka.contracts.boundary import Boundary, CarriedGrant, Expansion, Grant, Profile
from maka.contracts.content import SessionOpened
from maka.contracts.errors import FoldError
from maka.contracts.events import Committed, RuntimeEvent, is_terminal
from maka.contracts.ids import EventId, RunId, SessionId
from projections.log_order import check_next


class BoundaryState(Struct, frozen=True, kw_only=True):
    """A session's boundary as of a position. `asked` holds the expansions of requests that are open."""

    session_id: SessionId
    position: int
    boundary: Boundary
    asked: Mapping[EventId, Expansion] = {}


def fold(state: BoundaryState | None, item: Committed) -> BoundaryState:
    """Take in one fact of the session. Raises FoldError on a log that doesn't begin with session_opened."""
    event = item.event
    if state is None:
        return _opened(item)
    check_next(item, state.session_id, state.position)
    state = replace(state, position=item.position)
    if event.actions is not None:
        state = _acted(state, event, event.actions)
    return _run_ended(state, event) if is_terminal(event) else state


def project(items: Iterable[Committed], state: BoundaryState | None = None) -> BoundaryState | None:
    """Fold many facts of one session, in order of position."""
    for item in items:
        state = fold(state, item)
    return state


def for_run(state: BoundaryState, run_id: RunId) -> Boundary:
    """Return the boundary that a run's calls have: without what was granted once to another run."""
    grants = tuple(grant for grant in state.boundary.grants if grant.scope != "once" or grant.run_id == run_id)
    return replace(state.boundary, grants=grants)


def profile_after(before: str | None, event: RuntimeEvent) -> str | None:
    """Return the name of the profile that is in force once a fact is durable, given the one before it.

    For folds that show the profile and need no grants; None as long as no fact has named one.
    """
    if isinstance(event.content, SessionOpened):
        return event.content.boundary
    change = event.actions.boundary_changed if event.actions is not None else None
    return before if change is None else change.profile


class WorkspaceChanges(Struct, frozen=True):
    """What a session granted to its workspace after a position, and which of its grants were taken back then."""

    made: tuple[CarriedGrant, ...]
    taken: frozenset[EventId]


def changes_since(items: Iterable[Committed], position: int) -> WorkspaceChanges:
    """Return what a session changed after a position, given all its facts in order."""
    state: BoundaryState | None = None
    then: BoundaryState | None = None
    for item in items:
        state = fold(state, item)
        then = state if item.position <= position else then
    after = () if state is None else _to_workspace(state)
    known = frozenset(grant.origin for grant in (() if then is None else _to_workspace(then)))
    made = tuple(grant for grant in after if grant.origin not in known)
    return WorkspaceChanges(made, known - {grant.origin for grant in after})


def carried_by(state: BoundaryState, others: Iterable[WorkspaceChanges] = ()) -> tuple[CarriedGrant, ...]:
    """Return the grants that a later session of the same workspace begins with.

    `state` is the newest session's, `others` what earlier ones changed since that one was opened.
    """
    others = tuple(others)
    grants = (*_to_workspace(state), *(grant for other in others for grant in other.made))
    taken = {origin for other in others for origin in other.taken}
    return tuple(grant for grant in grants if grant.origin not in taken)


def _to_workspace(state: BoundaryState) -> tuple[CarriedGrant, ...]:
    grants = (grant for grant in state.boundary.grants if grant.scope == "workspace")
    return tuple(CarriedGrant(origin=grant.origin, expansion=grant.expansion) for grant in grants)


def expansion_words(expansion: Expansion) -> tuple[str, ...]:
    """Say each permission of an expansion in words of one line. Paths are as they are: whoever shows them escapes."""
    words = [
        f"{entry.access} {'everything below ' if entry.scope == 'subtree' else ''}{entry.path}"
        for entry in expansion.filesystem
    ]
    return (*words, *(["use the network"] if expansion.network else []))


def _opened(item: Committed) -> BoundaryState:
    opened = item.event.content
    if not isinstance(opened, SessionOpened):
        raise FoldError(f"position {item.position}: a session begins with session_opened")
    grants = tuple(
        Grant(origin=carried.origin, scope="workspace", expansion=carried.expansion) for carried in opened.carried
    )
    boundary = Boundary(profile=Profile(opened.boundary), grants=grants, workspace=opened.real_cwd)
    return BoundaryState(session_id=item.event.session_id, position=item.position, boundary=boundary)


def _acted(state: BoundaryState, event: RuntimeEvent, actions: Actions) -> BoundaryState:
    if actions.boundary_changed is not None:
        return _changed(state, EventId(event.id), actions.boundary_changed)
    delta = actions.state_delta
    if delta is None:
        return state
    if delta.boundary_request is not None:
        state = replace(state, asked={**state.asked, EventId(event.id): delta.boundary_request.expansion})
    if delta.boundary_decision is not None:
        state = _decided(state, event, delta.boundary_decision)
    if delta.wait_closed is not None:
        state = _closed(state, delta.wait_closed)
    return state


def _changed(state: BoundaryState, origin: EventId, change: BoundaryChanged) -> BoundaryState:
    grants = tuple(grant for grant in state.boundary.grants if grant.origin not in change.revoked)
    if change.grants != Expansion():
        grants = (*grants, Grant(origin=origin, scope=change.scope, expansion=change.grants))
    return _with(state, profile=Profile(change.profile), grants=grants)


def _decided(state: BoundaryState, event: RuntimeEvent, decision: BoundaryDecision) -> BoundaryState:
    expansion = state.asked.get(decision.request_id)
    state = _closed(state, decision.request_id)
    if expansion is None or decision.decision != "allow":
        return state
    grant = Grant(origin=EventId(event.id), scope=decision.scope, expansion=expansion, run_id=event.run_id)
    return _with(state, profile=state.boundary.profile, grants=(*state.boundary.grants, grant))


def _closed(state: BoundaryState, request_id: EventId) -> BoundaryState:
    return replace(state, asked={key: asked for key, asked in state.asked.items() if key != request_id})


def _run_ended(state: BoundaryState, event: RuntimeEvent) -> BoundaryState:
    grants = state.boundary.grants
    kept = tuple(grant for grant in grants if grant.scope != "once" or grant.run_id != event.run_id)
    return state if len(kept) == len(grants) else replace(state, boundary=replace(state.boundary, grants=kept))


def _with(state: BoundaryState, *, profile: Profile, grants: tuple[Grant, ...]) -> BoundaryState:
    revision = state.boundary.revision + 1
    return replace(state, boundary=replace(state.boundary, profile=profile, grants=grants, revision=revision))
