"""Hypothesis strategies of valid logs: what the append rules let through, in the shapes that runs really take.

One session: its control stream, several runs, steps with calls answered in any order, retries, malformed and hidden
calls, ids of providers that repeat or are odd, queued messages that are taken or retracted, words that come while
tools run, and every kind of ending, settled in mid-step too.
"""

from typing import Any

from hypothesis import strategies as st

from maka.contracts.actions import (
    Actions,
    BoundaryChanged,
    FileSeen,
    ProcessEnded,
    ProcessIdentity,
    ProcessStarted,
    SessionChanged,
)
from maka.contracts.content import Error, Outcome, Route, SystemNote
from maka.contracts.events import Committed, Status
from maka.contracts.ids import CallId, MessageId
from projections import run_state
from projections.settlement import Ending, Unfinished, settle
from tests.builders import BLOB_BYTES, RunLog, SessionLog

LONG = "seen " * 900
BLOBS = (BLOB_BYTES, LONG.encode())
"""The values that drawn logs name."""

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
words = st.sampled_from(["look", "a\nb", "«»", " ", "x" * 300, "y" * 5_000])
routes = st.sampled_from(
    [Route(profile="p", provider="scripted", model="m"), Route(profile="q", provider="other", model="n")]
)
names = (
    st.sampled_from(["Read", "functions.Read", "read file", "Nope\u202e", "Read\n", "", "-", "工具", "x" * 80]) | texts
)
provider_ids = st.sampled_from([None, "call_0", "call_1", "functions.Read:0", "", "z" * 41, "ü", "call_0\n"]) | texts
arguments: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["path", "content", "n"]),
    st.none()
    | st.integers(-5, 5)
    | texts
    | st.just("c" * 4_000)
    | st.lists(st.floats(allow_nan=False, allow_infinity=False) | texts, max_size=2),
    max_size=2,
)
outcomes = st.sampled_from([Outcome.OK, Outcome.ERROR, Outcome.TIMEOUT])
results = st.one_of(texts, st.just(""), st.just("line\n" * 1_000))


def started(number: int) -> ProcessStarted:
    process = ProcessIdentity(pid=number, group=number, start_ticks=1, boot_id="b")
    call_id = CallId(f"0198c0de-0000-7000-9000-{number:012}")
    return ProcessStarted(call_id=call_id, process=process, command="serve", background=True)


class _Session:
    """Draws one log."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.log = SessionLog(title=draw(st.none() | st.just("a title")))
        self.log.tick_ms = draw(st.sampled_from([1, 1, -50]))
        self.queued: list[MessageId] = []
        self.shells = 0
        self.live: list[ProcessStarted] = []

    def maybe(self, percent: int = 50) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def control(self) -> None:
        """Add a fact of the control stream, which may stand anywhere."""
        match self.draw(st.integers(0, 6)):
            case 0 | 1:
                self.queued.append(self.log.queue(self.draw(texts)))
            case 2 if self.queued:
                self.log.retract(self.queued.pop(self.draw(st.integers(0, len(self.queued) - 1))))
            case 4:
                self.shells += 1
                self.live.append(started(self.shells))
                self.log.control(actions=Actions(process_started=self.live[-1]))
            case 5 if self.live:
                shell = self.live.pop(self.draw(st.integers(0, len(self.live) - 1)))
                how = self.draw(st.sampled_from(["exited", "stopped", "orphaned"]))
                ended = ProcessEnded(call_id=shell.call_id, process=shell.process, how=how)
                self.log.control(actions=Actions(process_ended=ended))
            case 3:
                self.log.control(actions=Actions(session_changed=SessionChanged(title=self.draw(texts))))
            case _:
                self.log.control(actions=Actions(boundary_changed=BoundaryChanged(profile="full", revision=1)))

    def run(self, *, may_stay_open: bool) -> None:
        message_id = self.queued.pop(0) if self.queued and self.maybe() else None
        run = self.log.run(self.draw(texts | words), self.draw(routes), message_id)
        for _ in range(self.draw(st.integers(0, 4))):
            if self.maybe(10):
                self.control()
            if not self.step(run):
                break
        else:
            if self.maybe(70):
                self.last_step(run)
                return
        if not (may_stay_open and self.maybe()):
            self.settle(run)

    def words_of_step(self, run: RunLog) -> None:
        run.request()
        if self.maybe(15):
            run.request(attempt=2, same_step=True)
        if self.maybe(30):
            run.thinking(self.draw(texts | words))
        if self.maybe(60):
            run.text(self.draw(texts | words))
        if self.maybe(80):
            run.usage(self.draw(st.integers(1, 1_000)), self.draw(st.integers(0, 100)))

    def last_step(self, run: RunLog) -> None:
        self.words_of_step(run)
        if self.maybe(20):
            run.add(content=SystemNote(note="step_limit", data={"text": "no more steps"}))
            run.fail("tool_step_cap_reached")
        else:
            run.complete()

    def step(self, run: RunLog) -> bool:
        """Add a step with calls and their results; False where the run is left in the middle of it."""
        self.words_of_step(run)
        calls = [self.call(run) for _ in range(self.draw(st.integers(0, 3)))]
        if self.maybe(15):
            return False
        for call_id, valid in calls:
            if valid:
                run.dispatch(call_id)
        for call_id, valid in self.draw(st.permutations(calls)):
            if self.maybe(10):
                run.user(self.draw(words))
            if self.maybe(10):
                return False
            self.answer(run, call_id, valid)
        return True

    def call(self, run: RunLog) -> tuple[CallId, bool]:
        malformed = self.draw(texts) if self.maybe(15) else None
        args = {} if malformed is not None else self.draw(arguments)
        name = self.draw(names)
        call_id = run.call(name, args, provider_id=self.draw(provider_ids), malformed=malformed)
        return call_id, malformed is None

    def answer(self, run: RunLog, call_id: CallId, valid: bool) -> None:
        if not valid:
            run.answer(call_id, "the arguments must be an object", Outcome.REFUSED)
            return
        if self.maybe(20):
            run.change(call_id, self.draw(st.sampled_from(["/w/a", "/w/b"])))
        seen = FileSeen(path="/w/a", sha256="b" * 64) if self.maybe(20) else None
        run.answer(
            call_id, self.draw(results), self.draw(outcomes), seen=seen, duration_ms=self.draw(st.integers(0, 9))
        )

    def settle(self, run: RunLog) -> None:
        """End the run where it stands, as a stop or a failure does."""
        state = run_state.project(self.log.of(run))
        assert state is not None
        stopped = self.maybe()
        ending = Ending(
            status=Status.ABORTED if stopped else Status.FAILED,
            abort_source="cli.interrupt" if stopped else None,
            failure_class=None if stopped else "network",
            error=None if stopped else Error(message="no route", code="network"),
            steps=state.steps,
        )
        streams: list[Unfinished] = []
        if state.asking and self.maybe():
            text = self.draw(texts | st.just(LONG))
            streams.append(Unfinished(stream_id=_event_id(self.log.ids()), kind="text", text=text))
        settled = settle(
            state.run,
            calls=state.calls,
            waits=state.waits,
            streams=streams,
            ending=ending,
            ids=self.log.ids,
            now_ms=self.log.tick(),
        )
        for event in settled.events:
            self.log.commit(event)


def _event_id(value: str) -> Any:
    return value


@st.composite
def session_logs(draw: st.DrawFn, *, runs_max: int = 4, all_ended: bool = False) -> list[Committed]:
    """Draw a session's whole log, in order of position. Only the last run may be open, in the middle of anything."""
    session = _Session(draw)
    count = draw(st.integers(0, runs_max))
    for index in range(count):
        if session.maybe(30):
            session.control()
        session.run(may_stay_open=not all_ended and index == count - 1)
    return session.log.items


@st.composite
def cut_logs(draw: st.DrawFn) -> tuple[list[Committed], int]:
    """Draw a log and a place to cut it: both parts hold, since an append may end anywhere."""
    items = draw(session_logs())
    return items, draw(st.integers(0, len(items)))
