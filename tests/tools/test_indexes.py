"""The index of a repository, as git writes it and as a command may have written it; what is too much of it."""

import os
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from maka.tools import git_config, git_index, indexes, linked, repositories, walk
from maka.tools.git_index import Index
from maka.tools.guard import Guards
from maka.tools.identity import regular_bytes
from maka.tools.indexes import FOREIGN, Indexes, Known
from maka.tools.inside import Inside
from maka.tools.policy import Ground
from maka.tools.walk import Walk
from tests.tools.harness import boundary, git

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is missing")


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


def index_of(repository: str) -> Index:
    return Indexes(known=Known()).of(repository)


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
    assert [one for one in index_of(str(repository)).unread if one.startswith(FOREIGN)]


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
        patch.setattr(indexes, "INDEX_BYTES_MAX", 10)
        assert before.after().unread == {(f"{repository}/.git", "index")}
    place = repository / "node_modules" / "r"
    place.mkdir(parents=True)
    git(place, "init", "-q")
    git(place, "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "add", "node_modules/r")
    assert list(before.new_repositories(before.after())) == [f"{place}/.git"]
    for module, bound in ((linked, "_LINKED_MAX"), (indexes, "INDEXES_BYTES_MAX")):
        with monkeypatch.context() as patch:
            patch.setattr(module, bound, 0)
            assert before.after().is_cut


def test_indexes_without_number_are_not_all_read(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command can give any number of worktrees the same large one. The workspace's own is read first."""
    place = repository / "node_modules" / "r"
    place.mkdir(parents=True)
    git(place, "init", "-q")
    git(place, "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "add", "node_modules/r")
    for number in range(9):
        git(repository, "worktree", "add", "-q", f"tree{number}")
    read: list[str] = []

    def reading(path: str, most: int) -> bytes | None:
        read.append(path)
        return regular_bytes(path, most)

    monkeypatch.setattr(indexes, "regular_bytes", reading)
    assert not (whole := Walk(boundary(repository))).is_cut
    assert len(read) == len(set(read)) == 11
    monkeypatch.setattr(indexes, "INDEXES_BYTES_MAX", 1)
    cut = Walk(boundary(repository))
    assert (cut.is_cut, read[11:]) == (True, read[:1])
    assert read[0] == f"{repository}/.git/index" and f"{place}/.git" in cut.repositories
    assert len(whole.repositories) == 11


def test_what_was_read_of_an_index_is_known_again_by_its_content(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by its times: a process that has it mapped changes it without them."""
    known = Known()
    first = Indexes(known=known).of(f"{repository}/.git")
    with monkeypatch.context() as patch:
        patch.setattr(indexes, "part_of", None)
        assert Indexes(known=known).of(f"{repository}/.git") == first
    path = repository / ".git" / "index"
    there = path.stat()
    path.write_bytes(b"x" * there.st_size)
    os.utime(path, ns=(there.st_atime_ns, there.st_mtime_ns))
    assert Indexes(known=known).of(f"{repository}/.git").unread


def test_no_more_is_known_than_there_is_room_for(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Known()
    first = (repository / ".git" / "index").read_bytes()
    git(repository, "rm", "-q", "--cached", "a")
    second = (repository / ".git" / "index").read_bytes()
    monkeypatch.setattr(indexes, "_KNOWN_BYTES_MAX", 2 * indexes.KNOWN_BYTES_EACH)
    read: Counter[Any] = Counter()
    monkeypatch.setattr(indexes, "part_of", counted(read, git_index.part_of))
    for data in (first, second, first, b"rubbish", second, first, index(entry(b"x" * 500, flags=500))):
        known.part(data)
    assert read == {first: 2, b"rubbish": 1, second: 2, index(entry(b"x" * 500, flags=500)): 1}
    known.part(first)
    assert read[first] == 3, "what is larger than all the room is not kept, nor anything beside it"


def test_many_worktrees_are_each_looked_at_once(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they share is theirs together: to look at it from each of a hundred took twelve seconds a command."""
    for number in range(9):
        git(repository, "worktree", "add", "-q", f"tree{number}")
    looked: Counter[str] = Counter()
    monkeypatch.setattr(walk, "git_names", counted(looked, repositories.git_names))
    monkeypatch.setattr(linked, "worktrees_of", counted(looked, repositories.worktrees_of))
    monkeypatch.setattr(walk, "modules_of", counted(looked, repositories.modules_of))
    git_config.settings_of.cache_clear()
    names = Walk(boundary(repository)).names
    assert len(names) == len(set(names))
    assert looked.pop(f"{repository}/.git") == 3
    read = git_config.settings_of.cache_info()
    assert (read.misses <= 4, read.hits >= 9) == (True, True), "their settings are the same"
    assert sorted(looked.items()) == [(f"{repository}/.git/worktrees/tree{number}", 2) for number in range(9)]


def counted(looked: Counter[Any], ask: Any) -> Callable[..., Any]:
    """Count of which folder something is asked."""

    def asking(folder: Any, *more: Any) -> Any:
        looked[folder] += 1
        return ask(folder, *more)

    return asking


def test_what_was_planted_costs_no_look_at_each_worktree(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand files among fifty worktrees took twenty seconds, in which no other command's end was looked at."""
    for number in range(9):
        git(repository, "worktree", "add", "-q", f"tree{number}")
    looks: list[int] = []
    for planted in (1, 20):
        looked: Counter[str] = Counter()
        with monkeypatch.context() as patch:
            patch.setattr(walk, "common_of", counted(looked, repositories.common_of))
            command = Inside(boundary(repository), Ground(), Guards())
            for number in range(planted):
                place = repository / f"planted{planted}-{number}"
                place.mkdir()
                (place / "CLAUDE.md").write_text("evil")
            found = command.verdict("", failed=False)
        assert found is not None and found[1].count("CLAUDE.md") == planted
        looks.append(looked.total())
    assert looks[0] == looks[1] > 0


def test_a_worktree_that_no_path_can_name_is_none(repository: Path) -> None:
    place = repository / "other" / ".git"
    git(repository, "init", "-q", "other")
    git(repository, "init", "-q", "other/lib")
    git(repository / "other" / "lib", "commit", "-q", "--allow-empty", "-m", "x")
    git(repository / "other", "add", "lib")
    with (place / "config").open("a") as config:
        config.write("[core]\n\tworktree = a\0b\n")
    (place / "worktrees" / "x").mkdir(parents=True)
    (place / "worktrees" / "x" / "gitdir").write_text("a\0b/.git\n")
    shutil.copy(place / "index", place / "worktrees" / "x" / "index")
    assert f"{repository}/other/lib/.git" in Walk(boundary(repository)).repositories
