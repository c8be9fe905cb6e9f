"""Calls of one step that are about the same file run in the order of the calls, whatever their threads would do.

No test here is one of luck: calls that are started together run backwards (see `Backwards`), which is the worst that
threads may do. So what isn't ordered by the run goes wrong every time.
"""

import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from actors import run_ending, run_protocol
from actors.run_effects import StartTool
from maka.contracts.content import FunctionResponse, Outcome
from maka.contracts.ids import CallId
from maka.contracts.session_events import UserQuestionAsked
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolListener, ToolResult
from maka.edges.scripted_model import Call, Turn
from maka.tools import change, files
from maka.tools.edit import EditTool
from maka.tools.read import ReadTool
from maka.tools.write import WriteTool
from tests.e2e.harness import WAIT_S, Maka, World

DONE = Turn(text="done")
FILE_TOOLS: tuple[type[Any], ...] = (WriteTool, EditTool, ReadTool)


class Ears:
    """A call's own listener, and an event for its end."""

    def __init__(self, inner: ToolListener, over: threading.Event) -> None:
        self.output, self.commit, self.keep = inner.output, inner.commit, inner.keep
        self._inner = inner
        self._over = over

    def ended(self, result: ToolResult) -> None:
        self._inner.ended(result)
        self._over.set()


class Backwards:
    """Lets calls of the file tools that one decision starts begin in the reverse of their order, one after the other.

    `together` are the paths of those that were started together, group by group.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.together: list[list[str]] = []
        self._ended: defaultdict[CallId, threading.Event] = defaultdict(threading.Event)
        self._after: dict[CallId, CallId] = {}
        decide = run_protocol.decide

        def noting(*args: Any) -> Any:
            decision = decide(*args)
            starts = [effect.call for effect in decision.effects if isinstance(effect, StartTool)]
            self._note([call for call in starts if "path" in call.args])
            return decision

        patch.setattr(run_protocol, "decide", noting)
        for tool in FILE_TOOLS:
            patch.setattr(tool, "start", self._turned(tool.start))

    def _note(self, calls: list[ToolCall]) -> None:
        if calls:
            self.together.append([str(call.args["path"]) for call in calls])
        for call, following in pairwise(calls):
            self._after[call.call_id] = following.call_id

    def _turned(self, start: Callable[..., Callable[[], None]]) -> Callable[..., Callable[[], None]]:
        def turned(tool: Any, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
            if (following := self._after.get(call.call_id)) is not None:
                assert self._ended[following].wait(WAIT_S)
            return start(tool, call, env, Ears(listener, self._ended[call.call_id]))

        return turned


@pytest.fixture
def backwards(world: World) -> Backwards:
    return Backwards(world.patch)


def write(path: str, content: str) -> Call:
    return Call(name="Write", args={"path": path, "content": content})


def edit(path: str, old: str, new: str) -> Call:
    return Call(name="Edit", args={"path": path, "old_string": old, "new_string": new})


def read(path: str) -> Call:
    return Call(name="Read", args={"path": path})


def answers(maka: Maka) -> list[FunctionResponse]:
    """Return what the model is told, in the order of its calls."""
    asked = [str(item.event.id) for item in maka.facts()]
    found: list[FunctionResponse] = maka.contents(FunctionResponse)
    return sorted(found, key=lambda answer: asked.index(answer.call_id))


def run(world: World, *calls: Call) -> tuple[Maka, list[FunctionResponse]]:
    """Let a model make these calls in one step; return what became of them, in their order."""
    maka = world.open([Turn(calls=calls), DONE])
    assert maka.run().status == "completed"
    return maka, answers(maka)


def outcomes(found: list[FunctionResponse]) -> list[Outcome]:
    return [answer.outcome for answer in found]


@pytest.mark.usefixtures("backwards")
def test_of_ten_writes_the_last_one_stands(world: World) -> None:
    maka, found = run(world, *(write("g", f"{number}\n") for number in range(10)))
    assert (world.workspace / "g").read_text() == "9\n"
    assert outcomes(found) == [Outcome.OK] * 10
    changes = maka.actions("file_change")
    assert [change.call_id for change in changes] == [answer.call_id for answer in found], "the log has them in order"


@pytest.mark.usefixtures("backwards")
def test_an_edit_finds_what_a_write_before_it_made(world: World) -> None:
    _, found = run(world, write("a.py", "x = 1\n"), edit("a.py", "x = 1", "x = 2"))
    assert (outcomes(found), (world.workspace / "a.py").read_text()) == ([Outcome.OK] * 2, "x = 2\n")


@pytest.mark.usefixtures("backwards")
def test_an_edit_goes_on_from_the_edit_before_it(world: World) -> None:
    (world.workspace / "h").write_text("one\n")
    _, found = run(world, edit("h", "one", "two"), edit("h", "two", "three"), edit("h", "three", "four"))
    assert (outcomes(found), (world.workspace / "h").read_text()) == ([Outcome.OK] * 3, "four\n")


@pytest.mark.usefixtures("backwards")
def test_two_names_of_one_file_are_one_turn(world: World) -> None:
    (world.workspace / "folder").mkdir()
    (world.workspace / "other").symlink_to("folder")
    (world.workspace / "link").symlink_to("folder/g")
    names = ("folder/g", "link", "./other/g", str(world.workspace / "folder" / ".." / "link"))
    _, found = run(world, *(write(name, f"{number}") for number, name in enumerate(names)))
    assert (outcomes(found), (world.workspace / "folder" / "g").read_text()) == ([Outcome.OK] * 4, "3")


@pytest.mark.usefixtures("backwards")
def test_a_read_sees_what_the_writes_before_it_made_and_nothing_of_those_after_it(world: World) -> None:
    _, found = run(world, write("g", "first\n"), read("g"), write("g", "second\n"), read("g"))
    assert [answer.result for answer in found[1::2]] == ["first\n", "second\n"]
    assert (world.workspace / "g").read_text() == "second\n"


def test_what_is_about_different_files_or_only_reads_starts_together(world: World, backwards: Backwards) -> None:
    (world.workspace / "c").write_text("c")
    _, found = run(world, write("a", "1"), write("b", "2"), read("c"), read("c"), write("a", "3"))
    assert outcomes(found) == [Outcome.OK] * 5
    assert backwards.together == [["a", "b", "c", "c"], ["a"]]


@pytest.mark.usefixtures("backwards")
def test_a_call_that_fails_or_is_refused_holds_up_none_after_it(world: World) -> None:
    calls = (edit("g", "x", "y"), Call(name="Write", args={"path": "g"}), write("/etc/g", "x"), write("g", "w\n"))
    maka, found = run(world, *calls, edit("g", "w", "v"))
    assert outcomes(found) == [Outcome.ERROR, Outcome.REFUSED, Outcome.REFUSED, Outcome.OK, Outcome.OK]
    assert "does not exist" in found[0].result
    assert len(maka.actions("tool_dispatch")) == 3
    assert (world.workspace / "g").read_text() == "v\n"


@pytest.mark.usefixtures("backwards")
def test_a_file_that_a_person_changed_since_the_model_saw_it_isnt_edited_in_the_step_that_reads_it(
    world: World,
) -> None:
    """A Read in the same step tells the model nothing before it has made its Edit; its own change is no surprise."""
    file = world.workspace / "h"
    file.write_text("one\n")
    maka = world.open([Turn(calls=(read("h"),)), DONE])
    assert maka.run().status == "completed"
    file.write_text("one and the person's\n")
    maka.model.says(Turn(calls=(read("h"), edit("h", "one", "two"))), Turn(calls=(edit("h", "one", "two"),)), DONE)
    assert maka.run().status == "completed"
    assert outcomes(answers(maka)) == [Outcome.OK, Outcome.OK, Outcome.ERROR, Outcome.OK]
    assert "changed since you last read it" in answers(maka)[2].result
    assert file.read_text() == "two and the person's\n"


@pytest.mark.usefixtures("backwards")
def test_a_question_of_the_same_step_parks_the_run_once_the_file_has_its_last_content(world: World) -> None:
    question = Call(name="ask_user_question", args={"questions": [{"question": "Which?"}]})
    maka = world.open([Turn(calls=(write("g", "1\n"), question, write("g", "2\n"), edit("g", "2", "3"))), DONE])
    live = maka.send()
    request = live.until(UserQuestionAsked).request_id
    maka.manager.answer(maka.session_id, request, answers=("this",), client="test")
    assert live.end().status == "completed"
    assert outcomes(answers(maka)) == [Outcome.OK] * 4
    assert (world.workspace / "g").read_text() == "3\n"


def test_a_stop_while_a_call_waits_for_its_turn_answers_it_as_not_started(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, claimed = threading.Event(), threading.Event()
    real_replace, real_cancel = files.replace, run_ending.cancel_effects

    def replace(*args: Any) -> None:
        writing.set()
        assert claimed.wait(WAIT_S)
        real_replace(*args)

    def cancel_effects(*args: Any) -> None:
        real_cancel(*args)
        claimed.set()

    monkeypatch.setattr(change, "replace", replace)
    monkeypatch.setattr(run_ending, "cancel_effects", cancel_effects)
    maka = world.open([Turn(calls=(write("g", "first\n"), write("g", "second\n"), edit("g", "second", "x"))), DONE])
    live = maka.send()
    assert writing.wait(WAIT_S)
    with ThreadPoolExecutor() as pool:
        receipt = pool.submit(maka.manager.stop, maka.session_id, "test.button").result(WAIT_S)
    assert live.end().status == "aborted"
    assert [call.outcome for call in receipt.calls] == ["ok", "not_started", "not_started"]
    assert outcomes(answers(maka)) == [Outcome.OK, Outcome.NOT_STARTED, Outcome.NOT_STARTED]
    assert len(maka.actions("tool_dispatch")) == 3
    assert (world.workspace / "g").read_text() == "first\n"
