"""What comes, or is put in another one's place, outside of the sandbox while a command runs."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from maka.contracts.boundary import FileEntry
from maka.contracts.content import Outcome
from maka.contracts.sandbox_ports import Sandbox
from maka.edges import bubblewrap
from maka.edges.processes import AsyncProcesses
from maka.tools import identity, repositories, shell_watch, walk
from maka.tools.guard import Guards
from maka.tools.identity import identity_of
from maka.tools.policy import Ground
from maka.tools.shells import Shells
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import Bench, boundary, git
from tests.tools.test_background import Place, until_ended
from tests.tools.test_planted import ended, inside

pytestmark = pytest.mark.one_sandbox

Change = Callable[[], object]


@pytest.fixture
def bench(
    processes: AsyncProcesses,
    workspace: Path,
    home: Path,
    sandbox: Sandbox,
    ground: Ground,
    monkeypatch: pytest.MonkeyPatch,
) -> Bench:
    """Its folders stand for a person's home, which no sandbox replaces by an empty one."""
    monkeypatch.setattr(bubblewrap, "_SPARE", ("/var/tmp", "/run"))
    more = tuple(str(home.resolve() / name) for name in (".npmrc", ".aws", "none/of/it"))
    ground = replace(ground, programs=(), secrets=(*ground.secrets, *more))
    return Bench(make_tools(processes, sandbox=sandbox, ground=ground), workspace)


def meanwhile(bench: Bench, change: Change, command: str) -> str:
    """Run a command of which the rest waits for a change outside; return what the model reads."""
    recorder = bench.begin("Bash", command=f"echo on; until [ -e go ]; do :; done; {command}")
    assert recorder.spoke.wait(30)
    change()
    (bench.cwd / "go").touch()
    return recorder.wait().text


def saved(path: Path, text: str) -> Change:
    """Return how an editor saves: it puts a new file in the old one's place."""

    def save() -> None:
        (path.parent / "new").write_text(text)
        (path.parent / "new").rename(path)

    return save


def test_a_secret_that_is_replaced_stays_hidden(bench: Bench, home: Path) -> None:
    text = meanwhile(bench, saved(home / ".netrc", "swordfish again"), f"cat {home}/.netrc; cat {home}/notes")
    assert "swordfish" not in text
    assert "notes" in text


@pytest.mark.parametrize("name", [".npmrc", ".aws/credentials", "none/of/it"])
def test_a_secret_that_comes_is_hidden(bench: Bench, home: Path, name: str) -> None:
    def come() -> None:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("swordfish")

    text = meanwhile(
        bench, come, f"cat {home}/{name}; cp -r {home} $TMPDIR/; cat $TMPDIR/home/notes $TMPDIR/home/{name}"
    )
    assert "swordfish" not in text
    assert "notes" in text


def test_a_pipe_with_a_name_outside_cant_be_written(bench: Bench, home: Path) -> None:
    os.mkfifo(home / "pipe")
    reader = os.open(home / "pipe", os.O_RDWR | os.O_NONBLOCK)
    try:
        assert bench.run("Bash", command=f"echo no > {home}/pipe").outcome is Outcome.ERROR
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
    finally:
        os.close(reader)


# -- protected files that are replaced: a mount over one is given up then ---------------------------------------------


@pytest.mark.parametrize(
    "wrote",
    [
        "[core]\n\tfsmonitor = ./evil\n",
        "[include]\n\tpath = ../evil\n",
        "[alias]\n\tst = !evil\n",
        "no configuration\n",
    ],
)
def test_settings_that_make_git_run_more_are_put_back(
    bench: Bench, repository: Path, wrote: str, sandbox: Sandbox
) -> None:
    """A person's `git push -u` puts a new file in place, which the command could change from then on."""
    config = repository / ".git" / "config"
    before = config.read_text()
    plain = f'{before}[branch "b"]\n\tremote = origin\n'
    text = meanwhile(bench, saved(config, plain + wrote), "git status")
    assert f"{config.resolve()}" in text and "was put back" in text
    assert config.read_text() == before
    assert (config.parent / "config.maka-aside-1").read_text() == plain + wrote


def test_settings_that_only_say_plain_things_stay(bench: Bench, repository: Path) -> None:
    git(repository, "config", "core.hooksPath", "hooks-of-ours")
    git(repository, "remote", "add", "origin", "https://example.org/a.git")
    text = meanwhile(bench, lambda: git(repository, "config", "branch.b.remote", "origin"), "echo done")
    assert text == "on\ndone\n"
    assert "origin" in (repository / ".git" / "config").read_text()


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_a_command_that_waits_for_a_save_plants_no_setting(bench: Bench, repository: Path) -> None:
    plant = "printf '[core]\\n\\tfsmonitor = ./evil\\n' >> .git/config; git config core.fsmonitor"
    text = meanwhile(bench, lambda: git(repository, "config", "branch.b.remote", "origin"), plant)
    assert "was put back" in text
    assert "evil" not in (repository / ".git" / "config").read_text()


def test_a_pointer_to_a_repository_is_put_back(bench: Bench, repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    tree = Bench(bench.tools, tmp_path / "tree")
    pointer = (tmp_path / "tree" / ".git").read_text()
    text = meanwhile(tree, saved(tmp_path / "tree" / ".git", "gitdir: elsewhere\n"), "true")
    assert "was put back" in text
    assert (tmp_path / "tree" / ".git").read_text() == pointer


def test_what_a_person_takes_away_and_brings_back_stays(workspace: Path) -> None:
    """As `git checkout` of another branch and back does, also with the folder."""
    (workspace / "sub").mkdir()
    names = ("AGENTS.md", "sub/CLAUDE.md")
    for name in names:
        (workspace / name).write_text("be good\n")
    command = inside(workspace)
    (workspace / "AGENTS.md").unlink()
    shutil.rmtree(workspace / "sub")
    command.look()
    (workspace / "sub").mkdir()
    for name in names:
        (workspace / name).write_text("be good\n")
    assert not command.look()
    assert ended(command) == "" and command.note() == ""
    assert [(workspace / name).read_text() for name in names] == ["be good\n", "be good\n"]


def test_what_comes_back_otherwise_is_moved_aside(workspace: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "sub" / "CLAUDE.md").write_text("be good\n")
    command = inside(workspace)
    shutil.rmtree(workspace / "sub")
    (workspace / "sub").mkdir()
    (workspace / "sub" / "CLAUDE.md").write_text("be evil\n")
    assert "sub/CLAUDE.md" in ended(command)
    assert not (workspace / "sub" / "CLAUDE.md").exists()


def test_a_number_that_is_given_again_is_another_thing(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workspace / "AGENTS.md"
    path.write_text("one")
    first, info = identity_of(str(path)), os.lstat(path)
    if first is None or not first.handle:
        pytest.skip("this file system has no handles")
    path.unlink()
    path.write_text("two")

    # Which number it is given is the file system's choice.
    def same(path: str) -> os.stat_result:
        del path
        return info

    monkeypatch.setattr(identity, "os", SimpleNamespace(**{**vars(os), "lstat": same}))
    again = identity_of(str(path))
    assert again is not None and again.inode == first.inode
    assert again != first


def test_a_background_shell_ends_when_a_file_is_replaced_that_it_could_change_then(
    workspace: Path, processes: AsyncProcesses, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_watch, "SHELL_LOOK_S", 0.01)
    (workspace / "AGENTS.md").write_text("be good\n")
    place = Place(workspace, processes)
    place.bench = Bench(
        make_tools(processes, sandbox=sandbox, shells=Shells(table=place.table)), workspace, boundary(workspace)
    )
    os.mkfifo(workspace / "on")
    place.begin(command="echo on > on; sleep 600").wait()
    assert (workspace / "on").read_text() == "on\n"
    saved(workspace / "AGENTS.md", "be better\n")()
    end = until_ended(place)
    assert (end.how, end.by) == ("stopped", "the sandbox")
    assert end.note is not None and "AGENTS.md" in end.note
    assert (workspace / "AGENTS.md").read_text() == "be better\n"


# -- commands at the same time ------------------------------------------------------------------------------------


def test_what_one_command_hides_from_anothers_end_is_found_by_its_own(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moves a folder from where the other's walk hasn't been yet to where it has."""
    for name in ("a", "b"):
        (workspace / name).mkdir()
    guards = Guards()
    first = inside(workspace, guards)
    (workspace / "a" / "x").mkdir()
    (workspace / "a" / "x" / "CLAUDE.md").write_text("be evil\n")
    second = inside(workspace, guards)
    right = repositories.kinds_exactly_in

    def moving(folder: str, until_s: float) -> tuple[list[tuple[str, repositories.Kind]], bool]:
        found = right(folder, until_s)
        here, there = (workspace / name / "x" for name in ("ab" if os.path.basename(folder) == "a" else "ba"))
        if os.path.basename(folder) in ("a", "b") and there.exists():
            there.rename(here)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(walk, "kinds_exactly_in", moving)
        assert ended(first) == "", "it was nowhere"
    assert "CLAUDE.md" in ended(second)
    assert not list(workspace.glob("*/x/CLAUDE.md"))


def test_what_a_command_was_granted_is_not_what_another_one_planted(workspace: Path) -> None:
    guards = Guards()
    name = str(workspace.resolve() / "AGENTS.md")
    first = inside(workspace, guards, FileEntry(path=name, access="write", scope="exact"))
    (workspace / "AGENTS.md").write_text("be good\n")
    second = inside(workspace, guards)
    assert (ended(second), ended(first)) == ("", "")
    assert (workspace / "AGENTS.md").exists()


def test_a_repository_that_another_command_is_making_is_nobodys_from_before(workspace: Path) -> None:
    guards = Guards()
    first = inside(workspace, guards)
    git(workspace, "init", "-q", "new")
    git(workspace / "new", "config", "core.fsmonitor", "./evil")
    second = inside(workspace, guards)
    first_said = ended(first)
    assert "new/.git" in first_said
    (workspace / "new" / ".git.maka-aside-1").rename(workspace / "new" / ".git")
    assert "new/.git" in ended(second)
    assert not (workspace / "new" / ".git").exists()
