"""Hosts as wholes: two in one process, one with everything under way when it closes, and sessions by name."""

import threading
from contextlib import closing

import msgspec

from actors.base import Log, MakaActor
from maka.contracts.codec import export_line
from maka.contracts.content import FunctionResponse, Outcome
from maka.contracts.events import RuntimeEvent
from maka.contracts.session_events import ProviderRetry, RunEnded, TextDelta, ToolOutputDelta
from maka.edges.logs import LogFile, make_logger
from maka.edges.scripted_model import Call, Fault, Gate, Turn
from tests.cli.real import Machine
from tests.e2e import checks
from tests.e2e.harness import WAIT_S, World, by_prompt

HANGS = Turn(calls=(Call(name="Bash", args={"command": "echo ready; exec tail -f /dev/null"}),))


def test_two_hosts_on_two_roots_in_one_process(world: World) -> None:
    (world.folder / "two").mkdir()
    one = world.open([Turn(text="I am one")])
    two = world.maka(world.model([Turn(text="I am two", gate=(gate := Gate()))]), Machine(world.folder / "two")).open()
    live = two.send()
    live.until(TextDelta)
    assert one.run().final_text == "I am one"
    one.close()
    gate.open()
    assert live.end().final_text == "I am two", "the other one's end changes nothing here"
    assert one.open().run().status == "completed"
    assert (one.model.count, two.model.count) == (2, 1)


def test_shutdown_with_live_runs(world: World) -> None:
    world.haste.hold()
    script = by_prompt(
        stream=[Turn(text="so far", gate=Gate())],
        tool=[HANGS],
        wait=[Fault(status=503, error="busy")],
        idle=[Turn(text="x")],
    )
    maka = world.open(script)
    sessions = {word: maka.new_session(word) for word in ("stream", "tool", "wait", "idle")}
    maka.run("idle", sessions["idle"])
    lives = {word: maka.send(word, sessions[word]) for word in ("stream", "tool", "wait")}
    lives["stream"].until_said("so far")
    lives["tool"].until(ToolOutputDelta)
    lives["wait"].until(ProviderRetry)
    queued = maka.send("idle again", sessions["stream"]).accepted
    assert queued.run_id is None
    maka.reopen()
    for word in ("stream", "tool", "wait"):
        record = maka.record(lives[word].run_id)
        assert (record.status, record.abort_source) == ("aborted", "host.shutdown"), word
    (answer,) = maka.contents(FunctionResponse, sessions["tool"])
    assert answer.outcome is Outcome.ABORTED
    with maka.manager.subscribe(sessions["stream"]) as events:
        ended = 0
        while ended < 2:  # the queued message runs after the restart
            event = events.get(30.0)
            assert event is not None
            ended += type(event).__name__ in ("Complete", "Abort")


class Fragile(MakaActor[str]):
    """Crashes at its first message, once it is let."""

    def __init__(self, log: Log, begun: threading.Event, let: threading.Event) -> None:
        super().__init__(log)
        self._begun, self._let = begun, let

    def receive(self, message: str) -> None:
        self._begun.set()
        assert self._let.wait(WAIT_S)
        raise ValueError(message)


def test_a_stop_that_meets_a_crash_is_answered(world: World) -> None:
    """Else closing a host whose ledger has failed would wait for its whole timeout."""
    with closing(LogFile.open(world.folder / "log")) as sink:
        begun, let = threading.Event(), threading.Event()
        actor = Fragile.start(make_logger(sink, str), begun, let)
        actor.tell("crash")
        assert begun.wait(WAIT_S)
        stopped = actor.stop(block=False)
        let.set()
        assert stopped.get(timeout=WAIT_S)


def test_titles_numbers_and_last(world: World) -> None:
    maka = world.open([Turn(text="done")])
    named, unnamed = maka.new_session("A title"), maka.new_session()
    maka.run("first words\nand more", unnamed)
    first, second = checks.headers(maka.store)
    assert (first.session_id, first.number, first.title) == (named, 1, "A title")
    assert (second.session_id, second.number, second.title) == (unnamed, 2, "first words")
    maka.reopen()
    assert maka.manager.create_session(str(world.workspace)).number == 3
    maka.close()
    listed = world.machine.maka("sessions", "--json").lines
    assert [(line["number"], line["title"]) for line in listed][:2] == [(1, "A title"), (2, "first words")]
    by_name = [world.machine.maka("show", name, "--json").record["sessionId"] for name in ("#2", "2", unnamed[-12:])]
    assert by_name == [unnamed] * 3
    assert world.machine.maka("show", "@last", "--json").record["header"]["number"] == 3


def test_an_export_is_the_log(world: World) -> None:
    calls = (Call(name="Write", args={"path": "é.txt", "content": "\u2028 🙂"}),)
    maka = world.open([Turn(text="So:", thinking="hm", calls=calls), Turn(text="done")])
    ended: RunEnded = maka.run("write\tit")
    facts = maka.facts()
    maka.close()
    lines = world.machine.maka("export", "@last").out.rstrip("\n").split("\n")
    assert lines == [export_line(item).decode() for item in facts]
    for line, item in zip(lines, facts, strict=True):
        fields = msgspec.json.decode(line)
        assert (fields.pop("position"), fields.pop("seq")) == (item.position, item.seq)
        assert msgspec.convert(fields, RuntimeEvent) == item.event
    assert lines[-1].find(ended.run_id) > 0
