"""The end of a command in Landlock: whom its shim collects and ends, with how much work, and what becomes of its files.

Other tests run commands in Landlock meanwhile, and each end of one removes what is left: so a folder that may be
removed is never touched again after it has its name.
"""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from maka.contracts.sandbox_ports import SandboxPolicy
from maka.edges import landlock_tmp
from maka.edges.inputs import opened
from maka.edges.landlock import program
from maka.edges.landlock_tmp import make, remove, sweep
from tests.edges.test_sandbox import here, run

PATIENCE_S = 30.0
LANDLOCKS = pytest.mark.parametrize("name", ["landlock", "landlock-no-mounts"])
ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
DEEP = 1_100
"""Deeper than Python calls itself, and than a process has descriptors for."""


# -- whoever ends is collected ------------------------------------------------------------------------------------


@LANDLOCKS
def test_whoever_ends_is_collected_while_the_command_runs(name: str) -> None:
    """A number that can still be signalled is that of a process that wasn't collected."""
    orphans = "for i in 1 2 3 4 5; do (sleep 0 >/dev/null & echo $!); done"
    script = f"for pid in $({orphans}); do while kill -0 $pid 2>/dev/null; do :; done; done; echo none; exit 3"
    launch = here(name).wrap(("/bin/sh", "-c", script), SandboxPolicy(cwd="/"), {})
    with opened(launch.argv, launch.inputs) as (argv, fds):
        done = subprocess.run(argv, cwd="/", check=False, capture_output=True, pass_fds=fds, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"none\n", b"")


def test_whoever_started_maka_may_ignore_what_ends() -> None:
    """Nobody can wait for a child while that signal is ignored, and programs hand it down."""
    code = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    ignoring = (sys.executable, "-c", code)
    launch = here("landlock").wrap(("/bin/sh", "-c", "(sleep 0 &); echo ran; exit 3"), SandboxPolicy(cwd="/"), {})
    with opened(launch.argv, launch.inputs) as (argv, fds):
        done = subprocess.run((*ignoring, *argv), cwd="/", check=False, capture_output=True, pass_fds=fds)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"ran\n", b"")


ENDS = """
import os, signal, sys
from maka.edges import landlock_shim as shim
from maka.edges.landlock_rules import Kernel

children, shim._COLLECTED_MAX = sys.argv[1], int(sys.argv[2])
living, dead, dead_behind = map(int, sys.argv[3:])
looks = 0


def count(event, words):
    global looks
    looks += (event, words[0] if words else None) in (("os.listdir", "/proc"), ("open", shim._CHILDREN))


def end(how_many):
    for _ in range(how_many):
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


Kernel().prctl(36, 1)
shim._CHILDREN = children
end(dead)
for _ in range(living):
    ready, says = os.pipe()
    if os.fork() == 0:
        end(dead_behind)
        os.write(says, b"x")
        signal.pause()
    os.read(ready, 1)
sys.addaudithook(count)
shim._end_the_rest()
print(looks)
"""


def looks(children: str, *, living: int, dead: int = 0, dead_behind: int = 0, at_once: int = 1 << 12) -> int:
    """Return how often it is looked who is left until nobody is; real children were, alive and dead."""
    words = map(str, (at_once, living, dead, dead_behind))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run((sys.executable, "-c", ENDS, children, *words), env=env, capture_output=True, check=True)
    return int(done.stdout)


LISTS = pytest.mark.parametrize("children", ["/proc/thread-self/children", "/proc/no-list"])
"""A kernel that keeps a list of each process's children, and one that doesn't."""


def looks_each(children: str) -> int:
    """Where there is no list, it is looked for first."""
    return 1 if os.path.exists(children) else 2


@LISTS
def test_the_dead_cost_no_look(children: str) -> None:
    assert looks(children, living=0, dead=200) == 0
    assert looks(children, living=1, dead=200) == looks_each(children)
    assert 1 <= looks(children, living=3, dead=100, dead_behind=100) / looks_each(children) <= 3


def test_the_living_are_looked_for_though_there_are_always_more_dead() -> None:
    assert 20 <= looks("/proc/thread-self/children", living=1, dead=200, at_once=10) <= 22


# -- what is left of its files ------------------------------------------------------------------------------------


@pytest.fixture
def folders() -> Iterator[list[Path]]:
    """Whatever is named in it is removed after the test."""
    named: list[Path] = []
    yield named
    # Not by Python, which doesn't come down to the ground of a deep one.
    subprocess.run(("rm", "-rf", *map(str, named)), check=True)


class Names:
    """Names of folders as a process makes them, with one word or another changed."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders
        self.mine = Path(make())
        folders.append(self.mine)
        _, self.pid, self.start, self.place, _ = self.mine.name.split("-")
        gone = subprocess.Popen(["true"])
        gone.wait()
        self.gone = str(gone.pid)

    def one(self, pid: str = "", start: str = "1", place: str | None = None, random: str = "") -> Path:
        """Return a name, by default of a process that is gone."""
        place = self.place if place is None else place
        path = Path(f"/tmp/maka-{pid or self.gone}-{start}-{place}-{random or os.urandom(8).hex()}")
        self.folders.append(path)
        return path

    def made(self, path: Path, *, is_old: bool = False, is_another_s: bool = False) -> Path:
        """Make a folder that is what it shall be when it gets its name."""
        (folder := Path(tempfile.mkdtemp()) / "d").mkdir()
        if is_old:
            os.utime(folder.parent, (0, 0))
        if is_another_s:
            os.chown(folder.parent, NOBODY, NOBODY)
        return folder.parent.rename(path)


def test_a_folder_is_removed_when_surely_nobody_owns_it(folders: list[Path]) -> None:
    names = Names(folders)
    one, made, pid = names.one, names.made, names.pid
    removed = {
        "its owner is gone": made(one()),
        "its number is somebody else's": made(one(pid=pid, start=str(int(names.start) - 1))),
        "of another machine, for long": made(one(place="0"), is_old=True),
    }
    kept = {
        "its owner lives": names.mine,
        "its owner lives, for long": made(one(pid=pid, start=names.start), is_old=True),
        "of another machine": made(one(place=f"{names.place}0")),
        "of nobody knows where": made(one(place="")),
        "of another machine, and there is such a number": made(one(pid=pid, place="0"), is_old=True),
        "a name in another form": made(one(random="0"), is_old=True),
        "no number": made(one(pid="x"), is_old=True),
    }
    sweep()
    assert {why: path.exists() for why, path in removed.items()} == dict.fromkeys(removed, False)
    assert {why: path.exists() for why, path in kept.items()} == dict.fromkeys(kept, True)


def test_what_is_no_folder_of_this_user_is_left_alone(folders: list[Path], tmp_path: Path) -> None:
    names = Names(folders)
    (tmp_path / "kept").touch()
    link, file = names.one(), names.one()
    link.symlink_to(tmp_path)
    file.touch()
    another_s = names.made(names.one(), is_another_s=True) if os.geteuid() == 0 else tmp_path
    sweep()
    assert link.is_symlink() and (tmp_path / "kept").exists() and file.exists() and another_s.exists()


def test_a_killed_owner_that_nobody_has_collected_is_gone(folders: list[Path]) -> None:
    words = (sys.executable, "-c", "from maka.edges.landlock_tmp import make; print(make(), flush=True); input()")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        folders.append(folder)
        sweep()
        assert folder.exists()
        owner.kill()
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
        sweep()
        assert not folder.exists()


def test_a_command_s_end_removes_what_others_left(folders: list[Path]) -> None:
    names = Names(folders)
    left = names.made(names.one())
    done = run(here("landlock"), 'echo "$TMPDIR"', SandboxPolicy(cwd="/"))
    assert done.returncode == 0
    assert not left.exists() and not Path(done.stdout.decode().strip()).exists()


def fill(folder: Path, outside: Path) -> None:
    """Fill a folder with what a command can make there: links, closed folders, and many within one another."""
    (outside / "d").mkdir()
    (outside / "d" / "kept").write_text("kept")
    outside.chmod(0o750)
    (folder / "link").symlink_to(outside)
    (folder / "closed" / "in").mkdir(parents=True)
    (folder / "closed" / "in" / "link").symlink_to(outside / "d")
    (folder / "closed" / "in" / "file").touch()
    os.mkfifo(folder / "closed" / "pipe")
    (folder / "closed" / "in").chmod(0o500)
    (folder / "closed").chmod(0)
    at = os.open(folder, os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)


def test_whatever_it_holds_a_folder_is_removed_and_no_link_followed(folders: list[Path], tmp_path: Path) -> None:
    folder = Path(make())
    folders.append(folder)
    fill(folder, tmp_path)
    (link := tmp_path.with_name("link")).symlink_to(tmp_path)
    for each in (folder, link):
        remove(str(each))
    assert not folder.exists() and link.is_symlink()
    assert (tmp_path / "d" / "kept").read_text() == "kept" and stat.S_IMODE(tmp_path.stat().st_mode) == 0o750


def test_who_isn_t_root_removes_what_a_command_closed(folders: list[Path]) -> None:
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") if os.geteuid() == 0 else sys.executable
    if python is None:
        pytest.skip("no python3 that every user can run")
    text = f"{program('landlock_shim').partition('if __name__')[0]}\n"
    text += "folder = make()\nprint(folder)\nos.makedirs(f'{folder}/a/b/c')\n"
    text += "for each in ('/a/b', '/a', ''):\n    os.chmod(folder + each, 0o500 if each else 0)\nremove(folder)\n"
    user = NOBODY if os.geteuid() == 0 else None
    words = (python, "-I", "-S", "-c", text)
    done = subprocess.run(words, check=True, capture_output=True, text=True, user=user, cwd="/")
    folder = Path(done.stdout.strip())
    folders.append(folder)
    assert folder.name.startswith("maka-") and done.stderr == ""
    assert not folder.exists()


def test_a_deep_folder_holds_up_no_command_and_says_nothing() -> None:
    script = (
        f'echo "$TMPDIR"; cd "$TMPDIR"; i=0; while [ $i -lt {DEEP} ]; do mkdir d; cd -P d; i=$((i+1)); done; exit 3'
    )
    done = run(here("landlock"), script, SandboxPolicy(cwd="/"))
    assert (done.returncode, done.stderr) == (3, b"")
    assert not os.path.exists(done.stdout.decode().strip())


def test_one_that_cant_be_removed_is_left_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove(str(tmp_path / "gone"))
    (tmp_path / "file").touch()
    remove(str(tmp_path / "file"))
    assert (tmp_path / "file").exists()
    monkeypatch.setattr(landlock_tmp, "TMP", str(tmp_path / "gone" / "maka-"))
    sweep()
