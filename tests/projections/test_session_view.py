"""What a person sees of a session, whole and as of an earlier event."""

import msgspec

from maka.contracts.actions import Actions, BoundaryDecision, BoundaryRequest, StateDelta, UserQuestionAnswer
from maka.contracts.boundary import Expansion
from maka.contracts.content import BlobRef, Outcome
from maka.contracts.events import Committed
from projections import session_view
from projections.session_view import SessionView
from projections.turn_view import Asking, FileChanged, Said, ToolActivity
from tests.builders import HASH, SessionLog, log


def view_of(items: SessionLog | list[Committed]) -> SessionView:
    state = session_view.project(items)
    assert state is not None
    return session_view.view(state)


def story() -> SessionLog:
    session = log(number=3)
    run = session.run("fix it")
    run.request()
    run.thinking("hm")
    run.text("I'll look.")
    run.usage(10, 2)
    one, two = run.call("Edit", {"path": "a"}), run.call("Bash", {"command": "ls"})
    run.dispatch(one, "Edit")
    run.dispatch(two, "Bash")
    run.change(one, "/w/a", before="c" * 64)
    run.answer(two, "files", name="Bash", exit_code=0)
    run.answer(one, "edited", name="Edit", duration_ms=4, diff=BlobRef(sha256=HASH, size_bytes=9))
    run.request()
    run.text("I was", interrupted=True)
    run.abort()
    session.queue("next")
    return session


def test_a_turn_shows_words_and_tools_in_order() -> None:
    shown = view_of(story())
    (turn,) = shown.turns
    assert (turn.status, turn.abort_source, turn.steps) == ("aborted", "cli.interrupt", 2)
    said = [(item.who, item.text, item.interrupted) for item in turn.items if isinstance(item, Said)]
    assert said == [
        ("user", "fix it", False),
        ("thinking", "hm", False),
        ("assistant", "I'll look.", False),
        ("assistant", "I was", True),
    ]
    edit, bash = (item for item in turn.items if isinstance(item, ToolActivity))
    assert (edit.name, edit.outcome, edit.result, edit.duration_ms) == ("Edit", "ok", "edited", 4)
    assert edit.dispatched
    assert edit.diff == BlobRef(sha256=HASH, size_bytes=9)
    assert edit.files == (FileChanged(path="/w/a", before_sha256="c" * 64, after_sha256=HASH),)
    assert (bash.name, bash.exit_code, bash.dispatched) == ("Bash", 0, True)
    assert turn.files_changed == ("/w/a",)
    assert [waiting.text for waiting in shown.queue] == ["next"]
    assert shown.header.number == 3


def test_an_earlier_event_shows_what_was_so_then() -> None:
    session = story()
    dispatched = next(i for i, item in enumerate(session, 1) if item.event.actions and item.event.actions.tool_dispatch)
    (turn,) = view_of(session.items[:dispatched]).turns
    assert turn.status == "running"
    tools = [item for item in turn.items if isinstance(item, ToolActivity)]
    assert [(tool.dispatched, tool.outcome, tool.result) for tool in tools] == [(True, None, None), (False, None, None)]


def test_the_queue_shrinks_when_a_message_is_taken_or_retracted() -> None:
    session = log()
    one, two, three = (session.queue(text) for text in ("one", "two", "three"))
    session.retract(two)
    session.run("one", message_id=one)
    assert [waiting.message_id for waiting in view_of(session).queue] == [three]


def test_what_is_shown_comes_back_from_json() -> None:
    session = story()
    run = session.run("x\x00 \u2028")
    run.request()
    call = run.call(malformed="[1")
    run.answer(call, "no object", Outcome.REFUSED)
    data = msgspec.json.encode(view_of(session))
    again = msgspec.json.decode(data, type=SessionView)
    assert again == view_of(session)
    assert b'"realCwd"' in data


def test_a_request_is_there_while_it_waits_and_says_how_it_ended() -> None:
    session = log()
    run = session.run()
    run.request()
    request = BoundaryRequest(call_id=run.call("b"), expansion=Expansion(network=True), justification="why")
    wider = run.add(actions=Actions(state_delta=StateDelta(boundary_request=request)))
    first, second = run.ask(run.call("q")), run.ask(run.call("q"))

    def asking() -> dict[str, Asking]:
        (turn,) = view_of(session).turns
        return {item.request_id: item for item in turn.items if isinstance(item, Asking)}

    assert list(asking()) == [wider, first, second]
    assert all(each.end_position is None for each in asking().values())
    assert (asking()[wider].expansion, asking()[wider].justification) == (Expansion(network=True), "why")
    decision = BoundaryDecision(request_id=wider, decision="allow", scope="workspace", client="desk")
    run.add(actions=Actions(state_delta=StateDelta(boundary_decision=decision)))
    run.add(actions=Actions(user_question_answer=UserQuestionAnswer(request_id=first, answers=("yes", None))))
    run.unwait(second, "stopped")
    ended, last = asking(), session.position
    assert (ended[wider].decision, ended[wider].scope, ended[wider].client) == ("allow", "workspace", "desk")
    assert (ended[first].answers, ended[second].closed) == (("yes", None), "stopped")
    assert [each.end_position for each in ended.values()] == [last - 2, last - 1, last]
