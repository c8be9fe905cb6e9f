"""A session without limits is one in every command: the words in a text, the profile in JSON. No other one is.

Only the model's words are scripted; the store, the files and the background process are real.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from maka.cli import bypass
from maka.edges.scripted_model import Call, Turn
from projections.session_index import project
from tests.cli.builders import LogBuilder
from tests.cli.conftest import Cli
from tests.cli.real import Done, Here, Machine, profiled_model

WORDS = "BYPASS: its tools have no limits"
ASK = Call(name="ask_user_question", args={"questions": [{"question": "Which?", "options": ["a", "b"]}]})
LISTS: tuple[tuple[str, ...], ...] = (
    ("log", "1"),
    ("diff", "1"),
    ("artifacts", "1"),
    ("ps", "--all"),
    ("undo", "1", "--dry-run"),
)


@pytest.fixture
def machine(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine whose model writes a file, starts a process in the background, asks, and says thanks."""
    here = Here(tmp_path, cli)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(here.workspace)
    write = Call(name="Write", args={"path": "note.txt", "content": "plum\n"})
    shell = Call(name="Bash", args={"command": "sleep 600", "run_in_background": True})
    with profiled_model(here) as serve:
        serve(Turn(calls=(write, shell)), Turn(calls=(ASK,)), Turn(text="Thank you."))
        yield here


def parked(machine: Machine, *args: str) -> Done:
    done = machine.maka("run", "--json", "--on-ask", "park", *args, "paint it")
    assert done.code == 4, done
    return done


def of(done: Done, kind: str) -> object:
    (line,) = (line for line in done.lines if line["type"] == kind)
    return line["boundary"]


def said(done: Done) -> str:
    return done.out + done.err


def test_every_text_says_it(machine: Machine) -> None:
    assert WORDS in parked(machine, "--boundary", "bypass").err
    for command in (*LISTS, ("inbox",), ("show", "1"), ("rules", "1"), ("export", "1"), ("doctor",)):
        done = machine.maka(*command)
        assert (WORDS if command[0] != "ps" else " BYPASS ") in said(done), (command, done)
    assert "BYPASS" in machine.maka("sessions").out
    (last,) = machine.maka("log", "1", "--json").lines[-1:]
    assert WORDS in machine.maka("log", "1", "--at", str(last["position"])).out
    (wait,) = machine.maka("inbox", "--json").lines
    assert WORDS in machine.maka("answer", wait["id"][-8:], "--option", "1").err
    assert WORDS in machine.maka("undo", "1").err
    assert (machine.workspace / "note.txt").exists() is False


def test_a_pipe_of_content_holds_nothing_but_content(machine: Machine) -> None:
    parked(machine, "--boundary", "bypass")
    (number,) = (line["number"] for line in machine.maka("artifacts", "1", "--json").lines if line["kind"] == "file")
    done = machine.maka("artifacts", "1", str(number))
    assert (done.out, WORDS in done.err) == ("plum\n", True)
    assert machine.maka("diff", "1").out.startswith("--- /dev/null\n")


@pytest.mark.parametrize("profile", ["ask", "bypass"])
def test_every_json_has_the_profile(machine: Machine, profile: str) -> None:
    done = parked(machine, "--boundary", profile)
    assert (of(done, "run_started"), of(done, "run_parked")) == (profile, profile)
    for command in (*LISTS, ("inbox",), ("sessions",)):
        lines = machine.maka(*command, "--json").lines
        assert lines and {line["boundary"] for line in lines} == {profile}, command
    assert machine.maka("show", "1", "--json").record["header"]["boundary"] == profile
    facts = machine.maka("log", "1", "--json").lines
    assert machine.maka("log", "1", "--at", str(facts[0]["position"]), "--json").record["boundary"] == profile
    (wait,) = machine.maka("inbox", "--json").lines
    assert of(machine.maka("answer", wait["id"][-8:], "--option", "1", "--json"), "run_ended") == profile
    assert machine.maka("undo", "1", "--json").record["boundary"] == profile


def test_no_text_says_it_of_another_session(machine: Machine) -> None:
    assert "BYPASS" not in parked(machine).err
    commands = ("inbox",), ("show", "1"), ("rules", "1"), ("export", "1"), ("sessions",), ("doctor",)
    for command in (*LISTS, *commands):
        assert "BYPASS" not in said(machine.maka(*command)), command


def test_lists_have_the_profile_of_now_and_a_fact_that_of_its_time(machine: Machine) -> None:
    parked(machine)
    assert machine.maka("rules", "1", "--boundary", "bypass").code == 0
    facts = machine.maka("log", "1", "--json").lines
    assert [fact["boundary"] for fact in facts if fact["run"] != "-"] == ["ask"] * sum(f["run"] != "-" for f in facts)
    changed = next(fact for fact in facts if fact["what"].startswith("boundary bypass"))
    assert changed["boundary"] == "bypass"
    before = machine.maka("log", "1", "--at", str(changed["position"] - 1)).out
    assert WORDS not in before and WORDS in machine.maka("log", "1", "--at", str(changed["position"])).out
    (wait,) = machine.maka("inbox", "--json").lines
    assert wait["boundary"] == "bypass"
    assert WORDS in machine.maka("inbox").out
    answered = machine.maka("answer", wait["id"][-8:], "--option", "1", "--json")
    assert of(answered, "run_ended") == "bypass", "it ended without limits, whatever it began with"


def test_a_run_that_had_no_limits_is_shown_so_when_the_session_has_some_again(machine: Machine) -> None:
    parked(machine, "--boundary", "bypass")
    assert machine.maka("rules", "1", "--boundary", "ask").code == 0
    shown = machine.maka("show", "1").out
    assert [line.startswith("─── ") for line in shown.splitlines() if WORDS in line] == [True]
    record = machine.maka("show", "1", "--json").record
    assert (record["header"]["boundary"], [turn["boundary"] for turn in record["turns"]]) == ("ask", ["bypass"])
    assert "BYPASS" not in machine.maka("sessions").out


def test_sessions_without_limits_are_named_up_to_a_bound() -> None:
    headers = [project(LogBuilder(1, number).items) for number in range(1, 24)]
    named = [header for header in headers if header is not None]
    assert bypass.sessions_without_limits(named) == ""
    told = bypass.sessions_without_limits([replace(header, boundary="bypass") for header in named])
    assert told.startswith(f"{WORDS}: session #1, #2, ") and told.endswith("#20 and 3 more")
