"""A repository beside a home and another folder, for commands that a sandbox denies something."""

import os
import shutil
import sys
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from maka.contracts.boundary import Expansion, FileEntry
from maka.contracts.content import Outcome
from maka.contracts.process_ports import Processes
from maka.contracts.sandbox_ports import Sandbox
from maka.contracts.tool_ports import ToolResult
from maka.tools.policy import Ground
from tests.tools.conftest import make_tools
from tests.tools.harness import CHILD_ENV, Bench, boundary

PYTHON = os.path.realpath(sys.executable)


def denied_bench(processes: Processes, repository: Path, sandbox: Sandbox, ground: Ground, home: Path) -> Bench:
    """Make a folder with nothing secret in it, one with something hidden, and tools that see them and the home."""
    base = home.resolve().parent / "places"
    outside, beside = base / "outside", base / "beside"
    for folder in (outside / "d e", outside / "dé", beside):
        folder.mkdir(parents=True)
    for file in (outside / "notes", beside / "notes", beside / "key"):
        file.write_text("notes\n")
    (repository / "d").mkdir()
    (repository / "d" / "f").write_text("f\n")
    (repository / "way").symlink_to(outside)
    (repository / "wayf").symlink_to(outside / "notes")
    own = Ground(
        own=ground.own,
        secrets=(*ground.secrets, str(beside / "key")),
        programs=(*ground.programs, str(outside), str(beside)),
        searched=(str(base / "tools" / "bin"),),
    )
    env = {**CHILD_ENV, "HOME": str(home.resolve())}
    return Bench(make_tools(processes, sandbox=sandbox, ground=own, child_env=env), repository, boundary(repository))


def filled(command: str, bench: Bench) -> str:
    base = bench.cwd.resolve().parent
    places = {"OUT": base / "places" / "outside", "BESIDE": base / "places" / "beside", "HOME": base / "home"}
    for word, place in {**places, "WS": bench.cwd.resolve(), "PYTHON": PYTHON}.items():
        command = command.replace(word, str(place))
    return command


def granted(bench: Bench, expansion: Expansion) -> Bench:
    has = [entry for grant in bench.boundary.grants for entry in grant.expansion.filesystem]
    wide = boundary(bench.cwd, bench.boundary.profile, *has, *expansion.filesystem, network=expansion.network)
    return Bench(bench.tools, bench.cwd, wide)


def needs(result: ToolResult) -> Expansion | None:
    assert result.need is not None, result.text
    return result.need.expansion


def can_run(command: str) -> None:
    """Skip a command whose program isn't here, inside."""
    program = command.split()[0]
    if program in ("node", "perl", "curl", "tar", "gcc") and shutil.which(program, path=CHILD_ENV["PATH"]) is None:
        pytest.skip(f"{program} is missing")


def there_and_back(bench: Bench, command: str, *entries: FileEntry) -> None:
    """A command is denied exactly this, and works once that is granted."""
    can_run(command)
    command = filled(command, bench)
    denied = bench.run("Bash", command=command)
    assert denied.outcome is Outcome.ERROR
    expansion = Expansion(filesystem=entries)
    assert needs(denied) == expansion, denied.text
    again = granted(bench, expansion).run("Bash", command=command)
    assert (again.outcome, again.need) == (Outcome.OK, None), again.text


def write(path: str, scope: Literal["exact", "subtree"] = "subtree") -> FileEntry:
    return FileEntry(path=path, access="write", scope=scope)


def read(path: str) -> FileEntry:
    return FileEntry(path=path, access="read", scope="exact")


def entries_of(entries: list[FileEntry], bench: Bench) -> list[FileEntry]:
    return [replace(entry, path=filled(entry.path, bench)) for entry in entries]


HOOKS = [write("WS/.git/hooks")]
OUT = [write("OUT")]
