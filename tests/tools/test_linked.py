"""Repositories where nobody looks: a person's next git command at the root goes into each that an index names."""

import shutil
import subprocess
from pathlib import Path

import pytest

from maka.contracts.content import Outcome
from maka.contracts.sandbox_ports import Sandbox
from maka.edges.processes import AsyncProcesses
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import CHILD_ENV, NAMED, Bench, git

pytestmark = [pytest.mark.skipif(shutil.which("git") is None, reason="git is missing"), pytest.mark.one_sandbox]

DEEP = "/".join("bcdefghijklmnopq")
NOWHERE = ["node_modules/r", ".venv/src/r", DEEP, "CLAUDE.md.maka-aside-1/r"]
"""Where no walk goes, and where it goes only afterwards."""


def planted(place: str, add: str = "git add PLACE") -> str:
    """Return what makes a repository that runs something, and what makes the person's git go into it."""
    made = f"git init -q {place} && {NAMED} -C {place} commit -q --allow-empty -m x"
    evil = f"git -C {place} config core.fsmonitor 'touch $MARK; false'"
    return f"{made} && {evil} && {add.replace('PLACE', place)}"


@pytest.fixture
def bench(processes: AsyncProcesses, repository: Path, sandbox: Sandbox) -> Bench:
    return Bench(make_tools(processes, sandbox=sandbox), repository)


def runs_nothing(repository: Path, mark: Path) -> bool:
    """Say so of the person's git at the root."""
    for words in (["status"], ["diff"], ["stash", "list"], ["commit", "-q", "--allow-empty", "-m", "mine"]):
        git(repository, *words)
    return not mark.exists()


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
@pytest.mark.parametrize("place", NOWHERE)
def test_a_repository_that_an_index_names_is_judged_wherever_it_lies(bench: Bench, mark: Path, place: str) -> None:
    command = planted(place).replace("$MARK", str(mark))
    text = bench.run("Bash", command=command).text
    assert "moved aside" in text and f"{place}/.git" in text
    assert runs_nothing(bench.cwd, mark)
    git(bench.cwd, "reset", "-q")
    subprocess.run(("sh", "-c", command.replace(place, f"{place}-2")), cwd=bench.cwd, env=CHILD_ENV, check=True)
    assert not runs_nothing(bench.cwd, mark), "git does run it where nobody moves it aside"


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
@pytest.mark.parametrize("add", ["git add PLACE", "git update-index --split-index; git add PLACE"])
def test_one_that_is_named_later_is_found_then(bench: Bench, mark: Path, add: str) -> None:
    """Also through another one in between."""
    one, other = "node_modules/r", "node_modules/r/node_modules/s"
    made = planted(other, "true").replace("$MARK", str(mark))
    first = f"git init -q {one} && {NAMED} -C {one} commit -q --allow-empty -m x && {made}"
    assert bench.run("Bash", command=first).outcome is Outcome.OK, "nobody looks there"
    named = f"git -C {one} add node_modules/s && {add.replace('PLACE', one)}"
    assert f"{other}/.git" in bench.run("Bash", command=named).text
    assert runs_nothing(bench.cwd, mark)


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_one_from_before_is_protected_and_stays(bench: Bench) -> None:
    place = bench.cwd / "node_modules" / "r"
    place.mkdir(parents=True)
    git(place, "init", "-q")
    git(place, "commit", "-q", "--allow-empty", "-m", "x")
    git(place, "config", "core.fsmonitor", "true")
    git(bench.cwd, "add", "node_modules/r")
    before = (place / ".git" / "config").read_bytes()
    result = bench.run("Bash", command="git -C node_modules/r config core.pager evil; git status --short")
    assert "moved aside" not in result.text
    assert (place / ".git" / "config").read_bytes() == before


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_a_harmless_one_stays(bench: Bench) -> None:
    command = f"git init -q .venv/r && {NAMED} -C .venv/r commit -q --allow-empty -m x && git add .venv/r"
    assert bench.run("Bash", command=command).outcome is Outcome.OK
    assert (bench.cwd / ".venv" / "r" / ".git" / "config").exists()


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_an_index_that_git_reads_otherwise_is_moved_aside(bench: Bench) -> None:
    whole = git(bench.cwd, "ls-files", "--stage")
    assert "/.git/index" in bench.run("Bash", command="printf 'DIRC rubbish' > .git/index").text
    git(bench.cwd, "reset", "-q")
    assert git(bench.cwd, "ls-files", "--stage") == whole, "a reset makes it anew"
    assert bench.run("Bash", command="git add -A; echo x").text == "x\n"
