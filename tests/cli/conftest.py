"""A command line to run in this process, in surroundings of its own."""

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from maka.cli.program import run_program
from tests.cli.real import Here, Machine

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without a person's settings; returns the folder that holds all state."""
    for name in list(os.environ):
        if name.startswith(("MAKA_", "OPENAI_")) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    config = tmp_path / "config.toml"
    config.write_text("", "utf-8")
    monkeypatch.setenv("MAKA_CONFIG", str(config))
    monkeypatch.setenv("MAKA_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def cli(surroundings: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    """Return a function that runs a command line and returns its exit code, stdout and stderr."""

    def run(*args: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
        capfdbinary.readouterr()
        code = run_program(args)
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return run


@pytest.fixture
def machine(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine whose command lines run in this process, in its workspace."""
    here = Here(tmp_path, cli)
    monkeypatch.chdir(here.workspace)
    return here
