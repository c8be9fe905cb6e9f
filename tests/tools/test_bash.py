"""Bash over real processes: output, endings, bounds, stops."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from maka.contracts.boundary import Profile
from maka.contracts.content import Outcome
from maka.contracts.limits import (
    LIVE_CHARS_MAX,
    LIVE_DELTA_CHARS_MAX,
    OUTPUT_BLOB_BYTES_MAX,
    RESULT_BYTES_MAX,
    RESULT_LINES_MAX,
)
from maka.edges.processes import AsyncProcesses
from maka.edges.sandbox import NoSandbox
from maka.tools.output import SUPPRESSED
from tests.edges.test_processes import waits_granted
from tests.tools.conftest import SANDBOXES, here, make_tools
from tests.tools.harness import CHILD_ENV, Bench, Recorder, boundary, nap, running

pytestmark = pytest.mark.one_sandbox

NOT_BY_US = "[not by Maka: the machine may have run out of memory, or the command did it]"


@pytest.fixture(params=["bubblewrap", "landlock", "bypass"])
def bench(request: pytest.FixtureRequest, processes: AsyncProcesses, workspace: Path) -> Bench:
    """What a command is like doesn't depend on what holds it."""
    if request.param == "bypass":
        return Bench(make_tools(processes, sandbox=NoSandbox("none")), workspace, boundary(workspace, Profile.BYPASS))
    return Bench(make_tools(processes, sandbox=here(request.param)), workspace)


def test_a_command_is_named_before_it_runs(bench: Bench, workspace: Path) -> None:
    def look(_: object) -> None:
        assert not (workspace / "mark").exists()

    recorder = bench.begin("Bash", Recorder(on_commit=look), command="touch mark; echo out; echo err >&2")
    result = recorder.wait()
    assert result.outcome is Outcome.OK
    assert sorted(result.text.split()) == ["err", "out"]
    assert (result.exit_code, result.whole) == (0, None)
    assert (recorder.shown(), recorder.shown("stderr")) == ("out\n", "err\n")
    (fact,) = recorder.process_facts
    assert fact.command == "touch mark; echo out; echo err >&2"
    assert fact.process.group == fact.process.pid
    assert (workspace / "mark").exists()


def test_a_refused_fact_means_that_nothing_runs(bench: Bench, workspace: Path) -> None:
    result = bench.begin("Bash", Recorder("refuse"), command="touch mark").wait()
    assert result.outcome is Outcome.NOT_STARTED
    assert not (workspace / "mark").exists()


def test_a_stop_while_the_fact_is_on_its_way(bench: Bench, workspace: Path) -> None:
    recorder = bench.begin("Bash", Recorder("hold"), command="touch mark")
    assert recorder.asked.wait(20)
    recorder.cancel()
    recorder.cancel()
    assert recorder.wait().outcome is Outcome.ABORTED
    recorder.decide(True)
    assert not (workspace / "mark").exists()


def test_h44_nul_in_a_command_is_an_error_result(bench: Bench) -> None:
    recorder = bench.begin("Bash", command="echo a\0b")
    assert recorder.wait().outcome is Outcome.ERROR
    assert recorder.facts == []


@pytest.mark.parametrize("child", ["HELD", "HELD >/dev/null 2>&1", "setsid sh -c 'HELD' >/dev/null 2>&1"])
def test_h49_background_child_is_ended_with_its_call(bench: Bench, workspace: Path, child: str) -> None:
    """The child goes on once somebody writes to a pipe, which nobody does: it still waits when the call has ended."""
    gate = workspace / "gate"
    os.mkfifo(gate)
    child = child.replace("HELD", "echo t; touch begun; cat gate; touch released")
    result = bench.run("Bash", command=f"({child}) & until [ -e begun ]; do :; done; echo done")
    assert (result.outcome, result.exit_code) == (Outcome.OK, 0)
    assert "done" in result.text.split()
    with pytest.raises(OSError, match="No such device or address"):  # nobody is there to be told to go on
        os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    assert not (workspace / "released").exists()


EVERYWHERE = [*SANDBOXES, "bypass"]
TALKS = "while :; do echo t; touch begun; NAP; done"
TALKING = {
    "in the group": f"({TALKS}) &",
    "out of the session": f"setsid bash -c '{TALKS}' &",
    "an orphan": f"(setsid bash -c '{TALKS}' & exit);",
    "ignores TERM": f"(trap '' TERM; {TALKS}) &",
    "ignores TERM, out of the session": f"setsid bash -c 'trap \"\" TERM; {TALKS}' &",
}


@pytest.mark.parametrize("bench", EVERYWHERE, indirect=True)
@pytest.mark.parametrize("child", TALKING)
def test_h49_a_child_that_talks_on_is_ended_with_its_call(
    bench: Bench, child: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the output and goes on saying things; what is waited for it after the shell's end is added up."""
    granted = waits_granted(monkeypatch)
    sleeper = f"sleep 0.03{os.getpid()}"
    talks = TALKING[child].replace("NAP", sleeper)
    result = bench.run("Bash", command=f"{talks} until [ -e begun ]; do :; done; echo done", timeout_ms=25_000)
    assert (result.outcome, result.exit_code) == (Outcome.OK, 0)
    assert "done" in result.text.split()
    assert set(result.text.split()) == {"done", "t"}, "what it said before its end is kept, and nothing else is said"
    assert [pid for pid in living() if sleeper in command_of(pid)] == []
    after = granted[len(granted) - granted[::-1].index(25.0) :]
    assert after, "the output is waited for"
    assert sum(map(float, filter(None, after))) <= 2.0


def living() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def test_h50_stop_ends_the_group_and_keeps_the_output(bench: Bench) -> None:
    recorder = bench.begin("Bash", command=f"echo part; sh -c '{nap(3611)} & {nap(3611)}; wait'")
    assert recorder.spoke.wait(20)
    recorder.cancel()
    result = recorder.wait()
    assert result.outcome is Outcome.ABORTED
    assert result.text.startswith("part\n[stopped")
    assert running(nap(3611)) == []


def test_h50_timeout_ends_the_group_and_keeps_the_output(bench: Bench) -> None:
    result = bench.run("Bash", command=f"echo part; sh -c '{nap(3621)} & {nap(3621)}; wait'", timeout_ms=500)
    assert result.outcome is Outcome.TIMEOUT
    assert result.text.startswith("part\n[timed out after 0.5 s")
    assert running(nap(3621)) == []


def test_a_command_is_given_no_signal_that_python_ignores(bench: Bench) -> None:
    """A writer into a closed pipe ends in silence, as it does in any shell."""
    _, mask = bench.run("Bash", command="grep SigIgn /proc/self/status").text.split()
    ignored = {number for number in signal.valid_signals() if int(mask, 16) >> (number - 1) & 1}
    assert not ignored & {signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_h51_large_output_is_bounded(workspace: Path, name: str) -> None:
    if name in SANDBOXES:
        here(name)
    command = "echo first; yes | head -c 300000000; echo last"
    words = [sys.executable, "-P", "-m", "tests.tools.large_output", name, str(workspace), command]
    said = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    assert said["grown"] < 50 << 20
    assert said["outcome"] == Outcome.OK
    text, shown = said["text"], said["shown"]
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert " not shown." in text
    assert len(text.encode()) <= RESULT_BYTES_MAX
    assert text.count("\n") <= RESULT_LINES_MAX
    size, says_so = said["whole"]
    assert size <= OUTPUT_BLOB_BYTES_MAX + (128 << 10)
    assert says_so
    assert shown.endswith(SUPPRESSED)
    assert len(shown) == LIVE_CHARS_MAX + len(SUPPRESSED)
    assert said["longest"] <= LIVE_DELTA_CHARS_MAX


@pytest.mark.parametrize("bench", EVERYWHERE, indirect=True)
def test_h51_endless_output_is_ended_by_the_timeout(bench: Bench) -> None:
    """It printed all the time: the end came since the time was up, not since there was nothing more to read."""
    endless = f"yes h51.{os.getpid()}"
    recorder = bench.begin("Bash", command=f"{endless}; echo over", timeout_ms=500)
    result = recorder.wait()
    assert result.outcome is Outcome.TIMEOUT
    assert "timed out" in result.text
    assert "over" not in result.text
    assert recorder.shown().endswith(SUPPRESSED)
    assert result.text.count("\n") <= RESULT_LINES_MAX
    assert running(endless) == []


def test_output_that_the_model_sees_in_part_is_kept_whole(bench: Bench) -> None:
    result = bench.run("Bash", command="seq 5000")
    assert result.whole == b"".join(b"%d\n" % number for number in range(1, 5001))
    lines = result.text.splitlines()
    assert (lines[0], lines[-1]) == ("1", "5000")
    assert len(lines) <= RESULT_LINES_MAX
    gone = 5000 - (len(lines) - 1)
    assert any(line.startswith(f"[... {gone} lines, ") for line in lines)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("cat", "no output"),
        ("read x; echo got:$x", "got:"),
        ("python3 -c 'input()'", "EOFError"),
        ("git init -q . && touch a && git add a && git -c user.name=a -c user.email=b commit", "exit code"),
    ],
)
def test_h52_input_is_closed(bench: Bench, command: str, says: str) -> None:
    if command.startswith("git") and shutil.which("git") is None:
        pytest.skip("git is missing")
    assert says in bench.run("Bash", command=command).text


def test_h53_a_workspace_that_is_gone_is_named_and_may_come_back(bench: Bench, workspace: Path) -> None:
    bench.run("Bash", command='touch a; rm -rf "$PWD"')
    assert not (workspace / "a").exists()
    shutil.rmtree(workspace, ignore_errors=True)  # inside bubblewrap the folder itself is a mount, and stays
    gone = bench.run("Bash", command="echo hi")
    assert gone.outcome is Outcome.ERROR
    assert str(workspace) in gone.text
    workspace.mkdir()
    assert bench.run("Bash", command="echo hi").text == "hi\n"


@pytest.mark.parametrize(
    ("command", "outcome", "exit_code", "text"),
    [
        ("false", Outcome.ERROR, 1, "[exit code 1]"),
        ("exit 3", Outcome.ERROR, 3, "[exit code 3]"),
        (
            "kill -9 $$",
            Outcome.ERROR,
            137,
            "signal 9 (SIGKILL)]\n" + NOT_BY_US,
        ),
        ("exec 1>&- 2>&-; sleep 0.2", Outcome.OK, 0, "[no output, exit code 0]"),
        ("printf 'no line end'; exit 4", Outcome.ERROR, 4, "no line end\n[exit code 4]"),
    ],
)
def test_h86_silent_commands(bench: Bench, command: str, outcome: Outcome, exit_code: int, text: str) -> None:
    result = bench.run("Bash", command=command)
    assert (result.outcome, result.exit_code) == (outcome, exit_code)
    assert result.text.endswith(text)


def test_h73_a_command_sees_the_given_environment_only(
    processes: AsyncProcesses, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "do-not-show-1234")
    bench = Bench(make_tools(processes, child_env={**CHILD_ENV, "MINE": "yes"}, rg_path=None), workspace)
    result = bench.run("Bash", command="env | sort; cat /proc/$PPID/environ 2>/dev/null | head -c 0")
    assert "do-not-show-1234" not in result.text
    assert "MINE=yes" in result.text
    assert os.environ["SOME_API_KEY"] == "do-not-show-1234"


def test_characters_split_between_reads_stay_whole(bench: Bench) -> None:
    recorder = bench.begin("Bash", command=r"printf '\xe2\x82'; sleep 0.1; printf '\xac \xff end'")
    assert recorder.wait().text == "€ \ufffd end"
    assert recorder.shown() == "€ \ufffd end"


def test_an_unfinished_character_at_the_end_is_replaced(bench: Bench) -> None:
    assert bench.run("Bash", command=r"printf 'a\xe2\x82'").text == "a\ufffd"


def test_many_calls_at_once(bench: Bench) -> None:
    recorders = [bench.begin("Bash", command=f"echo {number}") for number in range(32)]
    assert [recorder.wait().text for recorder in recorders] == [f"{number}\n" for number in range(32)]


def test_no_thread_is_left_behind(bench: Bench) -> None:
    bench.run("Bash", command="true")
    before = set(threading.enumerate())
    for _ in range(5):
        bench.run("Bash", command="true")
    for thread in set(threading.enumerate()) - before:
        thread.join(20)  # who watched or ended the last one may be about to leave
        assert not thread.is_alive(), thread.name
