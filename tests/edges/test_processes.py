"""Real processes behind the port: the gate, the end of a group, what is left over after an owner's death."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from maka.contracts.actions import ProcessIdentity
from maka.contracts.limits import SANDBOX_WORDS_BYTES_MAX, SPAWNS_PER_TICK_MAX
from maka.contracts.process_ports import Launch, ProcessEnd, ProcessHandle, ProcessSpec
from maka.edges import child_process, output_pipe
from maka.edges.io_loop import IoLoop
from maka.edges.output_pipe import OutputPipe
from maka.edges.process_end import Ending
from maka.edges.process_tree import MARK_VARIABLE, boot_id, is_alive, stat_of
from maka.edges.processes import AsyncProcesses
from maka.edges.spawn_gate import spawn_gated
from tests.tools.harness import nap, running

PATIENCE_S = 20.0
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


class Seen:
    """Collects what a process tells; opens the gate by itself unless told to hold."""

    def __init__(self, hold: bool = False) -> None:
        self.hold = hold
        self.handle: ProcessHandle | None = None
        self.handle_known = threading.Event()
        self.identity: ProcessIdentity | None = None
        self.at_gate = threading.Event()
        self.over = threading.Event()
        self.outputs: list[tuple[str, bytes]] = []
        self.spoke = threading.Event()
        self.end: ProcessEnd | None = None
        self.failure: str | None = None
        self.ends = 0

    def waiting(self, process: ProcessIdentity) -> None:
        self.identity = process
        self.at_gate.set()
        if not self.hold:
            self.handle_known.wait(PATIENCE_S)
            assert self.handle is not None
            self.handle.release()

    def output(self, stream: str, data: bytes) -> None:
        assert self.end is None
        self.outputs.append((stream, data))
        self.spoke.set()

    def ended(self, end: ProcessEnd) -> None:
        self.end = end
        self.ends += 1
        self.over.set()

    def failed(self, message: str) -> None:
        self.failure = message
        self.over.set()

    def text(self, stream: str = "stdout") -> str:
        return b"".join(data for name, data in self.outputs if name == stream).decode()

    def wait(self) -> ProcessEnd:
        assert self.over.wait(PATIENCE_S), "the process did not end"
        assert self.end is not None, self.failure
        return self.end


Start = Callable[..., Seen]


@pytest.fixture
def loop() -> Iterator[IoLoop]:
    thread = IoLoop.start()
    yield thread
    thread.close()


@pytest.fixture
def processes(loop: IoLoop) -> AsyncProcesses:
    return AsyncProcesses(loop)


@pytest.fixture
def start(processes: AsyncProcesses, tmp_path: Path) -> Start:
    def begin(
        script: str,
        *,
        hold: bool = False,
        timeout_s: float = PATIENCE_S,
        cwd: Path = tmp_path,
        env: Mapping[str, str] = PATH,
        argv: tuple[str, ...] = (),
    ) -> Seen:
        seen = Seen(hold)
        spec = ProcessSpec(
            launch=Launch(argv=argv or ("bash", "-c", script)), cwd=str(cwd), env=env, timeout_s=timeout_s
        )
        seen.handle = processes.spawn(spec, seen)
        seen.handle_known.set()
        return seen

    return begin


def handle_of(seen: Seen) -> ProcessHandle:
    assert seen.handle is not None
    return seen.handle


def test_output_and_exit_code_arrive(start: Start) -> None:
    seen = start("echo out; echo err >&2; exit 3")
    assert seen.wait() == ProcessEnd(cause="exited", exit_code=3)
    assert (seen.text(), seen.text("stderr")) == ("out\n", "err\n")


def test_the_child_sees_exactly_the_given_environment(start: Start) -> None:
    seen = start("", argv=("/usr/bin/env",), env={"ONE": "1", "TWO": "a b\nc"})
    seen.wait()
    # The shell of the gate adds where it is, and all that we add is the mark.
    shells = ("PWD=", "OLDPWD=", "SHLVL=", "_=")
    assert seen.identity is not None
    lines = set(seen.text().splitlines()) - {f"{MARK_VARIABLE}={seen.identity.mark}"}
    lines = {line for line in lines if not line.startswith(shells)}
    assert lines == {"ONE=1", "TWO=a b", "c"}


def test_the_child_inherits_no_descriptor_of_ours(start: Start, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        seen = start("ls -l /proc/self/fd")
        seen.wait()
    assert "secret" not in seen.text()


def test_nothing_runs_before_the_gate_opens(start: Start, tmp_path: Path) -> None:
    seen = start("touch mark; echo $$", hold=True)
    assert seen.at_gate.wait(PATIENCE_S)
    assert seen.identity is not None
    pid = seen.identity.pid
    stat = stat_of(pid)
    assert stat is not None
    assert (stat.group, stat.session, stat.start_ticks) == (pid, pid, seen.identity.start_ticks)
    assert seen.identity.boot_id == boot_id()
    assert not (tmp_path / "mark").exists()
    handle_of(seen).release()
    assert seen.wait().exit_code == 0
    assert (tmp_path / "mark").exists()
    assert seen.text() == f"{pid}\n"  # the same process, so the recorded identity is the command's


def test_a_cancel_before_the_gate_opens_runs_nothing(start: Start, tmp_path: Path) -> None:
    seen = start("touch mark", hold=True)
    assert seen.at_gate.wait(PATIENCE_S)
    handle_of(seen).cancel()
    handle_of(seen).release()
    handle_of(seen).cancel()
    assert seen.wait() == ProcessEnd(cause="not_started")
    assert not (tmp_path / "mark").exists()
    assert seen.ends == 1


def test_the_gate_dies_with_its_owner(tmp_path: Path) -> None:
    """A real owner is killed while its child waits: the child ends without having run."""
    owner = (
        "import sys\n"
        "from maka.contracts.process_ports import Launch\n"
        "from maka.edges.spawn_gate import spawn_gated\n"
        "child = spawn_gated(Launch(argv=('touch', 'mark')), sys.argv[1], {'PATH': '/usr/bin:/bin'})\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", owner, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        shim = os.pidfd_open(pid)
        process.kill()
    wait_for_end(shim)
    assert not (tmp_path / "mark").exists()


def wait_for_end(pidfd: int) -> None:
    import select

    ready, _, _ = select.select([pidfd], [], [], PATIENCE_S)
    os.close(pidfd)
    assert ready, "the process did not end"


def test_a_workspace_cannot_shadow_the_gate(start: Start, tmp_path: Path) -> None:
    for name in ("sh", "read", "exec"):
        (tmp_path / name).write_text("#!/bin/sh\necho shadowed\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "actors").mkdir()
    (tmp_path / "actors" / "__init__.py").write_text("raise SystemExit('shadowed')\n")
    seen = start("", argv=("/bin/echo", "real"), env={"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(tmp_path)})
    seen.wait()
    assert seen.text() == "real\n"


def test_h53_missing_working_directory_is_named(start: Start, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    seen = start("echo hi", cwd=gone)
    assert seen.over.wait(PATIENCE_S)
    assert seen.failure is not None
    assert str(gone) in seen.failure
    gone.mkdir()
    again = start("echo hi", cwd=gone)
    assert again.wait().exit_code == 0


@pytest.mark.parametrize("argv", [("echo", "a\0b"), ("echo", "x" * 3_000_000)], ids=["nul", "too long"])
def test_impossible_arguments_fail_without_a_trace(start: Start, argv: tuple[str, ...]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    seen = start("", argv=argv)
    assert seen.over.wait(PATIENCE_S)
    assert seen.failure is not None
    assert seen.end is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_missing_command_is_an_exit_code(start: Start) -> None:
    seen = start("", argv=("no-such-command-here",))
    assert seen.wait().exit_code == 127
    assert "no-such-command-here" in seen.text("stderr")


@pytest.mark.parametrize(
    ("script", "end"),
    [
        ("false", ProcessEnd(cause="exited", exit_code=1)),
        ("exit 3", ProcessEnd(cause="exited", exit_code=3)),
        ("kill -9 $$", ProcessEnd(cause="exited", signal=9)),
        ("exec 1>&- 2>&-; sleep 0.2", ProcessEnd(cause="exited", exit_code=0)),
    ],
)
def test_h86_silent_commands(start: Start, script: str, end: ProcessEnd) -> None:
    seen = start(script)
    assert seen.wait() == end
    assert seen.outputs == []


@pytest.mark.parametrize(
    "script",
    [
        "NAP & echo done",
        "(while :; do echo t; sleep 0.1; done) & NAP & echo done",
        "NAP >/dev/null 2>&1 & echo done",
        "setsid NAP & echo done",
        "set -m; NAP & echo done",
    ],
    ids=["keeps the pipe", "talks on", "closed the pipe", "left the session", "left the group"],
)
def test_h49_background_child_is_ended_with_its_call(start: Start, script: str) -> None:
    seen = start(script.replace("NAP", nap(3491)))
    assert seen.wait() == ProcessEnd(cause="exited", exit_code=0)
    assert "done" in seen.text()
    assert running(nap(3491)) == []


def waits_granted(patch: pytest.MonkeyPatch) -> list[float | None]:
    """Return a list that each wait of a process's life, and each grace at its end, is added to as it begins."""
    granted: list[float | None] = []
    timeout = asyncio.timeout

    def waiting(delay_s: float | None) -> asyncio.Timeout:
        granted.append(delay_s)
        return timeout(delay_s)

    def ending(leader: ProcessIdentity, pipes: Sequence[int], grace_s: float) -> Ending:
        granted.append(grace_s)
        return Ending(leader, pipes, grace_s)

    patch.setattr(asyncio, "timeout", waiting)
    patch.setattr(child_process, "Ending", ending)
    return granted


def test_h49_no_more_than_about_a_second_is_granted_to_background_children(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that holds the output and ignores TERM gets all there is: what is added up are waits, not a clock's."""
    granted = waits_granted(monkeypatch)
    seen = start(f"trap '' TERM; (while :; do {nap(3491)}; done) & echo done")
    assert seen.wait() == ProcessEnd(cause="exited", exit_code=0)
    assert seen.text() == "done\n"
    assert running(nap(3491)) == []
    after = granted[granted.index(PATIENCE_S) + 1 :]
    assert len(after) == 4, "for the output, before KILL, for the leader, for the output again"
    assert sum(map(float, filter(None, after))) <= 2.0


def test_a_late_writer_of_a_pipeline_is_heard(start: Start) -> None:
    seen = start("echo early > >(sleep 0.2; cat; echo late)")
    assert seen.wait().exit_code == 0
    assert seen.text() == "early\nlate\n"


@pytest.mark.parametrize("how", ["stop", "timeout"])
@pytest.mark.parametrize(
    "script",
    ["sh -c 'NAP & NAP; wait'", "setsid NAP & NAP", "trap '' TERM; NAP; NAP"],
    ids=["group", "left the session", "ignores TERM"],
)
def test_h50_children_do_not_survive(start: Start, how: str, script: str) -> None:
    seen = start("echo begun; " + script.replace("NAP", nap(3501)), timeout_s=0.5 if how == "timeout" else PATIENCE_S)
    assert seen.spoke.wait(PATIENCE_S)
    if how == "stop":
        handle_of(seen).cancel()
    end = seen.wait()
    assert end.cause == ("cancelled" if how == "stop" else "timeout")
    assert end.survivors == ()
    assert seen.text() == "begun\n"
    assert running(nap(3501)) == []


def test_h51_output_is_handed_on_and_never_kept(start: Start) -> None:
    class Counting(Seen):
        size = 0

        def output(self, stream: str, data: bytes) -> None:
            self.size += len(data)

    seen = Counting()
    spec = ProcessSpec(
        launch=Launch(argv=("bash", "-c", "yes | head -c 30000000")), cwd="/", env=PATH, timeout_s=PATIENCE_S
    )
    loop = IoLoop.start()
    seen.handle = AsyncProcesses(loop).spawn(spec, seen)
    seen.handle_known.set()
    seen.wait()
    loop.close()
    assert seen.size == 30_000_000


@pytest.mark.parametrize("script", ["cat", "read x; echo got:$x", "python3 -c 'input()'", "test -t 0 || echo no tty"])
def test_h52_input_is_closed(start: Start, script: str) -> None:
    seen = start(script)
    assert seen.wait().cause == "exited"


def test_a_chatty_child_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a small piece the pipe rests; what comes meanwhile is one piece. The rest is endless here."""
    monkeypatch.setattr(output_pipe, "DELTA_MERGE_S", 3600.0)

    async def talk() -> list[bytes]:
        told: asyncio.Queue[bytes] = asyncio.Queue()
        read, write = os.pipe()
        os.set_blocking(read, False)
        pipe = OutputPipe(read, told.put_nowait, asyncio.Event())
        os.write(write, b"1")
        pieces = [await told.get()]
        for word in (b"2", b"3", b"4"):
            os.write(write, word)
            await asyncio.sleep(0)
        assert told.empty()
        pipe.hurry()
        pieces.append(await told.get())
        os.close(write)
        pipe.close()
        return pieces

    assert asyncio.run(talk()) == [b"1", b"234"]


def test_closing_the_loop_leaves_no_process(tmp_path: Path) -> None:
    loop = IoLoop.start()
    seen = Seen()
    spec = ProcessSpec(
        launch=Launch(argv=("bash", "-c", f"echo on; {nap(3511)}")), cwd=str(tmp_path), env=PATH, timeout_s=PATIENCE_S
    )
    seen.handle = AsyncProcesses(loop).spawn(spec, seen)
    seen.handle_known.set()
    assert seen.spoke.wait(PATIENCE_S)
    loop.close()
    assert seen.wait() == ProcessEnd(cause="unknown")
    assert running(nap(3511)) == []


def test_many_spawns_take_turns(start: Start) -> None:
    """More children than one turn of the loop makes, at once, all come to their end."""
    all_seen = [start("exit 0") for _ in range(SPAWNS_PER_TICK_MAX * 5)]
    assert {seen.wait().exit_code for seen in all_seen} == {0}


def test_no_descriptor_or_child_is_left(start: Start) -> None:
    start("true").wait()
    before = len(os.listdir("/proc/self/fd"))
    for script in ("echo a", "kill -9 $$", "sleep 9 & echo b"):
        start(script).wait()
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_left_over_groups_are_killed_by_identity_only(processes: AsyncProcesses, tmp_path: Path) -> None:
    children = [spawn_gated(Launch(argv=("sleep", "3521")), str(tmp_path), PATH) for _ in range(3)]
    for child in children:
        child.open_gate()
    ours, reused, other_boot = (child.identity for child in children)
    wrong = (
        ProcessIdentity(pid=reused.pid, group=reused.group, start_ticks=reused.start_ticks + 1, boot_id=boot_id()),
        ProcessIdentity(
            pid=other_boot.pid, group=other_boot.group, start_ticks=other_boot.start_ticks, boot_id="another"
        ),
    )
    assert processes.kill_left_over([ours, *wrong]) == [ours]
    assert children[0].reap() == -signal.SIGTERM
    for child in children[1:]:
        stat = stat_of(child.pid)
        assert stat is not None and is_alive(stat)
        os.killpg(child.pid, signal.SIGKILL)
        assert child.reap() == -signal.SIGKILL
    for child in children:
        os.close(child.stdout)
        os.close(child.stderr)
    assert processes.kill_left_over([ours]) == []


def test_a_closed_loop_starts_nothing(tmp_path: Path) -> None:
    loop = IoLoop.start()
    loop.close()
    seen = Seen()
    spec = ProcessSpec(launch=Launch(argv=("touch", "mark")), cwd=str(tmp_path), env=PATH, timeout_s=PATIENCE_S)
    AsyncProcesses(loop).spawn(spec, seen)
    assert seen.over.wait(PATIENCE_S)
    assert seen.failure is not None
    assert not (tmp_path / "mark").exists()


def test_a_listener_that_fails_leaves_no_process(processes: AsyncProcesses, tmp_path: Path) -> None:
    class Broken(Seen):
        def waiting(self, process: ProcessIdentity) -> None:
            self.identity = process
            raise ValueError("a bug")

    seen = Broken()
    spec = ProcessSpec(launch=Launch(argv=("touch", "mark")), cwd=str(tmp_path), env=PATH, timeout_s=PATIENCE_S)
    processes.spawn(spec, seen)
    assert seen.wait() == ProcessEnd(cause="not_started")
    assert seen.identity is not None
    assert stat_of(seen.identity.pid) is None


# -- a sandbox in front of the command: it says by a byte that it is set up, and waits for the gate by itself ----------


def boxed(
    processes: AsyncProcesses,
    folder: Path,
    script: str,
    *,
    hold: bool = False,
    setup_s: float = PATIENCE_S,
    sweep: Callable[[], None] | None = None,
) -> Seen:
    seen = Seen(hold)
    launch = Launch(argv=("sh", "-c", script), is_boxed=True, sweep=sweep)
    spec = ProcessSpec(launch=launch, cwd=str(folder), env=PATH, timeout_s=PATIENCE_S, setup_s=setup_s)
    seen.handle = processes.spawn(spec, seen)
    seen.handle_known.set()
    return seen


def test_a_command_is_at_its_gate_when_its_sandbox_is_set_up(processes: AsyncProcesses, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "on")
    seen = boxed(processes, tmp_path, "read -r _ <on; echo; read -r _ || exit 125; exec echo ran", hold=True)
    with (tmp_path / "on").open("w") as on:
        assert seen.identity is None, "it is being set up"
        on.write("go\n")
    assert seen.at_gate.wait(PATIENCE_S)
    assert seen.handle is not None and not seen.outputs
    seen.handle.release()
    assert seen.wait() == ProcessEnd(cause="exited", exit_code=0)
    assert seen.outputs == [("stdout", b"ran\n")]


def test_a_stop_at_the_gate_ends_a_sandbox(processes: AsyncProcesses, tmp_path: Path) -> None:
    seen = boxed(processes, tmp_path, "echo; read -r _ || exit 125; exec touch ran", hold=True)
    assert seen.at_gate.wait(PATIENCE_S)
    assert seen.handle is not None
    seen.handle.cancel()
    assert seen.wait() == ProcessEnd(cause="not_started")
    assert not (tmp_path / "ran").exists()


def test_a_sandbox_that_fails_says_why_and_nobody_is_asked(processes: AsyncProcesses, tmp_path: Path) -> None:
    seen = boxed(processes, tmp_path, "echo why >&2; exit 1")
    assert seen.wait() == ProcessEnd(cause="not_started", said="why")
    assert seen.identity is None and not seen.outputs


def test_a_sandbox_that_is_never_set_up_is_ended(
    processes: AsyncProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "KILL_GRACE_S", 0.01)
    seen = boxed(processes, tmp_path, "exec tail -f /dev/null", setup_s=0.01)
    end = seen.wait()
    assert (end.cause, end.survivors, end.is_late) == ("not_started", (), True)
    assert end.said is not None and "took longer" in end.said


def test_what_a_sandbox_says_is_bounded(processes: AsyncProcesses, tmp_path: Path) -> None:
    seen = boxed(processes, tmp_path, "yes 'no room' | head -c 1000000 >&2; exit 1")
    end = seen.wait()
    assert end.said is not None and end.said.startswith("no room\n")
    assert len(end.said) <= SANDBOX_WORDS_BYTES_MAX


@pytest.mark.parametrize(("script", "swept"), [("kill -9 $$", ["maka-sweep"]), ("exit 3", [])])
def test_what_a_killed_sandbox_left_is_removed_before_its_end(
    loop: IoLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, swept: list[str]
) -> None:
    monkeypatch.setattr(child_process, "SWEEP_WAIT_S", PATIENCE_S)
    threads: list[str] = []
    at_its_end: list[list[str]] = []

    def sweep() -> None:
        """Let the I/O thread go on first: an end that waits for nothing has come by then."""
        gone_on = threading.Event()
        loop.call_soon(gone_on.set)
        assert gone_on.wait(PATIENCE_S)
        threads.append(threading.current_thread().name)

    class Ended(Seen):
        def ended(self, end: ProcessEnd) -> None:
            at_its_end.append(list(threads))
            super().ended(end)

    monkeypatch.setattr("tests.edges.test_processes.Seen", Ended)
    script = f"echo; read -r _ || exit 125; {script}"
    boxed(AsyncProcesses(loop), tmp_path, script, sweep=sweep).wait()
    assert at_its_end == [swept]


def test_no_end_waits_for_a_huge_folder(
    processes: AsyncProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "SWEEP_WAIT_S", 0.0)
    may_end, has_ended = threading.Event(), threading.Event()

    def sweep() -> None:
        may_end.wait()
        has_ended.set()

    seen = boxed(processes, tmp_path, "echo; read -r _ || exit 125; kill -9 $$", sweep=sweep)
    assert seen.wait() == ProcessEnd(cause="exited", signal=9)
    assert not has_ended.is_set()
    may_end.set()
    assert has_ended.wait(PATIENCE_S)
