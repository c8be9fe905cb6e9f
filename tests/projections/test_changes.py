"""What happened to files, what of it stands, and what an undo would do: told as short stories of one file."""

from typing import Any

import pytest

from maka.contracts.actions import Actions, FileChange, WorkspaceChanged
from maka.contracts.commands import CommandChanges, UndoReceipt
from maka.contracts.content import BlobRef, FunctionResponse, Outcome
from maka.contracts.errors import FoldError
from maka.contracts.events import Author, ModelVisibility, Role
from maka.contracts.ids import EventId
from maka.contracts.limits import WORKSPACE_NAMES_MAX
from maka.contracts.tool_ports import FileNow
from projections import changes, segments, undo_plan, undo_record
from projections.changes import Changes
from projections.undo_plan import UndoPlan
from tests.builders import RunLog, SessionLog, log

P = "/w/a"


def sha(letter: str | None) -> str | None:
    return None if letter is None else letter * 64


def blob(letter: str | None) -> BlobRef | None:
    return None if letter is None else BlobRef(sha256=letter * 64, size_bytes=1)


def change(
    run: RunLog,
    before: str | None,
    after: str | None,
    *,
    outcome: Outcome | None = Outcome.OK,
    path: str = P,
    undoes: EventId | None = None,
) -> EventId:
    """Add a call with one change; contents are letters, None is no file. Without an outcome it is under way."""
    call_id = run.call("Edit")
    run.dispatch(call_id, "Edit")
    fact = FileChange(
        call_id=call_id,
        path=path,
        before_sha256=sha(before),
        after_sha256=sha(after),
        pre_image=blob(before),
        temp_name=".t",
        undoes=undoes,
    )
    event_id = run.add(actions=Actions(file_change=fact), model_visibility=ModelVisibility.HIDDEN)
    if outcome is not None:
        run.answer(call_id, outcome=outcome, name="Edit")
    return event_id


def found(session: SessionLog) -> Changes:
    folded = changes.project(session)
    assert folded is not None
    return changes.changes(folded)


def planned(session: SessionLog, now: str | None, run: RunLog | None = None, **options: Any) -> UndoPlan:
    all_changes = found(session)
    run_id = None if run is None else run.run_id
    held = {path: FileNow(sha256=sha(now)) for path in undo_plan.candidates(all_changes, run_id)}
    return undo_plan.plan(all_changes, run_id, held, **options)


def told(plan: UndoPlan) -> tuple[list[tuple[str | None, str | None]], list[str]]:
    """Return the steps as letters, and the reasons of what is left."""
    steps = [(step.now_sha256 and step.now_sha256[0], step.then_sha256 and step.then_sha256[0]) for step in plan.steps]
    return steps, [left.reason for left in plan.left]


@pytest.mark.parametrize(
    ("outcome", "happened"),
    [
        (Outcome.OK, True),
        (Outcome.ERROR, None),
        (Outcome.NOT_STARTED, None),
        (Outcome.ABORTED, None),
        (Outcome.REFUSED, None),
        (Outcome.OUTCOME_UNKNOWN, False),
        (None, False),
    ],
)
def test_a_change_counts_unless_its_call_says_that_nothing_was_done(
    outcome: Outcome | None, happened: bool | None
) -> None:
    session = log()
    change(session.run(), "A", "B", outcome=outcome)
    assert [edit.sure for edit in found(session).edits] == ([] if happened is None else [happened])


def test_changes_are_undone_from_the_newest_to_the_oldest() -> None:
    session = log()
    run = session.run()
    change(run, None, "A")
    change(run, "A", "B")
    assert told(planned(session, "B")) == ([("B", None)], [])
    assert told(planned(session, "X")) == ([], ["changed"])
    assert told(planned(session, None)) == ([], ["already"])


def test_what_someone_else_did_between_two_changes_is_not_lost() -> None:
    session = log()
    run = session.run()
    change(run, "A", "B")
    change(run, "C", "D")
    plan = planned(session, "D")
    assert told(plan) == ([("D", "C")], ["changed_between"])
    assert (plan.left[0].ours_sha256, plan.left[0].current_sha256) == (sha("B"), sha("C"))
    assert told(planned(session, "D", files=(P,), force=True)) == ([("D", "A")], [])


def test_a_run_is_undone_alone_and_only_when_nothing_came_later() -> None:
    session = log()
    first, second = session.run(), session.run()
    change(first, "A", "B")
    change(second, "B", "C")
    assert told(planned(session, "C", first)) == ([], ["later"])
    assert told(planned(session, "C", first, files=(P,), force=True)) == ([("C", "A")], [])
    assert told(planned(session, "C", second)) == ([("C", "B")], [])
    change(session.run(), "C", "B", undoes=found(session).edits[-1].event_id)
    assert told(planned(session, "B", second)) == ([], [])
    assert told(planned(session, "B", first)) == ([("B", "A")], [])


def test_an_undo_is_undone_and_that_again() -> None:
    session = log()
    run, undo, redo, again = session.run(), session.run(), session.run(), session.run()
    first = change(run, "A", "B")
    change(run, "B", "C")
    undone = change(undo, "C", "A", undoes=first)
    assert told(planned(session, "A")) == ([], [])
    assert told(planned(session, "A", undo)) == ([("A", "C")], [])
    redone = change(redo, "A", "C", undoes=undone)
    assert told(planned(session, "C")) == ([("C", "A")], [])
    assert told(planned(session, "C", undo)) == ([], [])
    change(again, "C", "A", undoes=redone)
    assert told(planned(session, "A")) == ([], [])
    assert told(planned(session, "A", again)) == ([("A", "C")], [])


def test_what_is_changed_after_an_undo_goes_back_over_it() -> None:
    session = log()
    run, undo, later = session.run(), session.run(), session.run()
    change(run, "A", "B")
    second = change(run, "B", "C")
    change(undo, "C", "B", undoes=second)
    change(later, "B", "D")
    assert told(planned(session, "D", undo)) == ([], ["later"])
    plan = planned(session, "D")
    assert told(plan) == ([("D", "A")], [])
    change(session.run(), "D", "A", undoes=plan.steps[0].undoes)
    assert told(planned(session, "A")) == ([], [])


@pytest.mark.parametrize(
    ("now", "steps", "left"),
    [("C", [("C", "A")], []), ("B", [("B", "A")], []), ("A", [], ["already"]), ("X", [], ["changed"])],
)
def test_a_change_of_unknown_outcome_is_undone_as_far_as_it_happened(
    now: str, steps: list[tuple[str, str]], left: list[str]
) -> None:
    session = log()
    run = session.run()
    change(run, "A", "B")
    change(run, "B", "C", outcome=Outcome.OUTCOME_UNKNOWN)
    assert told(planned(session, now)) == (steps, left)


@pytest.mark.parametrize(("now", "steps"), [("A", []), ("B", [("B", "A")])])
def test_an_interrupted_undo_can_be_given_again(now: str, steps: list[tuple[str, str]]) -> None:
    session = log()
    first = change(session.run(), "A", "B")
    change(session.run(), "B", "A", undoes=first, outcome=Outcome.OUTCOME_UNKNOWN)
    assert told(planned(session, now)) == (steps, [])


def test_a_file_that_cannot_be_looked_at_and_one_without_changes_are_left_with_words() -> None:
    session = log()
    change(session.run(), "A", "B")
    whole = found(session)
    plan = undo_plan.plan(whole, None, {P: FileNow(problem="it is a pipe")}, files=(P, "/w/other"))
    assert [(left.path, left.reason) for left in plan.left] == [(P, "unusable"), ("/w/other", "nothing")]


def test_the_newest_hash_of_a_command_tells_who_changed_a_file() -> None:
    session = log()
    run = session.run()
    change(run, "A", "B")
    command(run, WorkspaceChanged(call_id=run.call("Bash"), modified=("a",), modified_count=1))
    (left,) = planned(session, "X").left
    assert left.message.startswith("a command changed it since")
    assert "XXXXXXXXXXXX" in left.message and "BBBBBBBBBBBB" in left.message


def command(run: RunLog, changed: WorkspaceChanged, *, meanwhile: str | None = None) -> None:
    run.dispatch(changed.call_id, "Bash")
    if meanwhile is not None:
        change(run, "A", "B", path=meanwhile)
    content = FunctionResponse(call_id=changed.call_id, name="Bash", result="", outcome=Outcome.OK)
    run.add(role=Role.TOOL, author=Author.TOOL, content=content, actions=Actions(workspace_changed=changed))


def test_what_commands_changed_is_listed_but_for_our_own_changes_meanwhile() -> None:
    session = log()
    run, other = session.run(), session.run()
    seen = WorkspaceChanged(
        call_id=run.call("Bash"), added=("new",), modified=("a", "b"), added_count=1, modified_count=5
    )
    command(run, seen, meanwhile=P)
    command(other, WorkspaceChanged(call_id=other.call("Bash"), looked=False, why="too many"))
    command(other, WorkspaceChanged(call_id=other.call("Bash"), deleted=("new",), deleted_count=1))
    whole = found(session)
    assert changes.by_commands(whole) == CommandChanges(modified=("b",), deleted=("new",), more=3, unlooked=1)
    assert changes.by_commands(whole, run.run_id) == CommandChanges(added=("new",), modified=("b",), more=3)


def test_what_commands_changed_is_bounded() -> None:
    session = log()
    run = session.run()
    for half in range(2):
        names = tuple(f"{half}{number:03}" for number in range(WORKSPACE_NAMES_MAX))
        command(run, WorkspaceChanged(call_id=run.call("Bash"), added=names, added_count=len(names)))
    listed = changes.by_commands(found(session))
    assert (len(listed.added), listed.more) == (WORKSPACE_NAMES_MAX, WORKSPACE_NAMES_MAX)


def test_a_diff_is_cut_where_someone_else_changed_the_file() -> None:
    session = log()
    run = session.run()
    for before, after in (("A", "B"), ("B", "C"), ("X", "Y")):
        change(run, before, after)
    (parts,) = segments.segments(found(session)).values()
    assert [(part.before_sha256, part.after_sha256) for part in parts] == [(sha("A"), sha("C")), (sha("X"), sha("Y"))]
    assert not segments.is_undone(found(session), P, run.run_id)


def test_a_receipt_is_what_the_facts_say() -> None:
    session = log()
    change(session.run(), "A", "B")
    plan = planned(session, "B")
    undo = session.run(None)
    note = undo_record.note(planned(session, "X").left, CommandChanges(unlooked=1))
    undo.add(content=note)
    (step,) = plan.steps
    call_id = undo.call(undo_record.TOOL, undo_record.call_args(step))
    undo.dispatch(call_id, undo_record.TOOL)
    undo.answer(call_id, "Put back a", name=undo_record.TOOL)
    undo.complete()
    receipt = undo_record.receipt(session.of(undo))
    assert isinstance(receipt, UndoReceipt)
    assert [(file.path, file.before_sha256, file.after_sha256, file.outcome) for file in receipt.files] == [
        (P, sha("B"), sha("A"), "ok")
    ]
    assert (receipt.left, receipt.commands.unlooked, receipt.status) == (planned(session, "X").left, 1, "completed")
    assert undo_record.receipt(session.of(undo)[:-2]) is not None
    assert undo_record.receipt([]) is None


def test_a_foreign_or_repeated_fact_is_refused() -> None:
    session, other = log(), log(prefix=7)
    folded = changes.project(session)
    for item in (session.items[0], other.items[0]):
        with pytest.raises(FoldError):
            changes.fold(folded, item)
