"""A boundary is what the facts say: decisions as they were asked, scopes as they end, revisions that count changes."""

import pytest

from maka.contracts.actions import Actions, BoundaryChanged, BoundaryDecision, BoundaryRequest, StateDelta
from maka.contracts.boundary import Boundary, CarriedGrant, Expansion, FileEntry, Profile
from maka.contracts.content import FunctionCall
from maka.contracts.errors import FoldError
from maka.contracts.ids import CallId, EventId
from projections import boundary
from tests.builders import RunLog, SessionLog, log

HERE = Expansion(filesystem=(FileEntry(path="/outside", access="write", scope="subtree"),))
NET = Expansion(network=True)


def of(session: SessionLog) -> Boundary:
    state = boundary.project(session)
    assert state is not None
    return state.boundary


def ask(run: RunLog, expansion: Expansion) -> EventId:
    call = run.call("request_sandbox_boundary")
    request = BoundaryRequest(call_id=CallId(call), expansion=expansion, justification="since")
    return run.add(actions=Actions(state_delta=StateDelta(boundary_request=request)))


def decide(run: RunLog, request: EventId, decision: str, scope: str = "session") -> EventId:
    act = BoundaryDecision(request_id=request, decision=decision, scope=scope)  # type: ignore[arg-type]
    return run.add(actions=Actions(state_delta=StateDelta(boundary_decision=act)))


def changed(session: SessionLog, profile: str, revision: int, **more: object) -> EventId:
    change = BoundaryChanged(profile=profile, revision=revision, **more)  # type: ignore[arg-type]
    return session.control(actions=Actions(boundary_changed=change))


def test_a_session_begins_with_its_workspace_and_nothing_else() -> None:
    found = of(log())
    assert (found.profile, found.revision, found.grants, found.network) == (Profile.ASK, 0, (), False)
    assert found.workspace


def test_the_decision_that_allows_is_the_grant_as_it_was_asked() -> None:
    session = log()
    run = session.run()
    origin = decide(run, ask(run, HERE), "allow")
    found = of(session)
    assert [(grant.origin, grant.scope, grant.expansion) for grant in found.grants] == [(origin, "session", HERE)]
    assert found.revision == 1


def test_a_denial_grants_nothing_and_is_no_change() -> None:
    session = log()
    run = session.run()
    decide(run, ask(run, HERE), "deny")
    assert (of(session).grants, of(session).revision) == ((), 0)


def test_a_decision_without_its_request_grants_nothing() -> None:
    """Such a log is refused at the append; the fold must not invent a grant all the same."""
    session = log()
    run = session.run()
    decide(run, EventId("01900000-0000-7000-8000-0000000000ff"), "allow")
    assert of(session).grants == ()


def test_a_grant_once_is_of_its_run_and_ends_with_it() -> None:
    session = log()
    run = session.run()
    request = ask(run, NET)
    decide(run, request, "allow", "once")
    state = boundary.project(session)
    assert state is not None
    assert boundary.for_run(state, run.run_id).network
    assert not boundary.for_run(state, type(run.run_id)("another")).network
    run.answer(CallId(next(iter(run_calls(session)))))
    run.complete()
    assert (of(session).grants, of(session).revision) == ((), 1)


def run_calls(session: SessionLog) -> list[str]:
    return [item.event.id for item in session if isinstance(item.event.content, FunctionCall)]


def test_a_workspace_grant_is_carried_with_its_origin() -> None:
    session = log()
    run = session.run()
    origin = decide(run, ask(run, HERE), "allow", "workspace")
    state = boundary.project(session)
    assert state is not None
    assert boundary.carried_by(state) == (CarriedGrant(origin=origin, expansion=HERE),)


def test_a_person_changes_grants_and_takes_back() -> None:
    session = log()
    first = changed(session, "ask", 1, grants=HERE)
    second = changed(session, "explore", 2, grants=NET, scope="workspace")
    assert [grant.origin for grant in of(session).grants] == [first, second]
    assert (of(session).profile, of(session).network) == (Profile.EXPLORE, True)
    changed(session, "ask", 3, revoked=(second,))
    assert [grant.origin for grant in of(session).grants] == [first]
    assert (of(session).revision, of(session).network) == (3, False)


def test_bypass_opens_the_network() -> None:
    session = log()
    changed(session, "bypass", 1)
    assert of(session).network


def test_a_foreign_fact_is_refused() -> None:
    one, other = list(log()), list(log(prefix=7))
    with pytest.raises(FoldError):
        boundary.project([*one, *other])
