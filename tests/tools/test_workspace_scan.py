"""What commands change is listed: cheaply, within bounds, and by content where only the time is new."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from maka.contracts.actions import RecoveryMode
from maka.contracts.content import Outcome
from maka.contracts.limits import WORKSPACE_FILES_MAX, WORKSPACE_HASHED_BYTES_MAX, WORKSPACE_SCAN_S_MAX
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolListener, ToolResult, WorkspaceDiff
from maka.tools import workspace_scan
from maka.tools.workspace_scan import Hashes, UnlookedError, WatchedTool, compare, take_look
from tests.tools.harness import Bench


def found(bench: Bench, command: str) -> WorkspaceDiff:
    result = bench.run("Bash", command=command)
    assert result.workspace is not None
    return result.workspace


def test_a_command_tells_what_it_made_changed_and_removed(bench: Bench, workspace: Path) -> None:
    (workspace / "src").mkdir()
    (workspace / "src" / "a").write_text("1")
    (workspace / "gone").write_text("1")
    (workspace / "stays").write_text("1")
    changed = found(bench, "echo 2 > src/a; rm gone; echo 1 > src/new; ln -s a src/link")
    assert changed == WorkspaceDiff(added=("src/link", "src/new"), modified=("src/a",), deleted=("gone",))


def test_a_command_that_fails_tells_it_too_and_one_that_never_ran_tells_nothing(bench: Bench) -> None:
    assert found(bench, "echo 1 > new; exit 3").added == ("new",)
    assert bench.run("Bash", command="a\0b").workspace is None


def test_a_folder_that_a_link_replaces_meanwhile_tells_no_names_from_elsewhere(
    workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in the background could swap it while another command's changes are looked for."""
    inner = workspace / "sub" / "inner"
    inner.mkdir(parents=True)
    (inner / "mine").write_text("1")
    (home / ".ssh" / "inner").mkdir()
    (home / ".ssh" / "inner" / "token").write_text("1")
    opened = os.open

    def swapping(path: str, flags: int, **more: int) -> int:
        if path == str(inner) and not (workspace / "sub").is_symlink():
            (workspace / "sub").rename(workspace / "old")
            (workspace / "sub").symlink_to(home / ".ssh")
        return opened(path, flags, **more)

    monkeypatch.setattr(os, "open", swapping)
    assert take_look(str(workspace.resolve())) == {}


def test_a_change_that_hides_its_time_is_found(bench: Bench, workspace: Path) -> None:
    (workspace / "a").write_text("1")
    command = "old=$(mktemp); touch -r a $old; printf 2 > a; touch -r $old a; rm $old"
    assert found(bench, command).modified == ("a",)


def test_the_same_content_written_anew_is_no_change_once_it_was_read(bench: Bench, workspace: Path) -> None:
    (workspace / "a").write_text("1")
    assert found(bench, "printf 2 > a").modified == ("a",)
    assert found(bench, "printf 2 > a; touch a").modified == ()
    assert found(bench, "printf 3 > a").modified == ("a",)
    assert found(bench, "chmod 700 a").modified == ("a",)


def test_what_can_be_made_again_is_not_looked_at(bench: Bench, workspace: Path) -> None:
    command = (
        "mkdir -p .git node_modules/x __pycache__ cache venv kept;"
        "echo 1 > .git/HEAD; echo 1 > node_modules/x/a; echo 1 > __pycache__/a;"
        "echo 1 > cache/CACHEDIR.TAG; echo 1 > cache/a; echo 1 > venv/pyvenv.cfg; echo 1 > venv/a; echo 1 > kept/a"
    )
    assert found(bench, command).added == ("kept/a",)


def test_a_workspace_over_the_bound_says_that_nobody_looked(workspace: Path) -> None:
    for number in range(5):
        (workspace / f"f{number}").write_text("")
    assert len(take_look(str(workspace), files_max=5)) == 5
    with pytest.raises(UnlookedError, match="more than 4 files"):
        take_look(str(workspace), files_max=4)
    with pytest.raises(UnlookedError, match="takes over 0 s"):
        take_look(str(workspace), seconds_max=0.0)
    assert (WORKSPACE_FILES_MAX, WORKSPACE_SCAN_S_MAX) == (20_000, 1.0)


def test_a_large_file_that_differs_is_listed_and_not_read(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_scan, "WORKSPACE_HASHED_BYTES_MAX", 10)
    assert WORKSPACE_HASHED_BYTES_MAX > 10
    hashes, file = Hashes(), workspace / "a"
    for text in ("x" * 20, "y" * 20):
        file.write_text(text)
        before = take_look(str(workspace))
        file.write_text(text + "z")
        assert compare(str(workspace), before, take_look(str(workspace)), hashes).modified == ("a",)
    assert hashes.known(str(file), take_look(str(workspace))["a"]) is None


def test_names_that_are_no_text_are_listed_all_the_same(bench: Bench, workspace: Path) -> None:
    os.mkdir(os.fsencode(workspace) + b"/d\xff")
    assert found(bench, "for d in d*; do echo 1 > $d/a; done").added == ("d\ufffd/a",)


class Instant:
    """A tool that commits nothing, or ends at once, on a thread of the test's choice."""

    recovery_mode: RecoveryMode = "outcome_unknown"
    exclusive = False
    spec = ToolSpec(name="Instant", description="", parameters={})

    def refusal(self, call: ToolCall, env: ToolEnv) -> ToolResult | None:
        return ToolResult(outcome=Outcome.REFUSED, text="no") if call.args else None

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        listener.ended(ToolResult(outcome=Outcome.OK, text=threading.current_thread().name))
        return lambda: None


def test_a_watched_tool_is_the_tool_that_it_watches(bench: Bench) -> None:
    watched = WatchedTool(Instant())
    assert (watched.spec.name, watched.recovery_mode, watched.exclusive) == ("Instant", "outcome_unknown", False)
