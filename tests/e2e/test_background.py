"""Background shells through the whole path: they outlive their run, and nothing of them outlives Maka unnamed."""

import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from maka.contracts.actions import ProcessEnded, ProcessStarted
from maka.contracts.content import FunctionResponse, Outcome
from maka.contracts.errors import LedgerFailedError, LedgerFullError, OutcomeUnknownError, RefusalCode, RefusedError
from maka.contracts.ids import SessionId
from maka.contracts.ports import Append
from maka.contracts.session_events import Notice
from maka.edges.scripted_model import Call, Gate, Turn
from maka.tools.background import BackgroundTable
from tests.cli.real import Machine
from tests.e2e import checks
from tests.e2e.harness import WAIT_S, Maka, World
from tests.tools.harness import nap, running

SERVE = "echo ready; exec tail -f /dev/null"


def bash(command: str = SERVE, **more: Any) -> Call:
    return Call(name="Bash", args={"command": command, "run_in_background": True, **more})


def background(*commands: str) -> Turn:
    return Turn(calls=tuple(bash(command) for command in commands or (SERVE,)))


def tool(name: str, **args: Any) -> Turn:
    return Turn(calls=(Call(name=name, args=args),))


def results(maka: Maka, session: SessionId | None = None) -> list[str]:
    return [response.result for response in maka.contents(FunctionResponse, session)]


def started(maka: Maka, session: SessionId | None = None) -> list[ProcessStarted]:
    return maka.actions("process_started", session)


def ends(maka: Maka, session: SessionId | None = None) -> list[ProcessEnded]:
    return maka.actions("process_ended", session)


def the_end(maka: Maka) -> ProcessEnded:
    """Wait until the end of the session's one shell is durable, and return it."""
    checks.eventually(lambda: bool(ends(maka)), "the end is recorded")
    (end,) = ends(maka)
    return end


def looked_at(maka: Maka) -> str:
    """Let the model look at the first shell, and return what it is shown."""
    maka.model.says(tool("check_background", id="b1"), Turn(text="seen"))
    maka.run("look")
    return results(maka)[-1]


def starts_shell(appends: Sequence[Append]) -> bool:
    acts = [draft.event.actions for append in appends for group in append.groups for draft in group.drafts]
    return any(act is not None and act.process_started is not None and act.process_started.background for act in acts)


def ends_shell(appends: Sequence[Append]) -> bool:
    acts = [draft.event.actions for append in appends for group in append.groups for draft in group.drafts]
    return any(act is not None and act.process_ended is not None for act in acts)


def test_a_shell_outlives_its_run_and_is_seen_and_stopped_in_the_next(world: World) -> None:
    maka = world.open([background(), Turn(text="it runs")])
    assert maka.run().status == "completed"
    assert "Running in the background as b1" in results(maka)[0]
    (shell,) = maka.manager.background()
    assert (shell.shell_id, shell.status, shell.command) == ("b1", "running", SERVE)
    checks.eventually(lambda: "ready" in looked_at(maka), "it prints")
    assert "[b1: running]" in results(maka)[-1]
    maka.model.says(tool("stop_background", id="b1"), tool("check_background"), Turn(text="stopped"))
    maka.run("stop it")
    stopped, listed = results(maka)[-2:]
    assert "ready" in stopped and "b1: stopped by model" in stopped
    assert listed.startswith("b1 · stopped by model · pid")
    end = the_end(maka)
    assert (end.shell_id, end.how, end.by) == ("b1", "stopped", "model")
    assert "ready" in looked_at(maka), "also when the process is long gone"
    assert not checks.living_in(world.workspace)


def test_its_facts_are_the_session_s_own(world: World) -> None:
    maka = world.open([background("echo out; exit 3"), Turn(text="it runs")])
    run = maka.run()
    end, (start,) = the_end(maka), started(maka)
    assert (start.background, start.shell_id, start.run_id) == (True, "b1", run.run_id)
    assert (end.how, end.exit_code, end.by, end.process) == ("exited", 3, None, start.process)
    assert end.output is not None
    assert maka.host.reader.blob(end.output.sha256) == b"out\n"
    control = [item for item in maka.facts() if item.event.run_id is None]
    assert [bool(item.event.actions) for item in control] == [False, True, True]
    (looked,) = maka.actions("workspace_changed")
    assert not looked.looked and "background" in looked.why
    assert not maka.manager.background()
    (shell,) = maka.manager.background(maka.session_id)
    assert (shell.status, shell.exit_code) == ("exited", 3)


def test_who_follows_the_session_is_told(world: World) -> None:
    maka = world.open([background("exit 0"), Turn(text="it runs")])
    events = maka.follow(maka.session_id)
    maka.run()
    begun, ended = events.until(Notice), events.until(Notice)
    assert (begun.note, ended.note) == ("background_started", "background_ended")
    assert begun.text.startswith("b1 runs in the background (pid ") and begun.text.endswith(": exit 0")
    assert ended.text == "b1 in the background: exited with code 0"


def test_shutdown_ends_every_shell_and_says_so_durably(world: World) -> None:
    deaf = "trap '' TERM; echo ready; while :; do sleep 1; done"
    maka = world.open([background(SERVE, deaf, nap(30066)), Turn(text="they run")])
    maka.run()
    other = maka.new_session()
    maka.model.says(background(nap(30067)), Turn(text="it runs"))
    maka.run("go", other)
    maka.reopen()
    assert [(end.how, end.by) for end in ends(maka)] == [("stopped", "host.shutdown")] * 3
    assert [(end.how, end.by) for end in ends(maka, other)] == [("stopped", "host.shutdown")]
    assert not checks.living_in(world.workspace)


def test_a_stop_of_the_run_leaves_it_and_says_how_to_end_it(world: World) -> None:
    maka = world.open([background(), Turn(text="it ru", gate=Gate())])
    live = maka.send()
    live.until_said("it ru")
    receipt = maka.manager.stop(maka.session_id, "test")
    assert (receipt.status, receipt.background) == ("aborted", ("b1",))
    live.end()
    assert [shell.is_live for shell in maka.manager.background()] == [True]
    with pytest.raises(RefusedError) as unknown:
        maka.manager.stop_background(maka.session_id, "b7")
    assert unknown.value.refusal.message.endswith("those that live: b1")
    stopped = maka.manager.stop_background(maka.session_id, "b1", by="test")
    assert (stopped.status, stopped.by, stopped.survivors) == ("stopped", "test", ())
    again = maka.manager.stop_background(maka.session_id, "b1", by="another")
    assert (again.status, again.by) == ("stopped", "test")
    assert not checks.living_in(world.workspace)


def test_a_stop_ends_the_whole_tree(world: World) -> None:
    """Children that left the group and the session too; without a sandbox that would take them along."""
    daemon, orphan = nap(30068), nap(30069)
    command = f"setsid {daemon} & ({orphan} &) ; echo ready; exec tail -f /dev/null"
    maka = world.open([background(command), Turn(text="it runs")])
    maka.manager.change_boundary(maka.session_id, profile="bypass")
    maka.run()
    checks.eventually(lambda: bool(running(daemon) and running(orphan)), "they sleep")
    maka.manager.stop_background(maka.session_id, "b1")
    assert not running(daemon) and not running(orphan)


def test_a_time_limit_ends_it(world: World) -> None:
    maka = world.open([Turn(calls=(bash(timeout_ms=150),)), Turn(text="it runs")])
    maka.run()
    assert the_end(maka).how == "timeout"


def test_a_stop_before_the_start_is_durable_runs_nothing(world: World) -> None:
    """The start is on its way to the ledger when the run is stopped: a fact, an end, and no process between."""
    maka = world.open([background("echo ran > ran"), Turn(text="never said")])
    asked, go_on = threading.Event(), threading.Event()

    def hold(appends: Sequence[Append]) -> None:
        if starts_shell(appends):
            asked.set()
            assert go_on.wait(WAIT_S)

    world.faults.before = hold
    live = maka.send()
    assert asked.wait(WAIT_S)
    with ThreadPoolExecutor() as pool:
        stop = pool.submit(maka.manager.stop, maka.session_id, "test")
        checks.eventually(lambda: not checks.living_in(world.workspace), "it ended at its gate")
        go_on.set()
        assert stop.result(WAIT_S).abort_source == "test"
    live.end()
    end, (answer,) = the_end(maka), maka.contents(FunctionResponse)
    assert (end.how, answer.outcome) == ("not_started", Outcome.ABORTED)
    assert not (world.workspace / "ran").exists()


def test_a_start_that_finds_no_room_runs_nothing(world: World) -> None:
    maka = world.open([background("echo ran > ran"), Turn(text="no room, then")])

    def no_room(appends: Sequence[Append]) -> None:
        if starts_shell(appends):
            raise LedgerFullError("no room: nothing was stored")

    world.faults.before = no_room
    assert maka.run().status == "completed"
    (answer,) = maka.contents(FunctionResponse)
    assert answer.outcome is Outcome.NOT_STARTED
    assert "so nothing was run: the ledger has no room" in answer.result
    assert not (world.workspace / "ran").exists() and not started(maka)


def test_an_end_that_finds_no_room_is_recorded_when_there_is_room(world: World) -> None:
    world.haste.hold()
    maka = world.open([background(), Turn(text="it runs")])
    maka.run()
    full = threading.Event()
    full.set()

    def no_room(appends: Sequence[Append]) -> None:
        if ends_shell(appends) and full.is_set():
            raise LedgerFullError("no room: nothing was stored")

    world.faults.before = no_room
    with pytest.raises(RefusedError) as refused:
        maka.manager.stop_background(maka.session_id, "b1", by="test")
    assert refused.value.refusal.code is RefusalCode.LEDGER_FULL
    assert not checks.living_in(world.workspace), "it has ended all the same"
    full.clear()
    world.haste.release()
    end = the_end(maka)
    assert (end.how, end.by) == ("stopped", "test")


def test_its_session_s_actor_may_go_and_come_back(world: World) -> None:
    """No session's actor is kept alive for it: its end loads the session again."""
    world.patch.setattr("actors.kernel.SESSIONS_IDLE_MAX", 0)
    maka = world.open([background("until [ -e go ]; do sleep 0.02; done"), Turn(text="it runs")])
    maka.run()
    maka.manager.stop(maka.session_id, "test")  # answered by an actor that is let go then
    (world.workspace / "go").touch()
    end = the_end(maka)
    assert (end.how, end.exit_code) == ("exited", 0)


def test_two_hosts_have_nothing_in_common(world: World, tmp_path: Path) -> None:
    maka = world.open([background(), Turn(text="it runs")])
    maka.run()
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    other = world.maka(world.model([background(), Turn(text="it runs")]), Machine(folder)).open()
    other.run()
    assert [shell.shell_id for shell in other.manager.background()] == ["b1"]
    other.close()
    (shell,) = maka.manager.background()
    assert shell.is_live and checks.living_in(world.workspace)


def test_the_bound_of_one_host_is_that_of_all_its_sessions(world: World) -> None:
    """At the cap a start fails with advice, and nothing is spawned."""
    world.patch.setattr("maka.adapters.BackgroundTable", lambda: BackgroundTable(2))
    maka = world.open([background(SERVE, SERVE), Turn(text="they run")])
    maka.run()
    other = maka.new_session()
    maka.model.says(background("echo ran > ran"), Turn(text="no more, then"))
    maka.run("one more", other)
    (answer,) = maka.contents(FunctionResponse, other)
    assert answer.outcome is Outcome.ERROR
    assert "2 background processes live already" in answer.result and "stop_background" in answer.result
    assert not started(maka, other) and not (world.workspace / "ran").exists()
    maka.manager.stop_background(maka.session_id, "b1")
    maka.model.says(background("echo ran > ran"), Turn(text="now it runs"))
    maka.run("again", other)
    assert len(started(maka, other)) == 1


def test_a_boundary_that_narrows_ends_what_runs_with_the_wider_one(world: World) -> None:
    maka = world.open([background(), Turn(text="it runs")])
    maka.run()
    maka.manager.change_boundary(maka.session_id, profile="bypass")
    assert maka.manager.background()[0].is_live, "a wider one ends nothing"
    maka.manager.change_boundary(maka.session_id, profile="explore")
    end = the_end(maka)
    assert (end.how, end.by) == ("stopped", "boundary")


def test_a_dead_ledger_ends_every_shell(world: World) -> None:
    command = nap(30070)
    maka = world.open([background(f"exec {command}"), Turn(text="it runs")])
    maka.run()

    def lost(_: Sequence[Append]) -> None:
        raise LedgerFailedError("the outcome is unknown")

    world.faults.before = lost
    with pytest.raises((RefusedError, OutcomeUnknownError)):
        maka.send("once more")
    assert maka.host.failed.wait(WAIT_S)
    checks.eventually(lambda: not running(command), "it is ended")
    world.faults.before = lambda _: None
    with pytest.raises(LedgerFailedError):
        maka.close()
    maka.open()
    (end,) = ends(maka)
    assert end.how == "orphaned"


def test_after_a_kill_it_is_killed_too_and_reported_as_orphaned(world: World) -> None:
    """Without a sandbox, which would take it along. It is never attached again."""
    command = nap(30071)
    maka = world.maka(world.model([background(f"setsid {command} & exec tail -f /dev/null"), Turn(text="it runs")]))
    arguments = [sys.executable, "-P", "-m", "tests.e2e.background_host", maka.model.server.base_url]
    with subprocess.Popen(
        [*arguments, str(world.workspace)], env=world.machine.env, stdout=subprocess.PIPE, text=True
    ) as host:
        try:
            assert host.stdout is not None
            session = SessionId(host.stdout.readline().strip())
            checks.eventually(lambda: bool(running(command)), "it sleeps")
            (beside,) = world.machine.maka("ps", "--json").lines
        finally:
            host.send_signal(signal.SIGKILL)
    assert (beside["shellId"], beside["status"], beside["alive"]) == ("b1", "running", True)
    assert running(command), "it outlives its owner"
    left = world.machine.maka("ps")
    assert "left over" in left.out and "the next maka run ends" in left.err
    maka.open()
    assert not running(command)
    (end,) = ends(maka, session)
    assert (end.shell_id, end.how, end.process) == ("b1", "orphaned", started(maka, session)[0].process)
    assert not maka.manager.background()
    before = checks.everything(maka.store)
    maka.reopen()
    assert checks.everything(maka.store) == before, "done once"


def test_maka_run_says_that_leaving_ends_it(world: World) -> None:
    serve = SERVE.replace("ready;", "ready; touch made;")
    begun = tool("Bash", command="until [ -e made ]; do :; done")
    maka = world.maka(world.model([background(serve), begun, Turn(text="it runs")]))
    done = world.machine.run(maka.model.server, "start it")
    assert (done.code, done.out) == (0, "it runs\n")
    assert f"maka: leaving ends what runs in the background: b1 ({serve})" in done.err
    nothing = world.machine.maka("ps")
    assert (nothing.code, nothing.out) == (0, "")
    (line,) = world.machine.maka("ps", "--all", "--json").lines
    assert (line["shellId"], line["status"], line["by"], line["alive"]) == ("b1", "stopped", "host.shutdown", False)
    shown = world.machine.maka("show", "@last", "--full").out
    assert "background b1" in shown and "stopped by host.shutdown" in shown and "│ ready" in shown
    log = world.machine.maka("log", "@last").out
    assert "in the background as b1" in log and "(b1) stopped by host.shutdown" in log


def test_only_a_session_s_own_shells_are_reachable(world: World) -> None:
    maka = world.open([background(), Turn(text="it runs")])
    maka.run()
    other = maka.new_session()
    maka.model.says(tool("stop_background", id="b1"), tool("check_background", id="b1"), Turn(text="none"))
    maka.run("stop it", other)
    answers: list[FunctionResponse] = maka.contents(FunctionResponse, other)
    assert [answer.outcome for answer in answers] == [Outcome.ERROR, Outcome.ERROR]
    assert all("no such background shell in this session" in answer.result for answer in answers)
    assert [shell.is_live for shell in maka.manager.background()] == [True]
