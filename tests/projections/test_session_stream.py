"""What a live reader is shown: facts once and in order, frames in their place and no character twice."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from maka.contracts.actions import (
    Actions,
    BoundaryChanged,
    BoundaryDecision,
    BoundaryRequest,
    Question,
    StateDelta,
    UserQuestionAnswer,
    UserQuestionRequest,
)
from maka.contracts.boundary import Expansion
from maka.contracts.content import SystemNote
from maka.contracts.events import Committed, is_terminal
from maka.contracts.ids import EventId
from maka.contracts.session_events import (
    Abort,
    Complete,
    ErrorEvent,
    Frame,
    MessageWaiting,
    Notice,
    PermissionClosureAck,
    ProviderRetry,
    RunStarted,
    SandboxBoundaryDecisionAck,
    SandboxBoundaryRequest,
    SessionEvent,
    StepStarted,
    TextComplete,
    TextDelta,
    ThinkingComplete,
    ThinkingDelta,
    TokenUsageEvent,
    ToolFileChange,
    ToolOutputDelta,
    ToolResultEvent,
    ToolStart,
    UserMessage,
    UserQuestionAnswerAck,
    UserQuestionAsked,
)
from projections.session_stream import StreamState, on_fact, on_frame
from tests.builders import RunLog, log
from tests.strategies import session_logs


class Reader:
    """A reader that keeps everything it was shown."""

    def __init__(self, position: int = 0) -> None:
        self.state = StreamState(position=position)
        self.shown: list[SessionEvent] = []

    def facts(self, items: list[Committed]) -> list[SessionEvent]:
        before = len(self.shown)
        for item in items:
            self.state, events = on_fact(self.state, item)
            self.shown.extend(events)
        return self.shown[before:]

    def frame(self, frame: Frame) -> list[SessionEvent]:
        self.state, events = on_frame(self.state, frame)
        self.shown.extend(events)
        return list(events)


def frame(run: RunLog, stream_id: str, text: str, *, offset: int = 0, kind: str = "text", after: int = 0) -> Frame:
    return Frame(
        session_id=run.log.session_id,
        run_id=run.run_id,
        turn_id=run.turn_id,
        stream_id=stream_id,
        kind=kind,
        offset=offset,
        text=text,
        after_seq=after or run.log.seqs[run.invocation_id],
    )


def texts(events: list[SessionEvent]) -> list[tuple[int, str]]:
    return [(event.offset, event.text) for event in events if isinstance(event, TextDelta)]


def test_a_run_is_told_in_the_vocabulary() -> None:
    session = log()
    message = session.queue("go")
    run = session.run("go", message_id=message)
    run.request()
    run.thinking("hm")
    run.text("I'll write.")
    run.usage()
    call = run.call("Write", {"path": "a"})
    bad = run.call("Write", malformed="[]")
    run.dispatch(call, "Write")
    run.change(call, "/w/a")
    run.answer(call, name="Write")
    run.answer(bad, "no object")
    run.add(content=SystemNote(note="step_limit", data={"text": "No more steps."}))
    run.complete()
    shown = Reader().facts(session.items)
    assert [type(event) for event in shown] == [
        MessageWaiting,
        RunStarted,
        UserMessage,
        MessageWaiting,
        StepStarted,
        ThinkingComplete,
        TextComplete,
        TokenUsageEvent,
        ToolStart,
        ToolStart,
        ToolFileChange,
        ToolResultEvent,
        ToolResultEvent,
        Notice,
        Complete,
    ]
    assert [event.queued for event in shown if isinstance(event, MessageWaiting)] == [1, 0]
    # The user's fact is two events: only the last carries its position.
    user, waiting = shown[2:4]
    assert (user.position, waiting.position) == (None, 4)
    assert shown[-1].position == session.position
    assert all(event.ts is not None for event in shown)


@pytest.mark.parametrize(
    ("how", "expected"),
    [("complete", [Complete]), ("fail", [ErrorEvent, Complete]), ("abort", [Abort])],
)
def test_endings(how: str, expected: list[type]) -> None:
    session = log()
    run = session.run()
    reader = Reader()
    reader.facts(session.items)
    getattr(run, how)()
    shown = reader.facts(session.items)
    assert [type(event) for event in shown] == expected
    assert [event.position is not None for event in shown] == [False] * (len(expected) - 1) + [True]
    assert reader.facts(session.items) == [], "a fact given again is nothing new"


def test_each_character_of_a_stream_is_shown_once() -> None:
    session = log()
    run = session.run()
    run.request()
    reader = Reader()
    reader.facts(session.items)
    stream = session.ids()
    assert texts(reader.frame(frame(run, stream, "Hello"))) == [(0, "Hello")]
    assert texts(reader.frame(frame(run, stream, "lo wor", offset=3))) == [(5, " wor")]
    assert texts(reader.frame(frame(run, stream, "Hello"))) == [], "an older snapshot restarts nothing"
    assert texts(reader.frame(frame(run, stream, "Hello world"))) == [(9, "ld")]
    run.text("Hello world!", event_id=stream)
    assert [type(event) for event in reader.facts(session.items)] == [TextComplete]
    assert reader.frame(frame(run, stream, "!", offset=11, after=3)) == [], "the final event has said it all"


def test_frames_wait_for_the_facts_before_them() -> None:
    session = log()
    run = session.run()
    behind = list(session.items)
    run.request()
    reader = Reader()
    reader.facts(behind)
    stream = session.ids()
    assert reader.frame(frame(run, stream, "Hel")) == []
    assert reader.frame(frame(run, stream, "lo", offset=3)) == []
    shown = reader.facts(session.items)
    assert [type(event) for event in shown] == [StepStarted, TextDelta]
    assert texts(shown) == [(0, "Hello")]


def test_tool_output_is_shown_until_the_response() -> None:
    session = log()
    run = session.run()
    run.request()
    call, other = run.call("Bash"), run.call("Bash")
    run.dispatch(call)
    run.dispatch(other)
    reader = Reader()
    reader.facts(session.items)
    shown = reader.frame(frame(run, call, "out", kind="stdout")) + reader.frame(frame(run, call, "err", kind="stderr"))
    assert [(e.stream, e.offset, e.text) for e in shown if isinstance(e, ToolOutputDelta)] == [
        ("stdout", 0, "out"),
        ("stderr", 0, "err"),
    ]
    run.answer(other)
    reader.facts(session.items)
    assert len(reader.frame(frame(run, call, "more", kind="stdout", offset=3))) == 1
    assert reader.frame(frame(run, other, "late", kind="stdout", after=4)) == []
    run.answer(call)
    run.request()
    reader.facts(session.items)
    assert reader.frame(frame(run, call, "late", kind="stdout", offset=7, after=5)) == []


def test_retries_are_shown_while_they_matter() -> None:
    session = log()
    run = session.run()
    run.request()
    reader = Reader()
    reader.facts(session.items)
    retry = ProviderRetry(
        session_id=session.session_id, phase="scheduled", attempt=2, attempts_max=10, delay_ms=1_000, reason="network"
    )
    waiting = replace(frame(run, "retry", "", kind="retry"), retry=retry)
    assert reader.frame(waiting) == [retry]
    run.request(attempt=2, same_step=True)
    reader.facts(session.items)
    assert reader.frame(waiting) == [], "the try that it announced has begun"


def test_a_reader_that_joins_in_mid_run() -> None:
    session = log()
    run = session.run()
    run.request()
    stream = session.ids()
    reader = Reader(position=session.position)
    assert reader.frame(frame(run, stream, "so far")) == []
    run.usage()
    shown = reader.facts(session.items)
    assert [type(event) for event in shown] == [TokenUsageEvent, TextDelta]
    thinking = frame(run, session.ids(), "hm", kind="thinking")
    assert [type(event) for event in reader.frame(thinking)] == [ThinkingDelta]


def test_late_frames_of_ended_runs_are_dropped_and_forgotten() -> None:
    session = log()
    ended = session.run()
    ended.request()
    ended.abort()
    reader = Reader()
    reader.facts(session.items)
    assert reader.frame(frame(ended, session.ids(), "late", after=3)) == []
    assert reader.state.runs == {}
    joined = Reader(position=session.position)
    for _ in range(50):
        joined.frame(replace(frame(ended, session.ids(), "late"), run_id=session.ids()))
    assert len(joined.state.runs) <= 8


def test_held_frames_are_bounded() -> None:
    session = log()
    run = session.run()
    reader = Reader()
    for _ in range(500):
        reader.frame(frame(run, session.ids(), "x"))
    assert len(reader.state.runs[run.run_id].held) <= 64


@given(session_logs())
@settings(max_examples=60)
def test_every_log_can_be_shown_and_each_position_once(items: list[Committed]) -> None:
    reader = Reader()
    reader.facts(items)
    positions = [event.position for event in reader.shown if event.position is not None]
    assert positions == sorted(set(positions))
    endings = [event for event in reader.shown if isinstance(event, Complete | Abort)]
    assert len(endings) == sum(is_terminal(item.event) for item in items)


@given(st.data())
@settings(max_examples=100)
def test_streamed_text_joins_to_the_final_text(data: st.DataObject) -> None:
    """However frames are cut, repeated and held, the deltas of a stream are its text from the beginning."""
    session = log()
    run = session.run()
    run.request()
    reader = Reader()
    late = data.draw(st.booleans())
    reader.facts(session.items[: -1 if late else None])
    text = data.draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
    stream = EventId(session.ids())
    end = 0
    while end < len(text):
        offset = data.draw(st.integers(0, end))
        end = max(end, data.draw(st.integers(offset, len(text))))
        reader.frame(frame(run, stream, text[offset:end], offset=offset))
    reader.facts(session.items)
    deltas = texts(reader.shown)
    assert "".join(piece for _, piece in deltas) == text


def test_asking_answers_and_closures_are_told_with_their_positions() -> None:
    session = log()
    run = session.run()
    run.request()
    call = run.call("ask_user_question")
    questions = (Question(question="Which?", options=("a", "b")),)
    asked = run.add(actions=Actions(user_question_request=UserQuestionRequest(call_id=call, questions=questions)))
    expansion = Expansion(network=True)
    request = BoundaryRequest(call_id=run.call("b"), expansion=expansion, justification="to fetch")
    wider = run.add(actions=Actions(state_delta=StateDelta(boundary_request=request)))
    third = run.ask(run.call("ask_user_question"))
    answer = UserQuestionAnswer(request_id=asked, answers=("a",), client="desk")
    run.add(actions=Actions(user_question_answer=answer))
    decision = BoundaryDecision(request_id=wider, decision="allow", scope="once", revision=3, covers=(third,))
    run.add(actions=Actions(state_delta=StateDelta(boundary_decision=decision)))
    run.unwait(third, "stopped")
    changed = BoundaryChanged(profile="bypass", revision=4, grants=expansion, revoked=(wider,))
    session.control(actions=Actions(boundary_changed=changed))
    told = (UserQuestionAsked, SandboxBoundaryRequest, UserQuestionAnswerAck, SandboxBoundaryDecisionAck)
    shown = [
        event for event in Reader().facts(session.items) if isinstance(event, (*told, PermissionClosureAck, Notice))
    ]
    assert all(event.position is not None for event in shown)
    one, two, three, four, five, six, seven = shown
    assert isinstance(one, UserQuestionAsked)
    assert (one.request_id, one.call_id, one.questions) == (asked, call, questions)
    assert isinstance(two, SandboxBoundaryRequest)
    assert (two.request_id, two.expansion, two.justification) == (wider, expansion, "to fetch")
    assert isinstance(three, UserQuestionAsked)
    assert isinstance(four, UserQuestionAnswerAck)
    assert (four.request_id, four.answers, four.client) == (asked, ("a",), "desk")
    assert isinstance(five, SandboxBoundaryDecisionAck)
    assert (five.request_id, five.decision, five.scope, five.revision) == (wider, "allow", "once", 3)
    assert five.covers == (third,)
    assert isinstance(six, PermissionClosureAck)
    assert (six.request_id, six.reason) == (third, "stopped")
    assert isinstance(seven, Notice)
    assert seven.text == f"the boundary is now bypass (revision 4); allowed: use the network; taken back: {wider}"


def test_a_run_says_the_profile_that_it_began_with() -> None:
    session = log()
    session.run().complete()
    session.control(actions=Actions(boundary_changed=BoundaryChanged(profile="bypass", revision=1)))
    session.run().complete()
    started = [event for event in Reader().facts(session.items) if isinstance(event, RunStarted)]
    assert [event.boundary for event in started] == ["ask", "bypass"]
    later = Reader(session.items[0].position)
    began = [event for event in later.facts(session.items[1:]) if isinstance(event, RunStarted)]
    assert [event.boundary for event in began] == [None, "bypass"], "what wasn't read isn't guessed"
