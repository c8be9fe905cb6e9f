"""Undo's own tool: by Write's rules, and only where the file is still what the undo was planned for."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from maka.contracts.codec import hash_hex
from maka.contracts.content import Outcome
from maka.contracts.errors import LedgerDamagedError
from maka.contracts.ids import CallId
from maka.contracts.tool_ports import FileNow, ToolCall, ToolEnv
from maka.tools.diffs import unified
from maka.tools.files import FileTurns
from maka.tools.policy import Ground
from maka.tools.put_back import PutBackTool, read_now
from tests.tools.harness import SESSION, Recorder

OLD, NEW = b"old\n", b"new\n"
STORED = {hash_hex(OLD): OLD}
GROUND = Ground()


def now_of(cwd: str, path: str) -> FileNow:
    return read_now(cwd, path, GROUND)[0]


def put_back(
    workspace: Path,
    name: str,
    held: bytes | None,
    goal: bytes | None,
    recorder: Recorder | None = None,
    tool: PutBackTool | None = None,
    **more: Any,
) -> Recorder:
    recorder = recorder or Recorder()
    args = {
        "path": os.path.join(os.path.realpath(workspace), name),
        "from_sha256": None if held is None else hash_hex(held),
        "to_sha256": None if goal is None else hash_hex(goal),
        "undoes": "0198c0de-0000-7000-8000-0000000000aa",
        **more,
    }
    call = ToolCall(call_id=CallId("0198c0de-0000-7000-8000-000000000001"), name="Undo", args=args)
    env = ToolEnv(session_id=SESSION, cwd=str(workspace), temp_suffix=".maka-1")
    recorder.cancel = (tool or PutBackTool(FileTurns(GROUND), STORED.get)).start(call, env, recorder)
    return recorder


def test_a_file_is_put_back_after_its_fact_and_keeps_its_mode(workspace: Path) -> None:
    file = workspace / "a"
    file.write_bytes(NEW)
    file.chmod(0o750)
    recorder = put_back(workspace, "a", NEW, OLD, Recorder(on_commit=lambda _: None, answer="hold"))
    assert file.read_bytes() == NEW
    recorder.decide(True)
    result = recorder.wait()
    assert (result.outcome, result.text, result.seen) == (Outcome.OK, "Put back a (+1 -1)", None)
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (OLD, 0o750)
    (fact,) = recorder.file_facts
    assert (fact.pre_image, fact.before_sha256, fact.after_sha256) == (NEW, hash_hex(NEW), hash_hex(OLD))
    assert (fact.mode, fact.undoes) == (0o750, "0198c0de-0000-7000-8000-0000000000aa")
    assert [path.name for path in workspace.iterdir()] == ["a"]


def test_a_file_that_was_not_there_is_removed_and_made_anew_with_its_mode(workspace: Path) -> None:
    file = workspace / "deep" / "a"
    file.parent.mkdir()
    file.write_bytes(OLD)
    file.chmod(0o600)
    recorder = put_back(workspace, "deep/a", OLD, None)
    assert recorder.wait().text == "Removed deep/a (+0 -1)"
    assert not file.exists()
    (fact,) = recorder.file_facts
    assert (fact.after_sha256, fact.mode) == (None, 0o600)
    file.parent.rmdir()
    put_back(workspace, "deep/a", None, OLD, mode=fact.mode).wait()
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (OLD, 0o600)


def test_a_file_that_changed_meanwhile_is_left(workspace: Path) -> None:
    file = workspace / "a"
    file.write_bytes(b"a person's")
    for goal in (OLD, None):
        recorder = put_back(workspace, "a", NEW, goal)
        result = recorder.wait()
        assert result.outcome is Outcome.ERROR
        assert "changed by someone else meanwhile" in result.text
        assert (recorder.facts, file.read_bytes()) == ([], b"a person's")


def test_a_file_that_changes_between_the_fact_and_the_removal_is_left(workspace: Path) -> None:
    file = workspace / "a"
    file.write_bytes(NEW)
    recorder = put_back(workspace, "a", NEW, None, Recorder("hold"))
    file.write_bytes(b"a person's")
    recorder.decide(True)
    assert recorder.wait().outcome is Outcome.ERROR
    assert file.read_bytes() == b"a person's"


def test_a_content_that_is_not_stored_or_is_damaged_changes_nothing(workspace: Path) -> None:
    file = workspace / "a"
    file.write_bytes(NEW)
    assert "isn't stored" in put_back(workspace, "a", NEW, b"never stored").wait().text

    def damaged(_: str) -> bytes:
        raise LedgerDamagedError("other bytes than its name says")

    tool = PutBackTool(FileTurns(GROUND), damaged)
    assert "other bytes" in put_back(workspace, "a", NEW, OLD, tool=tool).wait().text
    assert file.read_bytes() == NEW


def test_a_refused_fact_changes_nothing(workspace: Path) -> None:
    file = workspace / "a"
    file.write_bytes(NEW)
    assert put_back(workspace, "a", NEW, OLD, Recorder("refuse")).wait().outcome is Outcome.NOT_STARTED
    assert file.read_bytes() == NEW


def test_a_link_in_the_way_is_never_followed(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(NEW)
    (workspace / "other").write_bytes(NEW)
    for target in (outside, workspace / "other"):
        (workspace / "a").symlink_to(target)
        result = put_back(workspace, "a", NEW, OLD).wait()
        assert result.outcome in (Outcome.ERROR, Outcome.REFUSED)
        problem = now_of(str(workspace), str(Path(os.path.realpath(workspace)) / "a")).problem
        assert problem is not None
        assert (outside.read_bytes(), (workspace / "other").read_bytes()) == (NEW, NEW)
        (workspace / "a").unlink()


def test_what_a_file_is_now(workspace: Path) -> None:
    real = Path(os.path.realpath(workspace))
    (real / "a").write_bytes(OLD)
    assert now_of(str(workspace), str(real / "a")) == FileNow(sha256=hash_hex(OLD))
    assert now_of(str(workspace), str(real / "none")) == FileNow()
    os.mkfifo(real / "pipe")
    for name in (".", "pipe"):
        assert now_of(str(workspace), str(real / name)).problem is not None


@pytest.mark.parametrize(
    ("content", "begins"),
    [(OLD, "--- a/a\n+++ /dev/null\n"), (b"", "diff --git a/a b/a\ndeleted file mode 100644\n")],
)
def test_the_diff_of_a_removal_names_no_new_file(content: bytes, begins: str) -> None:
    text = unified("a", content, None).text
    assert text is not None
    assert text.startswith(begins)
