"""Which sandbox is found, what it is told, and that it holds on this machine."""

import os
import select
import shutil
import signal
import stat
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from maka.contracts.errors import NoLaunchError
from maka.contracts.limits import SANDBOX_MOUNTS_MAX
from maka.contracts.process_ports import Launch
from maka.contracts.sandbox_ports import Sandbox, SandboxPolicy
from maka.edges import bubblewrap, landlock_rules
from maka.edges import landlock_shim as shim
from maka.edges.bubblewrap import PLACES, Bubblewrap, find_bubblewrap
from maka.edges.call_filter import ARCHITECTURES, Instruction, instructions
from maka.edges.inputs import opened
from maka.edges.landlock import Wall, find_landlock, find_wall
from maka.edges.sandbox import INSTALL, NoSandbox, find_sandbox, try_sandbox
from maka.edges.sandbox_probe import run_probe

POLICY = SandboxPolicy(
    cwd="/ws",
    writable=("/ws", "/ws/.ssh/known"),
    readable=("/h/.ssh/id",),
    protected=("/ws/.git/config",),
    pinned=("/ws/.git",),
    hidden=("/h/.ssh", "/ws/.ssh"),
    hidden_files=("/ws/.netrc",),
)


def here(name: str) -> Sandbox:
    """Return a sandbox of this machine, or skip the test and say why there is none."""
    found = find_bubblewrap() if name == "bubblewrap" else find_landlock(mounts=name == "landlock")
    if isinstance(found, str):
        pytest.skip(found)
    return found


def told(launch: Launch) -> list[str]:
    """Return the options that bubblewrap reads."""
    return launch.inputs[0].decode().split("\0")


def run(box: Sandbox, command: str, policy: SandboxPolicy) -> "subprocess.CompletedProcess[bytes]":
    """Run a shell's command in a sandbox."""
    launch = box.wrap(("/bin/sh", "-c", command), policy, {})
    with opened(launch.argv, launch.inputs) as (argv, fds):
        cwd = policy.cwd if os.path.isdir(policy.cwd) else "/"
        return subprocess.run(argv, cwd=cwd, check=False, capture_output=True, pass_fds=fds)


@pytest.mark.parametrize("name", ["bubblewrap", "landlock", "landlock-no-mounts"])
def test_each_sandbox_of_this_machine_holds(name: str) -> None:
    trials = try_sandbox(here(name))
    assert len(trials) == 4
    assert [trial for trial in trials if not trial.held] == []


def test_a_sandbox_that_holds_nothing_is_found_out() -> None:
    class Open:
        name = "open"
        missing = None
        closes_beside_hidden = False

        def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy, env: Mapping[str, str]) -> Launch:
            del policy, env
            return Launch(argv=argv)

    held = [trial.held for trial in try_sandbox(Open())]
    assert held[:3] == [True, False, False]  # whether a network is there at all isn't this sandbox's doing


def test_the_first_that_works_is_taken() -> None:
    box = Bubblewrap("/usr/bin/bwrap", "bubblewrap 1", user=True)
    assert find_sandbox(lambda: box, lambda: "unasked") is box
    assert find_sandbox(lambda: "missing", lambda: box) is box


def test_h33_where_nothing_works_there_is_none_and_it_says_why() -> None:
    none = find_sandbox(lambda: "bubblewrap is not installed", lambda: "this kernel has no Landlock")
    assert none.name == "none"
    assert none.missing is not None
    assert none.missing.startswith("bubblewrap is not installed; this kernel has no Landlock")
    assert INSTALL in none.missing
    with pytest.raises(AssertionError):
        none.wrap(("/bin/true",), POLICY, {})


@pytest.mark.parametrize(
    ("text", "says"), [("#!/bin/sh\nexit 1\n", "does not start"), ("#!/bin/sh\n[ $1 = --version ]", "does not work")]
)
def test_h33_a_bubblewrap_that_fails_is_none(tmp_path: Path, text: str, says: str) -> None:
    program = tmp_path / "bwrap"
    assert find_bubblewrap((str(program),)) == "bubblewrap is not installed"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    found = find_bubblewrap((str(program),))
    assert isinstance(found, str)
    assert says in found


def test_bubblewrap_mounts_from_the_outside_in() -> None:
    launch = Bubblewrap("bwrap", "bubblewrap 1", user=True).wrap(("/bin/echo", "hi"), POLICY, {})
    options = told(launch)
    words = " ".join(options)
    order = [
        "--ro-bind / /",
        "--tmpfs /tmp",
        "--bind /ws /ws",
        "--bind /ws/.git /ws/.git",
        "--tmpfs /h/.ssh",
        "--tmpfs /ws/.ssh",
        "--ro-bind /dev/null /ws/.netrc",
        "--ro-bind /h/.ssh/id /h/.ssh/id",
        "--bind /ws/.ssh/known /ws/.ssh/known",
        "--ro-bind /ws/.git/config /ws/.git/config",
        "--remount-ro /h/.ssh",
    ]
    assert [words.index(one) for one in order] == sorted(words.index(one) for one in order)
    assert launch.argv[-2:] == ("/bin/echo", "hi")
    assert {"--unshare-net", "--unshare-pid", "--die-with-parent", "--cap-drop"} <= set(options)


def test_bubblewrap_is_told_of_so_many_mounts_and_no_more() -> None:
    box = Bubblewrap("bwrap", "bubblewrap 1", user=True)
    most = tuple(f"/ws/{number}" for number in range(SANDBOX_MOUNTS_MAX - 1))
    words = told(box.wrap(("x",), SandboxPolicy(cwd="/ws", writable=("/ws",), protected=most), {}))
    assert words.count(most[-1]) == 2
    with pytest.raises(NoLaunchError, match=r"No command was run: .* 2,001 paths, most of them in /ws, .* 2,000\."):
        box.wrap(("x",), SandboxPolicy(cwd="/ws", writable=("/ws",), protected=(*most, "/ws/more")), {})


def test_bubblewrap_takes_as_many_mounts_as_it_is_told(tmp_path: Path) -> None:
    """It has a bound of its own, on words: ours lies below."""
    names = tuple(str(tmp_path / str(number)) for number in range(SANDBOX_MOUNTS_MAX))
    given = SandboxPolicy(cwd="/", protected=names)
    launch = here("bubblewrap").wrap(("/bin/true",), given, {})
    done = run_probe(launch)
    assert "Can't find source path" in done.text, "nothing is there, and that is what it says"


def test_bubblewrap_begins_with_nothing_where_only_what_is_named_is_readable() -> None:
    policy = SandboxPolicy(
        cwd="/ws",
        readable=("/ws", "/ws/.ssh/id"),
        hidden=("/ws/.ssh", "/h/.ssh", "/usr/key"),
        hidden_files=("/h/.netrc",),
        reads_only=True,
    )
    launch = Bubblewrap("bwrap", "bubblewrap 1", user=True).wrap(("/bin/echo", "hi"), policy, {})
    words = " ".join(told(launch))
    assert "--ro-bind / /" not in words
    assert "--ro-bind-try /usr /usr" in words
    assert "--tmpfs /ws/.ssh" in words
    assert "--tmpfs /usr/key" in words
    assert "/h/" not in words, "what isn't there needs no hiding"
    assert words.index("--remount-ro /") > words.index("--ro-bind /ws/.ssh/id")
    assert b"/ws/.ssh/id" in launch.inputs[1], "a mount inside of a readable folder is checked"


SANDBOXES = ["bubblewrap", "landlock", "landlock-no-mounts"]


@pytest.mark.parametrize("name", SANDBOXES)
def test_nothing_but_what_is_named_is_readable(tree: Path, name: str) -> None:
    (tree / "h" / "notes").write_text("notes")
    (tree / "ws" / "src" / "a").write_text("mine")
    (tree / "ws" / ".git" / "config").write_text("hidden")
    (tree / "ws" / "out").symlink_to(tree / "h")
    ws, h = str(tree / "ws"), str(tree / "h")
    policy = SandboxPolicy(
        cwd=ws, readable=(ws, f"{h}/.ssh/id"), hidden_files=(f"{ws}/.git/config",), hidden=(f"{h}/.ssh",)
    )
    open_ = replace(policy, readable=(h, *policy.readable))  # a machine whose folders aren't in /tmp
    for command, readable in (
        ("cat src/a", True),
        ("ls . src .git", True),
        (f"cat {h}/.ssh/id", True),
        ("cat .git/config | grep hidden", False),
        (f"cat {h}/notes", False),
        (f"ls {h}/ws {h}/notes", False),
        ("cat out/notes", False),
        ("ls out/.ssh | grep known", False),
        (f"ls {tree} | grep -x notes", False),
        ("cat /etc/passwd", False),
        ("ls /etc | grep passwd", False),
        ("ls /root /home | grep .", False),
        ("cat /sys/kernel/uevent_seqnum", False),
        (f"cat /proc/{os.getpid()}/cmdline | grep -a .", False),
        ("echo x > src/a", False),
        ("echo x > made", False),
        ("echo x > /made", False),
        ("mkdir /usr/made", False),
    ):
        done = run(here(name), command, replace(policy, reads_only=True))
        assert (done.returncode == 0) is readable, (command, done)
    assert run(here(name), f"cat {h}/notes /etc/passwd", open_).returncode == 0
    assert run(here(name), f"cat {h}/notes /etc/passwd", replace(open_, reads_only=True)).returncode != 0


@pytest.mark.parametrize("name", SANDBOXES)
def test_everything_may_be_what_is_named(name: str) -> None:
    done = run(here(name), "cat /etc/passwd && ls /", SandboxPolicy(cwd="/", readable=("/",), reads_only=True))
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_mount_inside_of_a_readable_folder_is_never_redirected(tree: Path) -> None:
    """A granted folder within another one that others may write to was swapped for a link."""
    ws, granted = str(tree / "ws"), str(tree / "ws" / "link" / "in")
    policy = SandboxPolicy(cwd=ws, readable=(ws, granted), reads_only=True)
    (tree / "h" / "in").mkdir()
    (tree / "ws" / "src" / "in").mkdir()
    done = run(here("bubblewrap"), "echo ran", policy)
    assert done.stdout == b""
    assert b"path_changed" in done.stderr


def test_bubblewrap_opens_the_network_only_when_granted() -> None:
    box = Bubblewrap("bwrap", "bubblewrap 1", user=False)
    assert "--unshare-net" in told(box.wrap(("x",), SandboxPolicy(cwd="/"), {}))
    assert "--unshare-net" not in told(box.wrap(("x",), SandboxPolicy(cwd="/", network=True), {}))


def test_no_sandbox_is_never_a_way_out() -> None:
    with pytest.raises(AssertionError):
        NoSandbox("gone").wrap(("/bin/true",), POLICY, {})


# -- Landlock's shim ----------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    base = tmp_path.resolve()
    for path in ("ws/.git/config", "ws/src/a", "h/.ssh/id", "h/.ssh/known", "h/notes"):
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).touch()
    (base / "ws" / "link").symlink_to("src")
    return base


def test_rules_leave_out_what_has_fewer_rights(tree: Path) -> None:
    special = {f"{tree}/h/.ssh": 0, f"{tree}/h/.ssh/id": 1, f"{tree}/ws": 3, f"{tree}/ws/.git/config": 1}
    rules = dict(landlock_rules.rules_of(str(tree), 1, special))
    assert rules == {
        f"{tree}/h/notes": 1,
        f"{tree}/h/.ssh/id": 1,
        f"{tree}/ws": 1,  # what all of it has
        f"{tree}/ws/src": 3,
        f"{tree}/ws/.git": 1,
        f"{tree}/ws/.git/config": 1,
    }


def test_without_mounts_a_protected_file_closes_its_folder(tree: Path) -> None:
    box = here("landlock-no-mounts")
    ws = str(tree / "ws")
    policy = SandboxPolicy(cwd=ws, writable=(ws,), pinned=(f"{ws}/.git",), protected=(f"{ws}/.git/config",))
    for command, works in (
        ("echo x > src/new", True),
        ("echo x > src/a && mv src/a src/b", True),
        ("echo x > .git/config", False),
        ("mv .git x", False),
        ("mv src/b .git/config", False),
        ("ln src/new .git/other", False),
        ("echo x > new", False),
        ("rm .git/config", False),
    ):
        done = run(box, command, policy)
        assert (done.returncode == 0) is works, (command, done)
    assert (tree / "ws" / ".git" / "config").read_text() == ""


def verdict(program: list[Instruction], *, architecture: int, number: int, first: int = 0, second: int = 0) -> int:
    """Run the filter as the kernel does."""
    values = {0: number, 4: architecture, 16: first, 24: second}
    at, held = 0, 0
    while True:
        operation, yes, no, value = program[at]
        at += 1
        if operation == 0x20:
            held = values[value]
        elif operation == 0x54:
            held &= value
        elif operation == 0x15:
            at += yes if held == value else no
        elif operation == 0x35:
            at += yes if held >= value else no
        else:
            return value


ALLOW = 0x7FFF0000


@pytest.mark.parametrize(
    ("machine", "word", "socket", "pair"), [("x86_64", 0xC000003E, 41, 53), ("aarch64", 0xC00000B7, 198, 199)]
)
def test_the_filter_of_system_calls(machine: str, word: int, socket: int, pair: int) -> None:
    def allowed(number: int, *values: int, network: bool = False, architecture: int = word, **more: bool) -> bool:
        program = instructions(machine, network=network, **more)
        named = dict(zip(("first", "second"), values, strict=False))
        return verdict(program, architecture=architecture, number=number, **named) == ALLOW

    assert allowed(0)
    assert not allowed(0, architecture=0x40000003)
    assert not allowed(425)
    assert not allowed(0x40000000 + socket, 2, network=True)
    for family in (1, 2, 10, 17, 40):
        assert not allowed(socket, family)
    assert [family for family in range(64) if allowed(socket, family, network=True)] == [2, 10, 16]
    assert [family for family in range(64) if allowed(socket, family, network=True, unix=True)] == [1, 2, 10, 16]
    # A pair of datagram sockets can be pointed at anyone's.
    assert [kind for kind in range(16) if allowed(pair, 1, kind | 0x80800)] == [1, 5]
    assert allowed(pair, 1, 2, unix=True)
    its = ARCHITECTURES[machine]
    for number in its.limits:
        assert allowed(number, 0) and not allowed(number, 7) and allowed(number, 7, alone=True)
    for number, process in ((its.priority, 0), (its.io_priority, 1)):
        assert [(kind, who) for kind in range(4) for who in (0, 7) if allowed(number, kind, who)] == [(process, 0)]
        assert allowed(number, 2, 7, alone=True)
    for number in its.shared:
        assert not allowed(number) and allowed(number, alone=True)


@pytest.mark.parametrize("name", ["landlock", "landlock-no-mounts"])
def test_the_shim_leaves_nothing_behind(name: str) -> None:
    box = here(name)
    script = 'mkdir "$TMPDIR/d"; touch "$TMPDIR/d/x"; (setsid sleep 300 &); stat -c "%a %n" "$TMPDIR"; exit 7'
    done = run(box, script, SandboxPolicy(cwd="/"))
    mode, _, folder = done.stdout.decode().strip().partition(" ")
    assert (done.returncode, mode, done.stderr) == (7, "700", b"")
    assert folder
    assert not os.path.exists(folder)


@pytest.mark.parametrize("moment", ["runs", "has ended"])
def test_an_owners_death_ends_what_a_command_left_at_any_moment(moment: str) -> None:
    """Also where the command ends in that moment, and the shim is ending the rest: here it waits for us before that."""
    box: Any = copy(here("landlock"))
    armed, there = "    kernel.prctl(_PDEATHSIG, _ORPHANED)\n", "        _end_the_rest()\n"
    assert armed in box._shim and there in box._shim
    box._shim = box._shim.replace(armed, f"{armed}    os.write(1, b'runs\\n')\n")
    box._shim = box._shim.replace(there, f"        os.write(1, b'has ended\\n'), os.read(0, 1)\n{there}")
    script = "setsid sleep 300 </dev/null >/dev/null 2>&1 & echo $!"
    script += "; exec sleep 300" if moment == "runs" else ""
    launch = box.wrap(("/bin/sh", "-c", script), SandboxPolicy(cwd="/"), {})
    with opened(launch.argv, launch.inputs) as (argv, fds):
        shim_ = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=fds)
    assert shim_.stdin is not None and shim_.stdout is not None
    said: set[str] = set()
    while not (moment in said and any(map(str.isdigit, said))):
        said.add(shim_.stdout.readline().decode().strip())
    left = os.pidfd_open(int(next(filter(str.isdigit, said))))
    try:
        for number in (signal.SIGUSR2, signal.SIGINT, signal.SIGTERM):
            shim_.send_signal(number)
        shim_.communicate(b"x")
        assert select.select([left], [], [], 0)[0], "it has outlived the shim"
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(left, signal.SIGKILL)
        os.close(left)


@pytest.mark.parametrize("name", ["landlock", "landlock-no-mounts"])
def test_the_shim_runs_nothing_where_a_rule_cant_be_made(tmp_path: Path, name: str) -> None:
    box = here(name)
    gone = SandboxPolicy(cwd=str(tmp_path / "gone"))
    done = run(box, "echo ran", gone)
    assert (done.returncode, done.stdout) == (shim.FAILED, b"")
    assert done.stderr.startswith(b"the sandbox could not be set up: ")


@pytest.mark.parametrize("name", ["bubblewrap", "landlock", "landlock-no-mounts"])
def test_devices_cant_be_made(tmp_path: Path, name: str) -> None:
    run(here(name), "mknod m b 8 0; mkfifo p", SandboxPolicy(cwd=str(tmp_path), writable=(str(tmp_path),)))
    assert not (tmp_path / "m").exists()
    assert stat.S_ISFIFO((tmp_path / "p").stat().st_mode)


def test_the_kernel_counts_a_call_s_processes_in_its_namespace() -> None:
    """Who isn't root is refused further processes at once, however many others run under the same name."""
    if isinstance(found := find_bubblewrap(), str):
        pytest.skip(found)
    command = "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done; echo all"
    prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.geteuid() == 0 else ()
    if prefix and shutil.which("setpriv") is None:
        pytest.skip("setpriv is needed to be someone else than root")
    program = next(place for place in PLACES if os.access(place, os.X_OK))
    counted = Bubblewrap(program, "bubblewrap", user=True, processes_max=20)
    launch = counted.wrap(("/bin/sh", "-c", command), SandboxPolicy(cwd="/"), {})
    tried = run_probe(Launch(argv=(*prefix, *launch.argv), inputs=launch.inputs))
    assert tried.code != 0
    assert "fork" in tried.text.lower(), tried


# -- the second wall ----------------------------------------------------------------------------------------------


def walled(change: dict[str, object]) -> Bubblewrap:
    """Return a bubblewrap with a wall that was changed; skip the test where there is none."""
    if (wall := find_wall()) is None:
        pytest.skip("this kernel has no Landlock")
    found = find_bubblewrap(wall=lambda: replace(wall, **change))
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.mark.parametrize("abi", range(2, 8))
def test_every_version_of_the_wall_holds(tmp_path: Path, abi: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel takes what older ones know."""
    if (wall := find_wall()) is None or wall.abi < abi:
        pytest.skip(f"this kernel has no Landlock ABI {abi}")
    monkeypatch.setattr(bubblewrap, "_SPARE", ("/var/tmp", "/run"))
    box = walled({"abi": abi})
    assert box.name.endswith(f" with Landlock ABI {abi}")
    for folder in ("ws", "home"):
        (tmp_path / folder).mkdir()
    secret = tmp_path / "home" / "secret"
    policy = SandboxPolicy(cwd=str(tmp_path / "ws"), writable=(str(tmp_path / "ws"),), absent=(str(secret),))
    secret.write_text("swordfish")
    (tmp_path / "home" / "notes").write_text("notes")
    done = run(box, f"cat {secret} ../home/notes; mkdir d; echo a > a; mv a d/; : > d/a; cat d/a", policy)
    assert done.stdout == b"notes"
    assert (tmp_path / "ws" / "d" / "a").exists()


def test_a_wall_that_doesnt_stand_is_told(tmp_path: Path) -> None:
    box = walled({"python": str(tmp_path / "nothing")})
    assert box.name.endswith(", without Landlock")
    assert run(box, "echo runs", SandboxPolicy(cwd="/")).stdout == b"runs\n"


def test_a_wall_that_falls_later_runs_nothing() -> None:
    box = walled({})
    box._wall = replace(cast("Wall", box._wall), abi=99, text=b"import sys; sys.exit('no')")  # pyright: ignore[reportPrivateUsage]
    done = run(box, "echo runs", SandboxPolicy(cwd="/"))
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"no\n")


@pytest.mark.parametrize("name", ["bubblewrap", "landlock", "landlock-no-mounts"])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"LC_CTYPE": "C", "LANG": "de_DE"},
        {"A": "it's \n\u00e4 $HOME `x` \udcff", "PYTHONHOME": "/nothing", "LD_PRELOAD": "", "UID_": "1"},
    ],
)
def test_a_command_gets_the_environment_that_it_was_given(tmp_path: Path, name: str, given: dict[str, str]) -> None:
    policy = SandboxPolicy(cwd=str(tmp_path), writable=(str(tmp_path),))
    launch = here(name).wrap(("/usr/bin/env", "-0"), policy, given)
    with opened(launch.argv, launch.inputs) as (argv, fds):
        done = subprocess.run(argv, env={}, stdin=subprocess.DEVNULL, capture_output=True, check=True, pass_fds=fds)
    names = dict(line.split("=", 1) for line in os.fsdecode(done.stdout).split("\0") if line)
    own = ("TMPDIR", "TMP", "TEMP", "PWD", "OLDPWD")
    assert {key: value for key, value in names.items() if key not in own} == given


def test_a_folder_that_cant_be_listed_keeps_what_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /home on a machine of many: its people may pass it, and list their own."""

    def closed(path: str) -> object:
        if path == str(tmp_path):
            raise PermissionError(13, "closed", path)
        return os.scandir(path)

    (tmp_path / "ann" / "ws").mkdir(parents=True)
    (tmp_path / "ann" / "notes").touch()
    (tmp_path / "bob").touch()
    monkeypatch.setattr(landlock_rules, "os", SimpleNamespace(**{**vars(os), "scandir": closed}))
    special = {str(tmp_path / "ann" / "ws"): 3, str(tmp_path / "ann" / ".ssh"): 0}
    rules = dict(landlock_rules.rules_of(str(tmp_path), 1, special))
    assert rules == {str(tmp_path / "ann" / "ws"): 3, str(tmp_path / "ann" / "notes"): 1}
