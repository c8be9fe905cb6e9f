"""What comes, or is put in another one's place, outside of the sandbox while a command runs."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from maka.contracts.content import Outcome
from maka.contracts.tool_ports import Sandbox
from maka.edges import bubblewrap
from maka.edges.processes import AsyncProcesses
from maka.tools.policy import Ground
from tests.tools.conftest import make_tools
from tests.tools.harness import Bench

Change = Callable[[], object]


@pytest.fixture
def bench(
    processes: AsyncProcesses,
    workspace: Path,
    home: Path,
    sandbox: Sandbox,
    ground: Ground,
    monkeypatch: pytest.MonkeyPatch,
) -> Bench:
    """Its folders stand for a person's home, which no sandbox replaces by an empty one."""
    monkeypatch.setattr(bubblewrap, "_SPARE", ("/var/tmp", "/run"))
    more = tuple(str(home.resolve() / name) for name in (".npmrc", ".aws", "none/of/it"))
    ground = replace(ground, programs=(), secrets=(*ground.secrets, *more))
    return Bench(make_tools(processes, sandbox=sandbox, ground=ground), workspace)


def meanwhile(bench: Bench, change: Change, command: str) -> str:
    """Run a command of which the rest waits for a change outside; return what the model reads."""
    recorder = bench.begin("Bash", command=f"echo on; until [ -e go ]; do :; done; {command}")
    assert recorder.spoke.wait(30)
    change()
    (bench.cwd / "go").touch()
    return recorder.wait().text


def saved(path: Path, text: str) -> Change:
    """Return how an editor saves: it puts a new file in the old one's place."""

    def save() -> None:
        (path.parent / "new").write_text(text)
        (path.parent / "new").rename(path)

    return save


def test_a_secret_that_is_replaced_stays_hidden(bench: Bench, home: Path) -> None:
    text = meanwhile(bench, saved(home / ".netrc", "swordfish again"), f"cat {home}/.netrc; cat {home}/notes")
    assert "swordfish" not in text
    assert "notes" in text


@pytest.mark.parametrize("name", [".npmrc", ".aws/credentials", "none/of/it"])
def test_a_secret_that_comes_is_hidden(bench: Bench, home: Path, name: str) -> None:
    def come() -> None:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("swordfish")

    text = meanwhile(
        bench, come, f"cat {home}/{name}; cp -r {home} $TMPDIR/; cat $TMPDIR/home/notes $TMPDIR/home/{name}"
    )
    assert "swordfish" not in text
    assert "notes" in text


def test_a_pipe_with_a_name_outside_cant_be_written(bench: Bench, home: Path) -> None:
    os.mkfifo(home / "pipe")
    reader = os.open(home / "pipe", os.O_RDWR | os.O_NONBLOCK)
    try:
        assert bench.run("Bash", command=f"echo no > {home}/pipe").outcome is Outcome.ERROR
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
    finally:
        os.close(reader)
