"""What a hostile command, or two at once, would do so that something planted stays: hide it, or break the looking."""

import gc
import os
import subprocess
import weakref
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maka.contracts.content import Outcome
from maka.contracts.sandbox_ports import Sandbox
from maka.edges.processes import AsyncProcesses
from maka.tools import before, identity, inside, new_repository, repositories, survey, walk
from maka.tools.git_config import differs_plainly
from maka.tools.guard import Guards
from maka.tools.policy import Ground
from maka.tools.repositories import Kind
from tests.tools.conftest import MOUNTING, make_tools
from tests.tools.harness import Bench, git
from tests.tools.test_meanwhile import saved
from tests.tools.test_planted import ended
from tests.tools.test_planted import inside as begun

PLANT = "mkdir -p sub/.vscode; for name in CLAUDE.md .envrc .vscode/tasks.json; do echo evil > sub/$name; done"
PLANTED = ("sub/CLAUDE.md", "sub/.envrc", "sub/.vscode")


@pytest.fixture
def bench(processes: AsyncProcesses, workspace: Path, sandbox: Sandbox) -> Bench:
    return Bench(make_tools(processes, sandbox=sandbox), workspace)


def all_gone(bench: Bench, text: str) -> bool:
    return all(name in text and not (bench.cwd / name).exists() for name in PLANTED)


@pytest.mark.parametrize("setting", ["[core]\\n\\tworktree = a\\0b\\n", "[include]\\n\\tpath = ~a\\0b\\n"])
def test_a_name_that_is_none_shields_nothing(bench: Bench, setting: str) -> None:
    evil = (
        f"mkdir -p n/.git/modules/e && echo x > n/.git/modules/e/HEAD && printf '{setting}' > n/.git/modules/e/config"
    )
    assert all_gone(bench, bench.run("Bash", command=f"git init -q n; {evil}; {PLANT}").text)


@pytest.mark.parametrize("sandbox", MOUNTING, indirect=True)
def test_decoys_shield_nothing(bench: Bench) -> None:
    """Each repository that is moved aside uncovers another one."""
    one = "mkdir -p $p; git init -q $p; git -C $p config core.fsmonitor x; p=$p/.git/n"
    nested = f"p=build; for i in 1 2 3 4 5 6; do {one}; done"
    assert all_gone(bench, bench.run("Bash", command=f"{nested}; {PLANT}").text)
    assert not list(bench.cwd.glob("build/**/.git")), "no other one is left in what was moved aside"
    back = (
        "mv build/.git.maka-aside-1/n lib && cd lib && mv .git.maka-aside-1 .git && mv .git/HEAD.maka-aside-1 .git/HEAD"
    )
    assert "lib/.git" in bench.run("Bash", command=back).text, "what was moved aside is nobody's from before"
    assert not (bench.cwd / "lib" / ".git").exists()


def test_a_fault_of_ours_shields_nothing(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be looked at is said, and found at the next command's end."""
    guards = Guards()
    command = begun(workspace, guards)
    (workspace / "sub").mkdir()
    (workspace / "sub" / "CLAUDE.md").write_text("evil")
    with monkeypatch.context() as patch:
        patch.setattr(inside, "put_repositories_right", None)
        assert "Not all that the command made could be looked at" in ended(command)
    assert "sub/CLAUDE.md" in ended(begun(workspace, guards))
    assert not (workspace / "sub" / "CLAUDE.md").exists()


def test_a_folder_that_is_closed_shields_nothing(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = begun(workspace)
    (workspace / "sub").mkdir()
    (workspace / "sub" / "CLAUDE.md").write_text("evil")
    right = survey.protected_paths
    closed = [True]

    def once(seen: walk.Walk, ground: Ground) -> list[str]:
        if closed.pop() if closed else False:
            raise PermissionError(13, "it is closed to its own user", str(workspace / "sub"))
        return right(seen, ground)

    monkeypatch.setattr(inside, "protected_paths", once)
    assert "sub/CLAUDE.md" in ended(command)
    assert not closed


def test_a_hook_that_is_a_link_is_protected_where_it_leads(bench: Bench, repository: Path) -> None:
    (repository / "scripts").mkdir()
    (repository / "scripts" / "pre-commit").write_text("#!/bin/sh\n")
    (repository / ".git" / "hooks" / "pre-commit").symlink_to("../../scripts/pre-commit")
    assert bench.run("Bash", command="echo evil > scripts/pre-commit").outcome is Outcome.ERROR
    assert bench.run("Write", path="scripts/pre-commit", content="evil").outcome is Outcome.REFUSED
    assert (repository / "scripts" / "pre-commit").read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize("folder", ["remotes", "branches"])
def test_remotes_in_files_of_their_own_are_settings(bench: Bench, repository: Path, folder: str) -> None:
    bench.run("Bash", command=f"mkdir -p .git/{folder}; echo 'URL: ./evil' > .git/{folder}/origin")
    assert not (repository / ".git" / folder / "origin").exists()


# -- while a file is replaced -------------------------------------------------------------------------------------


def test_a_shell_that_waits_for_a_plain_change_is_found_later(repository: Path) -> None:
    git(repository, "remote", "add", "origin", "https://example.org/a.git")
    command = begun(repository)
    git(repository, "config", "branch.b.remote", "origin")
    assert not command.look()
    with open(repository / ".git" / "config", "a") as file:  # nothing holds it any more
        file.write("[core]\n\tfsmonitor = ./evil\n")
    command.look()
    config = (repository / ".git" / "config").read_text()
    assert "evil" not in config and "origin" in config


def test_what_one_command_wrote_is_not_what_another_one_puts_back(repository: Path) -> None:
    guards, config = Guards(), repository / ".git" / "config"
    good = config.read_text()
    config.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(config, 65534, 65534)
    info = config.stat()
    first = begun(repository, guards)
    saved(config, good + "[core]\n\tfsmonitor = ./evil\n")()
    second = begun(repository, guards)
    assert "put back" in ended(first)
    assert ended(second) == ""
    assert config.read_text() == good
    assert (config.stat().st_mode, config.stat().st_uid, config.stat().st_gid) == (
        info.st_mode,
        info.st_uid,
        info.st_gid,
    )


@pytest.mark.parametrize("planted", ["folder", "link", "link to a folder"])
def test_another_thing_in_place_of_settings_is_put_back(repository: Path, tmp_path: Path, planted: str) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    for root, name in ((repository, ".git/config"), (tmp_path / "tree", ".git")):
        settings_ = root / name
        good = settings_.read_text()
        command = begun(root)
        settings_.unlink()
        git(root, "init", "-q", "evil")
        if planted == "folder":
            (root / "evil" / ".git").rename(settings_)
        else:
            settings_.symlink_to(root / "evil" / (".git" if planted != "link" else ".git/config"))
        assert "put back" in ended(command)
        assert not settings_.is_symlink() and settings_.read_text() == good


def test_settings_that_were_not_kept_are_told_and_stay(repository: Path) -> None:
    config = repository / ".git" / "config"
    config.write_text(f"{config.read_text()}# {'x' * 300_000}\n")
    command = begun(repository)
    saved(config, config.read_text() + "[alias]\n\tst = status\n")()
    assert ended(command) == ""
    assert ".git/config" in command.note()
    assert "alias" in config.read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("branch.f.vscode-merge-base", "origin/main"),
        ("remote.origin.gh-resolved", "base"),
        ("rerere.enabled", "true"),
        ("maintenance.auto", "false"),
        ("remote.pushDefault", "origin"),
        ("remote.origin.url", "git@example.org:a/b.git"),
        ("remote.origin.url", "https://example.org/a.git"),
        ("--unset", "alias.st"),
        ("--unset", "core.fsmonitor"),
    ],
)
def test_a_persons_ordinary_settings_stay(repository: Path, words: tuple[str, ...]) -> None:
    git(repository, "remote", "add", "origin", "https://example.org/a.git")
    git(repository, "config", "alias.st", "status")
    git(repository, "config", "core.fsmonitor", "false")
    command = begun(repository)
    git(repository, "config", *words)
    config = (repository / ".git" / "config").read_text()
    assert (ended(command), command.note()) == ("", "")
    assert (repository / ".git" / "config").read_text() == config


@pytest.mark.parametrize(
    "url", ["./evil", "../evil", "/evil", "~/evil", "file:///evil", "evil::x", "odd://x", "a/b", "evil"]
)
def test_a_remote_that_runs_hooks_here_is_no_ordinary_setting(url: str) -> None:
    """Its hooks run here, as the person, when something is pushed to it."""
    assert not differs_plainly("", f'[remote "origin"]\n\tpushurl = {url}\n')


OLD = "[core]\n\thooksPath = ours\n\tbare = false\n[alias]\n\tst = !run\n"
ENDS = st.sampled_from([at for at, sign in enumerate(OLD) if sign == "\n"])
PIECES = st.sampled_from(
    (
        *("[core]", "[alias]", '[branch "b"]', "[b]", "[alias]st=x", "\n", "\t", " ", "\f", "\v", "\r", "\r\n", "\\\n"),
        *("\\", '"', "#", ";", "=", "hooksPath", "hooksPath = ours", "bare = true", "remote = o", "st = !run", "st"),
        *("x", "\\t", "[core]\n\thooksPath = ours\n", "[alias]\n\tst = !run\n", "\0", "é"),
    )
)


@settings(max_examples=500, deadline=None)
@given(pieces=st.lists(PIECES, min_size=1, max_size=3), at=st.one_of(ENDS, st.integers(0, len(OLD))))
def test_what_differs_plainly_makes_git_run_nothing_more(
    pieces: list[str], at: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The real git is asked: its lists of what isn't plain."""
    new = OLD[:at] + "".join(pieces) + OLD[at:]
    if differs_plainly(OLD, new):
        assert set(running(new, tmp_path_factory.getbasetemp())) <= {b"core.hookspath\nours", b"alias.st\n!run"}


def running(text: str, folder: Path) -> list[bytes]:
    """Return the entries, as git reads them, that may run something; none where git refuses the file."""
    (folder / "config").write_bytes(text.encode())
    asked = ("git", "config", "--file", str(folder / "config"), "--list", "-z")
    listed = subprocess.run(asked, check=False, capture_output=True).stdout.split(b"\0")
    return [one for one in listed if one and not one.startswith((b"core.bare", b"branch."))]


def test_a_put_back_keeps_to_what_the_first_command_found(repository: Path, tmp_path: Path) -> None:
    """A file that one command could change, since a person replaced it, is no other command's state from before."""
    git(repository, "config", "core.hooksPath", "ours")
    git(repository, "remote", "add", "origin", "https://example.org/a.git")
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    config = repository / ".git" / "config"
    for root in (repository, tmp_path / "tree"):
        guards = Guards()
        first = begun(root, guards)
        git(repository, "config", f"branch.{root.name}.remote", "origin")
        good = config.read_text()
        assert not first.look(), "that was a plain change"
        config.write_text(good.replace("hooksPath = ours", "fsmonitor = ./evil"))  # nothing holds it any more
        second = begun(root, guards)
        assert first.look(), "it has to end"
        ended(first)
        ended(second)
        assert config.read_text() == good


def test_what_was_accepted_under_its_name_is_nothing_under_another(workspace: Path) -> None:
    """The sandbox no longer holds it."""
    path = workspace / "AGENTS.md"
    path.write_text("be good\n")
    command = begun(workspace)
    saved(path, "be good\n")()
    assert not command.look()
    (workspace / "sub").mkdir()
    path.rename(workspace / "sub" / ".envrc")
    path.write_text("be good\n")
    assert "sub/.envrc" in ended(command)


def test_another_thing_in_place_of_settings_stops_nothing(workspace: Path) -> None:
    """Another command swaps it in at the moment of the look."""
    (workspace / "new" / ".git").mkdir(parents=True)
    config = workspace / "new" / ".git" / "config"
    for make in (os.mkfifo, os.mkdir):
        make(config)
        assert not new_repository.is_harmless(str(config.parent))
        assert identity.regular_bytes(str(config)) is None
        (os.rmdir if config.is_dir() else os.unlink)(config)


@pytest.mark.parametrize("odd", ["mkdir -p d/.git/config", "mkdir -p d/.git; ln -s config d/.git/config"])
def test_settings_that_are_no_file_make_no_harmless_repository(bench: Bench, odd: str) -> None:
    assert "d/.git" in bench.run("Bash", command=odd).text
    assert not (bench.cwd / "d" / ".git").exists()


def test_what_a_person_makes_after_an_unsettled_end_is_theirs(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guards = Guards()
    command = begun(workspace, guards)
    with monkeypatch.context() as patch:
        patch.setattr(inside, "put_repositories_right", None)
        ended(command)
    (workspace / "sub").mkdir()
    (workspace / "sub" / "CLAUDE.md").write_text("be good")
    os.utime(workspace / "sub" / "CLAUDE.md")
    for _ in range(2):
        assert ended(begun(workspace, guards)) == ""


def test_a_persons_worktree_beside_the_repository_stays(repository: Path, tmp_path: Path) -> None:
    command = begun(repository)
    git(repository, "worktree", "add", "-q", str(tmp_path / "beside"))
    assert ended(command) == ""
    git(tmp_path / "beside", "status")


def test_a_worktree_that_leads_elsewhere_is_moved_aside(repository: Path, tmp_path: Path) -> None:
    command = begun(repository)
    git(repository, "worktree", "add", "-q", str(tmp_path / "beside"))
    (repository / ".git" / "worktrees" / "beside" / "config.worktree").write_text("[core]\n\tfsmonitor = ./evil\n")
    assert "worktrees/beside" in ended(command)


def test_a_link_that_a_person_takes_away_is_gone(workspace: Path) -> None:
    (workspace / "AGENTS.md").write_text("be good")
    (workspace / "CLAUDE.md").symlink_to("AGENTS.md")
    command = begun(workspace)
    (workspace / "CLAUDE.md").unlink()
    assert ended(command) == ""
    assert not os.path.lexists(workspace / "CLAUDE.md")


@pytest.mark.parametrize("name", ["lib.maka-aside-1", "sub/.git.maka-aside"])
def test_a_name_like_ours_hides_nothing(workspace: Path, name: str) -> None:
    command = begun(workspace)
    (workspace / name).mkdir(parents=True)
    (workspace / name / "CLAUDE.md").write_text("evil")
    assert "CLAUDE.md" in ended(command)


# -- two at once --------------------------------------------------------------------------------------------------


def test_a_command_that_begins_while_another_one_looks_is_nobodys_from_before(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nested", "zz"):
        (workspace / name).mkdir()
    guards = Guards()
    right = repositories.kinds_exactly_in
    begun_there: list[inside.Inside] = []
    waiting = [True]

    def slow(folder: str, until_s: float) -> tuple[list[tuple[str, Kind]], bool]:
        if os.path.basename(folder) == "nested" and waiting:
            waiting.clear()
            begun_there.append(begun(workspace / "nested", guards))
            (workspace / "nested" / "x").mkdir()
            (workspace / "nested" / "x" / "CLAUDE.md").write_text("evil")
        return right(folder, until_s)

    with monkeypatch.context() as patch:
        patch.setattr(walk, "kinds_exactly_in", slow)
        outer = begun(workspace, guards)
    (workspace / "nested" / "x").rename(workspace / "zz" / "x")
    assert ended(begun_there[0]) == ""
    assert "CLAUDE.md" in ended(outer)


def test_no_command_keeps_those_that_ran_before_it(workspace: Path) -> None:
    """Where one always runs, each knew the one before it, and that one the next: a daemon kept them all."""
    guards = Guards()
    running = begun(workspace, guards)
    first = weakref.ref(running._before)  # pyright: ignore[reportPrivateUsage]
    for end in (ended, ended, inside.Inside.drop, ended):
        before_it, running = running, begun(workspace, guards)
        end(before_it)
        del before_it
    gc.collect()
    assert first() is None


def test_many_planted_names_are_told_in_short(workspace: Path) -> None:
    command = begun(workspace)
    for number in range(200):
        (workspace / f"d{number}").mkdir()
        (workspace / f"d{number}" / "CLAUDE.md").write_text("evil")
    said = ended(command)
    assert "and 150 more" in said
    assert not list(workspace.glob("*/CLAUDE.md"))


def test_settings_are_kept_whole_and_nothing_else_is(repository: Path) -> None:
    (repository / ".git" / "hooks" / "pre-commit").write_text("x" * 1_000)
    state = before.Before(begun(repository)._boundary, Ground(), Guards().made, Guards().enter)  # pyright: ignore[reportPrivateUsage]
    kept = {Path(path).name for path, one in state.standing.items() if one.content is not None and one.content.data}
    assert kept == {"config"}
