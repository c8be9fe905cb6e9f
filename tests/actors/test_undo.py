"""An undo through the actors: a run of its own, refused beside another one, cut off anywhere and still whole."""

from collections.abc import Callable

import pytest

from actors.messages_run import StopRun
from actors.run import RunActor
from maka.contracts.actions import WorkspaceChanged
from maka.contracts.commands import MessageAccepted, UndoReceipt
from maka.contracts.content import FunctionCall, InvocationOpened, Outcome, RootKind
from maka.contracts.errors import LedgerFailedError, Refusal, RefusalCode
from maka.contracts.events import Author, Committed, ModelVisibility, Role, is_terminal
from maka.contracts.ids import InvocationId
from maka.contracts.limits import (
    UNDO_FILES_MAX,
    UNDO_LISTED_MAX,
    WORKSPACE_NAMES_BYTES_MAX,
    WORKSPACE_NAMES_MAX,
)
from maka.contracts.tool_ports import FileNow, ToolCall, ToolEnv, ToolListener, ToolResult, WorkspaceDiff
from projections import changes, model_history
from tests.actors.case import Case, asks, kill, receipt_of, stop, then
from tests.checkers import check_messages
from tests.sim.checkers import Checker
from tests.sim.host import fail_commit
from tests.sim.outside import Said, SimReply

FILES = ("/w/f", "/w/g", "/w/h")


def changed(files: tuple[str, ...] = FILES, *, seed: int = 1) -> Case:
    """Return a case whose one run has created some files, and ended."""
    steps = tuple(asks("File", args={"path": path}) for path in files)
    case = Case(then(*steps, Said(text=("done",))), seed=seed)
    case.host.world.run()
    return case


def undo(case: Case, **options: str) -> SimReply:
    return case.host.undo_changes(case.session_id, **options)


def done(case: Case, reply: SimReply) -> UndoReceipt:
    case.host.world.run()
    Checker(case.host).settled()
    assert isinstance(reply.value, UndoReceipt), reply.value
    return reply.value


def facts_of(case: Case, receipt: UndoReceipt) -> list[Committed]:
    assert receipt.run_id is not None
    return case.host.store.read_stream(InvocationId(receipt.run_id))


def standing(case: Case) -> list[str]:
    """Return the files in which a change of the agent stands."""
    folded = changes.project(case.host.session_facts(case.session_id))
    assert folded is not None
    chains = changes.changes(folded).chains.values()
    return [chain.path for chain in chains if any(edit.undoes is None for edit in chain.standing())]


def test_an_undo_is_a_run_of_its_own_with_its_calls_by_the_person() -> None:
    case = changed()
    receipt = done(case, undo(case))
    assert [(file.path, file.outcome) for file in receipt.files] == [(path, "ok") for path in FILES]
    assert (receipt.status, standing(case)) == ("completed", [])
    opened, told, *_ = facts_of(case, receipt)
    assert isinstance(opened.event.content, InvocationOpened)
    assert opened.event.content.root is RootKind.UNDO
    assert (told.event.role, told.event.author) == (Role.USER, Author.HOST)
    calls = [item.event for item in facts_of(case, receipt) if isinstance(item.event.content, FunctionCall)]
    assert {(call.author, call.model_visibility) for call in calls} == {(Author.USER, ModelVisibility.HIDDEN)}
    assert receipt.position == case.host.store.head().position


def test_the_next_request_tells_the_model_and_is_one_that_a_strict_provider_takes() -> None:
    case = changed()
    done(case, undo(case))
    sent = case.host.send(case.session_id, "and now?")
    case.host.world.run()
    assert isinstance(sent.value, MessageAccepted)
    messages = case.requests()[-1].messages
    check_messages(messages)
    *_, told, prompt = messages
    assert (told.role, prompt.text) == ("user", "and now?")
    assert told.text is not None
    assert "undo" in told.text
    assert all(path in told.text for path in FILES)
    assert not any(call.name == "Undo" for message in messages for call in message.calls)


def test_undoing_the_undo_brings_everything_back() -> None:
    case = changed()
    first = done(case, undo(case))
    assert first.run_id is not None
    second = done(case, undo(case, run_id=first.run_id))
    assert [file.after_sha256 for file in second.files] == ["a" * 64] * len(FILES)
    assert standing(case) == list(FILES)
    assert done(case, undo(case)).run_id is not None


def test_nothing_to_undo_is_no_run() -> None:
    case = changed(())
    head = case.host.store.head()
    receipt = done(case, undo(case))
    assert (receipt.run_id, receipt.files, case.host.store.head()) == (None, (), head)


def test_an_undo_is_refused_while_a_run_is_live_or_a_message_waits() -> None:
    case = Case(then(asks("File"), asks("Hang"), Said(text=("done",))))
    case.until(lambda: any(tool.effects for tool in case.host.catalog.tools.values()))
    refused = undo(case)
    case.until(lambda: refused.value is not None)
    assert isinstance(refused.value, Refusal)
    assert refused.value.code is RefusalCode.SESSION_BUSY
    stop(case)
    case.finish()
    assert done(case, undo(case)).status == "completed"


def test_a_run_whose_end_is_durable_is_not_live_any_more() -> None:
    for seed in range(20):
        case = Case(then(asks("File", args={"path": "/w/f"}), Said(text=("done",))), seed=seed)
        case.until(lambda case=case: is_terminal(case.host.facts()[-1].event))  # type: ignore[misc]
        assert done(case, undo(case)).status == "completed"


def test_a_run_that_waits_for_a_person_is_live_too() -> None:
    case = Case(then(asks("File"), asks("Ask"), Said(text=("done",))))
    case.until(lambda: bool(case.host.waits(case.session_id)))
    case.host.world.run()
    refused = undo(case)
    case.host.world.run()
    assert isinstance(refused.value, Refusal)
    assert refused.value.code is RefusalCode.NEEDS_ANSWER
    assert "maka inbox" in refused.value.message


def test_the_same_command_id_is_one_undo() -> None:
    case = changed()
    first = done(case, undo(case, command_id="u1"))
    head = case.host.store.head()
    assert done(case, undo(case, command_id="u1")) == first
    other = undo(case, command_id="u1", run_id=first.run_id or "")
    case.host.world.run()
    assert isinstance(other.value, Refusal)
    assert (other.value.code, case.host.store.head()) == (RefusalCode.COMMAND_CONFLICT, head)


def test_a_message_that_comes_meanwhile_waits_its_turn() -> None:
    case = changed()
    reply = undo(case)
    sent = case.host.send(case.session_id, "and now?")
    receipt = done(case, reply)
    assert isinstance(sent.value, MessageAccepted)
    assert (sent.value.run_id, receipt.status) == (None, "completed")
    assert case.requests()[-1].messages[-1].text == "and now?"


def test_a_stop_cuts_an_undo_off_and_the_next_one_goes_on() -> None:
    cut = 0
    for steps in range(1, 60):
        case = changed()
        reply = undo(case)
        for _ in range(steps):
            case.host.world.step()
        if reply.value is not None:
            break
        stopped = stop(case)
        receipt = done(case, reply)
        if receipt.status == "completed":
            continue
        assert (receipt.status, receipt_of(stopped).was) == ("aborted", "undoing")
        cut += 1
        done(case, undo(case))
        assert standing(case) == []
    assert cut > len(FILES)


def test_a_stop_that_comes_before_the_start_of_an_undo_lets_nothing_begin() -> None:
    case = changed()
    before = list(case.host.world.actors)
    reply = undo(case)
    case.until(lambda: any(isinstance(actor, RunActor) and actor not in before for actor in case.host.world.actors))
    run = next(actor for actor in case.host.world.actors if isinstance(actor, RunActor) and actor not in before)
    stopped = SimReply()
    run.address.tell(StopRun(source="test.button", reply=stopped))  # control, so it is handled before the Start
    receipt = done(case, reply)
    assert (receipt.status, receipt_of(stopped).calls) == ("aborted", ())
    assert standing(case) == list(FILES)


def test_wherever_an_undo_is_cut_by_a_crash_it_is_closed_and_can_be_given_again() -> None:
    for number in range(1, 40):
        case = changed()
        before = case.host.store.commits
        case.host.store.before = fail_commit(before + number, LedgerFailedError("cut"))
        undo(case)
        case.host.world.run()
        cut = bool(case.host.fatal)
        case.host.store.before = None
        case.host.crash()
        case.host.world.run()
        Checker(case.host).settled()
        again = case.host.undo_changes(case.session_id)
        done(case, again)
        assert standing(case) == []
        history = model_history.project(case.host.session_facts(case.session_id))
        assert history is not None
        rendered = model_history.render(history, level=0, through_position=0, keeps_reasoning=True)
        check_messages(rendered.messages)
        if not cut:
            break
    else:
        raise AssertionError("the undo never passed")
    assert number > len(FILES)


@pytest.mark.parametrize("name", ["RunActor", "ToolActor", "SessionActor"])
def test_an_actor_that_dies_in_an_undo_leaves_nobody_without_an_answer(name: str) -> None:
    for steps in range(1, 40):
        case = changed()
        reply = undo(case)
        for _ in range(steps):
            case.host.world.step()
        kill(case.host, name)
        case.host.world.run()
        Checker(case.host).settled()
        assert isinstance(reply.value, UndoReceipt | Refusal), reply.value
        if isinstance(reply.value, UndoReceipt):
            assert reply.value.status in ("completed", "failed")
        done(case, undo(case))
        assert standing(case) == []


def test_a_call_that_fails_keeps_no_other_file_from_being_put_back_and_the_model_is_told() -> None:
    case = changed()
    tool = case.host.undo
    real: Callable[..., Callable[[], None]] = tool.start

    def start(call: object, env: object, listener: object) -> Callable[[], None]:
        if "/w/g" in str(call):
            raise OSError("no")
        return real(call, env, listener)

    tool.start = start  # type: ignore[method-assign]
    receipt = done(case, undo(case))
    assert [file.outcome for file in receipt.files] == ["ok", Outcome.ERROR.value, "ok"]
    last = [item.event.content for item in facts_of(case, receipt) if item.event.role is Role.USER][-1]
    assert "may not have set back: /w/g" in str(last)
    assert standing(case) == ["/w/g"]


def test_what_is_left_and_why_is_in_the_facts() -> None:
    case = changed()
    real = case.host.undo.look

    def look(cwd: str, path: str) -> FileNow:
        return FileNow(sha256="f" * 64) if path == "/w/h" else real(cwd, path)

    case.host.undo.look = look  # type: ignore[method-assign]
    receipt = done(case, undo(case))
    assert [(left.path, left.reason, left.current_sha256) for left in receipt.left] == [("/w/h", "changed", "f" * 64)]
    assert standing(case) == ["/w/h"]


def test_an_undo_of_too_many_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert UNDO_FILES_MAX > 2
    monkeypatch.setattr("actors.session_undo.UNDO_FILES_MAX", 2)
    case = changed()
    refused = undo(case)
    case.host.world.run()
    assert isinstance(refused.value, Refusal)
    assert "undo run by run" in refused.value.message


def test_the_model_is_told_a_bounded_number_of_names() -> None:
    case = changed(tuple(f"/w/{number:03}" for number in range(UNDO_LISTED_MAX + 2)))
    receipt = done(case, undo(case))
    told = facts_of(case, receipt)[1].event.content
    assert "and 2 more" in str(told)


def ends_with(case: Case, found: WorkspaceDiff) -> None:
    """Let the tool Quick say that so much changed while it ran."""

    def start(call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        case.host.effects.started.add(call.call_id)
        listener.ended(ToolResult(outcome=Outcome.OK, text="done", workspace=found))
        return lambda: None

    case.host.catalog.tools["Quick"].start = start  # type: ignore[method-assign]


def workspace_facts(case: Case) -> list[WorkspaceChanged]:
    acts = [item.event.actions for item in case.host.session_facts(case.session_id)]
    return [act.workspace_changed for act in acts if act is not None and act.workspace_changed is not None]


def test_what_changed_while_a_command_ran_is_a_fact_with_bounded_names() -> None:
    many = tuple(f"m{number:04}" for number in range(WORKSPACE_NAMES_MAX))
    for found, named in (
        (WorkspaceDiff(added=("a",), modified=many, deleted=("d",)), WORKSPACE_NAMES_MAX),
        (WorkspaceDiff(added=("x" * WORKSPACE_NAMES_BYTES_MAX, "y")), 1),
    ):
        case = Case(then(asks("Quick"), Said(text=("done",))))
        ends_with(case, found)
        case.finish()
        (fact,) = workspace_facts(case)
        assert len((*fact.added, *fact.modified, *fact.deleted)) == named
        counted = (fact.added_count, fact.modified_count, fact.deleted_count)
        assert counted == (len(found.added), len(found.modified), len(found.deleted))
        assert done(case, undo(case)).commands.more == sum(counted) - named


def test_a_command_of_which_nobody_looked_says_why() -> None:
    case = Case(then(asks("Quick"), Said(text=("done",))))
    ends_with(case, WorkspaceDiff(unlooked="more than 20,000 files"))
    case.finish()
    (fact,) = workspace_facts(case)
    assert (fact.looked, fact.why) == (False, "more than 20,000 files")
    assert done(case, undo(case)).commands.unlooked == 1
