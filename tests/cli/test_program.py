"""The program as a whole: help, and what it costs."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import maka
from tests.cli.conftest import Cli

COMMANDS = ("run", "sessions", "show", "log", "export", "verify", "models", "doctor")
HEAVY = (
    "lmdb",
    "openai",
    "pykka",
    "rich",
    "structlog",
    "platformdirs",
    "maka.app",
    "maka.storage",
    "maka.edges",
    "actors",
)


def test_help_loads_nothing_of_weight() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-X", "importtime", "-m", "maka", "--help"],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "click" in loaded
    assert not {name for name in loaded if any(name == heavy or name.startswith(heavy + ".") for heavy in HEAVY)}


def test_help_lists_commands_and_exit_codes(cli: Cli) -> None:
    code, out, _ = cli("--help")
    assert code == 0
    listed = out.partition("Commands:")[2].split()
    assert all(command in listed for command in COMMANDS)
    assert "demo" not in listed
    assert "130  interrupted" in out
    assert "..." not in out.partition("Commands:")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(cli: Cli, command: str) -> None:
    code, out, _ = cli(command, "-h")
    assert code == 0
    assert "--json" in out


def test_run_help_lists_its_options_and_exit_codes(cli: Cli) -> None:
    out = cli("run", "--help")[1]
    for option in (
        "--cwd",
        "--session",
        "--continue",
        "-m",
        "--model",
        "--base-url",
        "--max-steps",
        "--timeout",
        "--json",
        "-o",
        "--quiet",
    ):
        assert option in out
    assert "75  try_again" in out


def test_no_command_is_help_and_not_ready(cli: Cli) -> None:
    code, out, err = cli()
    assert (code, out) == (2, "")
    assert "Commands:" in err


def test_the_version_is_that_of_the_distribution(cli: Cli) -> None:
    code, out, _ = cli("--version")
    assert code == 0
    assert out.startswith("maka ")


def test_a_word_after_two_dashes_is_no_option(cli: Cli) -> None:
    code, out, err = cli("run", "-m", "nobody", "--", "--json")
    assert (code, out) == (2, "")
    assert "nobody" in err
    code, out, _ = cli("run", "--json", "-m", "nobody", "--", "x")
    assert (code, json.loads(out)["type"]) == (2, "refused")


PLANTED = "open({!r}, 'w').close()\nraise ImportError\n"


@pytest.mark.parametrize("at", ["the current folder", "the folder that Maka was installed from"])
def test_nothing_that_a_command_wrote_is_imported(tmp_path: Path, at: str) -> None:
    """Both may be workspaces, and libraries look for others that aren't there, such as brotli."""
    root = Path(maka.__file__).parents[1]
    for name in ("maka", "actors", "projections"):
        shutil.copytree(root / name, tmp_path / "checkout" / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "checkout" / "pyproject.toml").touch()
    (tmp_path / "here").mkdir()
    folder = tmp_path / ("here" if at == "the current folder" else "checkout")
    for name in ("brotli", "brotlicffi", "zstandard", "sniffio", "trio", "click", "msgspec", "yaml"):
        (folder / f"{name}.py").write_text(PLANTED.format(str(tmp_path / f"imported-{name}")))
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path / "checkout")}
    words = [sys.executable, "-m", "maka", "doctor"]
    done = subprocess.run(words, cwd=tmp_path / "here", env=env, check=False, capture_output=True, text=True)
    assert "versions: maka " in done.stdout, done
    assert not list(tmp_path.glob("imported-*"))


def test_the_folder_of_its_libraries_is_a_folder_like_others(tmp_path: Path) -> None:
    libraries = sysconfig.get_paths()["purelib"]
    for words in ([sys.executable, "-m", "maka"], [str(Path(sys.executable).parent / "maka")]):
        done = subprocess.run([*words, "sessions"], cwd=libraries, check=False, capture_output=True, text=True)
        assert "Traceback" not in done.stderr, done.stderr
