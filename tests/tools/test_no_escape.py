"""No sequence of calls, with links, renames and races, creates, changes or reads a byte outside of the boundary."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maka.contracts.boundary import FileEntry, Profile
from maka.contracts.content import Outcome
from maka.contracts.tool_ports import Sandbox, ToolCatalog
from maka.edges.processes import AsyncProcesses
from maka.tools.policy import Ground
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import Bench, Recorder, boundary

SECRET = "swordfish"
PYTHON = os.path.realpath(sys.executable)
NAMES = ("a", "b", "d", "l", ".git", "config", ".envrc")
Move = tuple[str, str, str]
Step = tuple[Literal["Read", "Write", "Edit", "Grep", "Glob", "Bash", "move"], str, Move | None]


class World:
    """A workspace, and beside it what no call may touch; a part of that is granted."""

    def __init__(self, base: Path) -> None:
        self.workspace = base / "ws"
        self.outside = base / "outside"
        self.granted = base / "granted"
        for folder in (self.workspace / "d", self.outside / "d", self.granted / "d"):
            folder.mkdir(parents=True)
        for path in ("a", "d/a", "b", ".envrc"):
            (self.outside / path).write_text(SECRET)
        (self.workspace / "a").write_text("mine")
        (self.workspace / "d" / "a").write_text("mine")
        self.before = snapshot(self.outside)

    def ground(self) -> Ground:
        real = str(self.outside.resolve())
        return Ground(secrets=(real,), programs=(str(self.workspace.parent.resolve()),))


def snapshot(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Every entry below a folder: mode, inode, change time, content."""
    found: dict[str, tuple[int, int, int, bytes]] = {}
    for path in (folder, *folder.rglob("*")):
        info = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (info.st_mode, info.st_ino, info.st_ctime_ns, content)
    return found


@contextmanager
def world() -> Generator[World]:
    base = Path(tempfile.mkdtemp(prefix="maka-world-")).resolve()
    try:
        yield World(base)
    finally:
        shutil.rmtree(base, ignore_errors=True)


inner = st.lists(st.sampled_from((*NAMES, "..", ".")), min_size=1, max_size=3).map("/".join)
paths = st.one_of(
    inner,
    inner.map("OUT/{}".format),
    inner.map("GRANTED/{}".format),
    inner.map("../outside/{}".format),
)
targets = st.one_of(inner, st.sampled_from(["OUT", "OUT/a", "OUT/d", "../outside", "../..", "/", "GRANTED", "OUT/new"]))
moves = st.tuples(st.sampled_from(["link", "rename", "remove", "mkdir", "hard"]), inner, targets)
kinds = st.sampled_from(["Read", "Write", "Write", "Edit", "Grep", "Glob", "move", "move", "move"])
steps = st.lists(st.tuples(kinds, paths, st.none() | moves), min_size=1, max_size=6)
commands = st.one_of(
    st.tuples(
        st.sampled_from(
            ["cat P", "echo x > P", "rm -rf P", "ln -sfn T P", "ln -f T P", "mv -f P T", "cp T P", "mkdir -p P"]
        ),
        paths,
        targets,
    ),
    # No tree of any choice is copied: a link to / in its place would fill the disk of the machine that tests.
    st.tuples(st.just("cp -r T P"), paths, st.sampled_from(["OUT", "OUT/d", "GRANTED"])),
)


def filled(world: World, text: str) -> str:
    return text.replace("OUT", str(world.outside)).replace("GRANTED", str(world.granted))


def move(world: World, what: Move) -> None:
    """Someone else's change in the workspace: what a command there could do at that very moment."""
    kind, name, target = what
    path = world.workspace / os.path.normpath(name.replace("..", "up"))
    to = filled(world, target)
    with suppress(OSError, shutil.Error):
        if kind == "link":
            path.symlink_to(to)
        elif kind == "rename":
            path.rename(world.workspace / os.path.normpath(to.strip("/").replace("..", "up").replace("outside", "o")))
        elif kind == "remove" and path != world.workspace:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        elif kind == "mkdir":
            path.mkdir(parents=True)


def arguments(name: str, path: str) -> dict[str, Any]:
    match name:
        case "Write":
            return {"path": path, "content": "written"}
        case "Edit":
            return {"path": path, "old_string": "mine", "new_string": "yours"}
        case "Grep":
            return {"path": path, "pattern": "."}
        case "Glob":
            return {"path": path, "pattern": "**"}
        case _:
            return {"path": path}


def call(bench: Bench, world: World, step: Step) -> None:
    name, path, race = step
    if name == "move":
        if race is not None:
            move(world, race)
        return
    at_commit: Callable[[object], None] | None = None if race is None else lambda _: move(world, race)
    recorder = bench.begin(name, Recorder(on_commit=at_commit), **arguments(name, filled(world, path)))
    result = recorder.wait()
    assert SECRET not in result.text
    assert SECRET not in (result.diff or "")
    assert all(fact.pre_image is None or SECRET.encode() not in fact.pre_image for fact in recorder.file_facts)


def check(tools: Callable[[Ground], ToolCatalog], sequence: list[Step], profile: Profile) -> None:
    with world() as one:
        wide = FileEntry(path=str(one.granted), access="write", scope="subtree")
        bench = Bench(tools(one.ground()), one.workspace, boundary(one.workspace, profile, wide))
        for step in sequence:
            call(bench, one, step)
            assert snapshot(one.outside) == one.before


def check_commands(tools: Callable[[Ground], ToolCatalog], sequence: list[tuple[str, str, str]]) -> None:
    with world() as one:
        bench = Bench(tools(one.ground()), one.workspace)
        for pattern, path, target in sequence:
            command = pattern.replace("P", f"'{filled(one, path)}'").replace("T", f"'{filled(one, target)}'")
            result = bench.run("Bash", command=command)
            assert SECRET not in result.text
            for each in ("a", "d/a", "l", "l/a"):
                assert SECRET not in bench.run("Read", path=each).text
            assert snapshot(one.outside) == one.before
        for found in one.workspace.rglob("*"):
            assert found.is_symlink() or not found.is_file() or SECRET not in found.read_text(errors="replace")


def tier(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@tier(100)
@given(sequence=steps, profile=st.sampled_from([Profile.ASK, Profile.EXPLORE]))
def test_files_stay_inside(processes: AsyncProcesses, sequence: list[Step], profile: Profile) -> None:
    check(lambda ground: make_tools(processes, ground=ground), sequence, profile)


@tier(25)
@given(sequence=st.lists(commands, min_size=1, max_size=4))
def test_commands_stay_inside(
    processes: AsyncProcesses, sandbox: Sandbox, sequence: list[tuple[str, str, str]]
) -> None:
    check_commands(lambda ground: make_tools(processes, sandbox=sandbox, ground=ground), sequence)


@pytest.mark.slow
@tier(2_000)
@given(sequence=steps, profile=st.sampled_from([Profile.ASK, Profile.EXPLORE]))
def test_files_stay_inside_at_length(processes: AsyncProcesses, sequence: list[Step], profile: Profile) -> None:
    check(lambda ground: make_tools(processes, ground=ground), sequence, profile)


@pytest.mark.slow
@tier(1_000)
@given(sequence=st.lists(commands, min_size=1, max_size=4))
def test_commands_stay_inside_at_length(
    processes: AsyncProcesses, sandbox: Sandbox, sequence: list[tuple[str, str, str]]
) -> None:
    check_commands(lambda ground: make_tools(processes, sandbox=sandbox, ground=ground), sequence)


def test_a_command_that_swaps_folders_all_the_time_wins_no_race(processes: AsyncProcesses, sandbox: Sandbox) -> None:
    with world() as one:
        bench = Bench(make_tools(processes, sandbox=sandbox, ground=one.ground()), one.workspace)
        swap = f"echo on; while :; do mv d e; ln -s {one.outside} d; rm d; mv e d; done"
        racing = bench.begin("Bash", Recorder(), command=swap)
        assert racing.spoke.wait(20)
        written = 0
        for number in range(200):
            result = bench.begin("Write", path="d/a", content=str(number)).wait()
            written += result.outcome is Outcome.OK
            assert SECRET not in bench.run("Read", path="d/a").text
        racing.cancel()
        racing.wait()
        assert written > 0, "the race was never run against a folder"
        assert snapshot(one.outside) == one.before


SWAP = """
import os
os.makedirs(NAME, exist_ok=True)
os.symlink(UP, "link")
print("on", flush=True)
while True:
    for a, b in ((NAME, "held"), ("link", NAME), (NAME, "link"), ("held", NAME)):
        try:
            os.rename(a, b)
        except OSError:  # the other command's end has put it aside
            for make in (lambda: os.mkdir(NAME), lambda: os.symlink(UP, "link")):
                try:
                    make()
                except OSError:
                    pass
"""


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
@pytest.mark.parametrize("name", [".git", "sub/.git"])
def test_a_mount_is_never_redirected(processes: AsyncProcesses, sandbox: Sandbox, name: str) -> None:
    """One command swaps a folder for a link to the outside, while others are being put into their sandboxes."""
    with world() as one:
        ground = Ground(programs=(str(one.workspace.parent),))
        bench = Bench(make_tools(processes, sandbox=sandbox, ground=ground), one.workspace)
        up = "../" * (name.count("/") + 1) + "outside"
        (one.workspace / "swap.py").write_text(SWAP.replace("NAME", repr(name)).replace("UP", repr(up)))
        racing = bench.begin("Bash", Recorder(), command=f"{PYTHON} -I -S swap.py")
        assert racing.spoke.wait(20)
        ran = 0
        for _ in range(60):
            attack = f"echo no > {one.outside}/made; echo no > {name}/made; echo ran"
            ran += "ran" in bench.begin("Bash", command=attack).wait().text
        assert not racing.results, racing.results
        racing.cancel()
        racing.wait()
        assert snapshot(one.outside) == one.before
        assert ran > 0
