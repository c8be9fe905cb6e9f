"""Commands in a real sandbox: nothing gets out, nothing is planted, no secret is read, and ordinary work goes on."""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest

from maka.contracts.boundary import FileEntry, Profile
from maka.contracts.content import Outcome
from maka.contracts.limits import COMMAND_BYTES_MAX
from maka.contracts.sandbox_ports import Sandbox, SandboxPolicy
from maka.contracts.tool_ports import BoundaryNeed
from maka.edges.bubblewrap import PLACES, find_bubblewrap
from maka.edges.inputs import opened
from maka.edges.processes import AsyncProcesses
from maka.edges.sandbox import NoSandbox
from maka.tools.policy import Ground, needed
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import CHILD_ENV, PATIENCE_S, Bench, Recorder, boundary, nap, running

pytestmark = pytest.mark.one_sandbox

PYTHON = os.path.realpath(sys.executable)


@pytest.fixture
def bench(processes: AsyncProcesses, workspace: Path, sandbox: Sandbox, ground: Ground) -> Bench:
    return Bench(make_tools(processes, sandbox=sandbox, ground=ground), workspace)


CHAINS = [
    "ls && touch OUT/x",
    "ls; touch OUT/x",
    "ls | tee OUT/x",
    "ls\ntouch OUT/x",
    "ls $(touch OUT/x)",
    "ls `touch OUT/x`",
    "ls; ls > OUT/x",
    "ls & touch OUT/x; wait",
    "ls; ln -s OUT link && touch link/x",
    "ls; cd OUT && touch x",
    "(setsid sh -c 'touch OUT/x; touch tried' &); until [ -e tried ]; do :; done; ls",
    f"ls; {PYTHON} -c \"open('OUT/x', 'w')\"",
]


@pytest.mark.parametrize("command", CHAINS)
def test_h30_chained_commands_stay_inside(bench: Bench, home: Path, workspace: Path, command: str) -> None:
    """Each does all that it says: its harmless half inside the sandbox too, and the other one without a sandbox."""
    (workspace / "harmless").touch()
    command = command.replace("OUT", str(home))
    there = [".netrc", ".ssh", "notes", "state"]
    recorder = bench.begin("Bash", command=command)
    recorder.wait()
    assert "harmless\n" in recorder.shown()
    assert any(words in recorder.shown("stderr") for words in ("Permission denied", "Read-only file system"))
    assert sorted(os.listdir(home)) == there
    for made in ("link", "tried"):
        (workspace / made).unlink(missing_ok=True)
    bench.within(boundary(workspace, Profile.BYPASS)).run("Bash", command=command)
    assert sorted(os.listdir(home)) == [*there, "x"]


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_modes_owners_and_times_outside_stay(bench: Bench, home: Path) -> None:
    before = {path: os.stat(path) for path in (home / "notes", home / ".ssh" / "id", home / "state")}
    for path in before:
        for change in ("chmod 777", "chmod -R 777", "touch -d 2001-01-01", "chown 12345", "setfattr -n user.x -v y"):
            bench.run("Bash", command=f"{change} {path}")
    for path, was in before.items():
        now = os.stat(path)
        assert (now.st_mode, now.st_uid, now.st_mtime_ns) == (was.st_mode, was.st_uid, was.st_mtime_ns), path


LIMITED = (
    "import os, resource; resource.prlimit(PID, resource.RLIMIT_NOFILE, (3, 3))",
    "import os; os.sched_setaffinity(PID, {0})",
    "import os; os.setpriority(os.PRIO_PROCESS, PID, 19)",
)


@pytest.mark.parametrize("program", LIMITED)
def test_no_other_process_is_given_limits(bench: Bench, program: str) -> None:
    own = (resource.getrlimit(resource.RLIMIT_NOFILE), os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0))
    result = bench.run("Bash", command=f'{PYTHON} -c "{program}"'.replace("PID", str(os.getpid())))
    assert result.outcome is Outcome.ERROR, result.text
    now = (resource.getrlimit(resource.RLIMIT_NOFILE), os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0))
    assert now == own
    assert bench.run("Bash", command="ulimit -n 50; nice -n 5 true").outcome is Outcome.OK, "its own it may set"


@pytest.mark.parametrize(
    "spelling", ["rm", "/bin/rm", "env rm", r"\rm", "bash -c 'rm NAME'", "r''m", "xargs -I{} rm {} <<<"]
)
def test_h31_no_spelling_reaches_outside(bench: Bench, sandbox: Sandbox, home: Path, spelling: str) -> None:
    target = str(home / "notes")
    command = spelling.replace("NAME", target) if "NAME" in spelling else f"{spelling} {target}"
    result = bench.run("Bash", command=command)
    assert (home / "notes").read_text() == "notes"
    assert result.outcome is Outcome.ERROR
    assert result.need is not None
    lacking = None if sandbox.closes_beside_hidden else needed(str(home.resolve()), "write", "subtree")
    assert result.need.expansion == lacking
    assert result.need.reason.startswith("likely")
    assert ("requires_bypass" if lacking is None else "sandbox_boundary_required") in result.text


def test_h32_the_bytes_that_run_are_the_bytes_of_the_call(bench: Bench) -> None:
    for command in ("printf %s 'a\u202etxt.hs'", "printf %s 'notes\u200b.txt'"):
        recorder = bench.begin("Bash", command=command)
        assert recorder.wait().text == command[11:-1]
        assert [fact.command for fact in recorder.process_facts] == [command]


def test_h33_without_a_sandbox_no_command_runs(processes: AsyncProcesses, workspace: Path, home: Path) -> None:
    bench = Bench(make_tools(processes, sandbox=NoSandbox("it was hidden; install it")), workspace)
    for command in ("touch made", f"touch {home}/x"):
        recorder = bench.begin("Bash", command=command)
        result = recorder.wait()
        assert result.outcome is Outcome.REFUSED
        assert recorder.facts == []
        assert "requires_bypass" in result.text
        assert "it was hidden; install it" in result.text
        assert result.need == BoundaryNeed(expansion=None, reason="it was hidden; install it")
    for tool, path in (("Glob", ""), ("Grep", ""), ("Grep", ".")):
        searched = bench.begin(tool, pattern="x", path=path)
        result = searched.wait()
        assert (result.outcome, searched.facts) == (Outcome.REFUSED, [])
        assert result.text.startswith("Nothing was searched: there is no sandbox on this machine.")
        assert result.need == BoundaryNeed(expansion=None, reason="it was hidden; install it")
    assert os.listdir(workspace) == []
    assert bench.run("Write", path=str(home / "x"), content="no").outcome is Outcome.REFUSED
    assert bench.run("Write", path="x", content="yes").outcome is Outcome.OK
    assert sorted(os.listdir(home)) == [".netrc", ".ssh", "notes", "state"]
    free = bench.within(boundary(workspace, Profile.BYPASS))
    assert free.run("Bash", command="touch made").outcome is Outcome.OK
    assert free.run("Glob", pattern="made").text == "made\n"


def test_h33_a_sandbox_that_goes_away_is_none(processes: AsyncProcesses, workspace: Path, tmp_path: Path) -> None:
    """No command runs, and the model isn't told to ask for the sandbox's own program."""
    program = next((place for place in PLACES if os.access(place, os.X_OK)), None)
    if program is None:
        pytest.skip("bubblewrap is not installed")
    copy = tmp_path / "bwrap"
    shutil.copy(program, copy)
    found = find_bubblewrap((str(copy),))
    if isinstance(found, str):
        pytest.skip(found)
    bench = Bench(make_tools(processes, sandbox=found), workspace)
    for is_there in (True, False):
        if is_there:
            copy.chmod(0)
        else:
            copy.unlink()
        result = bench.run("Bash", command="touch made")
        assert result.outcome is Outcome.ERROR
        assert str(copy) in result.text
        assert result.need is None
    assert os.listdir(workspace) == []


@pytest.mark.parametrize("name", [".ssh/id", "state/data", ".netrc"])
def test_what_is_hidden_cant_be_read(bench: Bench, home: Path, name: str) -> None:
    for command in (f"cat {home / name}", f"cp {home / name} here; cat here", f"ln {home / name} l; cat l"):
        assert "swordfish" not in bench.run("Bash", command=command).text
    assert "swordfish" not in bench.run("Read", path=str(home / name)).text
    assert "notes" in bench.run("Bash", command=f"cat {home / 'notes'}").text


def test_a_secret_that_was_granted_is_readable_and_no_other(bench: Bench, home: Path, workspace: Path) -> None:
    key = str((home / ".ssh" / "id").resolve())
    granted = bench.within(boundary(workspace, Profile.ASK, FileEntry(path=key, access="read", scope="exact")))
    assert granted.run("Bash", command=f"cat {key}").text == "swordfish"
    assert granted.run("Read", path=key).text == "swordfish"
    assert "swordfish" not in granted.run("Bash", command=f"cat {home}/.netrc").text
    assert granted.run("Bash", command=f"echo no > {key}").outcome is Outcome.ERROR


def test_makas_own_files_are_never_granted(bench: Bench, home: Path, workspace: Path) -> None:
    wide = FileEntry(path=str(home.resolve()), access="write", scope="subtree")
    granted = bench.within(boundary(workspace, Profile.ASK, wide))
    assert granted.run("Bash", command=f"echo no > {home}/state/data").outcome is Outcome.ERROR
    assert "swordfish" not in granted.run("Bash", command=f"cat {home}/state/data {home}/.ssh/id").text
    refused = granted.run("Read", path=str(home / "state" / "data"))
    assert "requires_bypass" in refused.text
    assert granted.run("Bash", command=f"echo yes > {home}/notes").outcome is Outcome.OK
    assert (home / "state" / "data").read_text() == "swordfish"


def test_explore_reads_and_writes_nothing(bench: Bench, workspace: Path) -> None:
    (workspace / "a").write_text("hello")
    explore = bench.within(boundary(workspace, Profile.EXPLORE))
    assert explore.run("Bash", command="cat a").text == "hello"
    assert explore.run("Read", path="a").text == "hello"
    assert explore.run("Grep", pattern="hello").text == "a:1:hello\n"
    assert explore.run("Bash", command="echo no > a; echo no > b").outcome is Outcome.ERROR
    assert explore.run("Write", path="b", content="no").outcome is Outcome.REFUSED
    assert (os.listdir(workspace), (workspace / "a").read_text()) == (["a"], "hello")


def test_a_granted_folder_is_writable(bench: Bench, home: Path, workspace: Path) -> None:
    other = home / "other"
    other.mkdir()
    asked = bench.run("Bash", command=f"touch {other}/x")
    lacking = needed(str(other.resolve()), "write", "subtree")
    assert asked.need is not None
    assert asked.need.expansion == lacking
    granted = bench.within(boundary(workspace, Profile.ASK, *lacking.filesystem))
    assert granted.run("Bash", command=f"touch {other}/x").outcome is Outcome.OK
    assert granted.run("Write", path=f"{other}/y", content="y").outcome is Outcome.OK
    assert granted.run("Bash", command=f"touch {home}/x").outcome is Outcome.ERROR


SOCKETS = {
    "tcp": "socket.create_connection(('127.0.0.1', {port}), 5)",
    "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', {port}))",
    "unix": "socket.socket(socket.AF_UNIX).connect('{path}')",
    "abstract": "socket.socket(socket.AF_UNIX).connect('\\0{name}')",
}


@pytest.mark.parametrize("kind", SOCKETS)
def test_the_network_is_closed_until_it_is_granted(bench: Bench, workspace: Path, home: Path, kind: str) -> None:
    """A service's socket in a folder that a command can see is no way out either, whatever was granted."""
    name = f"maka-{os.getpid()}-{kind}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"\0{name}" if kind == "abstract" else str(home / "u"))
        unix.listen()
        code = SOCKETS[kind].format(port=server.getsockname()[1], path=home / "u", name=name)
        command = f'{PYTHON} -I -S -c "import socket; {code}"'
        if kind != "udp":
            subprocess.run(["bash", "-c", command], check=True)  # it is there, and answers outside
        closed = bench.run("Bash", command=command)
        opened = bench.within(boundary(workspace, Profile.ASK, network=True)).run("Bash", command=command)
    assert closed.outcome is Outcome.ERROR
    assert "Error" in closed.text
    assert "AttributeError" not in closed.text + opened.text
    if kind != "udp":  # whether this machine has a way to anywhere isn't the sandbox's doing
        assert (opened.outcome is Outcome.OK) == (kind == "tcp")


def test_no_datagram_arrives(bench: Bench) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        code = f"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', {server.getsockname()!r})"
        bench.run("Bash", command=f'{PYTHON} -I -S -c "import socket; {code}"')
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.recv(1)


def test_a_denied_connection_asks_for_the_network(bench: Bench) -> None:
    code = "import socket; socket.create_connection(('192.0.2.1', 9), 5)"
    result = bench.run("Bash", command=f'{PYTHON} -I -S -c "{code}"')
    assert result.need is not None
    assert result.need.expansion is not None
    assert result.need.expansion.network
    assert "likely" in result.text


def test_h73_provider_key_visible_to_tools(bench: Bench) -> None:
    """A key is in the environment that the host was started with; a command asks the kernel for it."""
    holder = subprocess.Popen(["sleep", "300"], env={**CHILD_ENV, "SOME_API_KEY": "do-not-show-1234"})
    try:
        asked = f"env; cat /proc/{holder.pid}/environ /proc/*/environ | tr '\\0' '\\n'; cat /proc/{holder.pid}/maps"
        assert "do-not-show" not in bench.run("Bash", command=asked).text
        assert "do-not-show" in Path(f"/proc/{holder.pid}/environ").read_text()
    finally:
        holder.kill()
        holder.wait()


def test_other_processes_are_out_of_reach(bench: Bench) -> None:
    environ = f"cat /proc/{os.getpid()}/environ /proc/$PPID/environ; kill -0 {os.getpid()} && echo reached"
    text = bench.run("Bash", command=environ).text
    assert "PYTEST" not in text
    assert "reached" not in text


def test_h50_a_process_that_leaves_its_group_and_session_is_ended_with_the_call(bench: Bench) -> None:
    away = f"setsid sh -c 'exec >/dev/null 2>&1 </dev/null; cd /; {nap(3651)} & {nap(3651)}' & echo done"
    assert "done" in bench.run("Bash", command=away).text
    assert running(nap(3651)) == []


def test_h50_a_stop_ends_what_left_its_group_and_session(bench: Bench) -> None:
    away = f"setsid sh -c 'exec >/dev/null 2>&1; {nap(3661)} & {nap(3661)}' & echo on; wait; {nap(3661)}"
    recorder = bench.begin("Bash", Recorder(), command=away)
    assert recorder.spoke.wait(20)
    recorder.cancel()
    assert recorder.wait().outcome is Outcome.ABORTED
    assert running(nap(3661)) == []


def test_ordinary_places_work(bench: Bench) -> None:
    script = "echo a > $TMPDIR/t && cat $TMPDIR/t && echo b >/dev/null && head -c 4 /dev/urandom | wc -c && mkdir d"
    assert bench.run("Bash", command=script).text == "a\n4\n"


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
@pytest.mark.parametrize("name", ["a b", "a#b", "a\\b", "a*b[c]?", "ä'\"$HOME`x`", "a\tb\nc", "-a", "a:b,c=d"])
def test_a_workspace_may_have_any_name(bench: Bench, tmp_path: Path, name: str) -> None:
    odd = tmp_path / name
    (odd / ".git" / "hooks").mkdir(parents=True)
    (odd / ".git" / "config").write_text("[core]\n")
    (odd / "AGENTS.md").write_text("be good\n")
    there = Bench(bench.tools, odd)
    assert there.run("Bash", command="echo 1 > made && cat made").text == "1\n"
    assert there.run("Bash", command="echo x >> .git/config").outcome is Outcome.ERROR
    assert there.run("Bash", command="mv .git .old").outcome is Outcome.ERROR
    assert there.run("Read", path="made").text == "1\n"
    assert there.run("Grep", pattern="good").text == "AGENTS.md:1:be good\n"


def test_a_secret_inside_the_workspace_is_not_searched(
    processes: AsyncProcesses, sandbox: Sandbox, home: Path, ground: Ground
) -> None:
    (home / "!x[1]*").mkdir()
    (home / "!x[1]*" / "key").write_text("swordfish")
    secrets = (*ground.secrets, str(home.resolve() / "!x[1]*"))
    there = Bench(make_tools(processes, sandbox=sandbox, ground=Ground(own=ground.own, secrets=secrets)), home)
    assert there.run("Grep", pattern="swordfish").text == "[nothing found]"
    assert there.run("Glob", pattern="**").text == "notes\n"
    assert there.run("Grep", pattern="swordfish", path=".ssh").outcome is Outcome.REFUSED


def test_root_cant_reach_the_kernel(bench: Bench) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root could: this user can't anyway")
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    bench.run("Bash", command="cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern && echo reached > r")
    assert not (bench.cwd / "r").exists()
    assert Path("/proc/sys/kernel/core_pattern").read_text() == before
    assert bench.run("Bash", command="grep -q 'CapEff:.*0000000000000000' /proc/self/status").outcome is Outcome.OK


def test_what_holds_something_hidden_cannot_be_moved_away(
    processes: AsyncProcesses, workspace: Path, sandbox: Sandbox
) -> None:
    """A workspace that holds secrets or Maka's own files, as a home does: the next command must not find them."""
    secret, own = workspace / "conf" / "keys" / "k", workspace / "conf" / "maka" / "config.toml"
    secret.parent.mkdir(parents=True)
    own.parent.mkdir()
    secret.write_text("swordfish")
    ground = Ground(own=(str(own.resolve()),), secrets=(str(secret.resolve()),))
    bench = Bench(make_tools(processes, sandbox=sandbox, ground=ground), workspace)
    for command in ("mv conf c2", "mv conf/keys k2", "ln -s conf c3; mv c3/keys k3"):
        bench.run("Bash", command=command)
        assert "swordfish" not in bench.run("Bash", command="cat $(find . -type f) /dev/null").text
    assert secret.read_text() == "swordfish"
    bench.run("Bash", command="mkdir -p conf/maka; echo evil > conf/maka/config.toml")
    assert not own.exists(), "what Maka would read is not planted"


def test_a_granted_path_that_turned_into_a_link_is_not_what_was_granted(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, home: Path, ground: Ground
) -> None:
    granted = home / "a" / "b"
    granted.parent.mkdir()
    granted.symlink_to(home / ".ssh")
    entry = FileEntry(path=str(home.resolve() / "a" / "b"), access="write", scope="subtree")
    bench = Bench(
        make_tools(processes, sandbox=sandbox, ground=ground), workspace, boundary(workspace, Profile.ASK, entry)
    )
    assert "swordfish" not in bench.run("Bash", command=f"cat {granted}/id; echo evil > {granted}/id").text
    assert (home / ".ssh" / "id").read_text() == "swordfish"


def test_a_workspace_that_turned_into_a_link_is_not_entered(bench: Bench, workspace: Path, home: Path) -> None:
    bound = bench.within(boundary(workspace))
    workspace.rename(workspace.with_name("elsewhere"))
    workspace.symlink_to(home)
    result = bound.run("Bash", command="touch made")
    assert "path_changed" in result.text
    assert not (home / "made").exists()


@pytest.mark.parametrize("command", ["cd /; echo x > nothere", "echo x > /proc/sys/nothing"])
def test_nobody_is_asked_to_give_the_shell_itself_away(bench: Bench, command: str) -> None:
    result = bench.run("Bash", command=command)
    assert result.outcome is Outcome.ERROR
    assert "/bin/" not in result.text.partition("sandbox_boundary_required")[2]


def test_no_terminal_can_be_reached(bench: Bench) -> None:
    """What another program's person types is not for a command, nor is the screen."""
    ours, theirs = os.openpty()
    name = os.ttyname(theirs)
    try:
        result = bench.run("Bash", command=f"echo spoofed > {name}; head -c1 < {name}; echo x > /dev/tty")
        assert result.outcome is Outcome.ERROR
        os.set_blocking(ours, False)
        with pytest.raises(BlockingIOError):
            os.read(ours, 100)
    finally:
        os.close(ours)
        os.close(theirs)


ORPHAN = (
    "env -i /usr/bin/setsid /bin/sh -c 'exec </dev/null >/dev/null 2>&1; NAP & touch ready; wait' & "
    "until [ -e ready ]; do :; done; echo begun; NAP"
)
OWNER = "import json, subprocess, sys; argv, fds = json.loads(sys.argv[1]); subprocess.Popen(argv, pass_fds=fds).wait()"


def test_whatever_a_command_left_ends_with_a_killed_owner(sandbox: Sandbox, workspace: Path) -> None:
    """Also who shed every mark by which a later start could find it."""
    sleeper = nap(3611)
    policy = SandboxPolicy(cwd=str(workspace), writable=(os.path.realpath(workspace),))
    launch = sandbox.wrap(("/bin/sh", "-c", ORPHAN.replace("NAP", sleeper)), policy, {})
    with opened(launch.argv, launch.inputs) as (argv, fds):
        words = json.dumps([argv, fds])
        owner = subprocess.Popen([PYTHON, "-c", OWNER, words], stdout=subprocess.PIPE, pass_fds=fds)
    assert owner.stdout is not None and owner.stdout.readline() == b"begun\n"
    seen = _until(lambda: len(running(sleeper)) == 2)  # a child that was forked isn't a sleeper yet
    owner.kill()
    owner.stdout.close()
    owner.wait(PATIENCE_S)
    _until(lambda: not running(sleeper))
    left = running(sleeper)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert (seen, left) == (True, [])


def _until(holds: Callable[[], bool]) -> bool:
    until = monotonic() + PATIENCE_S
    while not (held := holds()) and monotonic() < until:
        pass
    return held


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_a_workspace_may_hold_many_protected_names(bench: Bench, workspace: Path) -> None:
    """What a sandbox is told grows with them, and an argument has a limit that the kernel sets."""
    for number in range(900):
        folder = workspace / f"packages-with-a-rather-long-name-{number:03}" / ".vscode"
        folder.mkdir(parents=True)
        (folder / "settings.json").touch()
    held = "packages-with-a-rather-long-name-899/.vscode/settings.json"
    done = bench.run("Bash", command=f"echo made > made && cat made; echo no > {held}")
    assert done.text.startswith("made\n")
    assert (workspace / held).read_text() == ""


def test_a_command_too_long_for_a_process_says_what_to_do(bench: Bench, workspace: Path) -> None:
    too_long = "touch ran; #" + "x" * COMMAND_BYTES_MAX
    result = bench.run("Bash", command=too_long)
    assert result.outcome is Outcome.ERROR
    assert "Write it to a file and run that; nothing was run" in result.text
    assert bench.run("Bash", command=too_long[:COMMAND_BYTES_MAX]).outcome is Outcome.OK
    assert (workspace / "ran").exists()


def test_what_stands_in_front_of_a_command_has_none_of_its_variables(
    processes: AsyncProcesses, workspace: Path, sandbox: Sandbox
) -> None:
    """Some name libraries, and a command may have written them: they are for the command alone, inside."""
    env = {**CHILD_ENV, "LD_LIBRARY_PATH": str(workspace), "ODD NAME": "an odd value"}
    bench = Bench(make_tools(processes, sandbox=sandbox, child_env=env), workspace)
    recorder = bench.begin("Bash", command="its=$(printenv LD_LIBRARY_PATH); echo $its; until [ -e go ]; do :; done")
    assert recorder.spoke.wait(30)
    seen = {pid: environment_of(pid) for pid in descendants(os.getpid())}
    (workspace / "go").touch()
    assert recorder.wait().text == f"{workspace}\n"
    ours = {pid: names for pid, names in seen.items() if "MAKA_CALL" in names}
    assert len(ours) >= 2, "the command and what stands in front of it"
    assert sum("LD_LIBRARY_PATH" in names for names in ours.values()) == 1
    assert sum("HOME" in names for names in ours.values()) <= 1


def descendants(pid: int) -> Iterator[int]:
    for child in Path(f"/proc/{pid}/task").glob("*/children"):
        for one in map(int, child.read_text().split()):
            yield one
            yield from descendants(one)


def environment_of(pid: int) -> set[str]:
    """Return the names of the variables that a process began with."""
    return {one.partition("=")[0] for one in Path(f"/proc/{pid}/environ").read_text().split("\0") if one}
