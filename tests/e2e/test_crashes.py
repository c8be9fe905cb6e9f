"""Kind H through the whole path: a process that is killed, or a store that dies under it, at any moment.

The killed process is a real `maka run`, and what it was doing is known from what it said, never from time.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from maka.contracts.content import FunctionResponse, Outcome, Text
from maka.contracts.errors import LedgerFailedError, OutcomeUnknownError, RefusedError
from maka.contracts.ports import Append, PutPartial
from maka.contracts.session_events import Complete
from maka.edges.scripted_model import Call, Gate, Turn
from maka.storage.ledger import LmdbLedger
from maka.storage.reader import LmdbReader
from tests.cli.real import finished
from tests.e2e import checks
from tests.e2e.harness import WAIT_S, Maka, Model, World

Line = dict[str, Any]


class Killed:
    """A `maka run` in a process of its own, that is killed once it has said something."""

    def __init__(self, world: World, maka: Maka, *args: str) -> None:
        server = maka.model.server
        flags = ("--base-url", server.base_url, "--model", server.model, "--json")
        self._world = world
        self.process = world.machine.start("run", *flags, *args)
        self.lines: list[Line] = []

    def until(self, kind: str) -> Line:
        """Read on to a line of a kind."""
        assert self.process.stdout is not None
        while raw := self.process.stdout.readline():
            self.lines.append(json.loads(raw))
            if self.lines[-1]["type"] == kind:
                return self.lines[-1]
        raise AssertionError(f"no {kind}: {finished(self.process)}")

    def until_said(self, words: str) -> None:
        while words not in "".join(line["text"] for line in self.lines if line["type"] == "text_delta"):
            self.until("text_delta")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()


Start = Callable[..., Killed]


@pytest.fixture
def start(world: World) -> Iterator[Start]:
    """Start a `maka run`; whatever is left of it is killed at the end."""
    started: list[Killed] = []

    def begin(maka: Maka, *args: str) -> Killed:
        started.append(Killed(world, maka, *args))
        return started[-1]

    yield begin
    for each in started:
        each.close()


def continued(world: World, model: Model, text: str = "go on") -> None:
    """Go on by the command line, which just works."""
    model.says(Turn(text="gone on"))
    done = world.machine.run(model.server, "--continue", text)
    assert (done.code, done.out) == (0, "gone on\n"), done


def partial_text(world: World) -> str:
    """Return what the store holds of streams that have not ended."""
    reader = LmdbReader.open(world.machine.state)
    try:
        return "".join(part.text for work in reader.open_work() for part in reader.partials(work.invocation_id))
    finally:
        reader.close()


def test_killed_in_mid_stream(world: World, start: Start) -> None:
    maka = world.maka(world.model([Turn(text="The answer is forty-", gate=Gate())]))
    run = start(maka, "what is it?")
    run.until_said("forty-")
    checks.eventually(lambda: partial_text(world) == "The answer is forty-", "what was seen is stored before long")
    run.kill()
    continued(world, maka.model)
    assert maka.model.roles() == [
        ("user", "what is it?"),
        ("assistant", "The answer is forty-"),
        ("user", "go on"),
    ]
    show = world.machine.maka("show", "@last", "--json").record
    assert [(turn["status"], turn.get("failureClass")) for turn in show["turns"]] == [
        ("failed", "app_restarted"),
        ("completed", None),
    ]


@pytest.mark.parametrize("tail", ["exec tail -f /dev/null", "sleep 30044 & sleep 30055; wait"])
def test_h34_h35_crash_with_a_call_in_flight(world: World, start: Start, tail: str) -> None:
    """The call is answered with what is known, it doesn't run again, and its processes are gone."""
    call = Call(name="Bash", args={"command": f"echo x >> log; echo ready; {tail}"})
    maka = world.maka(world.model([Turn(text="I try.", calls=(call,))]))
    run = start(maka, "try it")
    run.until("tool_output_delta")
    run.kill()
    continued(world, maka.model)
    roles = maka.model.roles()
    assert [role for role, _ in roles] == ["user", "assistant", "tool", "user"]
    assert "unknown" in roles[2][1]
    assert (world.workspace / "log").read_text() == "x\n", "the tool ran once"
    maka.open()
    session = checks.headers(maka.store)[0].session_id
    (answer,) = maka.contents(FunctionResponse, session)
    assert answer.outcome is Outcome.OUTCOME_UNKNOWN
    classes = [turn.failure_class for turn in map(maka.record, runs_of(maka, session))]
    assert classes == ["interrupted_tool", None]


def runs_of(maka: Maka, session: Any) -> list[Any]:
    return list(dict.fromkeys(item.event.run_id for item in maka.facts(session) if item.event.run_id is not None))


TWO_TOOLS = (
    Turn(
        text="Two things.",
        calls=(
            Call(name="Write", args={"path": "w.txt", "content": "written\n"}),
            Call(name="Bash", args={"command": "echo x >> log; cat w.txt"}),
        ),
    ),
    Turn(text="Both done."),
)


class Cut:
    """Lets the store die at the n-th commit: before it, or after it and before anyone hears of it."""

    def __init__(self, number: int, *, stored: bool) -> None:
        self._left = number
        self._stored = stored
        self._lock = threading.Lock()

    def before(self, appends: Sequence[Append]) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0 and not self._stored:
                raise LedgerFailedError("cut before the commit")

    def after(self, appends: Sequence[Append]) -> None:
        if self._left == 0 and self._stored:
            self._left = -1
            raise LedgerFailedError("cut after the commit")


def cut_run(world: World, maka: Maka, cut: Cut) -> bool:
    """Run until the store dies and close what is left; says whether the run ended before."""
    session = maka.new_session()
    world.faults.before, world.faults.after = cut.before, cut.after
    with suppress(OutcomeUnknownError, RefusedError):  # nobody can say what is durable
        live = maka.send("do it", session)
        while not maka.host.failed.is_set() and not isinstance(live.peek(0.02), Complete):
            pass
    failed = maka.host.failed.is_set()
    world.faults.before = world.faults.after = lambda _: None
    if failed:
        with pytest.raises(LedgerFailedError):
            maka.close()
    return not failed


@pytest.mark.parametrize("stored", [True, False])
def test_h37_crash_between_two_writes_that_belong_together(world: World, stored: bool) -> None:
    maka = world.open(TWO_TOOLS)
    for number in range(1, 40):
        (world.workspace / "log").write_text("")
        maka.model.says(*TWO_TOOLS)
        if cut_run(world, maka, Cut(number, stored=stored)):
            break
        maka.open()
        assert maka.host.recovered_runs <= 1
        checks.check_log(maka.store)
        assert len((world.workspace / "log").read_text()) <= 2, "no tool ran twice"
        before = checks.everything(maka.store)
        maka.reopen()
        assert checks.everything(maka.store) == before, "recovery is done once"
        header = checks.headers(maka.store)[-1]
        maka.model.says(Turn(text="gone on"))
        assert maka.run("go on", header.session_id).status == "completed"
    else:
        raise AssertionError("the run never passed")
    assert number > 6


def test_a_crash_keeps_a_long_text_whole(world: World) -> None:
    """What was streamed is more than an event may hold: recovery keeps all of it, and the store opens."""
    words = "x" * 100_000 + "END"
    maka = world.open([Turn(text=words, chunk_chars=5_000, gate=Gate())])
    stored = PartialsSeen(world)
    live = maka.send("say much")
    live.until_said("END")
    assert stored.all_of(words)
    session = maka.session_id
    world.faults.before = dies
    with pytest.raises((OutcomeUnknownError, RefusedError)):
        maka.manager.stop(session, "test")
    world.faults.before = lambda _: None
    with pytest.raises(LedgerFailedError):
        maka.close()
    maka.open()
    assert maka.host.recovered_runs == 1
    (text,) = [content for content in maka.contents(Text) if content.interrupted]
    assert text.whole is not None
    assert maka.host.reader.blob(text.whole.sha256) == words.encode()


def test_a_store_that_dies_in_recovery_ends_the_start(world: World) -> None:
    maka = world.open([Turn(text="so far", gate=Gate())])
    maka.send().until_said("so far")
    world.faults.before = dies
    with pytest.raises((OutcomeUnknownError, RefusedError)):
        maka.manager.stop(maka.session_id, "test")
    with pytest.raises(LedgerFailedError):
        maka.close()
    with pytest.raises(LedgerFailedError, match="start again"):
        maka.open()
    world.faults.before = lambda _: None
    assert maka.open().host.recovered_runs == 1


def dies(appends: Sequence[Append]) -> None:
    raise LedgerFailedError("cut")


class PartialsSeen:
    """Counts the characters of partials that were stored."""

    def __init__(self, world: World) -> None:
        self._changed = threading.Condition()
        self._chars = 0
        real = LmdbLedger.commit

        def commit(store: LmdbLedger, appends: Sequence[Append], partials: Sequence[PutPartial] = ()) -> Any:
            results = real(store, appends, partials)
            with self._changed:
                self._chars += sum(len(partial.text) for partial in partials)
                self._changed.notify()
            return results

        world.patch.setattr(LmdbLedger, "commit", commit)

    def all_of(self, words: str) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._chars == len(words), WAIT_S)


GROUP = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
DAEMON = (
    "(setsid sh -c 'sleep 30066 & exit' >/dev/null 2>&1 &); "
    "until pgrep -fx 'sleep 30066' >/dev/null; do sleep 0.01; done; echo ready; exec sleep 30077"
)


@pytest.mark.parametrize("boundary", [pytest.param("ask", marks=pytest.mark.slow), "bypass"])
@pytest.mark.parametrize("command", [GROUP, DAEMON], ids=["group", "daemon"])
def test_what_a_killed_owner_left_is_ended_at_the_next_start(
    world: World, start: Start, command: str, boundary: str
) -> None:
    """A sandbox ends with its owner; without one it is the start that finds and ends what is left."""
    call = Call(name="Bash", args={"command": command})
    maka = world.maka(world.model([Turn(calls=(call,))]))
    run = start(maka, "--boundary", boundary, "try it")
    run.until("tool_output_delta")
    run.kill()
    assert boundary == "ask" or checks.living_in(world.workspace), "there is something left to end"
    maka.open()
    assert maka.host.recovered_runs == 1
    assert not checks.living_in(world.workspace)
