"""Links in and around repositories, and hooks that a setting names for each worktree: git follows all of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from maka.contracts.content import Outcome
from maka.contracts.sandbox_ports import Sandbox
from maka.edges.processes import AsyncProcesses
from maka.tools import repositories
from maka.tools.walk import Walk
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import CHILD_ENV, NAMED, Bench, boundary, git

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is missing"),
    pytest.mark.parametrize("sandbox", MOUNTING, indirect=True),
    pytest.mark.one_sandbox,
]
ODD_LOG = "logs/refs/heads/objects/ab/topic"
PYTHON = os.path.realpath(sys.executable)
HOOK = "printf '#!/bin/sh\\ntouch %s\\n' MARK > PATH; chmod +x PATH"


@pytest.fixture
def bench(processes: AsyncProcesses, repository: Path, sandbox: Sandbox) -> Bench:
    return Bench(make_tools(processes, sandbox=sandbox), repository)


def hook(path: str, mark: Path) -> str:
    return HOOK.replace("PATH", path).replace("MARK", str(mark))


def commits(folder: Path) -> None:
    """Commit as the person, whatever comes of it: a planted hook may fail."""
    words = (*NAMED.split(), "commit", "-q", "--allow-empty", "-m", "touch was-run")
    subprocess.run(words, cwd=folder, env=CHILD_ENV, check=False, capture_output=True)


@pytest.mark.parametrize(
    "name",
    [
        "COMMIT_EDITMSG",
        "logs/HEAD",
        "logs/refs/heads/main",
        "ORIG_HEAD",
        "objects/info",
        ODD_LOG,
        "objects/pack/multi-pack-index",
    ],
)
def test_git_writes_nothing_through_a_new_link(bench: Bench, tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine\n")
    command = f"rm -rf .git/{name}; mkdir -p $(dirname .git/{name}); ln -s {precious} .git/{name}"
    text = bench.run("Bash", command=command).text
    assert "moved aside" in text and f".git/{name}" in text
    commits(bench.cwd)
    git(bench.cwd, "reset", "-q", "--hard")
    assert precious.read_text() == "mine\n"


def test_what_was_moved_aside_is_no_link_from_before(bench: Bench, tmp_path: Path) -> None:
    bench.run("Bash", command=f"ln -s {tmp_path} .git/MERGE_MSG")
    aside = ".git/MERGE_MSG.maka-aside-1"
    assert bench.run("Bash", command="echo other").text == "other\n", "where it lies it is looked at no more"
    assert ".git/MERGE_MSG" in bench.run("Bash", command=f"mv {aside} .git/MERGE_MSG").text
    assert not (bench.cwd / ".git" / "MERGE_MSG").is_symlink()


def test_a_link_that_was_there_stays_and_may_be_moved_with_its_folder(bench: Bench, tmp_path: Path) -> None:
    link = bench.cwd / "lib" / ".git" / "logs"
    git(bench.cwd, "init", "-q", "lib")
    link.symlink_to(tmp_path)
    result = bench.run("Bash", command="mkdir other && git status -s")
    assert result.outcome is Outcome.OK and link.is_symlink()


@pytest.mark.parametrize("name", ["lib", "third/lib", "objects/ab/lib", "lib/objects/pack/x"])
def test_a_submodule_behind_a_link_is_none(bench: Bench, name: str) -> None:
    """What stands there is looked at as a repository only if git makes one of it."""
    at = f".git/modules/{name}"
    command = f"git init -q --bare .git/lfs/g; mkdir -p $(dirname {at}); ln -s $PWD/.git/lfs/g {at}"
    assert at in bench.run("Bash", command=command).text
    assert not (bench.cwd / at).is_symlink()


@pytest.mark.parametrize("place", ["outside", "node_modules/mine"])
def test_the_index_of_every_worktree_is_looked_at(bench: Bench, tmp_path: Path, mark: Path, place: str) -> None:
    """A command can write those of others, too: what they name may lie in this folder."""
    there = tmp_path / "outside" if place == "outside" else bench.cwd / place
    git(bench.cwd, "worktree", "add", "-q", str(there))
    link = os.path.relpath(bench.cwd / "node_modules" / "x", there)
    evil = f"git init -q node_modules/x && {NAMED} -C node_modules/x commit -q --allow-empty -m x; "
    evil += f"git -C node_modules/x config core.fsmonitor 'touch {mark}; false'; "
    name = there.name
    script = f"import struct,hashlib; n={link!r}.encode(); e=struct.pack('>24xI12x20s',0o160000,b'h'*20)"
    script += "+struct.pack('>H',len(n))+n; e+=b'\\0'*(8-len(e)%8); d=b'DIRC'+struct.pack('>II',2,1)+e; "
    script += f"open('.git/worktrees/{name}/index','wb').write(d+hashlib.sha1(d).digest())"
    text = bench.run("Bash", command=f'{evil}{PYTHON} -c "{script}"').text
    assert "node_modules/x/.git" in text and "moved aside" in text
    subprocess.run(("git", "status"), cwd=there, env=CHILD_ENV, check=False, capture_output=True)
    assert not mark.exists()


def test_submodules_of_worktrees_are_protected(bench: Bench) -> None:
    config = bench.cwd / ".git" / "worktrees" / "wt" / "modules" / "lib"
    git(bench.cwd, "init", "-q", "--bare", str(config))
    before = (config / "config").read_bytes()
    hooks = sorted(os.listdir(config / "hooks"))
    bench.run("Bash", command=f"git -C {config} config core.pager evil; echo evil > {config}/hooks/post-commit")
    assert ((config / "config").read_bytes(), sorted(os.listdir(config / "hooks"))) == (before, hooks)


def test_a_pointer_behind_a_link_is_read_from_the_link_s_folder(bench: Bench) -> None:
    """As git does: its settings are where it looks for them, not beside the file that the link leads to."""
    for place in ("node_modules/its", "other/node_modules/its"):
        git(bench.cwd, "init", "-q", "--bare", place)
    (bench.cwd / "other" / "x").mkdir()
    (bench.cwd / "other" / "x" / "pointer").write_text("gitdir: ../node_modules/its\n")
    (bench.cwd / "sub").mkdir()
    (bench.cwd / "sub" / ".git").symlink_to("../other/x/pointer")
    bench.run("Bash", command="git -C node_modules/its config core.fsmonitor evil")
    assert "fsmonitor" not in (bench.cwd / "node_modules" / "its" / "config").read_text()


def test_a_worktree_that_is_named_relative_to_its_repository_commits(bench: Bench, tmp_path: Path) -> None:
    """Newer git writes it so where `worktree.useRelativePaths` is set."""
    git(bench.cwd, "worktree", "add", "-q", str(tmp_path / "tree"))
    own = bench.cwd / ".git" / "worktrees" / "tree"
    (own / "gitdir").write_text(os.path.relpath(tmp_path / "tree" / ".git", own) + "\n")
    linked = Bench(bench.tools, tmp_path / "tree")
    assert linked.run("Bash", command=f"{NAMED} commit -q --allow-empty -m x; echo $?").text == "0\n"


def test_deeply_nested_submodules_and_long_names_of_branches_are_no_trouble(bench: Bench) -> None:
    folder = bench.cwd / ".git"
    for _ in range(4):
        folder = folder / "modules" / "third_party" / "x"
        git(bench.cwd, "init", "-q", "--bare", str(folder))
        (folder / "refs/remotes/origin/dependabot/npm_and_yarn/packages/foo/bar/baz").mkdir(parents=True)
    assert bench.run("Bash", command="echo hello").text == "hello\n"


def test_the_lock_of_an_editor_stays(bench: Bench) -> None:
    lock = ".git/.#COMMIT_EDITMSG"
    result = bench.run("Bash", command=f"ln -s me@here.1:2 '{lock}'")
    assert result.outcome is Outcome.OK and (bench.cwd / lock).is_symlink()


def test_more_submodules_than_can_be_looked_at_are_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Walk(boundary(bench.cwd))
    for number in range(4):
        (bench.cwd / ".git" / "modules" / str(number)).mkdir(parents=True)
    assert not before.after().is_cut
    monkeypatch.setattr(repositories, "_MODULES_MAX", 3)
    assert before.after().is_cut


@pytest.mark.parametrize(
    ("place", "command"),
    [
        ("wt", "git worktree add -q wt; mkdir -p wt/.husky; HOOK"),
        ("sub", "mkdir -p sub/.husky; echo 'gitdir: ../.git' > sub/.git; HOOK"),
        ("sub", "mkdir -p sub/.husky; ln -s ../.git sub/.git; HOOK"),
        ("x/y", "mkdir -p x/y h; ln -s ../../.git x/y/.git; ln -s ../../h x/y/.husky; HOOK"),
    ],
)
def test_hooks_that_a_setting_names_for_a_new_worktree_are_judged(
    bench: Bench, mark: Path, place: str, command: str
) -> None:
    git(bench.cwd, "config", "core.hooksPath", ".husky")
    bench.run("Bash", command=command.replace("HOOK", hook(f"{place}/.husky/post-commit", mark)))
    commits(bench.cwd / place)
    assert not mark.exists()
    later = bench.run("Bash", command=f"mkdir -p {place}/.husky; {hook(f'{place}/.husky/post-commit', mark)}")
    assert later.outcome is Outcome.ERROR or not (bench.cwd / place / ".git").exists()
    commits(bench.cwd / place)
    assert not mark.exists()


def test_the_same_hooks_as_from_before_may_stay_in_a_new_worktree(bench: Bench, mark: Path) -> None:
    """Those that are committed come with each worktree."""
    hooks = bench.cwd / ".husky"
    hooks.mkdir()
    (hooks / "post-commit").write_text(f"#!/bin/sh\ntouch {mark}\n")
    (hooks / "post-commit").chmod(0o755)
    git(bench.cwd, "add", "-A")
    git(bench.cwd, "commit", "-qm", "hooks")
    git(bench.cwd, "config", "core.hooksPath", ".husky")
    assert bench.run("Bash", command="git worktree add -q wt; echo made").text == "made\n"
    assert (bench.cwd / "wt" / ".husky" / "post-commit").exists()
    changed = "git worktree add -q other; echo true >> other/.husky/post-commit"
    assert "other/.husky" in bench.run("Bash", command=changed).text
    assert not (bench.cwd / "other" / ".husky").exists()


def test_hooks_of_a_push_into_it_are_protected(bench: Bench, mark: Path, tmp_path: Path) -> None:
    """Those are run in the repository's own folder, and a path is looked up from there."""
    git(bench.cwd, "config", "core.hooksPath", ".husky")
    bench.run("Bash", command=f"mkdir -p .git/.husky; {hook('.git/.husky/pre-receive', mark)}")
    git(tmp_path, "clone", "-q", str(bench.cwd), "clone")
    git(tmp_path / "clone", "push", "-q", "origin", "HEAD:refs/heads/other")
    assert not mark.exists()


@pytest.mark.parametrize("place", ["node_modules", "third"])
@pytest.mark.parametrize("pointer", ["echo 'gitdir: ../PLACE/l' > sub/.git", "ln -s ../PLACE/l sub/.git"])
def test_a_pointer_whose_way_leads_elsewhere_is_judged_anew(bench: Bench, mark: Path, place: str, pointer: str) -> None:
    begun = f"mkdir -p sub {place}; ln -s ../.git {place}/l; {pointer}".replace("PLACE", place)
    bench.run("Bash", command=begun)
    evil = f"git init -q {place}/g; {hook(f'{place}/g/.git/hooks/post-commit', mark)}; ln -sfn g/.git {place}/l"
    bench.run("Bash", command=evil)
    bench.run("Bash", command="true")
    commits(bench.cwd / "sub")
    assert not mark.exists()
