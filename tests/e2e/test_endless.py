"""What would never end by itself is ended by a stop, and a workspace that is gone harms nobody else."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from maka.contracts.content import FunctionResponse, Outcome
from maka.contracts.ids import SessionId
from maka.contracts.session_events import ToolOutputDelta
from maka.edges.scripted_model import Call, ScriptRequest, Turn
from tests.e2e import checks
from tests.e2e.harness import Maka, World

ENDLESS = ("cat p", "exec cat /dev/zero >/dev/null", "exec yes", "cat p & cat p & wait")
LINKS = 3_000
LINE = "nothing that would be found here, and much of it\n"


def as_told(request: ScriptRequest) -> Turn:
    """Run what the message says, and answer with what came of it."""
    told = request.tool_results()
    if told:
        return Turn(text=told[-1])
    (*_, command) = (message["content"] for message in request.messages if message["role"] == "user")
    return Turn(calls=(Call(name="Bash", args={"command": command}),))


@pytest.mark.usefixtures("each_sandbox")
def test_h50_a_stop_ends_what_blocks_for_ever(world: World) -> None:
    """Several at once, each ended by the stop of its own session alone."""
    os.mkfifo(world.workspace / "p")
    maka = world.open(as_told)
    lives = [maka.send(f"echo ready; {command}", maka.new_session()) for command in ENDLESS]
    for live in lives:
        assert live.until(ToolOutputDelta).text.startswith("ready\n")
    for live in lives:
        receipt = maka.manager.stop(live.accepted.session_id, "test")
        assert [(call.name, call.outcome) for call in receipt.calls] == [("Bash", "aborted")]
        assert live.end().status == "aborted"
    assert not checks.living_in(world.workspace)


@pytest.mark.usefixtures("each_sandbox")
def test_h59_special_files_hold_no_run_and_a_stop_ends_who_waits_for_one(world: World) -> None:
    os.mkfifo(world.workspace / "p")
    with (world.workspace / "sparse").open("wb") as sparse:
        sparse.truncate(5 << 30)
    paths = ("p", "/dev/zero", ".", "sparse")
    reads = tuple(Call(name="Read", args={"path": path}) for path in paths)
    maka = world.open([Turn(calls=reads), Turn(calls=(Call(name="Bash", args={"command": "echo ready; cat p"}),))])
    live = maka.send()
    live.until(ToolOutputDelta)
    told = maka.model.requests[-1].tool_results()
    for said, words in zip(told, ("not a regular file", "outside the workspace", "use Glob", "binary"), strict=True):
        assert words in said
    receipt = maka.manager.stop(maka.session_id, "test")
    assert [(call.name, call.outcome) for call in receipt.calls] == [("Bash", "aborted")]
    assert live.end().status == "aborted"
    assert not checks.living_in(world.workspace)


@pytest.fixture
def large(world: World) -> Path:
    """A tree that takes long to search, and no time to make: one file under many names."""
    first = world.workspace / "f"
    first.write_text(LINE * (8_000_000 // len(LINE)))
    for number in range(LINKS):
        os.link(first, world.workspace / f"f{number:04}")
    return world.workspace


@pytest.mark.usefixtures("each_sandbox", "large")
def test_h61_a_stop_ends_the_search_of_a_large_tree(world: World) -> None:
    pattern = rf"(\w+,? ){{12}}\d|{os.getpid()}"
    maka = world.open([Turn(calls=(Call(name="Grep", args={"pattern": pattern}),))])
    live = maka.send()
    checks.eventually(lambda: bool(searching(pattern)), "ripgrep searches")
    receipt = maka.manager.stop(maka.session_id, "test")
    assert searching(pattern) == []
    assert [(call.name, call.outcome) for call in receipt.calls] == [("Grep", "aborted")]
    assert live.end().status == "aborted"


def searching(pattern: str) -> list[str]:
    """Return the processes, whoever started them, in which ripgrep itself looks for a pattern."""
    found: list[str] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            if os.path.basename(words[0]) == b"rg" and f"--regexp={pattern}".encode() in words:
                found.append(name)
    return found


@pytest.mark.usefixtures("each_sandbox")
def test_h53_a_workspace_that_is_gone_harms_no_other_session(world: World, tmp_path: Path) -> None:
    """Neither who runs meanwhile nor who begins then; and when it is there again, its own session goes on."""
    gone = tmp_path / "gone"
    gone.mkdir()
    os.mkfifo(world.workspace / "p")
    maka = world.open(as_told)
    session, other = maka.manager.create_session(str(gone)).session_id, maka.new_session()
    live = maka.send("echo begun; cat p", other)
    live.until(ToolOutputDelta)
    maka.run('rm -rf "$PWD"', session)
    shutil.rmtree(gone, ignore_errors=True)  # inside bubblewrap the folder itself is a mount, and stays
    for _ in range(2):
        ended = maka.run("echo hi", session)
        assert (ended.status, outcome(maka, session)) == ("completed", Outcome.ERROR)
        assert str(gone) in ended.final_text
        assert not gone.exists()
    assert maka.run("echo hello", maka.new_session()).final_text == "hello\n"
    (world.workspace / "p").write_text("still here\n")
    assert live.end().final_text == "begun\nstill here\n"
    gone.mkdir()
    assert maka.run("echo hi", session).final_text == "hi\n"


def outcome(maka: Maka, session: SessionId) -> Outcome:
    answers: list[FunctionResponse] = maka.contents(FunctionResponse, session)
    return answers[-1].outcome
