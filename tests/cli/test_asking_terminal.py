"""Asking at a terminal: a pseudo-terminal of the test's own, one key each, and nothing that passes for an answer."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from maka.edges.scripted_model import Call, ScriptedModel, Turn
from tests.cli.asking_app import START
from tests.cli.real import WAIT_S, Machine, profiled_model

QUESTION: dict[str, object] = {"question": "Which colour?", "options": ["red", "blue"]}
OPEN: dict[str, object] = {"question": "Which name?"}
DONE = Turn(text="Thank you.")
Serve = Callable[..., ScriptedModel]
Open = Callable[..., "Screen"]


def question(*questions: dict[str, object]) -> Turn:
    return Turn(calls=(Call(name="ask_user_question", args={"questions": list(questions)}),))


def wider(path: str, why: str = "to cache") -> Turn:
    return Turn(calls=(Call(name="wider", args={"path": path, "why": why}),))


class Screen:
    """A command line on a terminal of its own."""

    def __init__(self, machine: Machine, *args: str) -> None:
        self.shown = ""
        self._ours, theirs = os.openpty()
        self._at = 0
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, *args],
            cwd=machine.workspace,
            env={**machine.env, "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "200"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def until(self, text: str) -> str:
        """Read on until something new was shown that holds a text; returns what was shown until then."""
        while (found := self.shown.find(text, self._at)) < 0:
            assert self._read(), f"{text!r} never came:\n{self.shown}"
        before, self._at = self.shown[self._at : found], found + len(text)
        return before

    def _read(self) -> bool:
        assert select.select([self._ours], [], [], WAIT_S)[0], f"nothing more came:\n{self.shown}"
        try:
            data = os.read(self._ours, 4_096)
        except OSError:  # the other side has gone
            return False
        self.shown += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def end(self) -> int:
        """Read to the end and return the exit code."""
        while self._read():
            pass
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def serve(machine: Machine) -> Iterator[Serve]:
    with profiled_model(machine) as start:
        yield start


@pytest.fixture
def opened(machine: Machine) -> Iterator[Open]:
    screens: list[Screen] = []

    def start(*args: str) -> Screen:
        screens.append(Screen(machine, *args))
        return screens[-1]

    yield start
    for screen in screens:
        screen.close()


def told(model: ScriptedModel) -> str:
    return model.requests[-1].tool_results()[-1]


def waits(machine: Machine) -> int:
    return len(machine.maka("inbox", "--json").lines)


def test_a_key_answers_and_the_run_goes_on(serve: Serve, opened: Open) -> None:
    model = serve(question(QUESTION, OPEN), DONE)
    screen = opened("run", "paint it")
    assert "[2] blue" in screen.until("answer 1?")
    screen.until(": ")
    screen.type(b"2")
    screen.until("answer 2 (")
    screen.until("): ")
    screen.type("Zoë\n".encode())
    screen.until('✓ answered by cli: "blue", "Zoë"')
    screen.until("Thank you.")
    assert screen.end() == 0
    assert told(model) == "Answer 1: blue\nAnswer 2: Zoë"


def test_own_words_in_the_place_of_an_option(serve: Serve, opened: Open) -> None:
    model = serve(question(QUESTION), DONE)
    screen = opened("run", "paint it")
    screen.until("answer?")
    screen.until(": ")
    screen.type(b"t")
    screen.until("  answer: ")
    screen.type(b"green\n")
    assert screen.end() == 0
    assert told(model) == "Answer 1: green"


@pytest.mark.parametrize(("key", "scope"), [("o", "once"), ("a", "session"), ("w", "workspace")])
def test_a_wider_boundary_is_shown_whole_and_granted_as_shown(
    machine: Machine, serve: Serve, opened: Open, key: str, scope: str
) -> None:
    """The path hides a direction mark: it is shown as an escape, and what is granted has its very bytes."""
    path = "/srv/\u202ecache"
    serve(wider(path, "to cache\n  [a] allow"), DONE)
    screen = opened("run", "go")
    shown = screen.until("allow? ")
    assert "│ write everything below /srv/\\u202ecache\n" in shown
    assert "│ because: to cache⏎  [a] allow\n" in shown, "a text can't pass for a line of ours"
    assert "\u202e" not in shown
    screen.until("[d] deny")
    screen.until(": ")
    screen.type(key.encode())
    assert screen.end() == 0
    facts = machine.maka("export", "1").lines
    (decision,) = (fact for fact in facts if "boundaryDecision" in fact.get("actions", {}).get("stateDelta", {}))
    decided = decision["actions"]["stateDelta"]["boundaryDecision"]
    assert (decision["role"], decision["author"], decided["client"]) == ("system", "user", "cli")
    assert decided.get("scope", "session") == scope
    grants = machine.maka("rules", "1", "--json").record["grants"]
    held = [] if scope == "once" else [path]  # what was granted once ended with its run
    assert [grant["expansion"]["filesystem"][0]["path"] for grant in grants] == held


def test_deny_is_told_to_the_model(serve: Serve, opened: Open) -> None:
    model = serve(wider("/srv/x"), DONE)
    screen = opened("run", "go")
    screen.until("[d] deny")
    screen.until(": ")
    screen.type(b"d")
    screen.until("✗ denied by cli")
    assert screen.end() == 0
    assert "denied" in told(model)


def test_what_is_typed_ahead_pasted_or_an_arrow_is_no_answer(serve: Serve, opened: Open) -> None:
    model = serve(wider("/srv/x"), DONE)
    screen = opened("run", "go")
    screen.type(b"a")  # before there is a question
    screen.until("[d] deny")
    screen.until(": ")
    for keys in (b"\x1b[A", b"aaa", b"x", b"\n", b"\x1b[a"):
        screen.type(keys)
        screen.until("(one of a s o w d l) ")
    screen.type(b"l")
    screen.until("later")
    assert screen.end() == 4
    assert len(model.requests) == 1


def test_later_leaves_it_parked_and_the_inbox_answers(machine: Machine, serve: Serve, opened: Open) -> None:
    model = serve(question(QUESTION), DONE)
    screen = opened("run", "paint it")
    screen.until("answer?")
    screen.until(": ")
    screen.type(b"l")
    screen.until("maka answer ")
    assert screen.end() == 4
    assert waits(machine) == 1
    screen = opened("inbox")
    assert "Which colour?" in screen.until("answer?")
    screen.until(": ")
    screen.type(b"1")
    screen.until("Thank you.")
    assert screen.end() == 0
    assert told(model) == "Answer 1: red"
    assert waits(machine) == 0


def test_where_a_start_closes_waits_nothing_offers_to_leave_it_and_who_goes_away_is_told(
    machine: Machine, serve: Serve, opened: Open
) -> None:
    serve(question(QUESTION), DONE)
    with machine.config.open("a") as config:
        config.write('[waits]\non_restart = "close"\n')
    screen = opened("run", "paint it")
    assert "later" not in screen.until("no answer") + screen.until(": ")
    screen.type(b"\x04")  # the end of the input
    screen.until('set "keep"')
    assert screen.end() == 4
    assert waits(machine) == 1


def test_the_inbox_passes_on_and_quits(machine: Machine, serve: Serve, opened: Open) -> None:
    serve(question(QUESTION), DONE)
    for _ in range(2):
        assert machine.maka("run", "--on-ask", "park", "paint it").code == 4
    screen = opened("inbox")
    for key in (b"n", b"q"):
        screen.until("answer?")
        screen.until(": ")
        screen.type(key)
    assert screen.end() == 0
    assert waits(machine) == 2


def test_ctrl_c_at_the_question_stops_the_run(machine: Machine, serve: Serve, opened: Open) -> None:
    serve(question(QUESTION), DONE)
    screen = opened("run", "paint it")
    screen.until("answer?")
    screen.until(": ")
    screen.type(b"\x03")
    assert screen.until("Stopping").endswith("\n"), "what is said stands on a line of its own"
    assert screen.end() == 130
    assert "leaves at once)\n\n" not in screen.shown
    assert waits(machine) == 0
    assert machine.maka("verify").code == 0


def test_h28_kill_with_a_pending_request(machine: Machine, serve: Serve, opened: Open) -> None:
    model = serve(question(QUESTION), DONE)
    screen = opened("run", "paint it")
    screen.until("answer?")
    screen.process.send_signal(signal.SIGKILL)
    screen.process.wait(WAIT_S)
    (wait,) = machine.maka("inbox", "--json").lines
    done = machine.maka("answer", wait["id"][-8:], "--option", "2")
    assert (done.code, done.out) == (0, "Thank you.\n"), done
    assert told(model) == "Answer 1: blue"
    assert machine.maka("verify").code == 0
