"""Bad input: one line that says what to do, the right exit code, and nothing sent or made."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from maka.contracts.session_events import SessionEvent
from tests.cli.builders import whole_log
from tests.cli.conftest import Cli
from tests.cli.scenes import MODEL, scene


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["run", *MODEL, ""], "prompt is empty"),
        (["run", *MODEL, "x" * 200_001], "longer than"),
        (["run", *MODEL, "--cwd", "/nowhere/at/all", "x"], "no folder /nowhere/at/all"),
        (["run", *MODEL, "--cwd", "/etc/hostname", "x"], "is no folder"),
        (["run", *MODEL, "--session", "99", "x"], "no session '99'"),
        (["run", *MODEL, "--session", "1", "--continue", "x"], "exclude each other"),
        (["run", *MODEL, "--continue", "x"], "No idle session"),
        (["run", *MODEL, "-o", "/nowhere/file", "x"], "can't be written"),
        (["run", *MODEL, "-o", "/", "x"], "is a folder"),
        (["run", *MODEL, "--max-steps", "0", "x"], "--max-steps"),
        (["run", *MODEL, "--timeout", "soon", "x"], "'--timeout': 'soon' is not a valid number."),
        (["run", *MODEL, "--max-steps", "few", "x"], "'--max-steps': 'few' is not a valid whole number."),
        (["run", *MODEL, "--timeout", "nan", "x"], "--timeout"),
        (["run", "-m", "nobody", "x"], 'no profile "nobody"'),
        (["run", *MODEL, "one", "two"], "unexpected extra argument"),
        (["run", *MODEL, "--session", "", "x"], "'--session': it is empty"),
        (["run", *MODEL, "--cwd", "", "x"], "'--cwd': it is empty"),
        (["run", "--model", "m", "--base-url", "", "x"], "'--base-url': it is empty"),
        (["run", "-m", "", "x"], "'--profile': it is empty"),
        (["rules", "12", "--scope", "workspace"], "add --allow"),
        (["show", "99"], "no session '99'"),
        (["log", "99"], "no session '99'"),
        (["export", "99"], "no session '99'"),
        (["sweep"], "No such command"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_sent(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, args: list[str], expected: str
) -> None:
    log, run, _ = whole_log()
    _, manager = scene(monkeypatch, log, [], run=run)
    code, out, err = cli(*args)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("maka: ")
    assert expected in err
    assert (manager.sent, manager.created) == ([], [])
    code, out, _ = cli(args[0], "--json", *args[1:])
    assert code == 2
    if args[0] != "sweep":
        refused = json.loads(out)
        assert set(refused) == {"type", "code", "message", "exit"}
        assert (refused["type"], refused["exit"]) == ("refused", "not_ready")
        assert expected in refused["message"]


def test_a_folder_that_cannot_be_read(cli: Cli, monkeypatch: pytest.MonkeyPatch, surroundings: Path) -> None:
    log, run, _ = whole_log()
    scene(monkeypatch, log, [], run=run)

    def no_access(path: str, mode: int) -> bool:
        return False

    monkeypatch.setattr(os, "access", no_access)
    code, _, err = cli("run", *MODEL, "--cwd", str(surroundings), "x")
    assert code == 2
    assert "can't be read" in err


def test_a_folder_whose_name_is_no_text(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The link to it has a name that is one."""
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff")
    os.mkdir(odd)
    (tmp_path / "link").symlink_to(odd)
    log, run, _ = whole_log()
    _, manager = scene(monkeypatch, log, [], run=run)
    for folder in (odd, str(tmp_path / "link")):
        code, _, err = cli("run", *MODEL, "--cwd", folder, "x")
        assert (code, len(err.splitlines()), "no UTF-8" in err) == (2, 1, True)
    assert (manager.sent, manager.created) == ([], [])


def test_a_folder_that_is_gone(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log, run, _ = whole_log()
    scene(monkeypatch, log, [], run=run)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    code, _, err = cli("run", *MODEL, "x")
    assert (code, len(err.splitlines()), "is gone" in err) == (2, 1, True)


def test_a_bug_is_one_line_and_a_traceback_only_where_asked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log, run, _ = whole_log()

    def fail() -> None:
        raise ZeroDivisionError("oh")

    events: list[SessionEvent | Callable[[], None]] = [fail]
    scene(monkeypatch, log, events, run=run)
    code, _, err = cli("run", *MODEL, "x")
    assert (code, err.splitlines()) == (1, ["maka: A bug of Maka: ZeroDivisionError: oh. MAKA_DEBUG=1 shows where."])
    monkeypatch.setenv("MAKA_DEBUG", "1")
    scene(monkeypatch, log, events, run=run)
    assert "Traceback" in cli("run", *MODEL, "x")[2]


def test_a_server_that_is_not_there_is_said_before_anything_is_made(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log, run, _ = whole_log()
    _, manager = scene(monkeypatch, log, [], run=run)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    code, out, err = cli("run", "--base-url", f"http://127.0.0.1:{port}/v1", "--model", "m", "x")
    assert (code, out, manager.created) == (2, "", [])
    assert f"No server listens on 127.0.0.1:{port}" in err
