"""Repositories where nobody looks: a person's next git command at the root goes into each that an index names."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from maka.contracts.content import Outcome
from maka.contracts.sandbox_ports import Sandbox
from maka.edges.processes import AsyncProcesses
from maka.tools import git_index, walk
from maka.tools.git_index import links_in
from maka.tools.walk import Walk
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import CHILD_ENV, Bench, boundary, git

pytestmark = [pytest.mark.skipif(shutil.which("git") is None, reason="git is missing"), pytest.mark.one_sandbox]

DEEP = "/".join("bcdefghijklmnopq")
NOWHERE = ["node_modules/r", ".venv/src/r", DEEP, "CLAUDE.md.maka-aside-1/r"]
"""Where no walk goes, and where it goes only afterwards."""

NAMED = "git -c user.name=a -c user.email=a@example.org"


def planted(place: str, add: str = "git add PLACE") -> str:
    """Return what makes a repository that runs something, and what makes the person's git go into it."""
    made = f"git init -q {place} && {NAMED} -C {place} commit -q --allow-empty -m x"
    evil = f"git -C {place} config core.fsmonitor 'touch $MARK; false'"
    return f"{made} && {evil} && {add.replace('PLACE', place)}"


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "was-run"


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


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("format_", ["sha1", "sha256"])
@pytest.mark.parametrize("split", ["--split-index", "--no-split-index"])
def test_every_format_of_an_index_is_read(workspace: Path, version: str, format_: str, split: str) -> None:
    git(workspace, "init", "-q", f"--object-format={format_}")
    for number in range(1, 20):  # names of every length, so that each padding is met
        (workspace / ("f" * number)).write_text("x")
    git(workspace, "add", "-A")
    git(workspace, "update-index", "--index-version", version, split)
    names = [f"node_modules/{'r' * number}" for number in (1, 2, 3)]
    for name in names:
        (workspace / name).mkdir(parents=True)
        git(workspace / name, "init", "-q", f"--object-format={format_}")
        git(workspace / name, "commit", "-q", "--allow-empty", "-m", "x")
        git(workspace, "add", name)
    (workspace / "later").write_text("x")
    git(workspace, "add", "-N", "later")
    git(workspace, "update-index", split)
    found, is_whole = links_in(str(workspace / ".git"))
    assert is_whole and [name for name in found if (workspace / name).is_dir()] == names


def test_an_index_that_is_none_names_nothing_and_is_no_fault(workspace: Path) -> None:
    repository = workspace / ".git"
    repository.mkdir()
    assert links_in(str(repository)) == ([], True)
    for data in (b"", b"DIRC", b"DIRC\0\0\0\4\xff\xff\xff\xff" + b"\xff" * 100, b"DIRC\0\0\0\2\0\0\0\1" + b"\xe0" * 62):
        (repository / "index").write_bytes(data)
        assert links_in(str(repository)) == ([], True)
    (repository / "index").unlink()
    os.mkfifo(repository / "index")
    assert links_in(str(repository)) == ([], False), "whoever asks doesn't wait"


def test_what_is_too_much_to_be_read_is_told(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = Walk(boundary(repository))
    assert not before.after().is_cut
    with monkeypatch.context() as patch:
        patch.setattr(git_index, "INDEX_BYTES_MAX", 10)
        assert before.after().is_cut
    place = repository / "node_modules" / "r"
    place.mkdir(parents=True)
    git(place, "init", "-q")
    git(place, "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "add", "node_modules/r")
    assert list(before.new_repositories(before.after())) == [f"{place}/.git"]
    with monkeypatch.context() as patch:
        patch.setattr(walk, "_LINKED_MAX", 0)
        assert before.after().is_cut
