"""`make run`: which command line it starts, and what it refuses."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment that counts as set up, with a Python that says what it is asked to run."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n", "utf-8")
    python.chmod(0o755)
    newest = max((ROOT / name).stat().st_mtime for name in ("pyproject.toml", "constraints.txt"))
    (tmp_path / ".run").touch()
    os.utime(tmp_path / ".run", (newest + 1, newest + 1))
    return tmp_path


def make(venv: Path, *words: str, **env: str) -> tuple[int, list[str], str]:
    known = {"PATH": os.environ["PATH"], **env}
    command = ["make", "-s", "-C", str(ROOT), f"VENV={venv}", "run", *words]
    done = subprocess.run(command, env=known, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_without_words_it_is_the_demo(venv: Path) -> None:
    assert make(venv) == (0, ["-P", "-m", "maka", "demo"], "")
    assert make(venv, DIR="/somebody/elses")[1][-1] == "demo"


def test_a_task_is_given_as_it_is_typed(venv: Path) -> None:
    task = "say $HOME, `ls` and 'this'"
    assert make(venv, f"TASK={task}", "DIR=/a b")[1] == ["-P", "-m", "maka", "run", "--cwd", "/a b", "--", task]
    assert make(venv, "TASK=go")[1][-4:] == ["--cwd", ".", "--", "go"]
    assert make(venv, TASK="go")[1][-1] == "go"


@pytest.mark.parametrize("words", [("DIR=/project",), ("TASK=",), ("TASK=", "DIR=/project")])
def test_a_folder_without_a_task_is_refused_in_one_line(venv: Path, words: tuple[str, ...]) -> None:
    code, out, err = make(venv, *words)
    assert (code, out) == (2, [])
    assert err.splitlines()[0] == 'There is no task: make run TASK="what to do" DIR=path. make run alone is the demo.'
