"""Glob and Grep over a real ripgrep: what is found, what is left out, bounds and stops."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from maka.contracts.boundary import FileEntry, Profile
from maka.contracts.content import Outcome
from maka.contracts.limits import GLOB_RESULTS_MAX, GREP_LINES_MAX, GREP_PER_FILE_MAX, TERM_GRACE_S
from maka.contracts.sandbox_ports import Sandbox
from maka.contracts.tool_ports import ToolEnv
from maka.edges.process_tree import stat_of
from maka.edges.processes import AsyncProcesses
from maka.edges.sandbox import NoSandbox
from maka.tools.boundary import Place
from maka.tools.glob_match import PatternError, checked, compiled
from maka.tools.policy import Ground
from maka.tools.search import Ripgrep, Start
from tests.tools.conftest import make_tools
from tests.tools.harness import Bench, Clock, Recorder, boundary, nap, running


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


def endless(processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, rg: Path, script: str) -> Bench:
    """Put a stand-in for ripgrep there that walks for ever: a real tree large enough would only make the test slow."""
    rg.write_text(f"#!/bin/bash\n{script}\n")
    rg.chmod(0o755)
    tools = make_tools(processes, child_env={"PATH": "/usr/bin:/bin"}, rg_path=str(rg), sandbox=sandbox)
    return Bench(tools, workspace)


WALKS = nap(3631)


@pytest.mark.parametrize("tool", ["Glob", "Grep"])
def test_h61_a_stop_of_a_search_ends_it_before_any_time_has_passed(
    processes: AsyncProcesses,
    sandbox: Sandbox,
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
) -> None:
    """The clock of endings stands still, so no grace is ever over and no KILL comes: TERM has to be enough."""
    bench = endless(processes, sandbox, workspace, tmp_path / "rg", f"printf 'a\\0001:x\\n'\n{WALKS} & {WALKS}")
    recorder = bench.begin(tool, pattern="x")
    assert recorder.asked.wait(20)
    while len(running(WALKS)) < 2:
        assert not recorder.results, recorder.results
    Clock(monkeypatch)
    recorder.cancel()
    result = recorder.wait()
    assert result.outcome is Outcome.ABORTED
    assert result.text.endswith("[cut: the search was stopped]")
    assert running(WALKS) == []


def test_h61_a_search_that_ignores_a_stop_lives_until_kill_and_no_longer(
    processes: AsyncProcesses, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a sandbox, which would end it at once. The stop is answered as soon as the grace is over."""
    script = f"trap 'touch told' TERM\n{WALKS} &\nwhile :; do wait; done"
    bench = endless(processes, NoSandbox("none"), workspace, tmp_path / "rg", script)
    bench.boundary = boundary(workspace, Profile.BYPASS)
    recorder = bench.begin("Grep", pattern="x")
    assert recorder.asked.wait(20)
    while not running(WALKS):
        assert not recorder.results, recorder.results
    (fact,) = recorder.process_facts
    clock = Clock(monkeypatch)
    recorder.cancel()
    while not (workspace / "told").exists():
        assert not recorder.results, recorder.results
    clock.now_s = TERM_GRACE_S - 0.001
    clock.is_looked_at(20)
    assert (recorder.results, stat_of(fact.process.pid) is not None) == ([], True)
    clock.now_s = TERM_GRACE_S
    assert recorder.wait().outcome is Outcome.ABORTED
    assert (running(WALKS), stat_of(fact.process.pid)) == ([], None)


def swapped(name: str, workspace: Path, outside: Path) -> None:
    """Put a link to the outside in a name's place, as a command that runs meanwhile can."""
    (workspace / name).rename(workspace / "held")
    (workspace / name).symlink_to(outside)


def no_look(start: Start) -> None:
    """Stand in for the look at what was searched."""


@pytest.mark.parametrize("looks", [True, False], ids=["", "by the sandbox alone"])
@pytest.mark.parametrize(("tool", "name"), [("Grep", "d"), ("Grep", "d/x"), ("Grep", "f"), ("Glob", "d")])
def test_h60_what_is_swapped_when_a_search_begins_doesnt_escape(
    processes: AsyncProcesses,
    sandbox: Sandbox,
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    name: str,
    looks: bool,
) -> None:
    """The process waits behind its gate, checked and named, when its start is swapped."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("swordfish\n")
    (outside / "swordfish").touch()
    (workspace / "d").mkdir()
    for path in ("d/x", "f"):
        (workspace / path).write_text("mine\n")
    if not looks:
        monkeypatch.setattr(Start, "must_be_there", no_look)
    ground = Ground(programs=(str(tmp_path.resolve()),))
    bench = Bench(make_tools(processes, sandbox=sandbox, ground=ground), workspace)
    call = bench.begin(tool, Recorder("hold"), pattern="**" if tool == "Glob" else "swordfish|mine", path=name)
    assert call.asked.wait(20)
    top = name.partition("/")[0]
    swapped(top, workspace, outside / "x" if top == "f" else outside)
    call.decide(True)
    result = call.wait()
    assert "swordfish" not in result.text
    assert ("path_changed" in result.text) is looks
    assert bench.run("Grep", pattern=".", path="held").outcome is Outcome.OK


@pytest.mark.parametrize("tool", ["Grep", "Glob"])
def test_h60_what_is_swapped_while_a_search_is_prepared_is_seen(
    bench: Bench, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    (tmp_path / "outside" / "e").mkdir(parents=True)
    (workspace / "d" / "e").mkdir(parents=True)

    def then_swapped(self: Ripgrep, env: ToolEnv, path: object) -> Place:
        place = located(self, env, path)
        swapped("d", workspace, tmp_path / "outside")
        return place

    located = Ripgrep.place
    monkeypatch.setattr(Ripgrep, "place", then_swapped)
    call = bench.begin(tool, pattern="x", path="d/e")
    assert call.wait().text.startswith("path_changed: d in d/e turned into a link")
    assert call.facts == []


SPECIAL: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "socket": lambda path: os.mknod(path, 0o600 | stat.S_IFSOCK),
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("bypass", [False, True], ids=["", "bypass"])
@pytest.mark.parametrize("kind", SPECIAL)
def test_h59_what_is_no_file_is_refused_at_once(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, kind: str, bypass: bool
) -> None:
    SPECIAL[kind](workspace / "p")
    limits = boundary(workspace, Profile.BYPASS if bypass else Profile.ASK)
    bench = Bench(make_tools(processes, sandbox=sandbox), workspace, limits)
    call = bench.begin("Grep", pattern="x", path="p")
    text = call.wait().text
    assert ("is outside" if kind == "device" and not bypass else "is not a regular file") in text
    assert call.facts == [], "no process is needed to see that"


@pytest.mark.parametrize("bypass", [False, True], ids=["", "bypass"])
def test_h59_a_file_that_turns_into_a_pipe_holds_no_search_up(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, bypass: bool
) -> None:
    (workspace / "d").mkdir()
    (workspace / "d" / "p").write_text("x\n")
    limits = boundary(workspace, Profile.BYPASS if bypass else Profile.ASK)
    bench = Bench(make_tools(processes, sandbox=sandbox), workspace, limits)
    call = bench.begin("Grep", Recorder("hold"), pattern="x", path="d/p")
    assert call.asked.wait(20)
    (workspace / "d" / "p").unlink()
    os.mkfifo(workspace / "d" / "p")
    call.decide(True)
    assert call.wait().text.startswith("path_changed: d/p was swapped")


@pytest.mark.parametrize("name", ["a[b]*", "{x}.py", "!no", "\\", "-v", " s ", "t\t", "gen.log", "é"])
def test_one_file_is_searched_whatever_its_name(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, name: str
) -> None:
    (workspace / "sub").mkdir()
    (workspace / ".gitignore").write_text("*.log\n")
    for path in ("a", "ab", "x.py", name):
        (workspace / "sub" / path).write_text("needle\n")
    bench = Bench(make_tools(processes, sandbox=sandbox), workspace)
    assert bench.run("Grep", pattern="needle", path=f"sub/{name}").text == f"sub/{name}:1:needle\n"
    assert bench.run("Grep", pattern="needle", path=f"sub/{name}", glob="sub/**").outcome is Outcome.OK


def test_one_granted_file_is_searched_and_none_beside_it(
    processes: AsyncProcesses, sandbox: Sandbox, workspace: Path, tmp_path: Path
) -> None:
    far = tmp_path.resolve() / "far"
    far.mkdir()
    for name in ("a", "b"):
        (far / name).write_text("needle\n")
    only = FileEntry(path=str(far / "a"), access="read", scope="exact")
    bench = Bench(make_tools(processes, sandbox=sandbox), workspace, boundary(workspace, Profile.ASK, only))
    assert bench.run("Grep", pattern="needle", path=str(far / "a")).text == f"{far}/a:1:needle\n"
    assert bench.run("Grep", pattern="needle", path=str(far)).outcome is Outcome.REFUSED
    assert bench.run("Glob", pattern="**", path=str(far)).outcome is Outcome.REFUSED


def test_rules_above_the_workspace_hold(processes: AsyncProcesses, sandbox: Sandbox, tmp_path: Path) -> None:
    """A session in a part of a repository leaves out what the whole of it ignores, and not what lies above that."""
    workspace = tmp_path / "all" / "part"
    (workspace / "d").mkdir(parents=True)
    (tmp_path / "all" / ".git" / "info").mkdir(parents=True)
    (tmp_path / "all" / ".git" / "info" / "exclude").write_text("c.log\n")
    (tmp_path / "all" / ".gitignore").write_text("/part/a.log\n")
    (tmp_path / "all" / ".ignore").write_text("b.log\n")
    (tmp_path / ".gitignore").write_text("d.log\n")
    (tmp_path / ".ignore").write_text("e.log\n")
    (tmp_path / "config" / "git").mkdir(parents=True)
    (tmp_path / "config" / "git" / "ignore").write_text("f.log\n")
    for name in "abcdefg":
        (workspace / f"{name}.log").touch()
    env = {"PATH": "/usr/bin:/bin", "XDG_CONFIG_HOME": str(tmp_path.resolve() / "config")}
    bench = Bench(make_tools(processes, sandbox=sandbox, child_env=env), workspace)
    assert bench.run("Glob", pattern="*").text == "d.log\ng.log\n"


@pytest.mark.slow
def test_h61_a_large_tree_is_searched_and_stopped(
    bench: Bench, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of endings stands still: ripgrep ends by TERM, in whatever it is doing."""
    for folder in range(200):
        (workspace / f"d{folder}").mkdir()
        for number in range(1_000):
            os.close(os.open(workspace / f"d{folder}" / f"f{number}", os.O_CREAT | os.O_WRONLY))
    recorder = bench.begin("Grep", pattern="nothing here")
    assert recorder.asked.wait(20)
    Clock(monkeypatch)
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
