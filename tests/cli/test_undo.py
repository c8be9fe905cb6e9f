"""`maka diff` and `maka undo` for real: sockets, files, a store, and in the longest story processes.

Only the model's words are scripted. Most command lines run in this process, which starts them in no time.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from maka.contracts.codec import hash_hex
from maka.edges.scripted_model import Call, Script, ScriptedModel, Strictness, Turn, by_step
from tests.cli.real import Machine

Serve = Callable[[Script], ScriptedModel]
HAIKU = "an old pond\na frog leaps in\n"
EDITED = "an old pond\na cat leaps in\n"


@pytest.fixture
def serve() -> Iterator[Serve]:
    models: list[ScriptedModel] = []

    def start(script: Script) -> ScriptedModel:
        models.append(ScriptedModel.start(script, strict=Strictness()))
        return models[-1]

    yield start
    for model in models:
        model.close()


def write(path: str, content: str) -> Call:
    return Call(name="Write", args={"path": path, "content": content})


def edit(path: str, old: str, new: str) -> Call:
    return Call(name="Edit", args={"path": path, "old_string": old, "new_string": new})


def bash(command: str) -> Call:
    return Call(name="Bash", args={"command": command})


def change_things(machine: Machine, serve: Serve) -> None:
    """Let a run edit a file, make one, and run a command."""
    (machine.workspace / "pond.txt").write_text(HAIKU)
    (machine.workspace / "pond.txt").chmod(0o640)
    (machine.workspace / "log.txt").write_text("1\n")
    calls = (edit("pond.txt", "frog", "cat"), write("deep/new.txt", "new\n"))
    command = (bash("echo 2 >> log.txt; echo made > made.txt"),)
    model = serve(by_step([Turn(calls=calls), Turn(calls=command), Turn(text="Done.")]))
    assert machine.run(model, "change it").code == 0


@pytest.fixture
def edited(machine: Machine, serve: Serve) -> Machine:
    """A machine with one session, in which such a run has ended."""
    change_things(machine, serve)
    return machine


def undone_run(err: str) -> str:
    found = re.search(r"undone as run ([0-9a-f-]{36})", err)
    assert found is not None, err
    return found.group(1)


def test_a_diff_with_a_file_outside_says_that_git_does_not_apply_it(machine: Machine, serve: Serve) -> None:
    out = machine.folder / "out"
    out.mkdir()
    calls = (write(str(out / "far.txt"), "far\n"), write("__init__.py", ""))
    model = serve(by_step([Turn(calls=calls), Turn(text="Done.")]))
    assert machine.run(model, "--allow", f"write:{out}", "write it").code == 0
    whole, inside = machine.maka("diff", "1"), machine.maka("diff", "1", "--file", "__init__.py")
    said = "git apply takes no diff with a file outside of the workspace"
    assert (said in whole.err, said in inside.err) == (True, False)
    for done, code in ((whole, 128), (inside, 0)):
        tree = machine.folder / f"tree{code}"
        tree.mkdir()
        applied = subprocess.run(["git", "apply", "-"], cwd=tree, input=done.out.encode(), check=False)
        assert ((applied.returncode == 0), (tree / "__init__.py").exists()) == (code == 0, code == 0)


def test_a_diff_shows_what_the_agent_changed(edited: Machine) -> None:
    machine = edited
    done = machine.maka("diff", "@last")
    assert (done.code, done.out) == (
        0,
        "--- /dev/null\n+++ b/deep/new.txt\n@@ -0,0 +1,1 @@\n+new\n"
        "--- a/pond.txt\n+++ b/pond.txt\n@@ -1,2 +1,2 @@\n an old pond\n-a frog leaps in\n+a cat leaps in\n",
    )
    assert "added while a command ran, not undoable: made.txt" in done.err
    assert "modified while a command ran, not undoable: log.txt" in done.err
    (shown,) = machine.maka("diff", "@last", "--json", "--file", "pond.txt").lines
    assert [(each["path"], each["how"], each["added"], each["removed"]) for each in shown["files"]] == [
        ("pond.txt", "changed", 1, 1)
    ]
    assert shown["commands"]["added"] == ["made.txt"]


def test_a_diff_says_that_a_file_changed_since_and_that_one_is_binary(machine: Machine, serve: Serve) -> None:
    (machine.workspace / "data").write_bytes(b"\0\1")
    calls = (write("data", "text\n"), write("a", "agent\n"))
    model = serve(by_step([Turn(calls=calls), Turn(text="Done.")]))
    assert machine.run(model, "change it").code == 0
    (machine.workspace / "a").write_text("person\n")
    done = machine.maka("diff", "1")
    assert done.out.splitlines() == ["--- /dev/null", "+++ b/a", "@@ -0,0 +1,1 @@", "+agent", "data: changed, no diff"]
    assert "data: a binary file: 2 bytes before, 5 after" in done.err
    ours, now = hash_hex(b"agent\n")[:12], hash_hex(b"person\n")[:12]
    assert f"a: the file changed since: the agent left {ours}, it is {now} now" in done.err


def test_no_name_of_a_file_forges_a_line_of_a_diff_or_of_a_kept_one(machine: Machine, serve: Serve) -> None:
    name = "zz\n--- a/pond.txt\n+++ b/pond.txt\n@@ -1,1 +1,1 @@\n-good\n+evil"
    quoted = name.replace("\n", "\\n")
    model = serve(by_step([Turn(calls=(write(name, "x\n"),)), Turn(text="Done.")]))
    assert machine.run(model, "change it").code == 0
    written = f'--- /dev/null\n+++ "b/{quoted}"\n@@ -0,0 +1,1 @@\n+x\n'
    assert machine.maka("diff", "1").out == written
    (kept,) = (each["number"] for each in machine.maka("artifacts", "1", "--json").lines if each["kind"] == "diff")
    assert machine.maka("artifacts", "1", str(kept)).out == written


def test_a_person_is_told_of_a_folder_in_a_files_place_in_words_for_people(edited: Machine) -> None:
    (edited.workspace / "pond.txt").unlink()
    (edited.workspace / "pond.txt").mkdir()
    assert "- pond.txt stays: pond.txt is a directory\n" in edited.maka("undo", "@last", "--dry-run").out
    assert "maka: pond.txt: pond.txt is a directory\n" in edited.maka("diff", "@last").err


def test_an_undo_puts_everything_back_and_can_be_undone(tmp_path: Path, serve: Serve) -> None:
    machine = Machine(tmp_path)
    change_things(machine, serve)
    pond, new = machine.workspace / "pond.txt", machine.workspace / "deep" / "new.txt"
    done = machine.maka("undo", "@last")
    assert (done.code, done.out) == (0, "✓ removed deep/new.txt\n✓ put back pond.txt\n"), done
    assert "not undoable: log.txt" in done.err
    assert (pond.read_text(), pond.stat().st_mode & 0o777, new.exists()) == (HAIKU, 0o640, False)
    assert (machine.workspace / "log.txt").read_text() == "1\n2\n"
    redo = machine.maka("undo", undone_run(done.err)[-8:], "--json").record
    assert [(file["path"], file["outcome"]) for file in redo["files"]] == [(str(new), "ok"), (str(pond), "ok")]
    assert (pond.read_text(), new.read_text()) == (EDITED, "new\n")
    assert machine.maka("verify").code == 0


def test_a_dry_run_does_nothing_and_what_is_undone_is_shown_as_such(edited: Machine) -> None:
    machine = edited
    pond, new = machine.workspace / "pond.txt", machine.workspace / "deep" / "new.txt"
    tried = machine.maka("undo", "@last", "--dry-run")
    assert (tried.code, tried.out) == (0, "would remove deep/new.txt\nwould put back pond.txt\n")
    assert (pond.read_text(), new.read_text()) == (EDITED, "new\n")
    run = machine.maka("undo", "@last", "--json").record["runId"]
    assert machine.maka("diff", "@last").out == ""
    assert "nothing to undo" in machine.maka("undo", "@last").err
    assert "-new\n" in machine.maka("diff", run).out
    assert "undo opened" in machine.maka("log", "@last").out
    assert machine.maka("show", "@last").code == 0


def test_the_model_is_told_of_an_undo_and_reads_before_it_edits(edited: Machine) -> None:
    machine = edited
    assert machine.maka("undo", "1").code == 0
    call = edit("pond.txt", "frog", "dog")
    model_again = ScriptedModel.start(by_step([Turn(calls=(call,)), Turn(text="I see.")]), strict=Strictness())
    try:
        done = machine.run(model_again, "--continue", "--json", "a dog, please")
    finally:
        model_again.close()
    assert done.record["status"] == "completed"
    (told, prompt) = [message["content"] for message in model_again.requests[0].messages if message["role"] == "user"][
        -2:
    ]
    assert prompt == "a dog, please"
    assert "Maka's undo" in told
    assert "pond.txt" in told
    results = [line["result"] for line in done.lines if line["type"] == "tool_result"]
    assert "changed since you last read it" in results[-1]


def test_a_file_that_someone_else_changed_is_refused_with_both_hashes_and_can_be_forced(
    edited: Machine,
) -> None:
    machine = edited
    pond = machine.workspace / "pond.txt"
    pond.write_text("a person's\n")
    done = machine.maka("undo", "1")
    assert done.code == 1
    ours, now = hash_hex(EDITED.encode())[:12], hash_hex(b"a person's\n")[:12]
    assert f"- pond.txt stays: someone else changed it since: the agent left {ours}, it is {now} now" in done.out
    assert "✓ removed deep/new.txt" in done.out
    assert pond.read_text() == "a person's\n"
    assert machine.maka("undo", "1", "--force").code == 2
    forced = machine.maka("undo", "1", "--force", "--file", "pond.txt")
    assert (forced.code, pond.read_text()) == (0, HAIKU)
    assert machine.maka("undo", undone_run(forced.err)).code == 0
    assert pond.read_text() == "a person's\n"


def test_an_unknown_name_and_a_file_that_nobody_changed(edited: Machine) -> None:
    machine = edited
    assert machine.maka("undo", "#7").code == 2
    assert machine.maka("diff", "nothing").code == 2
    done = machine.maka("undo", "1", "--file", "other.txt")
    assert done.code == 1
    assert "nothing to undo" in done.out


def test_another_sessions_work_is_left_alone(machine: Machine, serve: Serve) -> None:
    for content in ("first\n", "second\n"):
        model = serve(by_step([Turn(calls=(write("a", content),)), Turn(text="Done.")]))
        assert machine.run(model, "write").code == 0
    file = machine.workspace / "a"
    assert machine.maka("undo", "1").code == 1
    assert file.read_text() == "second\n"
    assert machine.maka("undo", "2").code == 0
    assert file.read_text() == "first\n"
    assert machine.maka("undo", "1").code == 0
    assert not file.exists()
