"""Limits of tool processes: each is met for real, with small numbers; the call fails and says why, the host goes on."""

import os
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maka.contracts.boundary import Profile
from maka.contracts.content import Outcome
from maka.contracts.limits import TOOL_OOM_SCORE_ADJ
from maka.contracts.tool_limits import ToolLimits
from maka.contracts.tool_ports import ToolResult
from maka.edges import process_end
from maka.edges.io_loop import IoLoop
from maka.edges.process_tree import Table, identity_of, stat_of
from maka.edges.processes import AsyncProcesses
from maka.edges.sandbox import NoSandbox
from maka.edges.tree_watch import exceeded
from tests.tools.conftest import landlock_alone, make_tools, needs, the_sandbox
from tests.tools.harness import Bench, boundary, nap

PYTHON = os.path.realpath(sys.executable)
MIB = 1 << 20
SMALL = ToolLimits(memory_max_mib=160, processes_max=40, open_files_max=64)
HOG = "kept = []\nfor _ in range(40):\n  kept.append(bytearray(b'x' * (10 << 20)))\nimport signal; signal.pause()"
"""Fills 400 MiB, no more, and then waits: what doesn't end it is found out, and endangers nothing."""

BOMB = "bomb() { [ $1 -gt 0 ] && { bomb $(($1 - 1)) & bomb $(($1 - 1)) & }; NAP; }; bomb 8"
"""Each process begins two more, up to 511 in all."""

LEAK = "import os\nkept = []\nfor _ in range(1000):\n  kept.append(os.open('/dev/null', os.O_RDONLY))"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes its time to give memory back: a killed process isn't one that could not be ended."""
    monkeypatch.setattr(process_end, "KILL_GRACE_S", 30.0)


@pytest.fixture
def limited() -> Iterator[AsyncProcesses]:
    loop = IoLoop.start()
    yield AsyncProcesses(loop, SMALL)
    loop.close()


@pytest.fixture(params=["bubblewrap", "landlock", "bypass"])
def bench(request: pytest.FixtureRequest, limited: AsyncProcesses, workspace: Path) -> Bench:
    if request.param == "landlock":
        return Bench(make_tools(limited, sandbox=needs(landlock_alone())), workspace)
    if request.param == "bypass":
        return Bench(make_tools(limited, sandbox=NoSandbox("none")), workspace, boundary(workspace, Profile.BYPASS))
    return Bench(make_tools(limited, sandbox=needs(the_sandbox())), workspace)


def python(bench: Bench, script: str, name: str = "script.py") -> str:
    (bench.cwd / name).write_text(script)
    return f"{PYTHON} {name}"


def check_failed(bench: Bench, result: ToolResult, *words: str) -> None:
    """It is an error that names the limit and how it is raised, and the next command works."""
    assert result.outcome is Outcome.ERROR, result
    for word in words:
        assert word in result.text
    assert bench.run("Bash", command="echo and on").text == "and on\n"


def test_a_memory_hog_is_ended_and_the_host_goes_on(bench: Bench) -> None:
    result = bench.run("Bash", command=f"echo begun; {python(bench, HOG)}")
    told = "the limit is 160 MiB (a person can raise it: memory_max_mib below [tools] in config.toml"
    check_failed(bench, result, "begun", "killed: the command and what it started used", told)
    assert "MAKA_TOOLS_MEMORY_MAX_MIB" in result.text


def test_memory_counts_over_the_whole_tree(bench: Bench) -> None:
    part = "kept = bytearray(b'x' * (60 << 20))\nimport signal; signal.pause()"
    command = python(bench, part)
    result = bench.run("Bash", command=f"({command} & {command} & {command} & {command}) & wait")
    check_failed(bench, result, "memory_max_mib", "MiB of memory")


def test_a_fork_bomb_is_ended_and_the_host_goes_on(bench: Bench) -> None:
    result = bench.run("Bash", command=f"echo begun; {BOMB.replace('NAP', nap(3611))}")
    told = "processes and threads at a time, and the limit is 40 (a person can raise it: processes_max below [tools]"
    check_failed(bench, result, "begun", told)
    assert not [stat for stat in map(stat_of, pids()) if stat is not None and is_nap(stat.pid)]


def is_nap(pid: int) -> bool:
    try:
        return nap(3611).replace(" ", "\0").encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def test_threads_count_as_processes_do(bench: Bench) -> None:
    threads = (
        "import threading\nend = threading.Event()\n"
        "for _ in range(60):\n  threading.Thread(target=end.wait).start()\nend.wait()"
    )
    check_failed(bench, bench.run("Bash", command=python(bench, threads)), "processes_max")


def test_a_leak_of_descriptors_is_an_error_that_names_the_limit(bench: Bench) -> None:
    result = bench.run("Bash", command=python(bench, LEAK))
    check_failed(bench, result, "Too many open files", "open_files_max below [tools]", "MAKA_TOOLS_OPEN_FILES_MAX")


def test_every_process_of_a_call_is_bounded(bench: Bench) -> None:
    shown = bench.run(
        "Bash", command="ulimit -c; ulimit -Sn; ulimit -Hn; sh -c 'ulimit -Hn'; cat /proc/self/oom_score_adj"
    )
    assert shown.text.split() == ["0", "64", "64", "64", str(TOOL_OOM_SCORE_ADJ)], shown.text
    if bench.boundary.profile is not Profile.BYPASS:  # root keeps its rights there
        assert bench.run("Bash", command="ulimit -n 65").outcome is Outcome.ERROR, "a bound can't be raised"


def test_no_descriptor_of_ours_reaches_a_command(bench: Bench) -> None:
    with open(os.devnull) as kept:
        os.set_inheritable(kept.fileno(), True)
        shown = bench.run("Bash", command="for fd in /proc/self/fd/*; do echo ${fd##*/}; done").text.split()
    # The shell has one of its own open: the folder that it lists.
    assert shown[:3] == ["0", "1", "2"]
    assert len(shown) <= 4, shown


def test_our_own_limits_stay_as_they_are(bench: Bench) -> None:
    kinds = (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC, resource.RLIMIT_DATA)
    before = [resource.getrlimit(kind) for kind in kinds], Path("/proc/self/oom_score_adj").read_text()
    bench.run("Bash", command="true")
    assert before == ([resource.getrlimit(kind) for kind in kinds], Path("/proc/self/oom_score_adj").read_text())


def test_a_search_is_bounded_too(workspace: Path) -> None:
    """A ripgrep that grows without end, as a file with an endless line would make it."""
    loop = IoLoop.start()
    try:
        (workspace / "hog.py").write_text(HOG)
        (workspace / "rg").write_text(f"#!/bin/sh\nexec {PYTHON} {workspace}/hog.py\n")
        (workspace / "rg").chmod(0o755)
        tools = make_tools(AsyncProcesses(loop, SMALL), rg_path=str(workspace / "rg"), sandbox=NoSandbox("none"))
        result = Bench(tools, workspace, boundary(workspace, Profile.BYPASS)).run("Grep", pattern="x")
    finally:
        loop.close()
    assert result.outcome is Outcome.ERROR
    assert "memory_max_mib" in result.text


def test_ordinary_work_is_far_from_the_defaults(bench: Bench, processes: AsyncProcesses, workspace: Path) -> None:
    """A program that reserves terabytes, as sanitizers do, runs: only what is filled counts."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no compiler")
    (workspace / "t.c").write_text('#include <stdio.h>\nint main(void) { puts("fine"); return 0; }\n')
    build = "gcc -fsanitize=address t.c -o t && ASAN_OPTIONS=detect_leaks=0 ./t"
    result = Bench(bench.tools, workspace, bench.boundary).run("Bash", command=build)
    assert result.text == "fine\n", result


def test_what_forked_processes_share_counts_once(tmp_path: Path) -> None:
    import subprocess

    script = (
        "import os, signal, sys\nkept = bytearray(b'x' * (60 << 20))\n"
        "children = [os.fork() for _ in range(1)]\n"
        "if children[0] and os.fork() and os.fork():\n  print(flush=True)\n"
        "signal.pause()"
    )
    child = subprocess.Popen([PYTHON, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        found = Table().related(identity_of(child.pid))
        assert len(found) == 4
        assert sum(stat.resident_pages for stat in found) * os.sysconf("SC_PAGE_SIZE") > 240 * MIB
        assert exceeded(found, ToolLimits(memory_max_mib=160)) is None
        met = exceeded(found, ToolLimits(memory_max_mib=40))
        assert met is not None
        assert 60 <= met.used < 120
    finally:
        os.killpg(child.pid, 9)
        child.communicate()
