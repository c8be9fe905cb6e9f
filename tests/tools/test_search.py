"""Glob and Grep over a real ripgrep: what is found, what is left out, bounds and stops."""

import os
from pathlib import Path

import pytest

from maka.contracts.content import Outcome
from maka.contracts.limits import GLOB_RESULTS_MAX, GREP_LINES_MAX, GREP_PER_FILE_MAX
from maka.edges.processes import AsyncProcesses
from maka.tools.glob_match import PatternError, checked, compiled
from tests.tools.conftest import make_tools
from tests.tools.harness import Bench, Recorder


@pytest.fixture
def tree(workspace: Path) -> Path:
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/b.ts", "out/gen.py", ".github/ci.yml", "node_modules/m.py"):
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"name = '{name}'\nneedle\n")
    (workspace / ".gitignore").write_text("node_modules/\nout/gen.py\n")
    return workspace


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"pattern": "**/*.py"}, ["a.py", "src/b.py", "src/deep/c.py"]),
        ({"pattern": "*.py"}, ["a.py"]),
        ({"pattern": "./src/*.{py,ts}"}, ["src/b.py", "src/b.ts"]),
        ({"pattern": "*.py", "path": "src"}, ["src/b.py"]),
        ({"pattern": "**", "path": "src/deep"}, ["src/deep/c.py"]),
        ({"pattern": ".github/*"}, [".github/ci.yml"]),
        ({"pattern": "node_modules/**"}, ["[nothing found]"]),
    ],
)
def test_glob_finds_by_path(bench: Bench, tree: Path, args: dict[str, str], found: list[str]) -> None:
    del tree
    result = bench.run("Glob", **args)
    assert (result.outcome, result.text.splitlines()) == (Outcome.OK, found)


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"pattern": "needle"}, [".github/ci.yml", "a.py", "src/b.py", "src/b.ts", "src/deep/c.py"]),
        ({"pattern": "needle", "glob": "*.py"}, ["a.py", "src/b.py", "src/deep/c.py"]),
        ({"pattern": "needle", "glob": "src/**/*.py"}, ["src/b.py", "src/deep/c.py"]),
        ({"pattern": "needle", "glob": "**/*.py", "path": "src"}, ["src/b.py", "src/deep/c.py"]),
        ({"pattern": "needle", "glob": "!*.py"}, [".github/ci.yml", "src/b.ts"]),
        ({"pattern": "needle", "path": "src/b.ts"}, ["src/b.ts"]),
    ],
)
def test_grep_names_path_and_line(bench: Bench, tree: Path, args: dict[str, str], found: list[str]) -> None:
    del tree
    result = bench.run("Grep", **args)
    assert (result.outcome, result.text.splitlines()) == (Outcome.OK, [f"{path}:2:needle" for path in found])


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("Grep", {"pattern": "nowhere"}, "nothing found"),
        ("Grep", {"pattern": "("}, "regex parse error"),
        ("Grep", {"pattern": "a\0"}, "NUL"),
        ("Grep", {"pattern": "a", "path": "gone"}, "does not exist"),
        ("Grep", {"pattern": "a", "path": ".."}, "outside the workspace"),
        ("Grep", {"pattern": "a", "glob": "../*"}, "`..`"),
        ("Glob", {"pattern": "/etc/*"}, "absolute"),
        ("Glob", {"pattern": "../*"}, "`..`"),
        ("Glob", {"pattern": "*", "path": "a.py"}, "not a directory"),
        ("Glob", {"pattern": "*", "path": "/etc"}, "outside the workspace"),
    ],
)
def test_what_cant_be_searched_is_said(bench: Bench, tree: Path, name: str, args: dict[str, str], says: str) -> None:
    del tree
    result = bench.run(name, **args)
    assert says in result.text
    assert (result.outcome is Outcome.OK) == (says == "nothing found")


def test_a_search_is_named_before_it_runs(bench: Bench, tree: Path) -> None:
    del tree
    recorder = bench.begin("Grep", pattern="needle")
    recorder.wait()
    (fact,) = recorder.process_facts
    assert fact.command.startswith("rg ")
    assert bench.begin("Glob", Recorder("refuse"), pattern="*").wait().outcome is Outcome.NOT_STARTED


def test_results_are_bounded_and_say_so(bench: Bench, workspace: Path) -> None:
    for number in range(GLOB_RESULTS_MAX + 5):
        (workspace / f"f{number:04}").write_text("hit\n" * (GREP_PER_FILE_MAX + 5))
    lines = bench.run("Glob", pattern="**").text.splitlines()
    assert (len(lines), lines[0]) == (GLOB_RESULTS_MAX + 1, "f0000")
    assert lines[-1] == f"[cut after {GLOB_RESULTS_MAX} results: narrow the search to see the others]"
    result = bench.run("Grep", pattern="hit")
    lines = result.text.splitlines()
    assert result.outcome is Outcome.OK
    assert len(lines) == GREP_LINES_MAX + 1
    assert sum(line.startswith("f0000:") for line in lines) == GREP_PER_FILE_MAX
    assert lines[-1].startswith("[cut after")


def test_exactly_the_bound_is_no_cut(bench: Bench, workspace: Path) -> None:
    for number in range(GLOB_RESULTS_MAX):
        (workspace / f"f{number:04}").touch()
    assert len(bench.run("Glob", pattern="**").text.splitlines()) == GLOB_RESULTS_MAX


def test_long_lines_are_cut(bench: Bench, workspace: Path) -> None:
    (workspace / "min.js").write_text("x" * 500_000 + "needle" + "y" * 500_000 + "\n")
    text = bench.run("Grep", pattern="needle").text
    assert text.startswith("min.js:1:")
    assert len(text) < 1_000


def test_h61_a_link_loop_is_walked_once(bench: Bench, workspace: Path) -> None:
    (workspace / "d").mkdir()
    (workspace / "d" / "up").symlink_to("..")
    (workspace / "d" / "x").write_text("needle\n")
    assert bench.run("Glob", pattern="**/*").text.splitlines() == ["d/x"]
    assert bench.run("Grep", pattern="needle").text.splitlines() == ["d/x:1:needle"]


def test_h61_a_search_can_be_stopped(processes: AsyncProcesses, workspace: Path, tmp_path: Path) -> None:
    """A stand-in for ripgrep that walks for ever: a real tree large enough would only make the test slow."""
    rg = tmp_path / "rg"
    rg.write_text("#!/bin/sh\nprintf 'a\\0001:x\\n'\nwhile :; do sleep 3631; done\n")
    rg.chmod(0o755)
    tools = make_tools(processes, child_env={"PATH": "/usr/bin:/bin"}, rg_path=str(rg))
    recorder = Bench(tools, workspace).begin("Grep", pattern="x")
    assert recorder.asked.wait(20)
    recorder.cancel()
    assert recorder.wait().outcome is Outcome.ABORTED


@pytest.mark.slow
def test_h61_a_large_tree_is_searched_and_stopped(bench: Bench, workspace: Path) -> None:
    for folder in range(200):
        (workspace / f"d{folder}").mkdir()
        for number in range(1_000):
            os.close(os.open(workspace / f"d{folder}" / f"f{number}", os.O_CREAT | os.O_WRONLY))
    recorder = bench.begin("Grep", pattern="nothing here")
    assert recorder.asked.wait(20)
    recorder.cancel()
    assert recorder.wait().outcome is Outcome.ABORTED
    assert "cut after" in bench.run("Glob", pattern="**/*").text


def test_without_ripgrep_the_tools_say_so(processes: AsyncProcesses, workspace: Path) -> None:
    bench = Bench(make_tools(processes, child_env={}, rg_path=None), workspace)
    assert "ripgrep" in bench.run("Glob", pattern="*").text
    assert "ripgrep" in bench.run("Grep", pattern="x").text


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [
        ("*", ["a", ".b"], ["a/b"]),
        ("**", ["a", "a/b/c"], []),
        ("**/a", ["a", "x/a", "x/y/a"], ["xa", "x/ba"]),
        ("a/**/b", ["a/b", "a/x/y/b"], ["a/xb"]),
        ("a?c", ["abc"], ["a/c", "ac"]),
        ("[a-c]x", ["ax", "cx"], ["dx"]),
        ("[!a]x", ["bx"], ["ax", "/x"]),
        ("{a,b{1,2}}.py", ["a.py", "b1.py", "b2.py"], ["b.py", "b3.py"]),
        ("a.b+c", ["a.b+c"], ["aXb+c", "a.bbc"]),
        (r"\*", ["*"], ["a"]),
        ("[x", ["[x"], ["x"]),
        ("{x", ["{x"], ["x"]),
    ],
)
def test_patterns_mean_what_they_say(pattern: str, fits: list[str], fits_not: list[str]) -> None:
    wanted = compiled(checked(pattern))
    assert [path for path in fits if not wanted.fullmatch(path)] == []
    assert [path for path in fits_not if wanted.fullmatch(path)] == []


@pytest.mark.parametrize("pattern", ["{" * 40 + "}" * 40, "[z-a]"])
def test_patterns_that_cant_be_understood_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compiled(checked(pattern))
