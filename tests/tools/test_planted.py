"""Protected names that a command makes below the root, or in a granted folder: none stays, and nobody else's goes."""

import math
import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from maka.contracts.boundary import FileEntry, Profile
from maka.contracts.content import Outcome
from maka.contracts.sandbox_ports import Sandbox
from maka.edges.processes import AsyncProcesses
from maka.tools import inside as inside_
from maka.tools import walk
from maka.tools.files import FileTurns
from maka.tools.guard import Guards
from maka.tools.inside import LOOKS_A_WALK, Inside
from maka.tools.policy import ASIDE, Ground
from maka.tools.repositories import Kind, kinds_exactly_in
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import Bench, boundary

pytestmark = pytest.mark.one_sandbox

DEEP = "a/b/c/d/e/f"


@pytest.fixture
def bench(processes: AsyncProcesses, workspace: Path, sandbox: Sandbox) -> Bench:
    return Bench(make_tools(processes, sandbox=sandbox), workspace)


def inside(workspace: Path, guards: Guards | None = None, *entries: FileEntry) -> Inside:
    """Begin a command's time in the sandbox, without one."""
    return Inside(boundary(workspace, Profile.ASK, *entries), Ground(), guards or Guards())


def ended(command: Inside) -> str:
    found = command.verdict("", failed=False)
    return "" if found is None else found[1]


@pytest.mark.parametrize("place", ["sub", DEEP])
@pytest.mark.parametrize(
    "plant",
    [
        "echo x > .envrc",
        "mkdir .vscode && echo x > .vscode/tasks.json",
        "mkdir .idea",
        "ln -s a CLAUDE.md",
        "> AGENTS.md",
    ],
)
def test_a_protected_name_is_moved_aside_at_any_depth(bench: Bench, workspace: Path, place: str, plant: str) -> None:
    result = bench.run("Bash", command=f"mkdir -p {place} && cd {place} && touch a && {plant}")
    assert result.outcome is Outcome.ERROR
    assert "moved aside" in result.text
    left = sorted(os.listdir(workspace / place))
    assert left[-1] == "a"
    assert [name.endswith(f"{ASIDE}-1") for name in left] == [True, False]


def test_all_that_was_moved_aside_is_named_for_one_request(bench: Bench, workspace: Path) -> None:
    command = "for name in .envrc AGENTS.md sub/CLAUDE.md; do mkdir -p sub; echo fine > $name; done"
    result = bench.run("Bash", command=command)
    assert result.need is not None and result.need.expansion is not None
    entries = result.need.expansion.filesystem
    assert [os.path.basename(entry.path) for entry in entries] == [".envrc", "AGENTS.md", "CLAUDE.md"]
    granted = Bench(bench.tools, workspace, boundary(workspace, Profile.ASK, *entries))
    assert granted.run("Bash", command=command).outcome is Outcome.OK
    assert (workspace / "sub" / "CLAUDE.md").read_text() == "fine\n"


def test_a_crowd_of_folders_hides_nothing(bench: Bench, workspace: Path) -> None:
    command = "mkdir -p x/y && : > x/y/.envrc && for i in 1 2 3 4 5; do mkdir -p $i/{1..1000}; done"
    assert "moved aside" in bench.run("Bash", command=command).text
    assert not (workspace / "x" / "y" / ".envrc").exists()


@pytest.mark.parametrize("profile", [Profile.ASK, Profile.EXPLORE])
def test_in_a_granted_folder_too(bench: Bench, workspace: Path, tmp_path: Path, profile: Profile) -> None:
    granted = tmp_path.resolve() / "granted"
    (granted / "sub").mkdir(parents=True)
    (granted / "link").mkdir()
    (granted / "link" / "CLAUDE.md").symlink_to("a")
    entry = FileEntry(path=str(granted), access="write", scope="subtree")
    there = Bench(bench.tools, workspace, boundary(workspace, profile, entry))
    made = "echo x > .envrc; mkdir .vscode; echo x > sub/CLAUDE.md; ln -sf b link/CLAUDE.md; echo fine > fine"
    assert "moved aside" in there.run("Bash", command=f"cd {granted} && {made}").text
    assert {".envrc", ".vscode"}.isdisjoint(os.listdir(granted))
    assert not (granted / "sub" / "CLAUDE.md").exists()
    assert os.readlink(granted / "link" / "CLAUDE.md") == "a"
    assert (granted / "fine").exists()
    assert there.run("Write", path=f"{granted}/.envrc", content="x").outcome is Outcome.REFUSED


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_a_folder_in_place_of_another_brings_nothing(bench: Bench, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "sub" / "CLAUDE.md").write_text("be good\n")
    result = bench.run("Bash", command="mv sub old && mkdir sub && echo evil > sub/CLAUDE.md")
    assert "moved aside" in result.text
    assert (workspace / "old" / "CLAUDE.md").read_text() == "be good\n"
    assert not (workspace / "sub" / "CLAUDE.md").exists()


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_a_folder_may_be_moved_with_what_it_holds(bench: Bench, workspace: Path) -> None:
    (workspace / "sub" / ".vscode").mkdir(parents=True)
    (workspace / "sub" / "CLAUDE.md").write_text("be good\n")
    assert bench.run("Bash", command="mkdir deep && mv sub deep/other").outcome is Outcome.OK
    assert sorted(os.listdir(workspace / "deep" / "other")) == [".vscode", "CLAUDE.md"]


def test_a_person_may_save_what_was_there(workspace: Path) -> None:
    """An editor puts a new file in the old one's place."""
    (workspace / "sub").mkdir()
    (workspace / "sub" / "CLAUDE.md").write_text("be good\n")
    command = inside(workspace)
    (workspace / "sub" / "new").write_text("be better\n")
    (workspace / "sub" / "new").rename(workspace / "sub" / "CLAUDE.md")
    assert ended(command) == ""
    assert (workspace / "sub" / "CLAUDE.md").read_text() == "be better\n"
    assert "sub/CLAUDE.md" in command.note(), "the kernel has given up the mount over it"


def test_a_save_while_a_command_runs_is_told(bench: Bench, workspace: Path) -> None:
    """From then on no sandbox that mounts can hold the name; whoever wrote it is for the person to see."""
    (workspace / "AGENTS.md").write_text("be good\n")
    recorder = bench.begin("Bash", command="echo on; until [ -e go ]; do :; done; echo evil > AGENTS.md")
    assert recorder.spoke.wait(30)
    (workspace / "new").write_text("be better\n")
    (workspace / "new").rename(workspace / "AGENTS.md")
    (workspace / "go").touch()
    text = recorder.wait().text
    assert "replaced by someone else while the command ran" in text
    assert f"{workspace.resolve()}/AGENTS.md" in text


def test_a_link_into_a_folder_that_is_passed_over(bench: Bench, workspace: Path) -> None:
    command = "mkdir -p node_modules/s && echo x > node_modules/s/.envrc && ln -s node_modules/s sub"
    assert "moved aside" in bench.run("Bash", command=command).text
    assert not (workspace / "sub" / ".envrc").exists()


def test_a_link_leads_to_what_was_too_deep_before(bench: Bench, workspace: Path) -> None:
    """Its folder has a name at the top by now."""
    deep = ".cache/" + "/".join(f"d{number}" for number in range(14))
    (workspace / "lib").mkdir()
    bench.run("Bash", command=f"mkdir -p {deep}")
    evil = (
        f"mv lib {deep}/lib; ln -s {deep}/lib lib; echo evil > lib/AGENTS.md; git init -q lib; touch lib/.git/hooks/x"
    )
    text = bench.run("Bash", command=evil).text
    assert "lib/AGENTS.md" in text and not (workspace / "lib" / "AGENTS.md").exists()
    assert "lib/.git" in text and not (workspace / "lib" / ".git").exists()


def test_what_wasnt_looked_at_before_is_nobodys_planting(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a workspace of more folders than are looked at, other ones may come into view."""
    for number in range(40):
        (workspace / f"{number:02}" / ".git" / "hooks").mkdir(parents=True)
        (workspace / f"{number:02}" / ".git" / "hooks" / "pre-commit").touch()
        (workspace / f"{number:02}" / "CLAUDE.md").write_text("be good\n")
    monkeypatch.setattr(walk, "SURVEY_FOLDERS_MAX", 10)
    command = Inside(boundary(workspace), Ground(), Guards())
    (workspace / ".idea").mkdir()
    assert f"{workspace.resolve()}/.idea." in ended(command)
    assert not (workspace / ".idea").exists()
    assert "protected names further down were not held" in command.note()
    assert all((workspace / f"{number:02}" / "CLAUDE.md").exists() for number in range(40))
    assert all((workspace / f"{number:02}" / ".git").exists() for number in range(40))


@pytest.mark.parametrize("path", ["CLAUDE.md", "sub/CLAUDE.md", ".vscode/tasks.json"])
def test_what_a_file_tool_was_granted_meanwhile_stays(
    processes: AsyncProcesses, workspace: Path, sandbox: Sandbox, path: str
) -> None:
    """A command that began before the grant was given runs on; later it changes what was made."""
    (workspace / path).parent.mkdir(exist_ok=True)
    for empty in (workspace / ".vscode",):
        if empty.exists():
            empty.rmdir()
    turns = FileTurns(Ground())
    running = inside(workspace, Guards(turns.made))
    name = ".vscode" if path.startswith(".vscode") else path
    entry = FileEntry(path=str(workspace.resolve() / name), access="write", scope="subtree")
    tools = make_tools(processes, sandbox=sandbox, turns=turns)
    granted = Bench(tools, workspace, boundary(workspace, Profile.ASK, entry))
    assert granted.run("Write", path=path, content="good\n").outcome is Outcome.OK
    for _ in range(3 * LOOKS_A_WALK):
        running.look()
    assert (workspace / path).read_text() == "good\n"
    (workspace / path).write_text("evil\n")
    assert "moved aside" in ended(running)
    assert not (workspace / path).exists()


def test_what_a_command_was_granted_meanwhile_stays(workspace: Path) -> None:
    guards = Guards()
    (workspace / "sub").mkdir()
    running = inside(workspace, guards)
    path = workspace.resolve() / "sub" / "CLAUDE.md"
    granted = inside(workspace, guards, FileEntry(path=str(path), access="write", scope="exact"))
    path.write_text("good\n")
    assert ended(granted) == ""
    assert ended(running) == ""
    assert path.read_text() == "good\n"


def test_a_bug_at_the_end_of_a_command_leaves_no_call_open(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Inside, text: str, *, failed: bool, exit_code: int | None = None) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(Inside, "verdict", broken)
    result = bench.run("Bash", command="echo hi")
    assert result.outcome is Outcome.OUTCOME_UNKNOWN
    assert "ValueError" in result.text


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_another_file_system_in_the_workspace_is_no_exception(bench: Bench, workspace: Path) -> None:
    """What is protected there is so, and what isn't can be changed."""
    (there := workspace / "volume").mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(there)], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a file system can't be mounted here: {mounted.stderr.decode().strip()}")
    try:
        (there / "repository" / ".git" / "hooks").mkdir(parents=True)
        (there / "AGENTS.md").write_text("be good\n")
        result = bench.run("Bash", command="cd volume && echo x > repository/.git/hooks/pre-commit; echo x > AGENTS.md")
        assert result.outcome is Outcome.ERROR
        assert list((there / "repository" / ".git" / "hooks").iterdir()) == []
        assert (there / "AGENTS.md").read_text() == "be good\n"
        assert "moved aside" in bench.run("Bash", command="mkdir -p volume/new && echo x > volume/new/.envrc").text
        made = bench.run("Bash", command="echo fine > volume/repository/file && cat volume/repository/file")
        assert made.text == "fine\n", made.text
    finally:
        subprocess.run(["umount", str(there)], check=True)


@pytest.mark.parametrize("name", ["new/.git", "new"])
def test_a_repository_that_was_granted_by_its_name_stays(bench: Bench, workspace: Path, name: str) -> None:
    command = f"rm -rf new; git init -q {'--bare' if name == 'new' else ''} new && git -C new config core.fsmonitor x"
    refused = bench.run("Bash", command=command)
    assert ((workspace / name / "HEAD").exists(), "moved aside" in refused.text) == (False, True)
    assert refused.need is not None and refused.need.expansion is not None
    asked = refused.need.expansion.filesystem
    settings = workspace.resolve() / name / ("HEAD" if name == "new" else "config")
    assert str(settings) in [entry.path for entry in asked]
    there = Bench(bench.tools, workspace, boundary(workspace, Profile.ASK, *asked))
    allowed = there.run("Bash", command=command)
    assert ((workspace / name / "HEAD").exists(), "moved aside" in allowed.text) == (True, False)


# -- what a walk leaves alone -------------------------------------------------------------------------------------


@pytest.mark.parametrize("below", ["gen", "a/gen"])
def test_a_granted_folder_that_is_a_link_by_now_leads_nowhere(
    bench: Bench, workspace: Path, tmp_path: Path, below: str
) -> None:
    """Nothing of another project's is named or moved, neither at this command's end nor at the next one's."""
    (other := tmp_path.resolve() / "other").mkdir()
    (other / "gen").mkdir()
    (workspace / below).mkdir(parents=True)
    entry = FileEntry(path=str(workspace.resolve() / below), access="write", scope="subtree")
    there = Bench(bench.tools, workspace, boundary(workspace, Profile.ASK, entry))
    name = below.partition("/")[0]
    command = inside(workspace, None, entry)
    assert there.run("Bash", command=f"mv {name} old && ln -s {other} {name}").outcome is Outcome.OK
    for path in (other / "AGENTS.md", other / "gen" / ".envrc"):
        path.write_text("another project's")
    assert ended(command) == "", "what has come there meanwhile is someone else's"
    assert there.run("Bash", command="echo fine").text == "fine\n"
    assert there.run("Bash", command=f"echo x > {below}/new").outcome is Outcome.ERROR
    assert sorted(os.listdir(other)) == ["AGENTS.md", "gen"]
    assert "moved aside" in there.run("Bash", command="echo x > old/.envrc").text


def test_a_workspace_that_is_a_link_by_now_leads_nowhere(workspace: Path, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    command = inside(workspace)
    workspace.rename(tmp_path / "moved")
    workspace.symlink_to(other)
    (other / "AGENTS.md").write_text("another project's")
    assert ended(command) == ""
    assert (other / "AGENTS.md").exists()
    seen = walk.Walk(replace(boundary(other), workspace=str(workspace)))
    assert (seen.roots, seen.places) == ((), [])


def test_a_folder_that_turns_into_a_link_while_it_is_walked_through_is_not_followed(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (other := tmp_path / "other" / "below").mkdir(parents=True)
    (other / "AGENTS.md").write_text("another project's")
    (workspace / "sub" / "below").mkdir(parents=True)
    right = kinds_exactly_in

    def swapping(folder: str, until_s: float) -> tuple[list[tuple[str, Kind]], bool]:
        if folder == str(workspace.resolve() / "sub" / "below"):
            (workspace / "sub").rename(workspace / "old")
            (workspace / "sub").symlink_to(other.parent)
        return right(folder, until_s)

    monkeypatch.setattr(walk, "kinds_exactly_in", swapping)
    seen = walk.Walk(boundary(workspace))
    assert (seen.places, seen.is_torn) == ([], True)


def test_submodules_that_a_link_leads_to_elsewhere_are_not_looked_at(repository: Path, tmp_path: Path) -> None:
    """A link to the root of all would be walked through at each command's beginning and end."""
    (elsewhere := tmp_path / "elsewhere" / "sub").mkdir(parents=True)
    (elsewhere / "HEAD").touch()
    (repository / ".git" / "modules").symlink_to(elsewhere.parent)
    assert walk.Walk(boundary(repository)).modules == []


@pytest.mark.parametrize("bound", ["time", "folders"])
def test_what_was_too_much_to_be_looked_at_is_told_and_found_later(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    guards = Guards()
    command = inside(workspace, guards)
    (workspace / "a" / "b").mkdir(parents=True)
    (workspace / "a" / "b" / "CLAUDE.md").write_text("evil")
    with monkeypatch.context() as patch:
        if bound == "time":
            patch.setattr(inside_, "ROUNDS_S", -math.inf)
        else:
            patch.setattr(walk, "SURVEY_AFTER_FOLDERS_MAX", 2)
        assert "Not all that the command made could be looked at" in ended(command)
    assert "moved aside" in ended(inside(workspace, guards))


def test_where_nobody_looked_before_nobody_has_to_afterwards(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        (workspace / f"{number:02}").mkdir()
    monkeypatch.setattr(walk, "SURVEY_FOLDERS_MAX", 10)
    monkeypatch.setattr(walk, "SURVEY_AFTER_FOLDERS_MAX", 20)
    assert ended(inside(workspace)) == ""
