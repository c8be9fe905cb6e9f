"""Write on real files: the fact first, then the whole file or nothing."""

import json
import os
import subprocess
import sys
import textwrap
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from maka.contracts.actions import FileSeen
from maka.contracts.content import Outcome
from maka.contracts.limits import BLOB_BYTES_MAX, WRITE_BYTES_MAX
from maka.contracts.tool_ports import FileFact
from maka.tools.leftovers import TempFiles
from tests.tools.full_disk import LIMITED
from tests.tools.harness import Bench, Recorder


def hash_of(data: bytes) -> str:
    return sha256(data).hexdigest()


def leftovers(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".tmp")]


def test_a_new_file_is_recorded_before_it_is_there(bench: Bench, workspace: Path) -> None:
    def look(_: object) -> None:
        assert not (workspace / "deep").exists()

    recorder = bench.begin("Write", Recorder(on_commit=look), path="deep/er/a.py", content="x = 1\ny = 2\n")
    result = recorder.wait()
    assert (result.outcome, result.text) == (Outcome.OK, "Created deep/er/a.py (+2 -0)")
    assert result.diff == "--- /dev/null\n+++ b/deep/er/a.py\n@@ -0,0 +1,2 @@\n+x = 1\n+y = 2\n"
    real = os.path.realpath(workspace / "deep/er/a.py")
    (fact,) = recorder.file_facts
    assert fact == FileFact(
        path=real,
        before_sha256=None,
        after_sha256=hash_of(b"x = 1\ny = 2\n"),
        pre_image=None,
        temp_name=fact.temp_name,
    )
    assert fact.temp_name == ".tmp.maka-000000000001"
    assert result.seen == FileSeen(path=real, sha256=hash_of(b"x = 1\ny = 2\n"))
    assert leftovers(workspace / "deep/er") == []


def test_an_overwrite_keeps_mode_and_pre_image(bench: Bench, workspace: Path) -> None:
    path = workspace / "run.sh"
    path.write_text("old\n")
    path.chmod(0o755)
    recorder = bench.begin("Write", path="run.sh", content="new\nmore\n")
    assert recorder.wait().text == "Overwrote run.sh (+2 -1)"
    assert path.stat().st_mode & 0o777 == 0o755
    (fact,) = recorder.file_facts
    assert (fact.pre_image, fact.before_sha256) == (b"old\n", hash_of(b"old\n"))


def test_the_same_content_again_is_no_change(bench: Bench, workspace: Path) -> None:
    (workspace / "a").write_text("same")
    recorder = bench.begin("Write", path="a", content="same")
    result = recorder.wait()
    assert result.outcome is Outcome.OK
    assert "already" in result.text
    assert recorder.facts == []
    assert result.seen is not None


def test_a_refused_fact_means_that_nothing_is_written(bench: Bench, workspace: Path) -> None:
    assert bench.begin("Write", Recorder("refuse"), path="d/a", content="x").wait().outcome is Outcome.NOT_STARTED
    assert os.listdir(workspace) == []


def test_a_stop_before_the_write_leaves_the_file(bench: Bench, workspace: Path) -> None:
    (workspace / "a").write_text("old")
    recorder = bench.begin("Write", Recorder("hold"), path="a", content="new")
    assert recorder.asked.is_set()
    recorder.cancel()
    recorder.cancel()
    assert recorder.wait().outcome is Outcome.ABORTED
    recorder.decide(True)
    assert (workspace / "a").read_text() == "old"
    assert bench.run("Write", path="a", content="again").outcome is Outcome.OK  # its turn was given back


def test_too_much_content_is_refused(bench: Bench, workspace: Path) -> None:
    result = bench.run("Write", path="a", content="x" * (WRITE_BYTES_MAX + 1))
    assert (result.outcome, os.listdir(workspace)) == (Outcome.ERROR, [])
    with (workspace / "big").open("wb") as file:
        file.truncate(BLOB_BYTES_MAX + 1)
    assert "too large" in bench.run("Write", path="big", content="x").text


def test_half_a_surrogate_pair_is_an_error_result(bench: Bench, workspace: Path) -> None:
    assert bench.run("Write", path="a", content="\ud83d").outcome is Outcome.ERROR
    (workspace / "a").write_text("value")
    assert bench.run("Edit", path="a", old_string="value", new_string="\ud83d").outcome is Outcome.ERROR
    assert (workspace / "a").read_text() == "value"


def test_a_file_changed_between_look_and_rename_is_left_alone(bench: Bench, workspace: Path) -> None:
    path = workspace / "a"
    path.write_text("old value")

    def meddle(_: object) -> None:
        path.write_text("theirs")

    calls: list[tuple[str, dict[str, Any]]] = [
        ("Write", {"content": "ours"}),
        ("Edit", {"old_string": "value", "new_string": "ours"}),
    ]
    for name, args in calls:
        path.write_text("old value")
        result = bench.begin(name, Recorder(on_commit=meddle), path="a", **args).wait()
        assert result.outcome is Outcome.ERROR
        assert "changed by someone else" in result.text
        assert path.read_text() == "theirs"
    assert leftovers(workspace) == []


def test_a_file_that_appears_meanwhile_is_left_alone(bench: Bench, workspace: Path) -> None:
    def meddle(_: object) -> None:
        (workspace / "a").write_text("theirs")

    assert bench.begin("Write", Recorder(on_commit=meddle), path="a", content="ours").wait().outcome is Outcome.ERROR
    assert (workspace / "a").read_text() == "theirs"


FULL: dict[str, dict[str, Any]] = {
    "Write": {"path": "run.sh", "content": "x" * (5 << 20)},
    "Edit": {"path": "run.sh", "old_string": "#!/bin/sh", "new_string": "#!/bin/bash"},
}


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize(
    ("lack", "says"),
    [
        ("room", "No space left on device"),
        ("a place for a file", "No space left on device"),
        (LIMITED, "File too large"),
    ],
)
def test_h58_a_full_disk_leaves_the_old_file_and_the_model_is_told(
    tmp_path: Path, lack: str, says: str, name: str
) -> None:
    """A real disk that is full, where one can be mounted; a limit on file size stands in for it where none can."""
    root = Path(__file__).parents[2]
    words = [sys.executable, "-m", "tests.tools.full_disk", lack, str(tmp_path), name]
    asked = json.dumps(FULL[name])
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True, input=asked)
    said = json.loads(done.stdout)
    if said is None:
        pytest.skip("this machine lets nobody mount a disk")
    assert said == {
        "outcome": Outcome.ERROR,
        "text": f"nothing was changed: run.sh: {says}",
        "seen": False,
        "is_whole": True,
        "mode": 0o755,
        "is_same": True,
        "names": ["run.sh"],
    }


def test_h58_a_kill_in_mid_write_leaves_one_whole_file(tmp_path: Path) -> None:
    """Killed as soon as the temp file exists: the old file is whole, and the temp file has the recorded name."""
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from tests.tools.conftest import make_tools
        from tests.tools.harness import Bench, Recorder
        bench = Bench(make_tools(), Path(sys.argv[1]))
        content = "x" * (60 << 20)
        def told(fact):
            print(fact.temp_name, flush=True)
        while True:
            bench.begin("Write", Recorder(on_commit=told), path="a", content=content).wait()
            bench.begin("Write", Recorder(), path="a", content="old").wait()
        """
    )
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o755)
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], cwd=root, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        while not (tmp_path / name).exists() and process.poll() is None:
            pass
        process.kill()
        names = {line.strip() for line in process.stdout} | {name}
    assert path.stat().st_size in (3, 60 << 20)
    assert path.stat().st_mode & 0o7777 == 0o755
    left = leftovers(tmp_path)
    assert len(left) <= 1
    assert set(left) <= names  # so recovery finds it by the fact
    assert [TempFiles().unlink_temp(str(tmp_path / name)) for name in left] == [True] * len(left)
    assert os.listdir(tmp_path) == ["a"]


def test_recovery_removes_temp_files_of_ours_alone(tmp_path: Path) -> None:
    (tmp_path / ".tmp.maka-1").touch()
    (tmp_path / "mine").touch()
    files = TempFiles()
    assert files.unlink_temp(str(tmp_path / ".tmp.maka-1"))
    assert not files.unlink_temp(str(tmp_path / ".tmp.maka-1"))
    assert not files.unlink_temp(str(tmp_path / "mine"))
    assert os.listdir(tmp_path) == ["mine"]
