"""What Landlock does otherwise than bubblewrap, and what it can't do where the kernel allows no mounts."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from maka.contracts.content import Outcome
from maka.contracts.sandbox_ports import Sandbox, SandboxPolicy
from maka.edges import child_process
from maka.edges.inputs import opened
from maka.edges.processes import AsyncProcesses
from maka.tools.policy import Ground
from tests.tools.conftest import here, make_tools
from tests.tools.harness import CHILD_ENV, PATIENCE_S, Bench, git

LANDLOCKS = pytest.mark.parametrize("sandbox", ["landlock", "landlock-no-mounts"], indirect=True)
WITHOUT_MOUNTS = pytest.mark.parametrize("sandbox", ["landlock-no-mounts"], indirect=True)
NOBODY = 65534
OTHER_GROUP = 4242


@pytest.fixture
def bench(processes: AsyncProcesses, workspace: Path, sandbox: Sandbox, ground: Ground) -> Bench:
    return Bench(make_tools(processes, sandbox=sandbox, ground=ground), workspace)


@LANDLOCKS
def test_names_and_sizes_of_what_is_hidden_can_be_seen(bench: Bench, home: Path) -> None:
    assert bench.run("Bash", command=f"ls {home}/.ssh {home}/state").text.split() == [
        f"{home}/.ssh:",
        "id",
        f"{home}/state:",
        "data",
    ]
    assert bench.run("Bash", command=f"stat -c %s {home}/.netrc").text == f"{len('swordfish')}\n"
    assert "swordfish" not in bench.run("Bash", command=f"cat {home}/.ssh/id {home}/state/data {home}/.netrc").text


@LANDLOCKS
def test_other_processes_are_seen_in_a_list(bench: Bench) -> None:
    assert str(os.getpid()) in bench.run("Bash", command="ls /proc").text.split()


@LANDLOCKS
def test_nothing_of_a_killed_command_is_left_in_tmp(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It doesn't obey TERM, so it is killed together with the shim, which then removes nothing any more."""
    monkeypatch.setattr(child_process, "TERM_GRACE_S", 0.0)
    monkeypatch.setattr(child_process, "SWEEP_WAIT_S", PATIENCE_S)
    script = "trap '' TERM; echo mine > $TMPDIR/secret; echo $TMPDIR; while :; do sleep 60; done"
    recorder = bench.begin("Bash", command=script)
    assert recorder.spoke.wait(PATIENCE_S)
    folder = Path(recorder.shown().strip())
    assert (folder / "secret").read_text() == "mine\n"
    recorder.cancel()
    assert recorder.wait().outcome is Outcome.ABORTED
    assert not folder.exists()


# -- without mounts -----------------------------------------------------------------------------------------------


@WITHOUT_MOUNTS
def test_modes_and_times_outside_can_be_changed_and_no_content(bench: Bench, home: Path) -> None:
    changed = bench.run("Bash", command=f"chmod 640 {home}/notes && touch -d 2001-01-01T00:00Z {home}/notes")
    assert changed.outcome is Outcome.OK, changed.text
    now = (home / "notes").stat()
    assert (stat.S_IMODE(now.st_mode), now.st_mtime) == (0o640, 978_307_200)
    for command in ("echo no >> notes", "truncate -s 0 notes", "rm notes", "mv notes n", "ln notes n", "touch n"):
        assert bench.run("Bash", command=f"cd {home} && {command}").outcome is Outcome.ERROR, command
    assert sorted(os.listdir(home)) == [".netrc", ".ssh", "notes", "state"]
    assert (home / "notes").read_text() == "notes"


@WITHOUT_MOUNTS
def test_the_modes_of_a_secret_can_be_changed_and_it_stays_unreadable(bench: Bench, home: Path) -> None:
    assert bench.run("Bash", command=f"chmod 666 {home}/.ssh/id").outcome is Outcome.OK
    assert bench.run("Bash", command=f"cat {home}/.ssh/id; echo no > {home}/.ssh/id").outcome is Outcome.ERROR
    assert (home / ".ssh" / "id").read_text() == "swordfish"


@pytest.fixture
def grounds() -> Iterator[Path]:
    """A folder of the user nobody, if we may give it away; else one of our own."""
    path = Path(tempfile.mkdtemp(prefix="maka-grounds-")).resolve()
    try:
        yield path
    finally:
        shutil.rmtree(path)


def test_owners_outside_can_be_changed_as_far_as_its_user_may(grounds: Path) -> None:
    """Whoever isn't root may give a file of theirs to another group of theirs."""
    root = os.geteuid() == 0
    groups = {NOBODY, OTHER_GROUP} if root else set(os.getgroups())
    if len(groups) < 2:
        pytest.skip("this user has one group only")
    (grounds / "ws").mkdir()
    (grounds / "notes").touch()
    if root:
        for path in (grounds, grounds / "ws", grounds / "notes"):
            os.chown(path, NOBODY, NOBODY)
    other = next(group for group in groups if group != (grounds / "notes").stat().st_gid)
    launch = here("landlock-no-mounts").wrap(
        ("/bin/chgrp", str(other), str(grounds / "notes")),
        SandboxPolicy(cwd=str(grounds / "ws"), writable=(str(grounds / "ws"),)),
        {},
    )
    # Not the interpreter of these tests: another user may have no way to it.
    python = shutil.which("python3", path=CHILD_ENV["PATH"]) if root else sys.executable
    if python is None:
        pytest.skip("no python3 that every user can run")
    with opened(launch.argv, launch.inputs) as (argv, fds):
        done = subprocess.run(
            (python, *argv[1:]),
            cwd=grounds,
            capture_output=True,
            check=False,
            pass_fds=fds,
            user=NOBODY if root else None,
            group=NOBODY if root else None,
            extra_groups=sorted(groups) if root else None,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (grounds / "notes").stat().st_gid == other


@WITHOUT_MOUNTS
def test_what_holds_a_protected_name_is_closed_for_new_names(bench: Bench, repository: Path) -> None:
    """It and each folder above it: what is there can be changed, but nothing can come, go or be renamed."""
    for path in ("src/x", "deep/sub/AGENTS.md", "deep/sub/x", "deep/sub/open/x"):
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text("1\n")
    for command, works in (
        ("echo 2 >> a", True),
        ("echo 2 > src/new && mv src/new src/newer && rm src/newer && mkdir src/d", True),
        ("echo 2 > deep/sub/open/new && mv deep/sub/open/new src/new", True),
        ("echo 2 > deep/sub/x", True),
        ("echo 2 > new", False),
        ("mkdir d", False),
        ("rm a", False),
        ("mv a src/a", False),
        ("ln src/x x", False),
        ("mv src s", False),
        ("echo 2 > deep/new", False),
        ("echo 2 > deep/sub/new", False),
        ("rm deep/sub/x", False),
        ("mv deep/sub src/sub", False),
        ("echo x > .git/new", False),
    ):
        result = bench.run("Bash", command=command)
        assert (result.outcome is Outcome.OK) is works, (command, result.text)
    assert sorted(os.listdir(repository)) == [".git", "AGENTS.md", "a", "deep", "src"]


@WITHOUT_MOUNTS
def test_git_reads_a_repository_and_commits_nothing(bench: Bench, repository: Path) -> None:
    """The file tools aren't in the sandbox: what they make new, a command can change, and a person can commit."""
    assert bench.run("Write", path="new", content="n\n").outcome is Outcome.OK
    assert bench.run("Bash", command="echo 2 >> a && echo 2 >> new").outcome is Outcome.OK
    assert bench.run("Bash", command="git status --porcelain && git log --oneline | wc -l").text == " M a\n?? new\n1\n"
    assert "+2" in bench.run("Bash", command="git diff").text
    for command in ("git add -A", "git commit -qam second", "git stash", "git checkout -qb other"):
        assert bench.run("Bash", command=command).outcome is Outcome.ERROR, command
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "second")
    assert git(repository, "log", "--oneline").count("\n") == 2


@WITHOUT_MOUNTS
def test_a_new_repository_is_open_in_the_call_that_makes_it(bench: Bench, workspace: Path) -> None:
    commit = "git -c user.name=a -c user.email=a@example.org commit -qm first"
    assert bench.run("Bash", command=f"git init -q . && touch a && git add a && {commit}").outcome is Outcome.OK
    assert git(workspace, "log", "--oneline").count("\n") == 1
    assert bench.run("Bash", command="touch b").outcome is Outcome.ERROR
    assert sorted(os.listdir(workspace)) == [".git", "a"]


@WITHOUT_MOUNTS
def test_a_folder_without_protected_names_is_open(bench: Bench, workspace: Path) -> None:
    script = "mkdir -p d/e && echo 1 > d/e/x && mv d/e f && ln f/x y && rm -r d && cat y"
    assert bench.run("Bash", command=script).text == "1\n"
    assert sorted(os.listdir(workspace)) == ["f", "y"]


REFUSING = ("unshare", "--user", "--map-root-user", "sh", "-c")
NO_MOUNTS = 'echo 0 > /proc/sys/user/max_mnt_namespaces && exec "$@"'


@pytest.mark.parametrize("refused", [False, True])
def test_where_the_kernel_refuses_mounts_landlock_does_without(workspace: Path, refused: bool) -> None:
    """In a user namespace that may have no namespace for mounts, as in a container."""
    prefix = (*REFUSING, NO_MOUNTS, "sh")
    if shutil.which("unshare") is None or subprocess.run((*prefix, "true"), check=False).returncode != 0:
        pytest.skip("this machine makes no user namespace")
    ws = os.path.realpath(workspace)
    (workspace / "AGENTS.md").touch()
    (workspace / "src").mkdir()
    policy = SandboxPolicy(cwd=ws, writable=(ws,), protected=(f"{ws}/AGENTS.md",))
    script = "echo 1 > src/new; echo 1 > new; echo 1 > AGENTS.md"
    launch = here("landlock").wrap(("/bin/sh", "-c", script), policy, {})
    with opened(launch.argv, launch.inputs) as (argv, fds):
        words = (*prefix, *argv) if refused else argv
        subprocess.run(words, cwd=ws, check=False, capture_output=True, pass_fds=fds)
    assert (workspace / "src" / "new").read_text() == "1\n"
    assert (workspace / "AGENTS.md").read_text() == ""
    assert (workspace / "new").exists() is not refused
