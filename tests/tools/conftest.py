"""A workspace with the built-in tools over real processes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maka.edges.io_loop import IoLoop
from maka.edges.processes import AsyncProcesses
from maka.tools.registry import builtin_tools
from tests.tools.harness import Bench

CHILD_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


@pytest.fixture(scope="session")
def processes() -> Iterator[AsyncProcesses]:
    loop = IoLoop.start()
    yield AsyncProcesses(loop)
    loop.close()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "ws"
    path.mkdir()
    return path


@pytest.fixture
def bench(processes: AsyncProcesses, workspace: Path) -> Bench:
    rg = Path(sys.executable).parent / "rg"
    return Bench(builtin_tools(processes, child_env=CHILD_ENV, rg_path=str(rg)), workspace)
