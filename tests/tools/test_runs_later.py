"""What would run later, outside of a sandbox, stays as it is; commits work all the same."""

import os
from pathlib import Path

import pytest

from maka.contracts.boundary import FileEntry, Profile
from maka.contracts.content import Outcome
from maka.contracts.sandbox_ports import Sandbox
from maka.edges.processes import AsyncProcesses
from maka.tools.guard import Guard, Guards
from maka.tools.policy import ASIDE, Ground, needed
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import Bench, boundary, git

pytestmark = pytest.mark.one_sandbox


@pytest.fixture
def bench(processes: AsyncProcesses, workspace: Path, sandbox: Sandbox, ground: Ground) -> Bench:
    return Bench(make_tools(processes, sandbox=sandbox, ground=ground), workspace)


COMMIT = "echo 2 >> a && echo n > new && git add -A && git commit -qm second && git log --oneline | wc -l"


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_commits_work(bench: Bench, repository: Path) -> None:
    result = bench.run("Bash", command=COMMIT)
    assert (result.text, result.outcome) == ("2\n", Outcome.OK)
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_commits_work_in_a_linked_worktree(bench: Bench, repository: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    git(repository, "worktree", "add", "-q", str(tree))
    linked = Bench(bench.tools, tree)
    assert linked.run("Bash", command=COMMIT).text == "2\n"
    for attack in (
        f"echo '[core] fsmonitor = x' >> {repository}/.git/config",
        f"echo x > {repository}/.git/hooks/pre-commit",
        f"echo /elsewhere > {repository}/.git/worktrees/tree/commondir",
        "echo gitdir: /elsewhere > .git",
    ):
        assert linked.run("Bash", command=attack).outcome is Outcome.ERROR
    linked.run("Bash", command=f"echo x > {repository}/a")
    assert git(tree, "status", "--porcelain") == ""
    assert "fsmonitor" not in (repository / ".git" / "config").read_text()
    assert (repository / "a").read_text() == "1\n"


def test_a_pointer_that_a_command_made_up_opens_nothing(bench: Bench, home: Path, workspace: Path) -> None:
    """A `.git` file names a folder outside; only a repository that names this workspace would be writable."""
    fake = home / "repo"
    (fake / "objects").mkdir(parents=True)
    (fake / "refs").mkdir()
    (fake / "HEAD").write_text("ref: refs/heads/main\n")
    (workspace / ".git").write_text(f"gitdir: {fake}\n")
    assert bench.run("Bash", command=f"touch {fake}/x").outcome is Outcome.ERROR
    assert not (fake / "x").exists()


PLANTS = [
    "echo x >> .git/config",
    "git config core.fsmonitor x",
    "echo x > .git/hooks/pre-commit",
    "rm -rf .git/hooks; mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
    "mv .git .old && cp -r .old .git && echo x >> .git/config",
    "ln -f a .git/config",
    "cp a b && mv -f b .git/config",
    "echo x >> AGENTS.md",
    "cp a b && mv -f b AGENTS.md",
    "rm -f AGENTS.md && echo x > AGENTS.md",
    "echo x > .envrc",
    "mkdir .vscode && echo x > .vscode/tasks.json",
    "ln -s a CLAUDE.md",
    "mkdir -p evil && echo ../evil > .git/commondir",
    "mkdir .idea",
]


@pytest.mark.parametrize("command", PLANTS)
def test_nothing_is_planted_that_runs_later(bench: Bench, repository: Path, command: str) -> None:
    config = (repository / ".git" / "config").read_text()
    hooks = sorted(os.listdir(repository / ".git" / "hooks"))
    result = bench.run("Bash", command=command)
    assert result.outcome is Outcome.ERROR
    assert (repository / ".git" / "config").read_text() == config
    assert sorted(os.listdir(repository / ".git" / "hooks")) == hooks
    assert (repository / "AGENTS.md").read_text() == "be good\n"
    for name in (".envrc", ".vscode", ".idea", "CLAUDE.md", ".git/commondir"):
        assert not os.path.lexists(repository / name)
    assert git(repository, "log", "--oneline").count("\n") == 1


def test_what_was_moved_aside_is_kept_and_told(bench: Bench, workspace: Path) -> None:
    result = bench.run("Bash", command="echo precious > .envrc")
    assert (workspace / f".envrc{ASIDE}-1").read_text() == "precious\n"
    assert result.need is not None
    assert result.need.expansion == needed(str((workspace / ".envrc").resolve()), "write")
    assert "moved aside" in result.text


@pytest.mark.parametrize(
    "path", [".envrc", ".vscode/tasks.json", "AGENTS.md", "sub/CLAUDE.md", ".git/hooks/x", ".git/config"]
)
def test_file_tools_keep_protected_names(bench: Bench, repository: Path, path: str) -> None:
    refused = bench.run("Write", path=path, content="x")
    assert refused.outcome is Outcome.REFUSED
    lacking = needed(str((repository / path).resolve()), "write")
    assert refused.need is not None
    assert refused.need.expansion == lacking
    granted = bench.within(boundary(repository, Profile.ASK, *lacking.filesystem))
    allowed = granted.run("Write", path=path, content="x")
    # But for the barrier all may be written here: its folder is made, too.
    assert (allowed.outcome, (repository / path).read_text()) == (Outcome.OK, "x")


def test_a_link_to_a_protected_file_is_no_way_round(bench: Bench, repository: Path) -> None:
    (repository / "config").symlink_to(".git/config")
    (repository / "hooks").symlink_to(".git/hooks")
    for path in ("config", "hooks/pre-commit", "./hooks/../config"):
        assert bench.run("Write", path=path, content="x").outcome is Outcome.REFUSED
    assert bench.run("Bash", command="echo x > config").outcome is Outcome.ERROR
    assert bench.run("Bash", command="echo x > hooks/pre-commit").outcome is Outcome.ERROR


def test_a_granted_name_is_writable(bench: Bench, repository: Path) -> None:
    config = str((repository / ".git" / "config").resolve())
    entry = FileEntry(path=config, access="write", scope="exact")
    granted = bench.within(boundary(repository, Profile.ASK, entry))
    assert granted.run("Bash", command="echo '# mine' >> .git/config").outcome is Outcome.OK
    assert granted.run("Bash", command="echo x >> AGENTS.md").outcome is Outcome.ERROR


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_a_new_repository_may_be_made(bench: Bench, workspace: Path) -> None:
    script = "git init -q . && git config user.name a && git config user.email a@example.org"
    assert bench.run("Bash", command=script).outcome is Outcome.OK
    assert bench.run("Bash", command="touch a && git add -A && git commit -qm first").outcome is Outcome.OK


@pytest.mark.parametrize(
    "more", ["git config core.fsmonitor x", "echo x > .git/hooks/pre-commit", "echo x > .git/commondir"]
)
def test_a_new_repository_that_would_run_something_is_moved_aside(bench: Bench, workspace: Path, more: str) -> None:
    assert bench.run("Bash", command=f"git init -q . && {more}").outcome is Outcome.ERROR
    assert not (workspace / ".git").exists()
    assert (workspace / f".git{ASIDE}-1").is_dir()


def test_hooks_that_a_configuration_names_are_protected(bench: Bench, repository: Path) -> None:
    (repository / ".husky").mkdir()
    git(repository, "config", "core.hooksPath", ".husky")
    assert bench.run("Bash", command="echo x > .husky/pre-commit").outcome is Outcome.ERROR
    assert os.listdir(repository / ".husky") == []


def test_what_a_link_of_a_protected_name_leads_to_is_as_protected(bench: Bench, workspace: Path) -> None:
    """Also where nothing is there yet; a grant by name opens it."""
    (workspace / "docs").mkdir()
    (workspace / "docs" / "a.md").write_text("obey\n")
    (workspace / "AGENTS.md").symlink_to("docs/a.md")
    (workspace / ".envrc").symlink_to("build/env")
    (workspace / "out").mkdir()
    (workspace / "CLAUDE.md").symlink_to("out/c.md")
    for path in ("AGENTS.md", "docs/a.md", ".envrc", "build/env", "CLAUDE.md", "out/c.md"):
        result = bench.run("Write", path=path, content="evil\n")
        assert "sandbox_boundary_required" in result.text, path
    plants = "echo evil > docs/a.md; mkdir -p build; echo evil > build/env; echo evil > out/c.md"
    result = bench.run("Bash", command=plants)
    assert (workspace / "docs" / "a.md").read_text() == "obey\n"
    assert not (workspace / ".envrc").exists()
    assert not (workspace / "CLAUDE.md").exists()
    assert "moved aside" in result.text
    entry = FileEntry(path=str((workspace / "docs" / "a.md").resolve()), access="write", scope="exact")
    wide = bench.within(boundary(workspace, Profile.ASK, entry))
    assert wide.run("Write", path="AGENTS.md", content="new\n").outcome is Outcome.OK
    assert bench.run("Write", path="docs/b.md", content="fine\n").outcome is Outcome.OK


def test_what_one_command_plants_is_not_what_another_one_found(workspace: Path) -> None:
    planted = workspace / ".envrc"
    guards = Guards()
    first = Guard([str(planted)], guards)
    planted.symlink_to("evil.sh")
    second = Guard([str(planted)], guards)
    assert first.put_right() == (str(planted),)
    assert second.put_right() == ()
    assert not planted.is_symlink()
    planted.symlink_to("the person's own")
    assert Guard([str(planted)], guards).put_right() == (), "nobody runs any more, so it is what was there"


def test_no_name_is_taken_so_often_that_nothing_is_moved(workspace: Path) -> None:
    guard = Guard([str(workspace / ".envrc")], Guards())
    for number in range(1_000):
        (workspace / f".envrc{ASIDE}-{number}").touch()
    (workspace / ".envrc").write_text("evil")
    assert guard.put_right() == (str(workspace / ".envrc"),)
    assert not (workspace / ".envrc").exists()
