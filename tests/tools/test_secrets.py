"""Kind T in each tool: a key that a tool meets is in nothing that it says, wherever a bound cuts what it says."""

import sys
from pathlib import Path

import pytest

from maka.contracts.boundary import Profile
from maka.contracts.content import Outcome
from maka.contracts.limits import GREP_COLUMNS_MAX, LIVE_CHARS_MAX, OUTPUT_BLOB_BYTES_MAX, RESULT_BYTES_MAX
from maka.contracts.masks import SECRET_MARK
from maka.contracts.tool_ports import ToolResult
from maka.edges.processes import AsyncProcesses
from maka.edges.sandbox import NoSandbox
from maka.edges.secrets import Secrets
from maka.tools.output import CommandOutput
from maka.tools.results import BODY_BYTES_MAX
from tests.tools.conftest import make_tools
from tests.tools.harness import Bench, Recorder, boundary

KEY = "acme0123456789abcdefghij"
PART = KEY[:8]
"""So much of it at an end, or of its end at a beginning, would already be too much."""


@pytest.fixture
def bench(processes: AsyncProcesses, workspace: Path) -> Bench:
    tools = make_tools(processes, sandbox=NoSandbox("not needed"), masks=Secrets([KEY]))
    (workspace / "key").write_text(KEY)
    return Bench(tools, workspace, boundary(workspace, Profile.BYPASS))


def clean(*texts: str | bytes | None) -> None:
    for text in texts:
        words = text.decode() if isinstance(text, bytes) else text or ""
        assert PART not in words
        assert KEY[-8:] not in words


def check(recorder: Recorder) -> ToolResult:
    result = recorder.wait()
    clean(result.text, result.whole, recorder.shown(), recorder.shown("stderr"))
    return result


def test_h73_a_command_prints_the_key(bench: Bench) -> None:
    recorder = bench.begin("Bash", command="cat key; echo; cat key >&2; exit 3")
    result = check(recorder)
    assert SECRET_MARK in result.text
    assert (recorder.shown(), recorder.shown("stderr")) == (f"{SECRET_MARK}\n", SECRET_MARK)


@pytest.mark.parametrize("flush", ["sys.stdout.flush()", ""])
def test_h73_the_key_in_pieces(bench: Bench, flush: str) -> None:
    script = (
        "import sys\nkey = open('key').read()\n"
        f"for letter in 'a ' + key + ' b':\n  sys.stdout.write(letter)\n  {flush or 'pass'}\n"
    )
    (bench.cwd / "pieces.py").write_text(script)
    recorder = bench.begin("Bash", command=f"{sys.executable} pieces.py")
    assert check(recorder).text == recorder.shown() == f"a {SECRET_MARK} b"


@pytest.mark.parametrize("size", range(1, len(KEY)))
def test_half_to_one_stream_and_half_to_the_other_is_whole_in_the_result(size: int) -> None:
    output = CommandOutput(lambda _, __: None, Secrets([KEY]))
    output.take("stdout", f"a {KEY[:size]}".encode())
    output.take("stdout", b"", final=True)
    output.take("stderr", f"{KEY[size:]} b".encode())
    output.close()
    assert output.for_model() == (f"a {SECRET_MARK} b", None)


def test_the_key_at_every_place_where_output_is_cut(bench: Bench) -> None:
    """One unbroken line of keys and single letters: whatever is cut, is cut in or beside a key."""
    script = f"import sys\nkey = open('key').read()\nsys.stdout.write((key + 'z') * {2 * RESULT_BYTES_MAX // len(KEY)})"
    (bench.cwd / "many.py").write_text(script)
    for before in range(0, 25, 4):
        result = check(bench.begin("Bash", command=f"printf '%{before}s' ''; {sys.executable} many.py"))
        assert "not shown" in result.text or SECRET_MARK in result.text


@pytest.mark.parametrize("before", range(0, len(KEY), 5))
@pytest.mark.parametrize("bound", [LIVE_CHARS_MAX, OUTPUT_BLOB_BYTES_MAX // 2, OUTPUT_BLOB_BYTES_MAX])
def test_the_key_at_the_bounds_of_what_is_kept_and_shown(bound: int, before: int) -> None:
    shown: list[str] = []
    output = CommandOutput(lambda _, text: shown.append(text), Secrets([KEY]))
    output.take("stdout", b"." * (bound - before) + KEY[:7].encode())
    output.take("stdout", KEY[7:].encode() + b"." * (OUTPUT_BLOB_BYTES_MAX + bound // 2))
    output.close()
    clean(*output.for_model(), "".join(shown))


def test_h73_files_are_read_without_the_key(bench: Bench) -> None:
    (bench.cwd / ".env").write_text(f"A=1\nKEY={KEY}\nB=2\n")
    assert bench.run("Read", path=".env").text == f"A=1\nKEY={SECRET_MARK}\nB=2\n"
    assert bench.run("Read", path=".env", offset=1, limit=1).text.startswith(f"KEY={SECRET_MARK}\n")


@pytest.mark.parametrize("before", range(0, len(KEY) + 1, 3))
@pytest.mark.parametrize("bound", [BODY_BYTES_MAX, 4 * BODY_BYTES_MAX])
def test_the_key_where_a_long_line_is_cut(bench: Bench, bound: int, before: int) -> None:
    (bench.cwd / "long").write_text("." * (bound - before) + KEY + "." * bound)
    clean(bench.run("Read", path="long").text)


@pytest.mark.parametrize("before", range(-2, len(KEY) + 1))
def test_the_key_where_ripgrep_cuts_a_line(bench: Bench, before: int) -> None:
    (bench.cwd / "long").write_text("needle" + "." * (GREP_COLUMNS_MAX - 6 - before) + KEY + "." * 500 + "\n")
    result = bench.run("Grep", pattern="needle")
    assert "long:1:needle" in result.text
    clean(result.text)


def test_h73_names_and_lines_of_a_search(bench: Bench) -> None:
    (bench.cwd / f"of-{KEY}.txt").write_text(f"x = {KEY}\n")
    assert f"of-{SECRET_MARK}.txt:1:x = {SECRET_MARK}" in bench.run("Grep", pattern="x = ").text
    assert f"of-{SECRET_MARK}.txt" in bench.run("Glob", pattern="**/*.txt").text
    clean(bench.run("Grep", pattern="acme").text, bench.run("Grep", pattern="x", path=f"of-{KEY}.none").text[:0])


def test_a_hint_of_an_edit_shows_no_part_of_the_key(bench: Bench) -> None:
    for before in range(150, 200, 7):
        line = "caf\u00e9 = 1" + "." * (before - 8) + KEY
        (bench.cwd / "look.txt").write_text(line + "\n")
        result = bench.run("Edit", path="look.txt", old_string="cafe\u0301 = 1.", new_string="x")
        assert "looks alike" in result.text
        clean(result.text)


def test_a_mark_is_not_written_over_the_key(bench: Bench) -> None:
    (bench.cwd / ".env").write_text(f"A=1\nKEY={KEY}\n")
    seen = bench.run("Read", path=".env").text
    refused = bench.run("Write", path=".env", content=seen.replace("A=1", "A=2"))
    assert refused.outcome is Outcome.ERROR
    assert "would lose it" in refused.text
    edited = bench.run("Edit", path=".env", old_string="A=1", new_string="A=2")
    assert edited.outcome is Outcome.OK, edited
    assert (bench.cwd / ".env").read_text() == f"A=2\nKEY={KEY}\n"
    assert bench.run("Write", path="notes", content=f"it said {SECRET_MARK}").outcome is Outcome.OK
    assert bench.run("Edit", path=".env", old_string="A=2", new_string=SECRET_MARK).outcome is Outcome.ERROR
