"""`maka run` for real: process, socket, actors, ledger. Only the model's words are scripted."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from maka.edges.scripted_model import Call, Fault, Gate, Script, ScriptedModel, Turn, by_step
from tests.cli.real import BARE_PYTEST, Done, Machine, finished

Serve = Callable[[Script], ScriptedModel]
ON_A_TERMINAL = """
import fcntl, termios
from maka.cli import main
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
main()
"""
"""Makes stdin the controlling terminal, as a login does, so that its end is a hang-up."""
KEY = "sk-very-secret-0123456789abcdef"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def serve() -> Iterator[Serve]:
    models: list[ScriptedModel] = []

    def start(script: Script) -> ScriptedModel:
        models.append(ScriptedModel.start(script))
        return models[-1]

    yield start
    for model in models:
        model.close()


def one_line(done: Done, code: int, *words: str) -> None:
    """Assert a refusal or a failure: its code, nothing on stdout, one line that holds these words."""
    assert (done.code, done.out) == (code, ""), done
    assert len(done.err.splitlines()) == 1, done.err
    assert done.err.startswith("maka: ")
    for word in words:
        assert word in done.err


def test_a_run_to_a_pipe_and_its_record(machine: Machine, serve: Serve) -> None:
    model = serve(by_step([Turn(text="Hello, person.")]))
    done = machine.run(model, "say hello")
    assert (done.code, done.out) == (0, "Hello, person.\n"), done
    assert "completed" in done.err
    assert machine.maka("show", "@last", "--json").lines[0]["turns"][0]["status"] == "completed"
    listed = machine.maka("sessions", "--json").lines
    assert [(line["number"], line["title"], line["status"]) for line in listed] == [(1, "say hello", "idle")]
    facts = machine.maka("export", "1").lines
    assert [fact["position"] for fact in facts] == list(range(1, len(facts) + 1))
    assert facts[-1]["status"] == "completed"
    assert machine.maka("verify").code == 0


def test_a_run_goes_on_where_the_last_one_ended(machine: Machine, serve: Serve) -> None:
    model = serve(by_step([Turn(text="I see.")]))
    assert machine.run(model, "remember the word plum").code == 0
    done = machine.run(model, "--continue", "which word?")
    assert done.code == 0
    assert "going on with session #1" in done.err
    spoken = [message.get("content") for message in model.requests[-1].messages if message.get("role") != "system"]
    assert spoken == ["remember the word plum", "I see.", "which word?"]


def test_tools_change_files_and_the_record_says_so(machine: Machine, serve: Serve) -> None:
    call = Call(name="Write", args={"path": "note.txt", "content": "plum\n"})
    model = serve(by_step([Turn(text="I write.", calls=(call,)), Turn(text="Written.")]))
    done = machine.run(model, "--json", "write a note")
    assert done.code == 0, done
    assert (machine.workspace / "note.txt").read_text("utf-8") == "plum\n"
    assert done.record["filesChanged"] == [str(machine.workspace.resolve() / "note.txt")]
    assert (done.record["finalText"], done.record["steps"]) == ("Written.", 2)


def test_the_step_limit_ends_a_run_with_its_own_code(machine: Machine, serve: Serve) -> None:
    model = serve(by_step([Turn(text="Again.", calls=(Call(name="Bash", args={"command": "true"}),))]))
    done = machine.run(model, "--max-steps", "1", "--json", "go round")
    assert (done.code, done.record["failureClass"], done.record["exit"]) == (5, "tool_step_cap_reached", "limit"), done


def test_h74_key_in_logs(machine: Machine, serve: Serve) -> None:
    error = {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}
    model = serve(by_step([Fault(status=401, error=error)]))
    done = machine.run(model, "hello", OPENAI_API_KEY=KEY, MAKA_LOG="debug")
    one_line(done, 2, "auth", "maka doctor")
    kept = [path for path in machine.state.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]
    assert KEY not in done.err
    assert KEY not in machine.maka("show", "@last").out


def test_h73_provider_key_visible_to_tools(machine: Machine, serve: Serve) -> None:
    model = serve(by_step([Turn(calls=(Call(name="Bash", args={"command": "env | sort"}),)), Turn(text="Done.")]))
    done = machine.run(model, "--json", "look around", OPENAI_API_KEY=KEY, MAKA_LOG="debug")
    assert done.code == 0, done
    assert model.requests[0].http.headers["authorization"] == f"Bearer {KEY}"
    (result,) = [line["result"] for line in done.lines if line["type"] == "tool_result"]
    assert "PATH=" in result
    assert "OPENAI" not in result
    # The mark by which a call's processes are found is ours; nothing else of Maka reaches them.
    assert "MAKA_" not in result.replace("MAKA_CALL=", "")
    assert KEY not in done.out
    assert not [path for path in machine.state.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_a_model_name_that_the_server_refuses(machine: Machine, serve: Serve) -> None:
    error = {"message": "The model `scripted` does not exist", "code": "model_not_found"}
    model = serve(by_step([Fault(status=404, error=error)]))
    one_line(machine.run(model, "hello"), 1, "does not exist", "model's name")


def test_a_server_that_is_not_there(machine: Machine, serve: Serve) -> None:
    model = serve(by_step([Turn(text="x")]))
    model.close()
    one_line(machine.run(model, "hello"), 2, "No server listens")
    assert not machine.state.exists()


def test_a_state_root_that_is_not_ours(machine: Machine, serve: Serve) -> None:
    machine.state.mkdir()
    (machine.state / "thesis.txt").write_text("mine", "utf-8")
    one_line(machine.run(serve(by_step([Turn(text="x")])), "hello"), 2, "MAKA_HOME", "thesis.txt")
    assert [path.name for path in machine.state.iterdir()] == ["thesis.txt"]


def test_reading_a_store_that_is_not_there_yet(machine: Machine) -> None:
    one_line(machine.maka("sessions"), 2, "maka run")
    refused = machine.maka("show", "1", "--json")
    assert (refused.code, refused.record["type"]) == (2, "refused")
    assert not machine.state.exists()


def test_a_workspace_that_holds_our_names_changes_nothing(machine: Machine, serve: Serve) -> None:
    for name in ("actors", "projections", "maka", "click"):
        (machine.workspace / name).mkdir()
        (machine.workspace / name / "__init__.py").write_text("raise SystemExit('shadowed')\n", "utf-8")
    done = machine.run(serve(by_step([Turn(text="Fine.")])), "hello")
    assert (done.code, done.out) == (0, "Fine.\n"), done


class Held:
    """A run whose answer is held in mid-stream."""

    def __init__(self, machine: Machine, serve: Serve) -> None:
        self.gate = Gate()
        held = Turn(text="The answer is forty-", gate=self.gate)
        self.model = serve(by_step([held]))
        args = ("run", "--base-url", self.model.base_url, "--model", self.model.model, "--json", "ask")
        self.process = machine.start(*args)
        self.read = b""

    def read_until(self, kind: str) -> None:
        """Read the run's lines until one of a kind."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            self.read += line
            if json.loads(line)["type"] == kind:
                return
        raise AssertionError(f"no {kind}: {finished(self.process, self.read)}")

    def read_all_text(self) -> None:
        """Read until the whole of the text so far was shown."""
        while '"text":"The answer is forty-"' not in self.joined():
            self.read_until("text_delta")

    def joined(self) -> str:
        lines = [json.loads(line) for line in self.read.splitlines()]
        text = "".join(line["text"] for line in lines if line["type"] == "text_delta")
        return json.dumps({"text": text}, separators=(",", ":"))

    def close(self) -> None:
        self.gate.open()
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def held(machine: Machine, serve: Serve) -> Iterator[Held]:
    held = Held(machine, serve)
    yield held
    held.close()


@pytest.mark.parametrize(
    ("number", "code", "source"),
    [(signal.SIGINT, 130, "cli.interrupt"), (signal.SIGTERM, 6, "cli.terminated")],
)
def test_a_signal_stops_the_run_and_keeps_what_was_seen(
    machine: Machine, serve: Serve, held: Held, number: signal.Signals, code: int, source: str
) -> None:
    held.read_all_text()
    held.process.send_signal(number)
    done = finished(held.process, held.read)
    assert done.code == code, done
    record = done.record
    assert (record["status"], record["abortSource"], record["finalText"]) == ("aborted", source, "The answer is forty-")
    assert f"Stopped run {record['runId']}" in done.err
    again = machine.run(serve(by_step([Turn(text="two.")])), "--continue", "go on")
    assert (again.code, again.out) == (0, "two.\n"), again
    assert machine.maka("verify").code == 0


def test_kill_and_continue_just_works(machine: Machine, serve: Serve, held: Held) -> None:
    held.read_all_text()
    held.process.kill()
    finished(held.process)
    assert machine.maka("sessions", "--json").record["status"] == "interrupted"
    again = machine.run(serve(by_step([Turn(text="two.")])), "--continue", "go on")
    assert (again.code, again.out) == (0, "two.\n"), again
    assert "closed 1 run that had no end" in again.err
    turns = machine.maka("show", "@last", "--json").record["turns"]
    assert [(turn["status"], turn.get("failureClass")) for turn in turns] == [
        ("failed", "app_restarted"),
        ("completed", None),
    ]
    assert machine.maka("verify").code == 0


def test_h71_second_daemon_on_the_same_state(machine: Machine, serve: Serve, held: Held) -> None:
    held.read_until("text_delta")
    one_line(machine.run(held.model, "me too"), 2, f"pid {held.process.pid}")
    assert machine.maka("sessions", "--json").record["status"] == "running"
    assert machine.maka("log", "@last", "--json").code == 0
    assert machine.maka("show", "@last").code == 0
    held.gate.open()
    assert finished(held.process, held.read).code == 0


def test_a_reader_that_leaves_ends_the_run_quietly(machine: Machine, held: Held) -> None:
    held.read_until("text_delta")
    assert held.process.stdout is not None
    held.process.stdout.close()
    held.gate.open()
    held.process.stdout = None
    assert held.process.stderr is not None
    err = held.process.stderr.read().decode()
    assert held.process.wait(60) in (0, 6)
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    assert machine.maka("verify").code == 0


def test_a_terminal_that_goes_away_ends_the_run(machine: Machine, serve: Serve) -> None:
    """The timeline on a terminal of its own; closing the other side is what an ended connection does."""
    gate = Gate()
    model = serve(by_step([Turn(text="The answer is forty-", gate=gate)]))
    ours, theirs = os.openpty()
    args = ("run", "--base-url", model.base_url, "--model", model.model, "ask")
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", ON_A_TERMINAL, *args],
        cwd=machine.workspace,
        env={**machine.env, "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    while b"forty-" not in shown:
        shown += os.read(ours, 4_096)
    assert b"\x1b[1m\xe2\x80\xba ask\x1b[0m" in shown
    os.close(ours)
    code = process.wait(60)
    gate.open()
    assert code == 6
    (turn,) = machine.maka("show", "@last", "--json").record["turns"]
    assert turn["status"] == "aborted"
    assert turn["abortSource"] in ("cli.terminated", "cli.output_closed")


def test_piped_text_is_part_of_the_prompt(machine: Machine, serve: Serve) -> None:
    model = serve(by_step([Turn(text="ok")]))
    process = machine.start("run", "--base-url", model.base_url, "--model", model.model, "sum up")
    finished(process)
    assert model.requests[-1].messages[-1]["content"] == "sum up"


def test_doctor_says_what_a_profile_can_do(machine: Machine, serve: Serve) -> None:
    call = Call(name="ping", args={"word": "pong"})
    model = serve(lambda request: Turn(calls=(call,)) if request.data.get("tools") else Turn(text="one, two, three"))
    machine.config.write_text(f'[models.mine]\nbase_url = "{model.base_url}"\nmodel = "scripted"\n', "utf-8")
    done = machine.maka("doctor", "--json")
    verdicts = {line["name"]: line["verdict"] for line in done.lines}
    assert done.code == 0, done
    assert [verdicts[name] for name in ("reachable", "streams", "reports usage", "calls a tool")] == ["ok"] * 4
    talker = serve(by_step([Turn(text="I can't call.", usage={})]))
    machine.config.write_text(f'[models.mine]\nbase_url = "{talker.base_url}"\nmodel = "scripted"\n', "utf-8")
    done = machine.maka("doctor", "-m", "mine")
    assert done.code == 2
    assert "✗ calls a tool" in done.out
    assert "! reports usage" in done.out
    talker.close()
    done = machine.maka("doctor", "-m", "mine")
    assert (done.code, "✗ reachable" in done.out) == (2, True), done
    assert not machine.state.exists()


def test_the_demo_mends_the_sample(machine: Machine) -> None:
    done = machine.maka("demo", "--pace", "0", TMPDIR=str(machine.folder), **BARE_PYTEST)
    assert done.code == 0, done
    assert "SCRIPTED" in done.out
    assert "● Bash python -m pytest -q" in done.out
    assert "✎ changed bookings/interval.py" in done.out
    assert "files changed: bookings/interval.py" in done.out
    assert "maka show @last" in done.out.replace("/maka ", "maka ")
    assert machine.maka("verify").code == 0


def test_processes_of_a_killed_owner_hold_nothing(machine: Machine, serve: Serve) -> None:
    """A process that the model started outlives a killed owner; the state root is free all the same."""
    call = Call(name="Bash", args={"command": "echo started; exec tail -f /dev/null"})
    model = serve(by_step([Turn(calls=(call,)), Turn(text="x")]))
    process = machine.start("run", "--base-url", model.base_url, "--model", model.model, "--json", "start it")
    assert process.stdout is not None
    while json.loads(process.stdout.readline())["type"] != "tool_output_delta":
        pass
    process.kill()
    process.communicate()
    again = machine.run(serve(by_step([Turn(text="fine")])), "--continue", "go on")
    assert (again.code, again.out) == (0, "fine\n"), again
    turns = machine.maka("show", "@last", "--json").record["turns"]
    assert turns[0]["failureClass"] == "interrupted_tool"
