"""The real command line over the whole path: Ctrl-C, and a workspace that means harm."""

import signal
import subprocess

from maka.contracts.content import FunctionResponse, Outcome
from maka.edges.scripted_model import Call, Turn
from tests.cli.real import finished
from tests.e2e import checks
from tests.e2e.harness import World

HANGS = Turn(text="I try.", calls=(Call(name="Bash", args={"command": "touch begun; exec tail -f /dev/null"}),))


def test_ctrl_c_is_a_stop_with_a_receipt(world: World) -> None:
    maka = world.maka(world.model([HANGS]))
    server = maka.model.server
    process: subprocess.Popen[bytes] = world.machine.start(
        "run", "--base-url", server.base_url, "--model", server.model, "try it"
    )
    checks.eventually((world.workspace / "begun").exists, "the tool has begun")
    process.send_signal(signal.SIGINT)
    done = finished(process)
    assert done.code == 130, done
    assert done.out == "I try.\n"
    assert "Stopped run" in done.err
    assert "Bash" in done.err
    assert "aborted" in done.err
    maka.open()
    (header,) = checks.headers(maka.store)
    assert (header.last_status, header.last_abort_source) == ("aborted", "cli.interrupt")
    (answer,) = maka.contents(FunctionResponse, header.session_id)
    assert answer.outcome is Outcome.ABORTED


def test_a_second_ctrl_c_leaves_at_once_and_no_process_behind(world: World) -> None:
    """Without a sandbox nothing but the leaving process itself can end what ignores TERM."""
    deaf = (
        "trap '' TERM; echo $$ > leader; (setsid sh -c \"trap '' TERM; echo \\$\\$ > child; exec tail -f /dev/null\") &"
        " until [ -s child ]; do :; done; touch begun; exec tail -f /dev/null"
    )
    maka = world.maka(world.model([Turn(calls=(Call(name="Bash", args={"command": deaf}),))]))
    server = maka.model.server
    process: subprocess.Popen[bytes] = world.machine.start(
        "run", "--boundary", "bypass", "--base-url", server.base_url, "--model", server.model, "try it"
    )
    checks.eventually((world.workspace / "begun").exists, "the tool has begun")
    pids = [int((world.workspace / name).read_text()) for name in ("leader", "child")]
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    said = b""
    while b"once more leaves at once" not in said:
        said += process.stderr.read1(4096)  # type: ignore[attr-defined]
    process.send_signal(signal.SIGINT)
    assert finished(process).code == 130
    checks.eventually(lambda: not any(map(is_running, pids)), "all of it has ended")
    maka.open()
    (header,) = checks.headers(maka.store)
    assert header.last_failure_class == "interrupted_tool"


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_workspace_with_folders_of_our_names_changes_nothing(world: World) -> None:
    for name in ("actors", "projections", "maka"):
        (world.workspace / name).mkdir()
        (world.workspace / name / "__init__.py").write_text("raise SystemExit('shadowed')\n")
    calls = (
        Call(name="Bash", args={"command": "ls -d actors projections; python3 -c 'print(40 + 2)'"}),
        Call(name="Grep", args={"pattern": "shadowed"}),
        Call(name="Glob", args={"pattern": "**/*.py"}),
        Call(name="Edit", args={"path": "maka/__init__.py", "old_string": "shadowed", "new_string": "mended"}),
    )
    maka = world.maka(world.model([Turn(calls=calls), Turn(text="All as it should be.")]))
    done = world.machine.run(maka.model.server, "look around")
    assert (done.code, done.out) == (0, "All as it should be.\n"), done
    maka.open()
    (header,) = checks.headers(maka.store)
    answers = {answer.name: answer for answer in maka.contents(FunctionResponse, header.session_id)}
    assert answers["Bash"].result == "actors\nprojections\n42\n"
    assert "actors/__init__.py" in answers["Grep"].result
    assert "projections/__init__.py" in answers["Glob"].result
    assert {answer.outcome for answer in answers.values()} == {Outcome.OK}
    assert "mended" in (world.workspace / "maka" / "__init__.py").read_text()
