"""What the command line says of the sandbox: which one holds, and that there is none."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from maka.cli.demo import demo
from maka.cli.doctor import doctor
from maka.contracts.tool_ports import Launch, Sandbox, SandboxPolicy
from maka.edges.sandbox import NoSandbox, find_sandbox


class Open:
    """A sandbox that holds nothing."""

    name = "a box without walls"
    missing = None

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        del policy
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


def test_doctor_says_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, NoSandbox("this machine has nothing. Please install it"))
    shown = line(CliRunner().invoke(doctor).output)
    assert shown == "! sandbox: none, so no command runs: this machine has nothing. Please install it"


def test_doctor_finds_out_a_sandbox_that_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, Open())
    result = CliRunner().invoke(doctor, standalone_mode=False)
    assert line(result.output).startswith("✗ sandbox: a box without walls; tried: it doesn't write outside: FAILED")
    assert result.return_value == 2


def test_h33_the_demo_runs_without_a_sandbox_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("MAKA_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.tempdir", None)
    put(monkeypatch, NoSandbox("this machine has nothing"))
    result = CliRunner().invoke(demo, ["--pace", "0"], standalone_mode=False)
    assert result.return_value == 0, result.output
    assert "NO SANDBOX on this machine: this machine has nothing" in result.output
    assert "BYPASS" in result.output
    assert "all 16 tests pass" in result.output
