"""Repositories: whatever a command or a file tool plants, the person's next git command runs none of it."""

import os
import subprocess
from pathlib import Path

import pytest

from maka.contracts.content import Outcome
from maka.contracts.sandbox_ports import Sandbox
from maka.edges.processes import AsyncProcesses
from maka.tools.policy import Ground
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import Bench

pytestmark = pytest.mark.one_sandbox

QUIET = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
NAMED = ("-c", "user.name=p", "-c", "user.email=p@example.org", "-c", "protocol.file.allow=always")
EVIL = "printf '#!/bin/sh\\ntouch MARK\\n' > evil.sh; chmod +x evil.sh; "
CONFIG = "printf '[core]\\nrepositoryformatversion = 0\\nbare = false\\nfsmonitor = %s/evil.sh\\n' $PWD"
GITLINK = "git update-index --add --cacheinfo 160000,$(git -C sub rev-parse HEAD),sub"
COMMIT = "git -c user.name=p -c user.email=p@example.org"
SUBMODULE = f"git init -q lib; {COMMIT} -C lib commit -q --allow-empty -m x; {COMMIT} ADD ./lib sub".replace(
    "ADD", "-c protocol.file.allow=always submodule add -q"
)


def git(folder: Path, *args: str) -> None:
    subprocess.run(
        ["git", *NAMED, *args], cwd=folder, env={**QUIET, "HOME": str(folder)}, check=True, capture_output=True
    )


def repository(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "file").write_text("text\n")
    git(folder, "add", "file")
    git(folder, "commit", "-q", "-m", "first")
    return folder


class Person:
    """Looks whether something was run outside: git is asked what its owner would ask it."""

    def __init__(self, tmp_path: Path) -> None:
        self.mark = tmp_path / "was-run"

    def runs_nothing(self, folder: Path) -> bool:
        commit = [*NAMED, "commit", "--allow-empty", "-m", "mine"]
        for words in (["status"], ["-C", "sub", "status"], commit, ["-C", "sub", *commit]):
            env = {**QUIET, "HOME": str(folder.parent)}
            subprocess.run(["git", *words], cwd=folder, env=env, check=False, capture_output=True)
        return not self.mark.exists()


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def tools(processes: AsyncProcesses, sandbox: Sandbox, folder: Path) -> Bench:
    return Bench(make_tools(processes, sandbox=sandbox, ground=Ground()), folder)


def plant(bench: Bench, person: Person, command: str) -> None:
    bench.run("Bash", command=(EVIL + command).replace("MARK", str(person.mark)))


PLANTED = {
    "a nested repository": "git init -q sub; git -C sub config core.fsmonitor $PWD/evil.sh",
    "a submodule by its link": (
        f"git init -q sub; {COMMIT} -C sub commit -q --allow-empty -m x; {GITLINK}; "
        "git -C sub config core.fsmonitor $PWD/evil.sh"
    ),
    "a pointer to files elsewhere": (
        f"mkdir sub; git init -q other; mv other/.git store; {CONFIG} > store/config; "
        "echo gitdir: $PWD/store > sub/.git"
    ),
    "another settings' folder": f"mkdir evilgit; {CONFIG} > evilgit/config; echo $PWD/evilgit > .git/commondir",
    "hooks": "mkdir -p .git/hooks; cp evil.sh .git/hooks/pre-commit",
    "a new worktree of another settings' folder": (
        f"git worktree add -q sub; git init -q evilgit; mv evilgit/.git store; {CONFIG} > store/config; "
        "echo $PWD/store > .git/worktrees/sub/commondir; rm store/HEAD"
    ),
    "a new submodule's settings": (
        f"{SUBMODULE}; {CONFIG} > .git/modules/sub/config; echo 'worktree = ../../../sub' >> .git/modules/sub/config"
    ),
    "a new submodule's hooks": (
        f"{SUBMODULE}; mkdir -p .git/modules/sub/hooks; cp evil.sh .git/modules/sub/hooks/pre-commit"
    ),
}


BESIDE = {
    "a blank at the end": "sub ",
    "a line end within": "sub\\n ",
    "a byte that is no text": "sub\\377",
}


@pytest.mark.parametrize("how", BESIDE)
def test_a_pointer_is_read_as_git_reads_it(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, person: Person, how: str
) -> None:
    """A name that almost is a known repository's is another one's."""
    bench = tools(processes, sandbox, repository(workspace))
    bench.run("Bash", command=SUBMODULE)
    (workspace / "other").mkdir()
    name = BESIDE[how]
    evil = f'N="$(printf \'{name}\')"; cp -r .git/modules/sub ".git/modules/$N"; {CONFIG} > ".git/modules/$N/config"; '
    plant(bench, person, evil + "printf 'gitdir: ../.git/modules/%s\\n' \"$N\" > other/.git")
    subprocess.run(["git", "-C", "other", "status"], cwd=workspace, env=QUIET, check=False, capture_output=True)
    assert person.runs_nothing(workspace)


def test_a_path_that_is_no_text_is_moved_aside_and_told(bench: Bench, workspace: Path) -> None:
    name = "$(printf 'sub\\377')"
    result = bench.run("Bash", command=f'git init -q "{name}"; git -C "{name}" config core.fsmonitor x')
    assert "moved aside" in result.text
    assert "sub\ufffd/.git" in result.text
    assert result.need is not None and result.need.expansion is None
    (folder,) = os.listdir(os.fsencode(workspace))
    assert os.listdir(os.path.join(os.fsencode(workspace), folder)) == [b".git.maka-aside-1"]


@pytest.mark.parametrize("text", ["gitdir: a\0b\n", "gitdir:\n", "gitdir: \n", "", "\xff", "x" * 70_000])
def test_no_pointer_harms_the_next_command(bench: Bench, workspace: Path, text: str) -> None:
    (workspace / "sub").mkdir()
    (workspace / "sub" / ".git").write_text(text)
    assert bench.run("Bash", command="echo ran").text == "ran\n"


@pytest.mark.parametrize("how", PLANTED)
def test_in_a_repository(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, person: Person, how: str
) -> None:
    plant(tools(processes, sandbox, repository(workspace)), person, PLANTED[how])
    assert person.runs_nothing(workspace)


def test_a_folder_that_is_made_a_repository(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, person: Person
) -> None:
    bare = (
        f"mkdir objects refs; echo 'ref: refs/heads/main' > HEAD; {CONFIG} > config; printf 'worktree = .\\n' >> config"
    )
    plant(tools(processes, sandbox, workspace), person, bare)
    assert person.runs_nothing(workspace)


@pytest.mark.parametrize(
    "command",
    [
        "mkdir -p MAIN/.git/hooks; cp evil.sh MAIN/.git/hooks/pre-commit",
        f"mkdir evilgit; {CONFIG} > evilgit/config; echo $PWD/evilgit > MAIN/.git/commondir",
    ],
    ids=["hooks", "commondir"],
)
def test_in_the_repository_of_a_linked_worktree(
    processes: AsyncProcesses, sandbox: Sandbox, tmp_path: Path, person: Person, command: str
) -> None:
    main, worktree = repository(tmp_path / "main"), tmp_path / "tree"
    for name in (main / ".git" / "hooks").iterdir():
        name.unlink()
    (main / ".git" / "hooks").rmdir()
    git(main, "worktree", "add", "-q", str(worktree))
    bench = tools(processes, sandbox, worktree)
    plant(bench, person, command.replace("MAIN", str(main)))
    assert person.runs_nothing(main)
    assert person.runs_nothing(worktree)


def test_in_a_submodules_folder(
    processes: AsyncProcesses, sandbox: Sandbox, tmp_path: Path, workspace: Path, person: Person
) -> None:
    repository(workspace)
    git(workspace, "submodule", "add", "-q", str(repository(tmp_path / "lib")), "sub")
    bench = tools(processes, sandbox, workspace)
    plant(bench, person, f"mkdir evilgit; {CONFIG} > evilgit/config; echo $PWD/evilgit > .git/modules/sub/commondir")
    assert person.runs_nothing(workspace)


@pytest.mark.parametrize("close", ["true", "chmod 0 .git/modules", "chmod 0 .git/modules/sub"])
def test_in_a_submodule_that_nobody_has_fetched_yet(
    processes: AsyncProcesses, sandbox: Sandbox, tmp_path: Path, workspace: Path, person: Person, close: str
) -> None:
    """Git takes the folder that it finds for the submodule's own."""
    source = repository(tmp_path / "source")
    git(source, "submodule", "add", "-q", str(repository(tmp_path / "lib")), "sub")
    git(source, "commit", "-qm", "sub")
    git(tmp_path, "clone", "-q", "source", str(workspace))
    made = "mkdir -p .git/modules/sub/hooks; cp -r .git/objects .git/refs .git/HEAD .git/modules/sub"
    evil = f"{CONFIG} > .git/modules/sub/config; cp evil.sh .git/modules/sub/hooks/post-checkout"
    plant(tools(processes, sandbox, workspace), person, f"{made}; {evil}; {close}")
    update = ["git", *NAMED, "submodule", "update", "--init"]
    subprocess.run(update, cwd=workspace, env=QUIET, check=False, capture_output=True)
    assert person.runs_nothing(workspace)


def test_what_the_settings_name_is_as_protected_also_from_file_tools(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, person: Person
) -> None:
    repository(workspace)
    git(workspace, "config", "core.hooksPath", ".githooks")
    git(workspace, "config", "include.path", "../cfg/inc")
    bench = tools(processes, sandbox, workspace)
    for path in (".githooks/pre-commit", "cfg/inc"):
        assert "sandbox_boundary_required" in bench.run("Write", path=path, content="x").text, path
    plant(
        bench,
        person,
        f"mkdir -p .githooks cfg; cp evil.sh .githooks/pre-commit; {CONFIG} > cfg/inc",
    )
    assert person.runs_nothing(workspace)


def test_a_repository_whose_files_lie_apart(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, person: Person
) -> None:
    git(workspace, "init", "-q", "--separate-git-dir=store", ".")
    bench = tools(processes, sandbox, workspace)
    assert "sandbox_boundary_required" in bench.run("Write", path="store/config", content="x").text
    plant(bench, person, f"{CONFIG} > store/config; mkdir -p store/hooks; cp evil.sh store/hooks/pre-commit")
    assert person.runs_nothing(workspace)


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_ordinary_work_goes_on(processes: AsyncProcesses, sandbox: Sandbox, workspace: Path) -> None:
    repository(workspace)
    bench = tools(processes, sandbox, workspace)
    for command in (
        "git clone -q . copy",
        "git init -q new",
        "git worktree add -q tree",
        f"{COMMIT} commit -q --allow-empty -m x",
        SUBMODULE,
        "git submodule status && git -C tree status && git -C sub status",
    ):
        result = bench.run("Bash", command=command)
        assert result.outcome is Outcome.OK, result.text
    assert (workspace / "copy" / ".git").is_dir()
    assert (workspace / "tree" / ".git").is_file()
    assert (workspace / "sub" / ".git").is_file()


def test_what_runs_as_maka_is_not_changed_by_its_own_tools(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path
) -> None:
    """As in a checkout of it, or where it is installed in a project's own environment."""
    code = workspace / ".venv" / "lib"
    code.mkdir(parents=True)
    (code / "maka.py").write_text("mine\n")
    ground = Ground(code=(str((workspace / ".venv").resolve()),))
    bench = Bench(make_tools(processes, sandbox=sandbox, ground=ground), workspace)
    assert "sandbox_boundary_required" in bench.run("Write", path=".venv/lib/x.pth", content="import evil\n").text
    bench.run("Bash", command="echo evil > .venv/lib/maka.py; echo evil > .venv/lib/x.pth; mv .venv v2; mkdir .venv")
    assert (code / "maka.py").read_text() == "mine\n"
    assert not (code / "x.pth").exists()
    assert bench.run("Bash", command="cat .venv/lib/maka.py").text == "mine\n"


HOOK = "mkdir -p HOOKS; cp evil.sh HOOKS/pre-commit"


def hooks(folder: Path, path: str, *config: str) -> None:
    """Let a person have a hooks' folder, and name it in the configuration."""
    (folder / path).mkdir(parents=True)
    (folder / path / "pre-commit").write_text("#!/bin/sh\ntrue\n")
    (folder / path / "pre-commit").chmod(0o755)
    git(folder, *config)


MOVED = {
    "a repository": ("sub", "mv sub old; mkdir sub; git init -q sub; " + HOOK.replace("HOOKS", "sub/.git/hooks")),
    "a hooks' folder": ("tools/hooks", "mv tools old; " + HOOK.replace("HOOKS", "tools/hooks")),
    "an included file": ("conf/git.cfg", f"mv conf old; mkdir conf; {CONFIG} > conf/git.cfg"),
    "a link's folder": ("conf/vs", "mv conf old; mkdir -p conf/vs; cp evil.sh conf/vs/tasks.json"),
    "submodules": ("", f"mv .git/modules m; cp -r m .git/modules; {CONFIG} > .git/modules/sub/config"),
    "worktrees": (
        "",
        "mv .git/worktrees w; cp -r w .git/worktrees; mkdir c; cp -r .git/objects .git/refs .git/HEAD c; "
        f"{CONFIG} > c/config; echo ../../../c > .git/worktrees/tree/commondir",
    ),
}


@pytest.mark.parametrize("what", MOVED)
def test_nothing_comes_in_place_of_what_was_moved_away(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, person: Person, what: str
) -> None:
    """A folder above it can be moved, and another one made under its name."""
    bench = tools(processes, sandbox, repository(workspace))
    place, command = MOVED[what]
    if what == "a repository":
        repository(workspace / "sub")
    elif what == "a hooks' folder":
        hooks(workspace, place, "config", "core.hooksPath", place)
    elif what == "an included file":
        (workspace / "conf").mkdir()
        (workspace / place).write_text("[core]\n\tautocrlf = false\n")
        git(workspace, "config", "include.path", f"../{place}")
    elif what == "a link's folder":
        (workspace / place).mkdir(parents=True)
        (workspace / ".vscode").symlink_to(place)
    elif what == "submodules":
        (workspace / "lib").mkdir()
        subprocess.run(["bash", "-c", SUBMODULE], cwd=workspace, env=QUIET, check=True)
    else:
        git(workspace, "worktree", "add", "-q", "tree")
    plant(bench, person, command)
    assert person.runs_nothing(workspace)
    assert not (workspace / ".vscode" / "tasks.json").exists()
    subprocess.run(["git", "-C", "tree", "status"], cwd=workspace, env=QUIET, check=False, capture_output=True)
    assert person.runs_nothing(workspace)


SETTINGS = {
    "plain": "[core]\n\thooksPath = .githooks\n",
    "one line": "[core] hooksPath = .githooks\n",
    "a remark": "[core]\n\thooksPath = .githooks # ours\n",
    "continued": "[core]\n\thooksPath = .git\\\nhooks\n",
    "quoted within": '[core]\n\thooksPath = .git"hooks"\n',
    "included": "[include]\n\tpath = ../shared.cfg\n",
    "on a condition": '[includeIf "gitdir:**"]\n\tpath = ../shared.cfg\n',
    "capitals": "[CORE]\nHOOKSPATH=.githooks\n",
}


@pytest.mark.parametrize("how", SETTINGS)
def test_a_hooks_folder_is_found_as_git_finds_it(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, person: Person, how: str
) -> None:
    hooks(repository(workspace), ".githooks", "status")
    (workspace / "shared.cfg").write_text(SETTINGS["plain"])
    with open(workspace / ".git" / "config", "a") as config:
        config.write(SETTINGS[how])
    assert b".githooks" in subprocess.check_output(["git", "config", "--includes", "core.hooksPath"], cwd=workspace)
    bench = tools(processes, sandbox, workspace)
    plant(bench, person, "cp evil.sh .githooks/pre-commit")
    assert bench.run("Write", path=".githooks/pre-push", content="x").outcome is Outcome.REFUSED
    if "shared" in SETTINGS[how]:
        assert bench.run("Write", path="shared.cfg", content="x").outcome is Outcome.REFUSED
    assert person.runs_nothing(workspace)


@pytest.mark.parametrize("where", ["outside", "inside", "its own settings"])
def test_the_hooks_folder_of_a_linked_worktree(
    processes: AsyncProcesses, sandbox: Sandbox, tmp_path: Path, person: Person, where: str
) -> None:
    """The main repository's settings name it, and it lies in each worktree."""
    main = repository(tmp_path / "main")
    tree = (main if where == "inside" else tmp_path) / "tree"
    git(main, "worktree", "add", "-q", str(tree))
    if where == "its own settings":
        git(main, "config", "extensions.worktreeConfig", "true")
        hooks(tree, ".husky", "config", "--worktree", "core.hooksPath", ".husky")
    else:
        hooks(tree, ".husky", "config", "core.hooksPath", ".husky")
    bench = tools(processes, sandbox, main if where == "inside" else tree)
    plant(bench, person, f"cp evil.sh {'tree/' if where == 'inside' else ''}.husky/pre-commit")
    path = str(tree / ".husky" / "pre-push")
    assert bench.run("Write", path=path, content="x").outcome is Outcome.REFUSED
    assert person.runs_nothing(tree)


def test_deep_folders_hide_no_planting(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, person: Person
) -> None:
    bench = tools(processes, sandbox, repository(workspace))
    bench.run("Bash", command="mkdir -p a/b/c/d/e/f/g/h/i/j/k/l/m/n")
    plant(bench, person, f"git init -q sub; {HOOK.replace('HOOKS', 'sub/.git/hooks')}; cp evil.sh sub/AGENTS.md")
    assert person.runs_nothing(workspace)
    assert not (workspace / "sub" / "AGENTS.md").exists()


def test_a_repository_in_two_parts(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, person: Person
) -> None:
    bench = tools(processes, sandbox, workspace)
    parts = (
        "git init -q t; mkdir sub c; mv t/.git/objects t/.git/refs c; mv t/.git/HEAD sub; echo ../c > sub/commondir; "
    )
    plant(bench, person, f"{parts}{CONFIG} > c/config; echo '\tworktree = '$PWD/sub >> c/config")
    assert person.runs_nothing(workspace)


def test_file_tools_make_no_repository(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, person: Person
) -> None:
    bench = tools(processes, sandbox, workspace)
    config = f"[core]\nbare = false\nworktree = {workspace}/sub\nfsmonitor = 'touch {person.mark};true'\n"
    files = {"config": config, "objects/keep": "", "refs/keep": "", "HEAD": "ref: refs/heads/main\n"}
    results = [bench.run("Write", path=f"sub/{name}", content=text) for name, text in files.items()]
    assert [result.outcome for result in results] == [Outcome.OK] * 3 + [Outcome.REFUSED]
    assert bench.run("Write", path="HEAD", content="no repository's").outcome is Outcome.OK
    assert person.runs_nothing(workspace)


def test_a_submodule_s_worktree_is_not_elsewhere(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, tmp_path: Path, person: Person
) -> None:
    """Or the next checkout there would write to it."""
    (home := tmp_path.resolve() / "home").mkdir()
    bench = tools(processes, sandbox, repository(workspace))
    away = f"git config -f .git/modules/sub/config core.worktree {home}"
    bench.run("Bash", command=f"{SUBMODULE}; echo x > sub/x; git -C sub add x; {COMMIT} -C sub commit -qm x; {away}")
    subprocess.run(["git", "-C", "sub", "checkout", "-f", "."], cwd=workspace, env=QUIET, check=False)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_ordinary_clones_stay(processes: AsyncProcesses, sandbox: Sandbox, workspace: Path) -> None:
    repository(workspace)
    bench = tools(processes, sandbox, workspace)
    assert bench.run("Bash", command=SUBMODULE).outcome is Outcome.OK
    bench.run("Bash", command=f"{COMMIT} commit -qam sub")
    for name, command in {
        "sha256": "git init -q --object-format=sha256",
        "sparse": "git clone -q --sparse .",
        "mirror": "git clone -q --mirror .",
        "bare": "git clone -q --bare .",
        "whole": "git -c protocol.file.allow=always clone -q --recurse-submodules .",
    }.items():
        result = bench.run("Bash", command=f"{command} {name}")
        assert result.outcome is Outcome.OK, (name, result.text)
    assert bench.run("Bash", command="mv whole moved && git -C moved status").outcome is Outcome.OK


_LONG = """
import os
def down(*names):
    for name in names:
        os.mkdir(name)
        os.chdir(name)
def repository():
    os.mkdir("objects"), os.mkdir("refs"), open("HEAD", "w").close(), open("config", "w").close()
down(*["a" * 255] * 7, "bare")
repository()
down("modules")
while (left := %d - len("/config") - len(os.getcwd())) > 0:
    down("m" * (left - 1 if left <= 256 else min(255, left - 3)))
repository()
"""


@pytest.mark.parametrize("length", [4_093, 4_040, 4_032, 4_097])
def test_a_path_that_is_too_long_to_be_mounted_stops_no_command(bench: Bench, repository: Path, length: int) -> None:
    (repository / "make.py").write_text(_LONG % length)
    assert bench.run("Bash", command="python3 make.py").outcome is Outcome.OK
    assert bench.run("Bash", command="echo fine").text == "fine\n"
    module = next(Path(folder) for folder, _, names in os.walk(repository) if "config" in names and "mmm" in folder)
    assert len(os.fsencode(module / "config")) == length
    evil = "import os, sys; os.chdir(sys.argv[1]); open('config', 'a').write('evil')"
    result = bench.run("Bash", command=f'python3 -c "{evil}" {module}')
    assert result.outcome is Outcome.ERROR, result.text
    folder = os.open(module, os.O_RDONLY)
    try:
        assert os.stat("config", dir_fd=folder).st_size == 0
    finally:
        os.close(folder)
    assert bench.run("Bash", command="echo fine").text == "fine\n"
