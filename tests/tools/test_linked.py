"""Repositories where nobody looks: a person's next git command at the root goes into each that an index names."""

import os
import shutil
import struct
import subprocess
from hashlib import sha1
from pathlib import Path

import pytest

from maka.contracts.content import Outcome
from maka.contracts.sandbox_ports import Sandbox
from maka.edges.processes import AsyncProcesses
from maka.tools import git_index, walk
from maka.tools.git_index import Index, index_of
from maka.tools.walk import Walk
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import CHILD_ENV, NAMED, Bench, boundary, git

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
    index = index_of(str(workspace / ".git"))
    assert (list(index.links), index.unread) == (names, frozenset())


ENTRY = struct.Struct(">24xI12x20s")
NAME = "node_modules/x"


def entry(name: bytes, *, flags: int, mode: int = 0o160000, end: bytes = b"") -> bytes:
    data = ENTRY.pack(mode, b"h" * 20) + struct.pack(">H", flags) + name
    return data + (end or b"\0" * (8 - len(data) % 8))


def index(*entries: bytes, version: int = 2, more: bytes = b"") -> bytes:
    data = struct.pack(">4sII", b"DIRC", version, len(entries)) + b"".join(entries) + more
    return data + sha1(data).digest()


@pytest.mark.parametrize(
    "data",
    [
        b"DIRC",
        b"DIRC\0\0\0\4\xff\xff\xff\xff" + b"\xff" * 100,
        b"DIRC\0\0\0\2\0\0\0\1" + b"\xe0" * 62,
        index(entry(b"\0\0" + NAME.encode(), flags=0x4000 | len(NAME))),
        index(entry(NAME.encode() + b"zz", flags=len(NAME))),
        index(entry(NAME.encode() + b"\0z", flags=len(NAME) + 2)),
        index(entry(b"\0b\0c", flags=3, end=b"\0"), entry(b"\0" + NAME.encode(), flags=len(NAME)), version=4),
        index(more=b"IEOT" + struct.pack(">III", 12, 1, 40) + struct.pack(">I", 1)),
        index(more=b"TREE" + struct.pack(">I", 99)),
        index(more=b"abcd" + struct.pack(">I", 32) + b"EOIE" + struct.pack(">II", 24, 13) + b"h" * 20),
        index(entry(b"", flags=0), more=b"link" + struct.pack(">I", 20) + b"h" * 20),
    ],
)
def test_an_index_that_git_may_read_otherwise_is_told(workspace: Path, data: bytes) -> None:
    """What git would find is known to git alone: no other reading is taken for the whole."""
    repository = workspace / ".git"
    repository.mkdir()
    (repository / "index").write_bytes(index(entry(NAME.encode(), flags=len(NAME))))
    assert index_of(str(repository)) == Index(links=(NAME,))
    (repository / "index").write_bytes(data)
    assert index_of(str(repository)).unread


def test_one_that_replaces_another_entry_of_a_split_index_is_found(repository: Path) -> None:
    """Its name stands in the shared part, its kind in the other one."""
    place = repository / "node_modules" / "x"
    place.parent.mkdir()
    for number in range(70):
        (repository / f"f{number:02}").write_text("x")
    place.write_text("a file")
    git(repository, "add", "-A", "-f")
    git(repository, "config", "splitIndex.maxPercentChange", "100")
    git(repository, "update-index", "--split-index")
    git(repository, "update-index", "--cacheinfo", f"160000,{'1' * 40},node_modules/x")
    (repository / "f03").unlink()
    git(repository, "update-index", "--remove", "f03")
    assert index_of(str(repository / ".git")) == Index(links=("node_modules/x",))


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_an_index_that_git_reads_otherwise_is_moved_aside(bench: Bench) -> None:
    whole = git(bench.cwd, "ls-files", "--stage")
    assert "/.git/index" in bench.run("Bash", command="printf 'DIRC rubbish' > .git/index").text
    git(bench.cwd, "reset", "-q")
    assert git(bench.cwd, "ls-files", "--stage") == whole, "a reset makes it anew"
    assert bench.run("Bash", command="git add -A; echo x").text == "x\n"


@pytest.mark.parametrize("bits", [0xFFFF_FFFF, 2])
def test_a_split_index_that_replaces_more_than_there_is_is_told(workspace: Path, bits: int) -> None:
    """What a few bytes say must not take the machine's memory."""
    repository = workspace / ".git"
    repository.mkdir()
    (repository / f"sharedindex.{'61' * 20}").write_bytes(index(entry(NAME.encode(), flags=len(NAME))))
    none = struct.pack(">III", 0, 0, 0)
    all_set = struct.pack(">IIQI", bits, 1, 1 | 0xFFFF_FFFF << 1, 0)
    link = b"a" * 20 + none + all_set
    (repository / "index").write_bytes(index(more=b"link" + struct.pack(">I", len(link)) + link))
    assert [one for one in index_of(str(repository)).unread if one.startswith(git_index.FOREIGN)]


def test_a_shared_part_of_itself_is_told(workspace: Path) -> None:
    repository = workspace / ".git"
    repository.mkdir()
    data = index(more=b"link" + struct.pack(">I", 20) + b"a" * 20)
    for name in ("index", f"sharedindex.{'61' * 20}"):
        (repository / name).write_bytes(data)
    assert index_of(str(repository)).unread


def test_long_names_of_few_bytes_are_too_much(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In version 4 each may be as long as the one before it, for nothing."""
    repository = workspace / ".git"
    repository.mkdir()
    first = entry(b"\0" + b"n" * 5_000, flags=0xFFF, end=b"\0")
    (repository / "index").write_bytes(index(first, *[entry(b"\0", flags=0xFFF, end=b"\0")] * 9, version=4))
    assert index_of(str(repository)) == Index(links=("n" * 5_000,))
    monkeypatch.setattr(git_index, "_NAMES_BYTES_MAX", 49_999)
    assert index_of(str(repository)) == Index(unread=frozenset({"index"}))


def test_no_index_names_nothing_and_is_no_fault(workspace: Path) -> None:
    repository = workspace / ".git"
    repository.mkdir()
    assert index_of(str(repository)) == Index()
    os.mkfifo(repository / "index")
    assert index_of(str(repository)).unread, "whoever asks doesn't wait"


def test_what_is_too_much_to_be_read_is_told(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = Walk(boundary(repository))
    assert not before.after().is_cut
    with monkeypatch.context() as patch:
        patch.setattr(git_index, "INDEX_BYTES_MAX", 10)
        assert before.after().unread == {(f"{repository}/.git", "index")}
    place = repository / "node_modules" / "r"
    place.mkdir(parents=True)
    git(place, "init", "-q")
    git(place, "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "add", "node_modules/r")
    assert list(before.new_repositories(before.after())) == [f"{place}/.git"]
    with monkeypatch.context() as patch:
        patch.setattr(walk, "_LINKED_MAX", 0)
        assert before.after().is_cut
