"""Read on real files: slices, pages, special files, what was seen."""

import os
from hashlib import sha256
from pathlib import Path

import pytest

from maka.contracts.actions import FileSeen
from maka.contracts.boundary import Profile
from maka.contracts.content import Outcome
from maka.contracts.limits import READ_BYTES_MAX, RESULT_BYTES_MAX, RESULT_LINES_MAX
from tests.tools.harness import Bench, boundary


def hash_of(data: bytes) -> str:
    return sha256(data).hexdigest()


def test_read_returns_the_text_and_what_was_seen(bench: Bench, workspace: Path) -> None:
    (workspace / "a.txt").write_bytes(b"one\ntwo\nthree")
    result = bench.run("Read", path="a.txt")
    assert (result.outcome, result.text) == (Outcome.OK, "one\ntwo\nthree")
    real = os.path.realpath(workspace / "a.txt")
    assert result.seen == FileSeen(path=real, sha256=hash_of(b"one\ntwo\nthree"))


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"offset": 1}, "two\nthree\n"),
        ({"offset": 0, "limit": 1}, "one\n[lines 0 to 0 of a file of 14 bytes; go on with offset=1]"),
        ({"offset": 2, "limit": 9}, "three\n"),
        ({"offset": 3}, "[a.txt has no line at offset 3: it is shorter]"),
    ],
)
def test_read_slices_by_lines(bench: Bench, workspace: Path, args: dict[str, int], text: str) -> None:
    (workspace / "a.txt").write_text("one\ntwo\nthree\n")
    result = bench.run("Read", path="a.txt", **args)
    assert result.text == text
    assert result.seen is not None
    assert result.seen.sha256 == hash_of(b"one\ntwo\nthree\n")


def test_a_long_file_is_read_page_by_page(bench: Bench, workspace: Path) -> None:
    lines = [f"line {number} " + "x" * (number % 50) for number in range(9_000)]
    (workspace / "long.txt").write_text("\n".join(lines) + "\n")
    got: list[str] = []
    pages = 0
    while True:
        text = bench.run("Read", path="long.txt", offset=len(got)).text
        assert len(text.encode()) <= RESULT_BYTES_MAX
        assert text.count("\n") < RESULT_LINES_MAX
        pages += 1
        page = text.splitlines()
        if "go on with offset=" not in page[-1]:
            got += page
            break
        got += page[:-1]
        assert page[-1].endswith(f"go on with offset={len(got)}]")
    assert got == lines
    assert pages > 3


def test_a_long_line_is_cut(bench: Bench, workspace: Path) -> None:
    (workspace / "wide.txt").write_text("é" * 100_000 + "\nnext\n")
    text = bench.run("Read", path="wide.txt").text
    assert len(text.encode()) <= RESULT_BYTES_MAX
    assert "\ufffd" not in text
    assert "offset=1" in text
    assert bench.run("Read", path="wide.txt", offset=1).text == "next\n"


def test_bytes_that_are_no_utf8_are_replaced(bench: Bench, workspace: Path) -> None:
    (workspace / "latin.txt").write_bytes(b"caf\xe9 and more text\n")
    assert bench.run("Read", path="latin.txt").text == "caf\ufffd and more text\n"


def test_empty_missing_and_binary_files_are_told_apart(bench: Bench, workspace: Path) -> None:
    (workspace / "empty").touch()
    (workspace / "binary").write_bytes(bytes(range(256)) * 20)
    assert bench.run("Read", path="empty").text == "[empty is empty]"
    assert "does not exist" in bench.run("Read", path="none").text
    assert "binary" in bench.run("Read", path="binary").text


def test_h59_special_files_are_refused_at_once(bench: Bench, workspace: Path) -> None:
    os.mkfifo(workspace / "p")
    (workspace / "d").mkdir()
    assert "not a regular file" in bench.run("Read", path="p").text
    assert "use Glob" in bench.run("Read", path="d").text
    assert "use Glob" in bench.run("Read", path=".").text
    assert bench.run("Read", path="/dev/zero").outcome is Outcome.REFUSED
    free = Bench(bench.tools, workspace, boundary(workspace, Profile.BYPASS))
    assert "not a regular file" in free.run("Read", path="/dev/zero").text
    assert bench.run("Write", path="p", content="x").outcome is Outcome.ERROR
    assert bench.run("Edit", path="d", old_string="aaaaa", new_string="b").outcome is Outcome.ERROR


def test_h59_a_huge_file_is_read_in_part_only(bench: Bench, workspace: Path) -> None:
    with (workspace / "huge").open("wb") as file:
        file.write(b"".join(b"line %d\n" % number for number in range(1_500_000)))
        file.truncate(5 << 30)
    result = bench.run("Read", path="huge")
    assert result.text.startswith("line 0\nline 1\n")
    assert result.seen is None  # over READ_BYTES_MAX nothing is hashed
    assert bench.run("Read", path="huge", offset=1_400_000, limit=2).text.startswith("line 1400000\nline 1400001\n[")
    assert "beyond the first" in bench.run("Read", path="huge", offset=2_000_000).text
    assert (workspace / "huge").stat().st_size > READ_BYTES_MAX
    assert "too large" in bench.run("Edit", path="huge", old_string="line 0", new_string="x").text
    assert "too large" in bench.run("Write", path="huge", content="x").text
