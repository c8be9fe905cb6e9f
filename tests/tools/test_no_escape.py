"""No sequence of calls, with links, renames and races, creates, changes or reads a byte outside of the boundary.

All around a workspace is looked at before and after each call, and a word that is in every file there is looked for in
all that a call says. Races are exact: moves happen between two system calls of a tool, at its commit, and when its
process has ended. That the property can fail is seen by planted faults.
"""

import os
import re
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maka.contracts.boundary import Profile
from maka.contracts.content import Outcome
from maka.contracts.sandbox_ports import Sandbox
from maka.edges.processes import AsyncProcesses
from maka.tools.policy import Ground
from tests.tools import replay
from tests.tools.conftest import MOUNTING, SANDBOXES, here, make_tools
from tests.tools.faults import FAULTS, Fault
from tests.tools.harness import Bench, Recorder
from tests.tools.stage import Stage, Tales, play, play_one
from tests.tools.stories import Step, Story
from tests.tools.worlds import MARK, SETTLING, WORD, Escape, Move, Race, Worlds, fill, snapshot

PYTHON = os.path.realpath(sys.executable)
AT_LENGTH = {
    "bubblewrap": (range(1_000, 1_750), 250),
    "landlock": (range(2_000, 2_375), 125),
    "landlock-no-mounts": (range(2_500, 2_875), 125),
}
"""The stories of each sandbox in the slow tier: the same ones each time, and how many that nobody has seen.

2,000 of files in all, and as many of commands.
"""

TRIES = range(600)


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Worlds]:
    made = Worlds(tmp_path)
    yield made
    made.close()


@pytest.fixture
def stage(request: pytest.FixtureRequest, processes: AsyncProcesses, worlds: Worlds) -> Iterator[Stage]:
    """What plays stories in the sandbox that is named, or with the fault that is planted."""
    with pytest.MonkeyPatch.context() as patch:
        if isinstance(request.param, Fault):
            box = request.param.plant(patch, here(request.param.box))
        else:
            box = here(request.param)
        name = request.param.box if isinstance(request.param, Fault) else request.param
        yield Stage(processes, box, worlds, patch, name=name)


@pytest.mark.parametrize("stage", SANDBOXES, indirect=True)
def test_files_stay_inside(stage: Stage) -> None:
    play(stage, "files", range(40))


@pytest.mark.parametrize("stage", SANDBOXES, indirect=True)
def test_commands_stay_inside(stage: Stage) -> None:
    play(stage, "commands", range(15))


@pytest.mark.slow
@pytest.mark.parametrize("tales", ["files", "commands"])
@pytest.mark.parametrize("stage", AT_LENGTH, indirect=True)
def test_all_stays_inside_at_length(stage: Stage, tales: Tales) -> None:
    play(stage, tales, AT_LENGTH[stage.name][0])


@pytest.mark.slow
@pytest.mark.parametrize("tales", ["files", "commands"])
@pytest.mark.parametrize("stage", AT_LENGTH, indirect=True)
def test_all_stays_inside_in_fresh_stories(stage: Stage, tales: Tales) -> None:
    """Stories that nobody has seen; a failure tells the number of the one that failed, and how to play it again."""
    play(stage, tales, (secrets.randbelow(1 << 40) for _ in range(AT_LENGTH[stage.name][1])))


QUICK = next(fault for fault in FAULTS if fault.name == "explore may write")


@pytest.mark.parametrize("stage", [QUICK], ids=[QUICK.title], indirect=True)
def test_a_failure_gives_the_command_that_plays_it_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Escape) as failure:
        play(stage, "files", (secrets.randbelow(1 << 40) for _ in range(1_000)), shorten=False)
    told = re.search(r"python -m tests\.tools\.replay (files) (bubblewrap) (\d+)\n", str(failure.value))
    assert told is not None, str(failure.value)

    def faulty(*_: object, **__: object) -> Stage:
        return stage

    monkeypatch.setattr(replay, "Stage", faulty)
    with pytest.raises(Escape, match=rf"story {told[3]}, "):
        replay.main("files", told[2], told[3])


PLANTED = {
    "a name": f"echo {MARK} > d/CLAUDE.md",
    "a repository": "cd d && mkdir -p .git/hooks .git/objects .git/refs && echo ref: refs/heads/x > .git/HEAD && "
    f"echo {MARK} > .git/hooks/pre-commit",
}


@pytest.mark.parametrize("stage", SANDBOXES, indirect=True)
@pytest.mark.parametrize("planted", [pytest.param("a name", marks=pytest.mark.slow), "a repository"])
@pytest.mark.parametrize("target", ["OUT/d", pytest.param("e", marks=pytest.mark.slow)])
def test_what_is_moved_while_it_is_put_right_is_found(stage: Stage, planted: str, target: str) -> None:
    """Another command swaps the folder of what was planted, at each system call that names it."""

    def story(number: int) -> Story:
        race = Race(SETTLING + number, Move("swap", "d", target))
        return Story(Profile.ASK, None, (Step("Bash", PLANTED[planted], (race,)),))

    for number in range(1, 16):
        play_one(stage.commands, story(number))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "fault"), [(fault, fault) for fault in FAULTS], ids=[fault.title for fault in FAULTS], indirect=["stage"]
)
def test_the_property_sees_a_planted_fault(stage: Stage, fault: Fault) -> None:
    with pytest.raises(Escape):
        play(stage, fault.stories, TRIES, shorten=False)


@pytest.mark.one_sandbox
def test_a_command_that_swaps_folders_all_the_time_wins_no_race(
    processes: AsyncProcesses, sandbox: Sandbox, worlds: Worlds
) -> None:
    """A real race, which the exact ones can't stand for: here the kernel decides who comes first."""
    with worlds.one(Profile.ASK, None) as one:
        ground = Ground(programs=(str(one.scratch),))
        bench = Bench(make_tools(processes, sandbox=sandbox, ground=ground), one.workspace)
        before = snapshot(one.outside)
        swap = f"echo on; while :; do mv d h; ln -s {one.outside} d; rm d; mv h d; done"
        racing = bench.begin("Bash", Recorder(), command=swap)
        assert racing.spoke.wait(20)
        written = 0
        for number in range(200):
            result = bench.begin("Write", path="d/a", content=str(number)).wait()
            written += result.outcome is Outcome.OK
            assert WORD not in bench.run("Read", path="d/a").text
            if number % 10 == 0:
                assert WORD not in bench.run("Grep", pattern=".", path="d/a").text
        racing.cancel()
        racing.wait()
        assert written > 0, "the race was never run against a folder"
        assert snapshot(one.outside) == before


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
@pytest.mark.parametrize("name", [".git", pytest.param("sub/.git", marks=pytest.mark.slow)])
@pytest.mark.parametrize("tries", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_a_mount_is_never_redirected(
    processes: AsyncProcesses, sandbox: Sandbox, tmp_path: Path, name: str, tries: int
) -> None:
    """One command swaps a folder for a link to the outside, while others are being put into their sandboxes."""
    base = tmp_path.resolve()
    workspace, outside = base / "ws", base / "outside"
    fill(workspace, ("a", "mine"))
    fill(outside, ("a", WORD), ("config", WORD), ("d/a", WORD))
    before = snapshot(outside)
    bench = Bench(make_tools(processes, sandbox=sandbox, ground=Ground(programs=(str(base),))), workspace)
    up = "../" * (name.count("/") + 1) + "outside"
    (workspace / "swap.py").write_text(SWAP.replace("NAME", repr(name)).replace("UP", repr(up)))
    racing = bench.begin("Bash", Recorder(), command=f"{PYTHON} -I -S swap.py")
    assert racing.spoke.wait(20)
    ran = 0
    for _ in range(tries):
        attack = f"echo no > {outside}/made; echo no > {name}/made; echo ran"
        ran += "ran" in bench.begin("Bash", command=attack).wait().text
    assert not racing.results, racing.results
    racing.cancel()
    racing.wait()
    assert snapshot(outside) == before
    assert ran > 0
