"""Asking for real: a run that waits, the inbox, answers, and what goes on; only the model's words are scripted."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from maka.edges.scripted_model import Call, Gate, ScriptedModel, Turn, by_step
from tests.cli.conftest import Cli
from tests.cli.real import Done, Here, Machine, finished, profiled_model

COLOUR: dict[str, object] = {"question": "Which colour?", "options": ["red", "blue"]}
Serve = Callable[..., ScriptedModel]
NAME: dict[str, object] = {"question": "Which name?"}


def asks(*questions: dict[str, object], text: str = "") -> Turn:
    return Turn(text=text, calls=(Call(name="ask_user_question", args={"questions": list(questions)}),))


@pytest.fixture
def machine(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Machine:
    here = Here(tmp_path, cli)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(here.workspace)
    return here


@pytest.fixture
def serve(machine: Machine) -> Iterator[Serve]:
    """Start a model that a profile of the configuration names, as after a restart."""
    with profiled_model(machine) as start:
        yield start


@pytest.fixture
def model(serve: Serve) -> ScriptedModel:
    """A model that asks for a colour, and says thanks for whatever it is told."""
    return serve(asks(COLOUR), Turn(text="Thank you."))


def parked(machine: Machine, *args: str) -> str:
    """Run until it is parked and return the request's id."""
    done = machine.maka("run", "--json", "--on-ask", "park", *args, "paint it")
    assert done.code == 4, done
    assert done.record["type"] == "run_parked"
    (pending,) = done.record["pending"]
    return str(pending)


def waits(machine: Machine) -> list[str]:
    return [line["id"] for line in machine.maka("inbox", "--json").lines]


def closing(machine: Machine) -> str:
    """Let each start close what waits; returns the configuration until then."""
    before = machine.config.read_text("utf-8")
    machine.config.write_text(before + '[waits]\non_restart = "close"\n', "utf-8")
    return before


def told(model: ScriptedModel) -> str:
    return model.requests[-1].tool_results()[-1]


def told_in_order(done: Done) -> Done:
    """No position is below one that was printed before, and the last line has that of the last fact told."""
    positions = [line["position"] for line in done.lines if "position" in line]
    assert positions == sorted(positions), done.out
    return done


def refused(done: Done, code: int, *words: str) -> None:
    assert (done.code, done.out) == (code, ""), done
    assert len(done.err.splitlines()) == 1, done.err
    for word in words:
        assert word in done.err


def test_park_says_what_waits_and_an_answer_goes_on(machine: Machine, model: ScriptedModel) -> None:
    done = told_in_order(machine.maka("run", "--json", "--on-ask", "park", "paint it"))
    asked = next(line for line in done.lines if line["type"] == "user_question_request")
    assert done.code == 4
    assert done.record == {
        "type": "run_parked",
        "runId": asked["runId"],
        "sessionId": asked["sessionId"],
        "pending": [asked["requestId"]],
        "boundary": "ask",
        "position": asked["position"],
    }
    assert f"maka answer {asked['requestId'][-8:]} --option N" in done.err
    assert [line["status"] for line in machine.maka("sessions", "--json").lines] == ["waiting"]
    listed = machine.maka("inbox").out
    assert "Which colour?" in listed
    assert "[2] blue" in listed
    answered = machine.maka("answer", asked["requestId"][-8:], "--option", "2")
    assert (answered.code, answered.out) == (0, "Thank you.\n"), answered
    assert told(model) == "Answer 1: blue"
    assert waits(machine) == []
    assert machine.maka("verify").code == 0


def test_h27_a_second_answer_learns_who_won(machine: Machine, model: ScriptedModel) -> None:
    request = parked(machine)
    assert machine.maka("answer", request, "--text", "green").code == 0
    refused(machine.maka("answer", request[-8:], "--option", "1"), 1, "no longer waits", "by cli", '"green"')
    assert told(model) == "Answer 1: green"


def test_h26_an_answer_after_a_stop_is_refused(machine: Machine, model: ScriptedModel) -> None:
    request = parked(machine)
    closing(machine)
    machine.maka("run", "--continue", "never mind")
    refused(machine.maka("answer", request[-8:], "--option", "1"), 1, "no longer waits", "closed")


def test_where_a_start_closes_waits_none_is_left_and_none_is_lost_to_its_own_answer(
    machine: Machine, model: ScriptedModel
) -> None:
    request = parked(machine)
    kept, asked = closing(machine), len(model.requests)
    refused(machine.maka("run", "--on-ask", "park", "paint it"), 2, 'on_restart = "close"', 'set "keep"')
    refused(machine.maka("answer", request[-8:], "--option", "1"), 2, "Nothing was answered", 'set "keep"')
    listed = machine.maka("inbox", "--list")
    assert (listed.code, 'set "keep"' in listed.err) == (0, True)
    assert (waits(machine), len(model.requests)) == ([request], asked)
    machine.config.write_text(kept, "utf-8")
    assert machine.maka("answer", request[-8:], "--option", "1").code == 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("allow",), ("--option N",)),
        (("--option", "3"), ("2 options",)),
        (("--option", "1", "--text", "x"), ("1 question",)),
        ((), ("1 question",)),
    ],
)
def test_a_wrong_answer_changes_nothing(
    machine: Machine, model: ScriptedModel, args: tuple[str, ...], words: tuple[str, ...]
) -> None:
    request = parked(machine)
    refused(machine.maka("answer", request[-8:], *args), 2, *words)
    assert waits(machine) == [request]


@pytest.mark.parametrize("chars", [1, 3])
def test_a_few_characters_name_no_request(machine: Machine, model: ScriptedModel, chars: int) -> None:
    request = parked(machine)
    refused(machine.maka("answer", request[-chars:], "--option", "1"), 2, "at least 4 characters")
    assert waits(machine) == [request]
    assert machine.maka("answer", request[-4:], "--option", "1").code == 0


def test_an_answer_to_nothing(machine: Machine, model: ScriptedModel) -> None:
    parked(machine)
    refused(machine.maka("answer", "ffffffff", "allow"), 2, "maka inbox")


def test_answers_are_in_the_order_of_the_questions(machine: Machine, serve: Serve) -> None:
    model = serve(asks(COLOUR, NAME, COLOUR), Turn(text="ok"))
    request = parked(machine)
    done = machine.maka("answer", request, "--option", "2", "--text", "Eve", "--option", "1")
    assert done.code == 0, done
    assert told(model) == "Answer 1: blue\nAnswer 2: Eve\nAnswer 3: red"


def test_elsewhere_the_default_is_deny_and_the_run_goes_on(machine: Machine, model: ScriptedModel) -> None:
    done = machine.maka("run", "--json", "paint it")
    assert (done.code, done.record["finalText"]) == (0, "Thank you."), done
    ack = next(line for line in done.lines if line["type"] == "user_question_answer_ack")
    assert (ack["answers"], ack["client"]) == ([None], "cli.on_ask")
    assert told(model).startswith("Answer 1: none was given.")
    plain = machine.maka("run", "paint it")
    assert (plain.code, plain.out) == (0, "Thank you.\n")
    assert "nobody is here" in plain.err


def test_fail_stops_the_run_with_its_own_source(machine: Machine, model: ScriptedModel) -> None:
    done = machine.maka("run", "--json", "--on-ask", "fail", "paint it")
    assert (done.code, done.record["status"], done.record["exit"]) == (1, "aborted", "failed"), done
    assert done.record["abortSource"] == "cli.on_ask"
    assert [line["reason"] for line in done.lines if line["type"] == "permission_closure_ack"]
    assert waits(machine) == []


def test_a_message_behind_a_parked_run_is_queued_and_runs_after_the_answer(
    machine: Machine, model: ScriptedModel
) -> None:
    request = parked(machine)
    queued = told_in_order(machine.maka("run", "--continue", "--json", "and then this"))
    (told_last,) = (line for line in queued.lines if line["type"] == "queue_update")
    assert queued.record["position"] == told_last["position"]
    assert (queued.code, queued.record["type"], queued.record["pending"]) == (4, "run_parked", [request]), queued
    assert f"queued behind a run of session #1 that waits for a person: maka answer {request[-8:]}" in queued.err
    assert "busy" not in queued.err, "said once, and with what to do"
    # The queued message asks, too; nobody is there.
    done = machine.maka("answer", request[-8:], "--option", "1", "--json", "--on-ask", "deny")
    assert told_in_order(done).code == 0, done
    assert [line["type"] for line in done.lines].count("run_ended") == 2
    turns = machine.maka("show", "1", "--json").record["turns"]
    assert [turn["status"] for turn in turns] == ["completed", "completed"]
    assert next(item["text"] for item in turns[1]["items"] if item["type"] == "said") == "and then this"


def test_h29_answering_one_leaves_the_other(machine: Machine, serve: Serve) -> None:
    model = serve(Turn(calls=(*asks(COLOUR).calls, *asks(NAME).calls)), Turn(text="ok"))
    first, second = machine.maka("run", "--json", "--on-ask", "park", "paint it").record["pending"]
    one = machine.maka("answer", second, "--text", "Eve", "--json", "--on-ask", "deny")
    assert (one.code, one.record["type"], one.record["pending"]) == (4, "run_parked", [first]), told_in_order(one)
    (ack,) = (line for line in one.lines if line["type"] == "user_question_answer_ack")
    assert (ack["requestId"], ack["answers"]) == (second, ["Eve"]), "whoever answered is told, also while others wait"
    assert waits(machine) == [first]
    assert machine.maka("answer", first, "--option", "1").code == 0
    assert model.requests[-1].tool_results() == ["Answer 1: red", "Answer 1: Eve"]


def test_in_plain_text_an_answer_is_told_while_another_request_waits(machine: Machine, serve: Serve) -> None:
    serve(Turn(calls=(*asks(COLOUR).calls, *asks(NAME).calls)), Turn(text="ok"))
    _, second = machine.maka("run", "--json", "--on-ask", "park", "paint it").record["pending"]
    done = machine.maka("answer", second, "--text", "Eve")
    assert done.code == 4
    assert f'maka: {second[-8:]}: ✓ answered by cli: "Eve"' in done.err


def test_beside_an_owner_the_inbox_works_and_an_answer_says_who_holds_the_store(
    machine: Machine, model: ScriptedModel
) -> None:
    request = parked(machine)
    gate = Gate()
    held = ScriptedModel.start(by_step([Turn(text="hm", gate=gate)]))
    process = machine.start("run", "--base-url", held.base_url, "--model", "m", "--json", "else")
    try:
        assert process.stdout is not None
        while json.loads(process.stdout.readline())["type"] != "text_delta":
            pass
        assert waits(machine) == [request]
        refused(machine.maka("answer", request[-8:], "--option", "1"), 2, f"pid {process.pid}")
    finally:
        gate.open()
        finished(process)
        held.close()
    assert machine.maka("answer", request[-8:], "--option", "1").code == 0


def test_an_answer_needs_the_runs_model(machine: Machine, model: ScriptedModel) -> None:
    request = parked(machine)
    machine.config.write_text("", "utf-8")
    refused(machine.maka("answer", request[-8:], "--option", "1"), 2, "profile mine", "scripted")
    assert waits(machine) == [request]
    done = machine.maka("answer", request[-8:], "--option", "1", "--base-url", model.base_url)
    assert (done.code, done.out) == (0, "Thank you.\n"), done


def test_what_is_allowed_beforehand_is_a_fact_and_can_be_taken_back(machine: Machine, model: ScriptedModel) -> None:
    cache = machine.folder / "cache"
    cache.mkdir()
    done = machine.maka("run", "--boundary", "explore", "--allow", "write:~/cache", "--allow", "net", "paint it")
    assert done.code == 0, done
    rules = machine.maka("rules", "1", "--json").record
    (grant,) = rules["grants"]
    assert (rules["profile"], rules["revision"], grant["scope"]) == ("explore", 1, "session")
    entry = {"path": str(cache.resolve()), "access": "write", "scope": "subtree"}
    assert grant["expansion"] == {"filesystem": [entry], "network": True}
    facts = machine.maka("export", "1").lines
    positions = {key: fact["position"] for fact in facts for key in fact.get("actions", {})}
    assert grant["position"] == positions["boundaryChanged"] < min(f["position"] for f in facts if f.get("runId"))
    text = machine.maka("rules", "1").out
    assert f"may write everything below {cache.resolve()}" in text
    assert "from a change by cli" in text
    assert machine.maka("rules", "1", "--revoke", grant["origin"][-8:]).code == 0
    assert machine.maka("rules", "1", "--json").record["grants"] == []
    refused(machine.maka("rules", "1", "--revoke", grant["origin"][-8:]), 2, "is no grant")
    refused(machine.maka("run", "--allow", "everything", "x"), 2, "write:PATH")
    refused(machine.maka("run", "--allow", "net", "--allow", "write:/", "x"), 2, "--allow write:/: all of the machine")


def test_bypass_is_said_before_a_run_that_goes_on_with_it(machine: Machine, model: ScriptedModel) -> None:
    done = machine.maka("run", "--boundary", "bypass", "paint it")
    assert "BYPASS" in done.err
    assert "BYPASS" in machine.maka("run", "--continue", "again").err
    assert machine.maka("rules", "1", "--boundary", "ask", "--json").record["profile"] == "ask"
    assert "BYPASS" not in machine.maka("sessions").out


@pytest.mark.parametrize("what", ["write:~/.cache/pip", "read:~/notes", "write:later/", "write:leads"])
def test_what_is_not_there_is_neither_a_folder_nor_a_file_to_allow(
    machine: Machine, model: ScriptedModel, what: str
) -> None:
    (machine.folder / ".cache").mkdir()
    (machine.workspace / "leads").symlink_to("nowhere")
    assert machine.maka("run", "paint it").code == 0
    before = machine.maka("export", "1").out
    for command in (("run", "--continue", "--allow", what, "x"), ("rules", "1", "--allow", what)):
        refused(machine.maka(*command), 2, f"--allow {what}: there is nothing at /", "mkdir -p", "touch")
    assert machine.maka("export", "1").out == before
    assert len(machine.maka("sessions", "--json").lines) == 1


def test_a_file_with_a_slash_behind_its_name_is_no_folder_to_allow(machine: Machine, model: ScriptedModel) -> None:
    (machine.workspace / "file").write_text("")
    refused(machine.maka("run", "--allow", "read:file/", "x"), 2, "--allow read:file/: this is a file, ", "the slash")


def test_a_file_that_is_there_is_allowed_by_itself(machine: Machine, model: ScriptedModel) -> None:
    file = machine.folder / "report.md"
    file.write_text("")
    assert machine.maka("run", "--allow", "write:~/report.md", "paint it").code == 0
    (grant,) = machine.maka("rules", "1", "--json").record["grants"]
    entry = {"path": str(file.resolve()), "access": "write", "scope": "exact"}
    assert grant["expansion"] == {"filesystem": [entry]}
