"""What closes a run: true verdicts for open calls, seen text kept, and never more than a settlement may be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maka.contracts.actions import FileSeen, WorkspaceChanged
from maka.contracts.codec import encode, hash_hex
from maka.contracts.content import Error, FunctionResponse, Outcome, Text, Thinking
from maka.contracts.events import Refs, RuntimeEvent, Status
from maka.contracts.ids import CallId, EventId
from maka.contracts.limits import SETTLE_KEEP_CHARS, SETTLEMENT_BYTES_MAX, STEP_CALLS_MAX, WORKSPACE_NAMES_BYTES_MAX
from projections import run_state
from projections.run_state import OpenCall, RunIdentity, RunState
from projections.settlement import Ending, KnownResult, Settlement, Unfinished, settle
from tests.builders import Ids, RunLog, log

STOPPED = Ending(status=Status.ABORTED, abort_source="cli.interrupt", steps=1, duration_ms=5)


def state_of(run: RunLog) -> RunState:
    state = run_state.project(run.log.of(run))
    assert state is not None
    return state


def responses(events: tuple[RuntimeEvent, ...]) -> dict[str, FunctionResponse]:
    return {event.content.call_id: event.content for event in events if isinstance(event.content, FunctionResponse)}


def close(run: RunLog, settled: Settlement) -> RunState:
    """Append the settlement to the log and fold it: it must be one that the rules let through."""
    for event in settled.events:
        run.log.commit(event)
    return state_of(run)


def test_every_open_call_gets_the_verdict_that_is_true_of_it() -> None:
    session = log()
    run = session.run()
    run.request()
    running, waiting, ended, asked = (run.call(name) for name in ("Bash", "Read", "Write", "AskUser"))
    run.dispatch(running, "Bash")
    run.dispatch(ended, "Write")
    wait = run.ask(asked)
    state = state_of(run)
    result = KnownResult(
        response=FunctionResponse(call_id=ended, name="Write", result="written", outcome=Outcome.OK, duration_ms=3),
        file_seen=FileSeen(path="/w/a", sha256="b" * 64),
    )
    settled = settle(
        state.run,
        calls=state.calls,
        waits=state.waits,
        results=[result],
        ending=STOPPED,
        ids=session.ids,
        now_ms=7,
    )
    found = responses(settled.events)
    assert list(found) == [running, waiting, ended, asked]
    assert {call: response.outcome for call, response in found.items()} == {
        running: Outcome.OUTCOME_UNKNOWN,
        waiting: Outcome.NOT_STARTED,
        ended: Outcome.OK,
        asked: Outcome.ABORTED,
    }
    assert found[ended].result == "written"
    told = {call: "may not have been put right" in response.result for call, response in found.items()}
    assert told == {running: True, waiting: False, ended: False, asked: False}
    seen = next(event.actions for event in settled.events if event.actions and event.actions.file_seen)
    assert seen.file_seen == result.file_seen
    closed = [event.actions.state_delta for event in settled.events if event.actions and event.actions.state_delta]
    assert [delta.wait_closed for delta in closed] == [wait, None]
    end = close(run, settled)
    assert end.terminal is not None
    assert end.terminal.abort_source == "cli.interrupt"
    assert end.calls == ()


def test_seen_text_becomes_its_streams_final_event() -> None:
    session = log()
    run = session.run()
    run.request()
    thought, said, empty = (EventId(session.ids()) for _ in range(3))
    long = "seen " * 10_000
    settled = settle(
        state_of(run).run,
        streams=[
            Unfinished(stream_id=thought, kind="thinking", text="hm"),
            Unfinished(stream_id=said, kind="text", text=long),
            Unfinished(stream_id=empty, kind="text", text=""),
        ],
        ending=STOPPED,
        ids=session.ids,
        now_ms=7,
    )
    first, second, terminal = settled.events
    assert (first.id, first.content) == (thought, Thinking(text="hm", interrupted=True))
    assert second.id == said
    assert isinstance(second.content, Text)
    assert second.content.interrupted
    assert len(second.content.text) < SETTLE_KEEP_CHARS[0] + 100
    assert second.content.text.startswith("seen seen")
    assert second.content.text.endswith("seen ")
    assert settled.blobs == (long.encode(),)
    assert second.content.whole is not None
    assert second.content.whole.sha256 == hash_hex(long.encode())
    assert terminal.status is Status.ABORTED
    assert close(run, settled).terminal is not None


def changed_by(call_id: CallId) -> WorkspaceChanged:
    """Return as much as a command can have changed."""
    many, names = 1 << 40, ("\x01" * 100,) * (WORKSPACE_NAMES_BYTES_MAX // 100)
    return WorkspaceChanged(
        call_id=call_id, added=names, added_count=many, modified_count=many, deleted_count=many, why="w" * 100
    )


def test_names_of_changed_files_go_before_their_counts_where_room_is_short() -> None:
    session = log()
    run = session.run()
    kept: list[tuple[int, int]] = []
    for size in (1, 400):
        calls = [run.call("Bash") for _ in range(2)] if not kept else [run.call("Bash") for _ in range(2, 32)]
        known = [
            KnownResult(
                response=FunctionResponse(call_id=call_id, name="Bash", result="r" * size, outcome=Outcome.OK),
                workspace_changed=WorkspaceChanged(call_id=call_id, added=("n" * 4_000,), added_count=1),
            )
            for call_id in calls
        ]
        opened = [OpenCall(call_id=call_id, name="Bash", operation_id="o") for call_id in calls]
        ending = Ending(status=Status.ABORTED, abort_source="x")
        settled = settle(state_of(run).run, calls=opened, results=known, ending=ending, ids=session.ids, now_ms=7)
        acts = [event.actions.workspace_changed for event in settled.events if event.actions is not None]
        kept += {(len(act.added), act.added_count) for act in acts if act is not None}
    assert kept == [(1, 1), (0, 1)]


@given(
    count=st.integers(0, STEP_CALLS_MAX),
    text=st.sampled_from(["a", "ü", "€", "😀", "\x01", '"\\']),
    size=st.sampled_from([0, 900, 1_001, 50_000]),
    long_ids=st.booleans(),
    name=st.sampled_from(["N" * 64, "Bash"]),
    is_known=st.booleans(),
)
@settings(max_examples=60)
def test_a_settlement_is_never_larger_than_the_room_kept_for_it(
    count: int, text: str, size: int, long_ids: bool, name: str, is_known: bool
) -> None:
    ids = Ids()
    identity = RunIdentity(session_id=ids(), invocation_id=ids(), run_id=ids(), turn_id=ids())  # type: ignore[arg-type]
    refs = Refs(tool_call_id="i" * (5_000 if long_ids else 20), step_id=ids())
    calls = [
        OpenCall(call_id=CallId(ids()), name=name, refs=refs, operation_id=ids(), wait_id=EventId(ids()))
        for _ in range(count)
    ]
    known = [
        KnownResult(
            response=FunctionResponse(call_id=call.call_id, name=call.name, result=text * size, outcome=Outcome.OK),
            file_seen=FileSeen(path="/" + "p" * 4_000, sha256="b" * 64),
            workspace_changed=changed_by(call.call_id),
        )
        for call in (calls if is_known else ())
    ]
    settled = settle(
        identity,
        calls=calls,
        waits=[call.wait_id for call in calls if call.wait_id is not None],
        streams=[Unfinished(stream_id=EventId(ids()), kind=kind, text=text * size) for kind in ("thinking", "text")],
        results=known,
        ending=Ending(
            status=Status.FAILED,
            failure_class="network",
            error=Error(message=text * size, code="network", details=(text * size,) * 20),
        ),
        ids=ids,
        now_ms=7,
    )
    assert sum(len(encode(event)) for event in settled.events) <= SETTLEMENT_BYTES_MAX
    assert list(responses(settled.events)) == [call.call_id for call in calls]
    for blob in settled.blobs:
        assert blob == (text * size).encode()


@pytest.mark.parametrize("duration", [-5, 0, 7])
def test_h76_a_terminals_duration_is_never_negative(duration: int) -> None:
    session = log()
    run = session.run()
    ending = Ending(status=Status.ABORTED, abort_source="x", duration_ms=duration)
    settled = settle(state_of(run).run, ending=ending, ids=session.ids, now_ms=7)
    state = close(run, settled)
    assert state.terminal is not None
    assert state.terminal.duration_ms == max(0, duration)
