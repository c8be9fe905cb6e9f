"""The real thing for end-to-end tests: a process of ours beside a scripted model on a real socket."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from maka.edges.scripted_model import Reply, ScriptedModel, by_step

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0
BARE_PYTEST = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""For the sample's own tests: they need none of the plugins that ours need, and those take longer than they do."""


class Done(Struct, frozen=True):
    """A command line that has ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def record(self) -> dict[str, Any]:
        return self.lines[-1]


class Machine:
    """A person's machine: a workspace, a state root, a configuration, and nothing else in the environment.

    `hidden` are the sandboxes that it lacks: see `bare`.
    """

    def __init__(self, folder: Path, *hidden: str) -> None:
        self.hidden = hidden
        self.folder = folder
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.state = folder / "state"
        self.config = folder / "config.toml"
        self.config.write_text("", "utf-8")
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            # An installed maka needs none; a checkout that isn't installed does.
            "PYTHONPATH": str(ROOT),
            "MAKA_HOME": str(self.state),
            "MAKA_CONFIG": str(self.config),
        }

    def start(self, *args: str, **env: str) -> "subprocess.Popen[bytes]":
        """Start a command line; whoever starts one ends it."""
        program = ("tests.cli.bare", ",".join(self.hidden)) if self.hidden else ("maka",)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", *program, *args],
            cwd=self.workspace,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def maka(self, *args: str, **env: str) -> Done:
        """Run a command line to its end."""
        return finished(self.start(*args, **env))

    def run(self, model: ScriptedModel, *args: str, **env: str) -> Done:
        """Run `maka run` against a scripted model."""
        return self.maka("run", "--base-url", model.base_url, "--model", model.model, *args, **env)


class Here(Machine):
    """A machine whose command lines run in this process, which is quicker; `start` still starts a process."""

    def __init__(self, folder: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
        super().__init__(folder)
        self._cli = cli

    def maka(self, *args: str, **env: str) -> Done:
        assert not env
        return Done(*self._cli(*args))


@contextmanager
def profiled_model(machine: Machine) -> Generator[Callable[..., ScriptedModel]]:
    """Yield what starts a model that says these replies and that a profile of the configuration names."""
    servers: list[ScriptedModel] = []

    def start(*replies: Reply) -> ScriptedModel:
        servers.append(ScriptedModel.start(by_step(replies)))
        url = servers[-1].base_url
        machine.config.write_text(f'[models.mine]\nbase_url = "{url}"\nmodel = "scripted"\n', "utf-8")
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def finished(process: "subprocess.Popen[bytes]", before: bytes = b"") -> Done:
    """Wait for a process and return what it said; `before` was read from its stdout already."""
    try:
        out, err = process.communicate(timeout=WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"no end in {WAIT_S} s:\n{out.decode()}\n{err.decode()}") from None
    return Done(process.returncode, (before + out).decode(), err.decode())
