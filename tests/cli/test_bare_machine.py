"""H33 by real command lines, each a process from which a sandbox is hidden: what is there holds, or no command runs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from maka.edges.landlock import find_landlock
from maka.edges.sandbox import INSTALL
from maka.edges.scripted_model import Call, ScriptedModel, Turn, by_step
from tests.cli.bare import CANT_HIDE
from tests.cli.real import Done, Machine

RUNS = (
    ("Write", {"path": "OUT/written", "content": "no\n"}),
    ("Bash", {"command": "touch OUT/touched"}),
    ("Bash", {"command": "echo no > OUT/later", "run_in_background": True}),
    ("Bash", {"command": 'echo "$TMPDIR"; touch made'}),
    ("Write", {"path": "written", "content": "yes\n"}),
)


STARTED = '"processStarted"'


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that each sandbox shows: it holds programs, as the search path says."""
    (tmp_path / "outside" / "bin").mkdir(parents=True)
    return tmp_path.resolve() / "outside"


Tried = tuple[Done, list[str]]
Try = Callable[[Machine], Tried]


@pytest.fixture
def tried(outside: Path) -> Iterator[Try]:
    """Runs what tries to get out, on a machine; returns how it ended and what the model was told of each call."""
    calls = tuple(
        Call(
            name=name,
            args={key: its.replace("OUT", str(outside)) if isinstance(its, str) else its for key, its in args.items()},
        )
        for name, args in RUNS
    )
    models: list[ScriptedModel] = []

    def run(machine: Machine) -> Tried:
        models.append(
            model := ScriptedModel.start(by_step([*(Turn(calls=(call,)) for call in calls), Turn(text="tried")]))
        )
        done = machine.run(model, "try it", PATH=f"{outside}/bin:{machine.env['PATH']}")
        if done.code == CANT_HIDE:
            pytest.skip("this machine lets nobody hide bubblewrap")
        assert (done.code, done.out) == (0, "tried\n"), done
        return done, model.requests[-1].tool_results()

    yield run
    for model in models:
        model.close()


def sandbox_line(machine: Machine) -> str:
    return next(line for line in machine.maka("doctor").out.splitlines() if " sandbox: " in line)


def test_h33_without_bubblewrap_landlock_holds_and_is_named(tmp_path: Path, outside: Path, tried: Try) -> None:
    if isinstance(found := find_landlock(), str):
        pytest.skip(found)
    machine = Machine(tmp_path, "bubblewrap")
    _, (written, touched, later, made, inside) = tried(machine)
    assert '"error":"sandbox_boundary_required"' in written
    assert '"error":"sandbox_boundary_required"' in touched
    assert "Running in the background as b1" in later
    assert made.startswith("/tmp/maka-"), "a folder that Landlock's shim makes"
    assert inside.startswith("Created written")
    assert [path.name for path in outside.rglob("*")] == ["bin"]
    assert {"made", "written"} <= {path.name for path in machine.workspace.iterdir()}
    assert machine.maka("export", "1").out.count(STARTED) == 3
    assert sandbox_line(machine).startswith(f"✓ sandbox: {found.name}; tried: it writes its workspace")


def test_h33_with_no_sandbox_no_command_runs_and_it_says_what_to_install(
    tmp_path: Path, outside: Path, tried: Try
) -> None:
    machine = Machine(tmp_path, "bubblewrap", "landlock")
    done, (written, *commands, inside) = tried(machine)
    assert '"error":"sandbox_boundary_required"' in written, "files are held without one"
    for told in commands:
        assert told.startswith("No command was run: there is no sandbox on this machine.")
        assert '"error":"requires_bypass"' in told
        assert f"this kernel has no Landlock. Please {INSTALL}" in told
    assert inside.startswith("Created written")
    assert [path.name for path in outside.rglob("*")] == ["bin"]
    assert [path.name for path in machine.workspace.iterdir()] == ["written"]
    assert STARTED not in machine.maka("export", "1").out
    line = sandbox_line(machine)
    assert line.startswith("! sandbox: none, so no command and no search runs: ")
    assert INSTALL in line
    assert INSTALL in machine.maka("show", "@last", "--full").out, done
