"""Whoever isn't root can lock themselves out of a folder, and a command can do it to them: nothing hides behind that.

Each test is of real files that belong to the user nobody, looked at by root; who isn't root plays both.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.harness import PATIENCE_S, git
from tests.tools.nobody import NOBODY

pytestmark = pytest.mark.one_sandbox

SANDBOXES = pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock", "landlock-no-mounts"])
ASIDE = ".maka-aside-1"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ground() -> Iterator[Path]:
    """A folder that everyone has a way to, with a workspace of nobody's in it."""
    path = Path(tempfile.mkdtemp(prefix="maka-nobody-")).resolve()
    path.chmod(0o755)
    (path / "ws" / "keys" / "deep").mkdir(parents=True)
    (path / "ws" / "keys" / "deep" / "k").write_text("swordfish")
    git(path / "ws", "init", "-q", ".")
    shutil.rmtree(path / "ws" / ".git" / "hooks")
    hand_over(path / "ws")
    try:
        yield path
    finally:
        opened(path)
        shutil.rmtree(path)


def hand_over(folder: Path) -> None:
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def opened(folder: Path) -> Path:
    """Let its owner look into everything, as a person would at last."""
    for path, names, _ in os.walk(folder):
        os.chmod(path, 0o755)
        for name in names:
            os.chmod(os.path.join(path, name), 0o755)
    return folder


def argv(sandbox: str, ground: Path, *commands: str, secret: Path | None = None) -> tuple[str, ...]:
    hidden = str(secret or ground / "ws" / "keys" / "deep" / "k")
    return (sys.executable, "-P", "-m", "tests.tools.nobody", sandbox, str(ground / "ws"), hidden, *commands)


def ran(sandbox: str, ground: Path, *commands: str, secret: Path | None = None) -> list[str]:
    """Run commands as nobody, and return what the model was told of each."""
    env = {**os.environ, "HOME": str(ground), "PYTHONPATH": str(ROOT)}
    words = argv(sandbox, ground, *commands, secret=secret)
    done = subprocess.run(words, env=env, check=True, capture_output=True, cwd="/")
    found = json.loads(done.stdout)
    if isinstance(found, str):
        pytest.skip(found)
    return [text for _, text in found]


CLOSED = {
    "its folder can't be written": ("echo evil > .envrc; chmod 500 .", ".envrc"),
    "a folder that can't be written": ("mkdir .vscode; echo evil > .vscode/x; chmod 0 .vscode; chmod 500 .", ".vscode"),
    "its folder can't be entered": ("mkdir .git/hooks; echo evil > .git/hooks/x; chmod 600 .git", ".git/hooks"),
    "its folder can't be read": ("mkdir .git/hooks; echo evil > .git/hooks/x; chmod 0 .git", ".git/hooks"),
    "a new repository": ("git init -q n; git -C n config core.fsmonitor evil; chmod 0 n/.git", "n/.git"),
    "a new repository's folder": ("git init -q n; git -C n config core.fsmonitor evil; chmod 0 n", "n/.git"),
    "a new repository's settings": ("git init -q n; git -C n config core.fsmonitor x; chmod 0 n/.git/config", "n/.git"),
    "a new repository's hooks": ("git init -q n; mkdir -p n/.git/hooks; chmod 0 n/.git/hooks", "n/.git"),
    "a new submodule's folder": (
        "mkdir -p .git/modules/n/hooks; cd .git/modules; echo x > n/hooks/x; touch n/HEAD; chmod 0 .",
        ".git/modules/n/HEAD",
    ),
    "in two closed folders": ("git init -q m/n; git -C m/n config core.fsmonitor x; chmod 0 m/n m", "m/n/.git"),
}


@pytest.mark.parametrize("how", CLOSED)
def test_what_was_planted_is_moved_aside_though_its_folder_was_closed(ground: Path, how: str) -> None:
    command, planted = CLOSED[how]
    (text,) = ran("open", ground, command)
    opened(ground / "ws")
    assert not os.path.lexists(ground / "ws" / planted)
    assert os.path.lexists(ground / "ws" / f"{planted}{ASIDE}")
    assert "moved aside" in text
    assert str(ground / "ws" / planted) in text


def test_a_folder_that_was_opened_for_the_move_is_closed_again(ground: Path) -> None:
    ran("open", ground, "echo evil > .envrc; chmod 500 .")
    assert stat.S_IMODE((ground / "ws").stat().st_mode) == 0o500
    assert (ground / "ws" / f".envrc{ASIDE}").read_text() == "evil\n"


def test_what_someone_else_put_there_can_not_be_moved_and_is_told(ground: Path) -> None:
    """A person's other user makes a protected name while a command runs, in a folder where nobody moves its files."""
    if os.geteuid() != 0:
        pytest.skip("only root can be two users")
    os.chown(ground / "ws", 0, 0)
    (ground / "ws").chmod(0o1777)
    command = "touch ready; until [ -e .envrc ]; do :; done"
    env = {**os.environ, "HOME": str(ground), "PYTHONPATH": str(ROOT)}
    nobody = subprocess.Popen(argv("open", ground, command), env=env, stdout=subprocess.PIPE, cwd="/")
    patience, tries = threading.Event(), range(int(PATIENCE_S * 100))
    assert any((ground / "ws" / "ready").exists() or patience.wait(0.01) for _ in tries)
    (ground / "ws" / ".envrc").write_text("root's\n")
    said, _ = nobody.communicate(timeout=PATIENCE_S)
    ((_, text),) = json.loads(said)
    assert (ground / "ws" / ".envrc").read_text() == "root's\n"
    assert "could NOT be moved aside" in text
    assert str(ground / "ws" / ".envrc") in text


EVIL = "git config core.fsmonitor evil; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; echo evil > AGENTS.md"


@SANDBOXES
def test_a_repository_that_a_command_closed_is_protected_when_the_next_one_opens_it(ground: Path, sandbox: str) -> None:
    config = (ground / "ws" / ".git" / "config").read_text()
    evil = f"chmod 755 .git; {EVIL}"
    ran(sandbox, ground, "chmod 000 .git", evil, evil, "chmod 400 .git", evil, evil)
    ws = opened(ground / "ws")
    assert (ws / ".git" / "config").read_text() == config
    assert not (ws / ".git" / "hooks").exists()
    assert not (ws / "AGENTS.md").exists()


@SANDBOXES
def test_a_folder_that_a_command_closed_gives_no_secret_away(ground: Path, sandbox: str) -> None:
    read = "chmod -R 755 keys; cat keys/deep/k; cp -r keys k2; cat k2/deep/k"
    said = ran(sandbox, ground, "chmod 000 keys", read, "chmod 400 keys/deep", read)
    assert "swordfish" not in "".join(said)
    assert (opened(ground / "ws") / "keys" / "deep" / "k").read_text() == "swordfish"


def test_a_folder_outside_that_a_command_closed_gives_no_secret_away(ground: Path) -> None:
    """Without mounts a command can change modes outside, too."""
    (ground / "ws" / "keys").rename(ground / "keys")
    hand_over(ground / "keys")
    commands = (f"chmod 000 {ground}/keys", f"chmod 755 {ground}/keys; cat {ground}/keys/deep/k")
    said = ran("landlock-no-mounts", ground, *commands, secret=ground / "keys" / "deep" / "k")
    assert stat.S_IMODE((ground / "keys").stat().st_mode) == 0o755
    assert "swordfish" not in "".join(said)


@SANDBOXES
def test_a_nested_repository_in_a_folder_that_was_closed_is_not_changed(ground: Path, sandbox: str) -> None:
    inner = ground / "ws" / "sub" / "inner"
    inner.mkdir(parents=True)
    git(inner, "init", "-q", ".")
    hand_over(ground / "ws")
    config = (inner / ".git" / "config").read_text()
    evil = "chmod -R 755 sub; git -C sub/inner config core.fsmonitor evil"
    ran(sandbox, ground, "chmod 000 sub", evil, evil)
    opened(ground / "ws")
    assert (inner / ".git" / "config").read_text() == config


@SANDBOXES
def test_work_goes_on_after_a_folder_was_closed(ground: Path, sandbox: str) -> None:
    *_, text = ran(sandbox, ground, "chmod 000 .git", "mkdir -p src; chmod 000 keys", "echo ran")
    assert text == "ran\n"


@pytest.mark.parametrize("closed", [".git/config", ".git/worktrees"])
def test_what_a_person_closed_is_named_and_nothing_is_done(ground: Path, closed: str) -> None:
    """Nobody can say what is protected here until it is opened."""
    path = ground / "ws" / closed
    path.parent.chmod(0o755)
    if not path.exists():
        path.mkdir()
    hand_over(ground / "ws")
    path.chmod(0)
    for text in ran("open", ground, "touch made", "write made"):
        assert str(path) in text
        assert "a person has to open it" in text
    assert not (ground / "ws" / "made").exists()
    path.chmod(0o755)
    assert ran("open", ground, "echo ran") == ["ran\n"]


def test_a_folder_of_ones_own_that_is_closed_stays_as_it_is(ground: Path) -> None:
    """Without mounts a command can open it, and still change nothing in it; nor is what is in it taken for planted."""
    private = ground / "ws" / "private"
    private.mkdir()
    (private / "AGENTS.md").write_text("mine\n")
    git(private, "init", "-q", ".")
    git(private, "config", "core.fsmonitor", "mine")
    hand_over(ground / "ws")
    private.chmod(0)
    (ground / "ws" / "src").mkdir()
    hand_over(ground / "ws" / "src")
    sandbox = "landlock-no-mounts"
    assert ran(sandbox, ground, "echo ran > src/x; cat src/x") == ["ran\n"]
    assert stat.S_IMODE(private.stat().st_mode) == 0
    ran(sandbox, ground, "chmod 755 private; echo x > private/y; echo x > private/AGENTS.md")
    assert stat.S_IMODE(private.stat().st_mode) == 0o755
    assert sorted(os.listdir(private)) == [".git", "AGENTS.md"]
    assert (private / "AGENTS.md").read_text() == "mine\n"
