"""A protected folder that isn't there yet: a grant opens the files that it names, and no folder with all in it."""

import os
from itertools import product
from pathlib import Path

import pytest

from maka.contracts.boundary import FileEntry, Profile
from maka.contracts.content import Outcome
from maka.contracts.limits import EXPANSION_ENTRIES_MAX, GRANTED_FOLDER_ENTRIES_MAX
from maka.contracts.sandbox_ports import Sandbox
from maka.contracts.tool_ports import ToolResult
from maka.edges.processes import AsyncProcesses
from maka.tools.guard import Guards
from maka.tools.inside import Inside
from maka.tools.policy import ASIDE, Ground
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import Bench, boundary, git

pytestmark = pytest.mark.one_sandbox

FOLDERS = {".git/hooks": ("post-commit", "lib/more"), ".vscode": ("tasks.json", "a/b"), "sub/.idea": ("a.xml", "b.xml")}

# Without mounts nothing can be made beside what is protected, so not at the root of a repository.
everywhere = pytest.mark.parametrize(
    ("sandbox", "folder"),
    [*product(MOUNTING, FOLDERS), ("landlock-no-mounts", "sub/.idea")],
    indirect=["sandbox"],
)


@pytest.fixture
def bench(processes: AsyncProcesses, workspace: Path, sandbox: Sandbox, ground: Ground) -> Bench:
    git(workspace, "init", "-q", "--template=")
    (workspace / "sub").mkdir()
    return Bench(make_tools(processes, sandbox=sandbox, ground=ground), workspace)


def exact(path: Path) -> FileEntry:
    return FileEntry(path=str(path), access="write", scope="exact")


def making(folder: str) -> str:
    made = (f"mkdir -p {os.path.dirname(f'{folder}/{name}')}; echo x > {folder}/{name}" for name in FOLDERS[folder])
    return "; ".join(made)


def asked(result: ToolResult) -> tuple[FileEntry, ...]:
    assert result.need is not None and result.need.expansion is not None
    return result.need.expansion.filesystem


@everywhere
def test_a_name_that_was_granted_alone_is_no_link_to_a_folder(bench: Bench, workspace: Path, folder: str) -> None:
    """What lies in that folder is whatever a command makes there."""
    there = bench.within(boundary(workspace, Profile.ASK, exact(workspace.resolve() / folder)))
    result = there.run("Bash", command=f"mkdir sub/evil; echo x > sub/evil/post-commit; ln -s $PWD/sub/evil {folder}")
    assert f"{workspace.resolve() / folder}." in result.text and "rename it back" in result.text
    assert result.need is not None and result.need.expansion is None
    assert not (workspace / folder).is_symlink()


@everywhere
def test_a_name_that_was_granted_alone_is_no_folders(bench: Bench, workspace: Path, folder: str) -> None:
    there = bench.within(boundary(workspace, Profile.ASK, exact(workspace.resolve() / folder)))
    for command in (making(folder), f"mkdir {folder}"):
        result = there.run("Bash", command=command)
        assert result.outcome is Outcome.ERROR
        assert f"{workspace.resolve() / folder}." in result.text
        assert not (workspace / folder).exists()


@everywhere
def test_what_is_asked_for_a_folder_are_its_files_and_they_suffice(bench: Bench, workspace: Path, folder: str) -> None:
    names = sorted(str(workspace.resolve() / folder / name) for name in FOLDERS[folder])
    entries = asked(bench.run("Bash", command=making(folder)))
    assert [(entry.path, entry.access, entry.scope) for entry in entries] == [(one, "write", "exact") for one in names]
    there = bench.within(boundary(workspace, Profile.ASK, *entries))
    for _ in range(2):
        result = there.run("Bash", command=making(folder))
        assert (result.outcome, "moved aside" in result.text) == (Outcome.OK, False), result.text
        assert all(Path(one).read_text() == "x\n" for one in names)
    more = there.run("Bash", command=f"echo x > {folder}/one-more")
    assert more.outcome is Outcome.ERROR
    assert not (workspace / folder / "one-more").exists()


@everywhere
def test_one_more_file_than_was_granted_takes_the_folder_aside(bench: Bench, workspace: Path, folder: str) -> None:
    entries = asked(bench.run("Bash", command=making(folder)))
    there = bench.within(boundary(workspace, Profile.ASK, *entries))
    result = there.run("Bash", command=f"{making(folder)}; echo x > {folder}/one-more")
    assert not (workspace / folder).exists()
    assert asked(result) == (exact(workspace.resolve() / folder / "one-more"),)


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_of_a_new_repository_what_git_obeys_is_asked_for_and_suffices(bench: Bench, workspace: Path) -> None:
    """Not the samples of hooks, nor what was moved aside within it."""
    command = "git init -q new && git -C new config core.fsmonitor x"
    entries = asked(bench.run("Bash", command=command))
    assert entries == (exact(workspace.resolve() / "new/.git/config"),)
    there = bench.within(boundary(workspace, Profile.ASK, *entries))
    assert there.run("Bash", command=f"rm -rf new && {command}").outcome is Outcome.OK
    assert "fsmonitor" in (workspace / "new/.git/config").read_text()


@everywhere
def test_an_empty_folder_is_asked_for_by_no_name(bench: Bench, workspace: Path, folder: str) -> None:
    result = bench.run("Bash", command=f"mkdir {folder}")
    assert result.need is not None and result.need.expansion is None
    assert str(workspace.resolve() / folder) in result.need.instead
    assert (workspace / f"{folder}{ASIDE}-1").is_dir()


@pytest.mark.parametrize(("count", "stays"), [(0, True), (1, False)])
def test_no_larger_folder_is_looked_through(workspace: Path, count: int, stays: bool) -> None:
    folder = workspace.resolve() / ".vscode"
    names = [folder / str(number) for number in range(GRANTED_FOLDER_ENTRIES_MAX + count)]
    command = Inside(boundary(workspace, Profile.ASK, *map(exact, names)), Ground(), Guards())
    folder.mkdir()
    for name in names:
        name.touch()
    assert (command.verdict("", failed=False) is None) is stays
    assert folder.exists() is stays


def test_a_request_that_follows_another_asks_for_the_rest(workspace: Path) -> None:
    """No request takes more names than it may have, and what it was answered isn't asked for once more."""
    folder = workspace.resolve() / ".vscode"
    names = [folder / f"{number:02}" for number in range(EXPANSION_ENTRIES_MAX + 1)]
    granted: list[FileEntry] = []
    for rest in (names[:EXPANSION_ENTRIES_MAX], names[EXPANSION_ENTRIES_MAX:]):
        command = Inside(boundary(workspace, Profile.ASK, *granted), Ground(), Guards())
        folder.mkdir()
        for name in names:
            name.touch()
        found = command.verdict("", failed=False)
        assert found is not None and found[0].expansion is not None
        assert found[0].expansion.filesystem == tuple(map(exact, rest))
        granted += found[0].expansion.filesystem


# -- Write --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [Profile.ASK, Profile.EXPLORE])
def test_a_file_by_its_name_comes_with_its_folder_where_all_else_is_granted(
    bench: Bench, workspace: Path, tmp_path: Path, profile: Profile
) -> None:
    wide = tmp_path.resolve() / "wide"
    wide.mkdir()
    path = wide / ".idea" / "a" / "b.xml"
    entries = [FileEntry(path=str(wide), access="write", scope="subtree")]
    refused = bench.within(boundary(workspace, profile, *entries)).run("Write", path=str(path), content="x")
    assert asked(refused) == (exact(path),)
    granted = bench.within(boundary(workspace, profile, *entries, *asked(refused)))
    assert granted.run("Write", path=str(path), content="x").outcome is Outcome.OK
    beside = granted.run("Write", path=str(path.parent / "c"), content="x")
    assert (beside.outcome, path.read_text()) == (Outcome.REFUSED, "x")


def test_a_file_by_its_name_makes_no_folder_elsewhere(bench: Bench, workspace: Path, tmp_path: Path) -> None:
    there = tmp_path.resolve() / "there"
    there.mkdir()
    granted = bench.within(boundary(workspace, Profile.ASK, exact(there / "n" / "f")))
    refused = granted.run("Write", path=str(there / "n" / "f"), content="x")
    assert (refused.outcome, asked(refused)[0].path, os.listdir(there)) == (Outcome.REFUSED, str(there), [])
