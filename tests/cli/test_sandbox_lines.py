"""What the command line says of the sandbox: which one holds, and that there is none."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from maka.cli.demo import demo
from maka.cli.doctor import doctor
from maka.cli.words import aside_lines
from maka.contracts.process_ports import Launch
from maka.contracts.sandbox_ports import Sandbox, SandboxPolicy
from maka.edges.sandbox import NoSandbox, find_sandbox
from maka.edges.scripted_model import Call, ScriptedModel, Turn, by_step
from maka.tools import put_right_words as right
from tests.cli.conftest import Cli
from tests.cli.real import BARE_PYTEST, Here


class Open:
    """A sandbox that holds nothing."""

    name = "a box without walls"
    missing = None
    closes_beside_hidden = False

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy, env: Mapping[str, str]) -> Launch:
        del policy, env
        return Launch(argv=argv)


def put(monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox) -> None:
    def find(*_: object) -> Sandbox:
        return sandbox

    for place in ("maka.adapters", "maka.edges.sandbox"):
        monkeypatch.setattr(f"{place}.find_sandbox", find)


def line(output: str) -> str:
    return next(line for line in output.splitlines() if " sandbox: " in line)


def test_doctor_tries_the_sandbox() -> None:
    found = find_sandbox()
    if found.missing is not None:
        pytest.skip(found.missing)
    shown = line(CliRunner().invoke(doctor).output)
    assert shown.startswith(f"✓ sandbox: {found.name}; tried: it writes its workspace, doesn't write outside")
    assert shown.endswith("runs a command in this folder")


def test_what_is_moved_aside_is_told_to_the_person(tmp_path: Path, cli: Cli) -> None:
    """The words are the sandbox's own, in a real run: whoever changes them changes `maka.cli.words`, too."""
    found = find_sandbox()
    if found.missing is not None:
        pytest.skip(found.missing)
    machine = Here(tmp_path, cli)
    plants = Call(name="Bash", args={"command": "echo 'touch pwned' > .envrc"})
    model = ScriptedModel.start(by_step([Turn(calls=(plants,)), Turn(text="Done.")]))
    try:
        done = machine.run(model, "--cwd", str(machine.workspace), "go")
    finally:
        model.close()
    told = "These were changed by the command and were moved aside (to *.maka-aside-N): "
    assert f"maka: {told}" in done.err, done
    assert f"\n  ! {told}" in machine.maka("show", "@last").out
    for words in (right.MOVED, right.UNDONE, right.STUCK, right.UNSETTLED, right.LOST, right.UNREAD):
        assert len(aside_lines(f"it ran\n{words.format('a, b')}\n")) == 1


def test_doctor_says_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, NoSandbox("this machine has nothing. Please install it"))
    shown = line(CliRunner().invoke(doctor).output)
    assert shown == "! sandbox: none, so no command and no search runs: this machine has nothing. Please install it"


def test_doctor_finds_out_a_sandbox_that_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, Open())
    result = CliRunner().invoke(doctor, standalone_mode=False)
    assert line(result.output).startswith("✗ sandbox: a box without walls; tried: it doesn't write outside: FAILED")
    assert result.return_value == 2


def test_h33_the_demo_runs_without_a_sandbox_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"TMPDIR": str(tmp_path), **BARE_PYTEST}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MAKA_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.tempdir", None)
    put(monkeypatch, NoSandbox("this machine has nothing"))
    result = CliRunner().invoke(demo, ["--pace", "0"], standalone_mode=False)
    assert result.return_value == 0, result.output
    assert "NO SANDBOX on this machine: this machine has nothing" in result.output
    assert "BYPASS" in result.output
    assert "all 16 tests pass" in result.output
