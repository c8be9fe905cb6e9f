"""Real trees of processes: whatever a child does to leave its call, it ends with it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import msgspec
import pytest
from msgspec.structs import replace

from maka.contracts.actions import ProcessIdentity
from maka.contracts.process_ports import Launch, ProcessEnd
from maka.edges import child_process, process_end
from maka.edges.process_end import EMPTY_LOOKS_MAX, Ending, end_left_over, kill
from maka.edges.process_tree import MARK_VARIABLE, Stat, Table, is_alive, related, stat_of
from maka.edges.spawn_gate import GatedProcess, spawn_gated
from tests.edges import test_processes as common
from tests.edges.test_processes import PATH, PATIENCE_S, Start, handle_of, wait_for_end
from tests.tools.harness import nap, running

loop, processes, start = common.loop, common.processes, common.start

NAP = nap(3601)
SILENT = ">/dev/null 2>&1"
NO_MARK = "env -i PATH=$PATH"
ESCAPES = {
    "own session": f"setsid {NAP} {SILENT} &",
    "daemon": f"(setsid sh -c '{NAP} & exit' {SILENT} &);",
    "daemon that ignores TERM": f"(setsid sh -c \"trap '' TERM; {NAP} & exit\" {SILENT} &);",
    "daemon without the mark that holds the output": f"({NO_MARK} setsid sh -c '{NAP} & exit' &);",
}
BY_DESCENT = {**ESCAPES, "own session without the mark": f"{NO_MARK} setsid {NAP} {SILENT} &"}


def begun() -> str:
    """Shell words that wait until the nap is taken: only then has the child left."""
    return f"until pgrep -fx '{NAP}' >/dev/null; do sleep 0.01; done; echo begun;"


@pytest.fixture(autouse=True)
def nobody_naps_on() -> Iterator[None]:
    yield
    left = running(NAP)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


@pytest.mark.parametrize(("how", "escape"), [*(("cancelled", name) for name in BY_DESCENT), ("timeout", "daemon")])
def test_h50_a_child_that_left_the_session_does_not_survive(start: Start, escape: str, how: str) -> None:
    script = f"{BY_DESCENT[escape]} {begun()} wait; sleep {PATIENCE_S}"
    seen = start(script, timeout_s=3.0 if how == "timeout" else PATIENCE_S)
    assert seen.spoke.wait(PATIENCE_S)
    assert seen.text() == "begun\n"
    if how == "cancelled":
        handle_of(seen).cancel()
    end = seen.wait()
    assert (end.cause, end.survivors) == (how, ())
    assert running(NAP) == []


@pytest.mark.parametrize("escape", ESCAPES)
def test_h49_a_child_that_left_the_session_ends_with_its_call(start: Start, escape: str) -> None:
    seen = start(f"{ESCAPES[escape]} {begun()} exit 0")
    assert seen.wait() == ProcessEnd(cause="exited", exit_code=0)
    assert seen.text() == "begun\n"
    assert running(NAP) == []


def test_a_tree_that_grows_while_it_is_ended_ends(start: Start) -> None:
    seen = start(f"trap '' TERM; echo begun; while :; do setsid {NAP} {SILENT} & sleep 0.02; done")
    assert seen.spoke.wait(PATIENCE_S)
    handle_of(seen).cancel()
    assert seen.wait().survivors == ()
    assert running(NAP) == []


class Looks:
    """A look at all processes at which others came and went, that finds these."""

    def __init__(self, *found: Stat, is_restless: bool = True) -> None:
        self.found = list(found)
        self.is_restless = is_restless

    def related(self, leader: ProcessIdentity, pipes: Sequence[int] = ()) -> list[Stat]:
        return self.found


GONE = Stat(pid=(1 << 22) + 7, state="R", parent=1, group=(1 << 22) + 7, session=(1 << 22) + 7, start_ticks=1)
"""No process has such a number."""
NOBODY = ProcessIdentity(pid=GONE.pid, group=GONE.pid, start_ticks=1, boot_id="boot")


def end_by(looks: Iterable[Looks], grace_s: float = 60.0) -> tuple[int, Ending]:
    """Return how many of these looks it takes until the end of a tree, and that end."""
    ending = Ending(NOBODY, grace_s=grace_s)
    for count, look in enumerate(looks, 1):
        if ending.step(cast("Table", look)):
            return count, ending
    raise AssertionError("no end")


def test_who_leaves_again_and_again_is_not_taken_for_gone() -> None:
    """It forks, and its parent ends: a look may find it between two numbers."""
    seldom = [Looks(*([GONE] if number % EMPTY_LOOKS_MAX == 0 else [])) for number in range(40)]
    count, ending = end_by([*seldom, *(Looks() for _ in range(EMPTY_LOOKS_MAX))])
    assert (count, ending.survivors) == (len(seldom) + 1, ()), "then it is believed"
    assert end_by([Looks(GONE), Looks(is_restless=False)])[0] == 2, "where nobody came or went, one look does"


def test_who_leaves_again_and_again_until_the_time_is_up_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_end, "KILL_GRACE_S", 0.0)
    count, ending = end_by([Looks(GONE), Looks(), Looks()], grace_s=0.0)
    assert (count, ending.survivors) == (2, (GONE.pid,))


def test_who_was_reached_by_kill_is_no_survivor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_end, "KILL_GRACE_S", 0.0)
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    stat = stat_of(child.pid)
    assert stat is not None
    _, ending = end_by([Looks(stat), Looks(), Looks()], grace_s=0.0)
    assert ending.survivors == ()
    assert child.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_stopped_child_handles_its_end(start: Start) -> None:
    seen = start("trap 'exit 7' TERM; echo begun; kill -STOP $$; sleep 0.1 & wait")
    assert seen.spoke.wait(PATIENCE_S)
    assert seen.identity is not None
    while (stat := stat_of(seen.identity.pid)) is not None and stat.state != "T":
        pass
    handle_of(seen).cancel()
    assert seen.wait().exit_code == 7


def test_who_sheds_everything_at_once_is_not_found(start: Start) -> None:
    """The limit, as the module's words and README say it: no mark, no session, no parent and no output of the call."""
    seen = start(f"({NO_MARK} setsid sh -c '{NAP} & exit' {SILENT} &); {begun()} exit 0")
    assert seen.wait() == ProcessEnd(cause="exited", exit_code=0)
    (pid,) = running(NAP)
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pidfd)


def test_who_outlives_kill_is_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_right(stat: Stat, number: signal.Signals) -> None:
        """As with a child of another user."""

    with monkeypatch.context() as patch:
        patch.setattr(process_end, "_send", no_right)
        patch.setattr(process_end, "_send_group", no_right)
        patch.setattr(child_process, "TERM_GRACE_S", 0.0)
        patch.setattr(process_end, "KILL_GRACE_S", 0.0)
        seen = start(f"echo begun; exec {NAP}")
        assert seen.spoke.wait(PATIENCE_S)
        handle_of(seen).cancel()
        end = seen.wait()
    assert seen.identity is not None
    assert (end.cause, end.survivors) == ("cancelled", (seen.identity.pid,))
    pidfd = os.pidfd_open(seen.identity.pid)
    os.kill(seen.identity.pid, signal.SIGKILL)
    wait_for_end(pidfd)


# -- what a dead owner left ---------------------------------------------------------------------------------------

OWNER = """
import sys
import msgspec
from maka.contracts.process_ports import Launch
from maka.edges.spawn_gate import spawn_gated
child = spawn_gated(Launch(argv=("bash", "-c", sys.argv[2])), sys.argv[1], {"PATH": "/usr/bin:/bin"})
child.open_gate()
sys.stdout.buffer.write(msgspec.json.encode(child.identity) + b"\\n")
sys.stdout.buffer.flush()
sys.stdin.read()
"""


def left_by_a_killed_owner(folder: Path, script: str) -> ProcessIdentity:
    """Let a real owner spawn, be killed, and its leader end after it; returns what it had recorded."""
    ready, go = folder / "ready", folder / "go"
    for fifo in (ready, go):
        os.mkfifo(fifo)
    command = [sys.executable, "-c", OWNER, str(folder), f"{script} echo >{ready}; cat {go}; exit 0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        identity = msgspec.json.decode(owner.stdout.readline(), type=ProcessIdentity)
        ready.read_text()
        leader = os.pidfd_open(identity.pid)
        owner.kill()
    go.write_text("")
    wait_for_end(leader)
    return identity


IN_THE_GROUP = {**ESCAPES, "in the group": f"{NAP} {SILENT} &"}


@pytest.mark.parametrize("escape", IN_THE_GROUP)
def test_h35_what_a_killed_owner_left_is_ended_though_its_leader_has_ended(tmp_path: Path, escape: str) -> None:
    script = IN_THE_GROUP[escape]
    if "holds the output" in escape:
        # Nobody knows the pipe of a dead owner any more; a marked member of the session leads to the rest.
        script = f"sh -c '{NAP} & {NO_MARK} {NAP} & wait' {SILENT} &"
    identity = left_by_a_killed_owner(tmp_path, f"{script} {begun()}")
    assert running(NAP) != []
    assert end_left_over([replace(identity, boot_id="another")]) == []
    assert end_left_over([identity]) == [identity]
    assert running(NAP) == []
    assert end_left_over([identity]) == []


def gated(folder: Path, script: str, env: dict[str, str]) -> GatedProcess:
    child = spawn_gated(Launch(argv=("bash", "-c", script)), str(folder), env)
    child.open_gate()
    os.set_blocking(child.stdout, True)
    return child


def collect(child: GatedProcess) -> int | None:
    code = child.reap()
    os.close(child.stdout)
    os.close(child.stderr)
    return code


def test_a_group_without_leader_and_mark_may_be_anyones(tmp_path: Path) -> None:
    child = gated(tmp_path, f"{NAP} {SILENT} & {begun()} exit 0", PATH)
    assert collect(child) == 0
    assert end_left_over([replace(child.identity, mark=None)]) == []
    assert end_left_over([replace(child.identity, mark="0" * 32)]) == []
    assert running(NAP) != []
    assert end_left_over([child.identity]) == [child.identity]
    assert running(NAP) == []


def test_a_host_within_a_left_over_call_spares_itself(tmp_path: Path) -> None:
    host = (
        "import os, msgspec\n"
        "from maka.contracts.actions import ProcessIdentity\n"
        "from maka.edges.process_end import end_left_over\n"
        "identity = msgspec.json.decode(input(), type=ProcessIdentity)\n"
        "print(len(end_left_over([identity])))\n"
    )
    fifo = tmp_path / "identity"
    os.mkfifo(fifo)
    (tmp_path / "host.py").write_text(host)
    env = {**PATH, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = gated(tmp_path, f"{NAP} {SILENT} & {sys.executable} host.py <{fifo}; echo lives on", env)
    fifo.write_bytes(msgspec.json.encode(child.identity) + b"\n")
    with os.fdopen(os.dup(child.stdout)) as out:
        assert out.read() == "1\nlives on\n"
    assert collect(child) == 0


def test_a_call_within_a_call_bears_both_marks(tmp_path: Path) -> None:
    outer = gated(tmp_path, f"echo ${MARK_VARIABLE}", PATH)
    with os.fdopen(os.dup(outer.stdout)) as out:
        mark = out.read().strip()
    assert mark == outer.identity.mark
    collect(outer)
    inner = gated(tmp_path, f"exec {NAP}", {**PATH, MARK_VARIABLE: mark})
    assert inner.identity.mark != mark
    assert [stat.pid for stat in related(inner.identity)] == [inner.pid]
    assert [stat.pid for stat in related(outer.identity)] == [inner.pid]
    assert end_left_over([outer.identity]) == [outer.identity]
    collect(inner)


def test_a_reused_number_is_not_ours(tmp_path: Path) -> None:
    child = gated(tmp_path, f"exec {NAP}", PATH)
    own = replace(child.identity, mark=None)
    stat = stat_of(child.pid)
    assert stat is not None
    assert [(found.pid, found.start_ticks) for found in related(own)] == [(stat.pid, stat.start_ticks)]
    assert related(replace(own, start_ticks=own.start_ticks - 1)) == []
    assert related(replace(own, start_ticks=own.start_ticks + 1)) == []
    kill(own.group, [replace(stat, start_ticks=stat.start_ticks + 1)])
    assert is_alive(stat)
    kill(own.group, [stat])
    assert collect(child) == -signal.SIGKILL


def test_signals_reach_their_process_without_pidfds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(pid: int, flags: int = 0) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", none)
    child = gated(tmp_path, f"exec {NAP}", PATH)
    assert end_left_over([child.identity]) == [child.identity]
    with suppress(ChildProcessError):
        assert collect(child) == -signal.SIGTERM
