"""A workspace with the built-in tools over real processes."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from maka.contracts.masks import NO_MASKS, Masks
from maka.contracts.process_ports import Processes
from maka.contracts.sandbox_ports import Sandbox
from maka.edges.io_loop import IoLoop
from maka.edges.landlock import find_landlock
from maka.edges.processes import AsyncProcesses
from maka.edges.sandbox import find_sandbox
from maka.tools.files import FileTurns
from maka.tools.policy import Ground
from maka.tools.registry import Catalog, builtin_tools
from maka.tools.shells import Shells
from maka.tools.survey import ground_of
from tests.tools.harness import CHILD_ENV, Bench, git

OWN_RG = str(Path(sys.executable).parent / "rg")


def make_tools(
    processes: Processes | None = None,
    *,
    child_env: Mapping[str, str] = CHILD_ENV,
    rg_path: str | None = OWN_RG,
    sandbox: Sandbox | None = None,
    ground: Ground | None = None,
    masks: Masks = NO_MASKS,
    turns: FileTurns | None = None,
    shells: Shells | None = None,
) -> Catalog:
    """Make the built-in tools as a host does; without a sandbox of its own, the first that works here."""
    return builtin_tools(
        cast("Processes", processes),
        child_env=child_env,
        rg_path=rg_path,
        sandbox=sandbox or the_sandbox(),
        ground=ground or ground_of(str(Path.home()), (), child_env.get("PATH", "")),
        masks=masks,
        turns=turns,
        shells=shells,
    )


@cache
def the_sandbox() -> Sandbox:
    """Return the sandbox of this machine, tried once."""
    return find_sandbox()


@cache
def landlock_alone() -> Sandbox:
    """Return what a machine without bubblewrap has."""
    return find_sandbox(lambda: "bubblewrap is hidden from this test")


@cache
def landlock_without_mounts() -> Sandbox:
    """Return what most containers have: no bubblewrap, and a kernel that refuses mounts."""
    return find_sandbox(lambda: "bubblewrap is hidden from this test", lambda: find_landlock(mounts=False))


def needs(sandbox: Sandbox) -> Sandbox:
    """Skip a test that can't be run on this machine, and say why."""
    if sandbox.missing is not None:
        pytest.skip(sandbox.missing)
    return sandbox


SANDBOXES = {"bubblewrap": the_sandbox, "landlock": landlock_alone, "landlock-no-mounts": landlock_without_mounts}
MOUNTING = ("bubblewrap", "landlock")
"""Those in which new files may stand beside a protected one, and nothing outside changes its mode."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the other sandboxes to the slow tier where a module says so, but for tests that are about them alone."""
    marked = [item for item in items if item.get_closest_marker("one_sandbox") is not None]
    told = [(item.nodeid.partition("[")[0], _sandbox_of(item), item) for item in marked]
    in_bubblewrap = {test for test, name, _ in told if name == "bubblewrap"}
    for test, name, item in told:
        if test in in_bubblewrap and name != "bubblewrap":
            item.add_marker(pytest.mark.slow)


def _sandbox_of(item: pytest.Item) -> str:
    return (
        str(item.callspec.params.get("sandbox", ""))
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else ""
    )


def here(name: str) -> Sandbox:
    """Return one of `SANDBOXES`, or skip the test and say why there is none."""
    found = needs(SANDBOXES[name]())
    if name == "bubblewrap" and not found.name.startswith("bubblewrap"):
        pytest.skip(f"bubblewrap does not work here; {found.name} does")
    return found


@pytest.fixture(params=SANDBOXES)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Each sandbox that there is; a test that can't have one is skipped with the reason."""
    return here(request.param)


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
def home(tmp_path: Path) -> Path:
    """A folder that every sandbox can see: /tmp is another one inside bubblewrap."""
    path = tmp_path / "home"
    (path / ".ssh").mkdir(parents=True)
    (path / ".ssh" / "id").write_text("swordfish")
    (path / "state").mkdir()
    (path / "state" / "data").write_text("swordfish")
    (path / ".netrc").write_text("swordfish")
    (path / "notes").write_text("notes")
    return path


@pytest.fixture
def ground(home: Path) -> Ground:
    real = home.resolve()
    return Ground(own=(str(real / "state"),), secrets=(str(real / ".ssh"), str(real / ".netrc")), programs=(str(real),))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Return what a planted program makes outside, if it is run."""
    return tmp_path / "was-run"


@pytest.fixture
def repository(workspace: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is missing")
    git(workspace, "init", "-q", ".")
    git(workspace, "config", "user.name", "a")
    git(workspace, "config", "user.email", "a@example.org")
    (workspace / "AGENTS.md").write_text("be good\n")
    (workspace / "a").write_text("1\n")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "first")
    return workspace


@pytest.fixture
def bench(processes: AsyncProcesses, workspace: Path) -> Bench:
    return Bench(make_tools(processes), workspace)


@pytest.fixture
def denying(
    processes: AsyncProcesses,
    repository: Path,
    sandbox: Sandbox,
    ground: Ground,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Bench:
    """A repository in each sandbox, beside a home and other folders, for commands that are denied something."""
    from tests.tools.denied import denied_bench

    monkeypatch.setenv("HOME", str(home.resolve()))
    return denied_bench(processes, repository, sandbox, ground, home)
