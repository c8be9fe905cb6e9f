"""Commands in a workspace that other programs change while their sandbox is set up."""

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from maka.contracts.content import Outcome
from maka.contracts.limits import SANDBOX_TRIES_MAX
from maka.contracts.sandbox_ports import Sandbox, SandboxPolicy
from maka.edges.processes import AsyncProcesses
from maka.tools.boxed import CHANGED
from maka.tools.inside import Inside
from maka.tools.shells import Shells
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import CHILD_ENV, PATIENCE_S, SESSION, Bench, Recorder, boundary
from tests.tools.test_background import Place

EACH = pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
After = Callable[[int, SandboxPolicy], None]


@pytest.fixture
def place(processes: AsyncProcesses, workspace: Path, sandbox: Sandbox) -> Place:
    place = Place(workspace, processes)
    place.bench = Bench(
        make_tools(processes, sandbox=sandbox, shells=Shells(table=place.table)), workspace, boundary(workspace)
    )
    return place


@pytest.fixture
def bench(place: Place) -> Bench:
    return place.bench


def make(repository: Path) -> None:
    """Make what git takes for a repository, with a hook that must be held."""
    for name in ("objects", "refs", "hooks"):
        (repository / ".git" / name).mkdir(parents=True)
    (repository / ".git" / "HEAD").write_text("ref: refs/heads/x\n")
    (repository / ".git" / "config").write_text("[core]\n")


def after_each_look(patch: pytest.MonkeyPatch, act: After) -> list[SandboxPolicy]:
    """Do something between the look at the workspace and the sandbox; returns what was seen."""
    seen: list[SandboxPolicy] = []
    right = Inside.policy

    def policy(inside: Inside, cwd: str) -> SandboxPolicy:
        seen.append(right(inside, cwd))
        act(len(seen), seen[-1])
        return seen[-1]

    patch.setattr(Inside, "policy", policy)
    return seen


@EACH
@pytest.mark.parametrize("in_background", [False, True])
def test_what_goes_meanwhile_is_looked_at_again(
    place: Place, workspace: Path, monkeypatch: pytest.MonkeyPatch, in_background: bool
) -> None:
    make(workspace / "build")

    def gone(number: int, policy: SandboxPolicy) -> None:
        if number == 1:
            assert any("/build/.git" in path for path in policy.protected)
            shutil.rmtree(workspace / "build")

    seen = after_each_look(monkeypatch, gone)
    recorder = place.bench.begin("Bash", command="echo ran >> ran; echo out", run_in_background=in_background)
    result = recorder.wait()
    if in_background:
        shell, ended = place.table.find(recorder.call_id), threading.Event()
        assert shell is not None and result.text.startswith("Running in the background as b1")
        shell.when_ended(lambda _: ended.set())
        assert ended.wait(PATIENCE_S)
        assert shell.glance().text == "out\n"
    else:
        assert (result.outcome, result.text) == (Outcome.OK, "out\n")
        assert recorder.shown() == "out\n" and not recorder.shown("stderr")
    assert (workspace / "ran").read_text() == "ran\n"
    assert len(seen) == 2 and not any("/build" in path for path in seen[1].protected)
    assert len(recorder.process_facts) == 1, "the first one was nobody's fact"


@EACH
@pytest.mark.parametrize("in_background", [False, True])
def test_where_it_always_goes_nothing_is_run(
    place: Place, workspace: Path, monkeypatch: pytest.MonkeyPatch, in_background: bool
) -> None:
    make(workspace / "build")

    def moves(number: int, policy: SandboxPolicy) -> None:
        at = next(path for path in policy.protected if path.endswith("/.git/config"))
        shutil.move(os.path.dirname(os.path.dirname(at)), workspace / f"build{number}")

    seen = after_each_look(monkeypatch, moves)
    recorder = place.bench.begin("Bash", command="touch ran", run_in_background=in_background)
    result = recorder.wait()
    assert (result.outcome, result.text) == (Outcome.ERROR, CHANGED)
    assert len(seen) == SANDBOX_TRIES_MAX
    assert not recorder.process_facts and not recorder.outputs and not (workspace / "ran").exists()
    assert place.table.is_empty() and not place.table.unrecorded(SESSION)


@EACH
def test_a_stop_between_two_tries_is_one_before_the_command(
    bench: Bench, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(workspace / "build")
    recorder, known = Recorder(), threading.Event()

    def stops(number: int, policy: SandboxPolicy) -> None:
        if number == 1:
            shutil.rmtree(workspace / "build")
        else:
            assert known.wait(PATIENCE_S)
            recorder.cancel()

    seen = after_each_look(monkeypatch, stops)
    bench.begin("Bash", recorder, command="touch ran")
    known.set()
    result = recorder.wait()
    assert (result.outcome, result.text) == (Outcome.ABORTED, "Stopped before the command began; nothing was run.")
    assert len(seen) == 2 and not recorder.process_facts and not (workspace / "ran").exists()


@EACH
def test_who_says_the_same_words_is_run_once(bench: Bench, workspace: Path) -> None:
    words = "bwrap: Can't find source path /x: No such file or directory"
    result = bench.run("Bash", command=f'echo x >> ran; echo; echo "{words}" >&2; exit 1')
    assert result.exit_code == 1 and words in result.text
    assert (workspace / "ran").read_text() == "x\n"


@EACH
def test_a_bug_at_the_second_look_is_told(bench: Bench, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(workspace / "build")

    def breaks(number: int, policy: SandboxPolicy) -> None:
        if number == 1:
            shutil.rmtree(workspace / "build")
        else:
            raise ValueError("a bug")

    after_each_look(monkeypatch, breaks)
    result = bench.run("Bash", command="touch ran")
    assert result.outcome is Outcome.ERROR and "No command was run" in result.text and "ValueError" in result.text
    assert bench.cwd == workspace and not (workspace / "ran").exists()


@EACH
@pytest.mark.parametrize("commands", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_a_program_that_makes_and_removes_repositories_fails_no_command(
    bench: Bench, workspace: Path, commands: int
) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is missing")
    busy = "while :; do git init -q ../a; mv ../a a; git init -q ../d; mkdir b; mv ../d b/d; rm -rf a; rm -rf b; done"
    builder = subprocess.Popen(("sh", "-c", busy), cwd=workspace, env=CHILD_ENV, stderr=subprocess.DEVNULL)
    try:
        for number in range(commands):
            # What is said of its end isn't looked at: what comes while it runs may be its own.
            assert bench.run("Bash", command=f"echo {number} | tee -a ran").text.startswith(f"{number}\n")
    finally:
        builder.kill()
        builder.wait()
    assert (workspace / "ran").read_text().split() == [str(number) for number in range(commands)]
