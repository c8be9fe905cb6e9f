"""Cases of damage and death through the whole path: one bad session, an actor that asks itself, a failing clean-up."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from actors.session import SessionActor
from maka import adapters
from maka.contracts.actions import RecoveryMode
from maka.contracts.content import FunctionResponse, Outcome, Text
from maka.contracts.errors import RefusalCode, RefusedError
from maka.contracts.ids import SessionId
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolListener
from maka.edges.scripted_model import Call, Turn
from maka.storage.environment import open_databases, open_environment
from maka.storage.keys import number
from maka.storage.reader import LmdbReader
from maka.tools.registry import Catalog, builtin_tools
from tests.e2e import checks
from tests.e2e.harness import Maka, World

FINE = Turn(text="fine")


def rows(world: World) -> dict[bytes, bytes]:
    """Return every event's record as it is stored; nobody owns the store meanwhile."""
    environment = open_environment(world.machine.state, write=False)
    databases = open_databases(world.machine.state, environment, write=False)
    with environment.begin() as snapshot:
        found = dict(snapshot.cursor(databases.events))
    environment.close()
    return found


@contextmanager
def damaged(world: World, position: int, value: bytes) -> Generator[None]:
    """Overwrite the value of one event behind the ledger's back, and put it right at the end."""

    def put(bytes_: bytes | None) -> bytes:
        environment = open_environment(world.machine.state, write=True)
        databases = open_databases(world.machine.state, environment, write=True)
        with environment.begin(write=True) as transaction:
            key = transaction.get(number(position), db=databases.stream)
            assert key is not None
            old = transaction.get(key, db=databases.events)
            assert old is not None
            transaction.put(key, bytes_ or b"", db=databases.events)
        environment.close()
        return bytes(old)

    whole = put(value)
    try:
        yield
    finally:
        put(whole)


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_h36_one_bad_session_blocks_no_other(world: World, where: str) -> None:
    """Start, list and every other session work; the damaged one says so, with its id; nothing is deleted."""
    maka = world.open([FINE])
    bad, good = maka.new_session("bad"), maka.new_session("good")
    for session in (bad, good):
        assert maka.run("do it", session).status == "completed"
    positions = [item.position for item in maka.facts(bad)]
    position = {"first": positions[0], "middle": positions[3], "last": positions[-1]}[where]
    maka.close()
    before = rows(world)
    with damaged(world, position, b"\xc1"):
        maka.open()
        titles = [header.title for header in checks.headers(maka.store)]
        assert titles == ["bad", "good"], "the list is whole"
        assert maka.run("go on", good).status == "completed"
        assert refused(maka, bad) == RefusalCode.SESSION_DAMAGED
        assert maka.run("and on", good).final_text == "fine"
        maka.close()
        listed = world.machine.maka("sessions", "--json")
        assert listed.code == 0 and bad in listed.out and good in listed.out
        checked = world.machine.maka("verify", "--json")
        assert checked.code == 3
        assert {problem["sessionId"] for problem in checked.record["problems"]} == {bad}
        assert before.keys() <= rows(world).keys(), "nothing is deleted"
    maka.open()
    assert maka.run("go on", bad).status == "completed"


def test_h36_an_open_run_that_is_damaged_is_fenced_at_the_start(world: World) -> None:
    maka = world.open([FINE])
    bad, good = maka.new_session("bad"), maka.new_session("good")
    for session in (bad, good):
        assert maka.run("do it", session).status == "completed"
    terminal = [item.position for item in maka.facts(bad)][-1]
    maka.close()
    with damaged(world, terminal, b""):
        maka.open()
        assert maka.host.recovered_runs == 0, "nobody guesses about it"
        assert maka.run("go on", good).status == "completed"
        assert refused(maka, bad) == RefusalCode.SESSION_DAMAGED
        maka.close()
    maka.open()


def refused(maka: Maka, session: SessionId) -> RefusalCode:
    with pytest.raises(RefusedError) as error:
        maka.send("hello", session)
    assert session in error.value.refusal.message
    return error.value.refusal.code


class AsksItself:
    """A tool that calls the public API from the thread of its own actor."""

    spec = ToolSpec(name="Look", description="Looks.", parameters={"type": "object", "properties": {}})
    recovery_mode: RecoveryMode = "replay_safe"
    exclusive = False

    def __init__(self) -> None:
        self.ask: Callable[[], object] = lambda: None

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        self.ask()
        return lambda: None


def test_h46_an_actor_asks_itself(world: World) -> None:
    """It is refused at once, before anything was asked for, and the run goes on with that as the call's error."""
    tool = AsksItself()

    def with_tool(processes: Any, **options: Any) -> Catalog:
        tools = builtin_tools(processes, **options)
        return Catalog([*(found for spec in tools.specs() if (found := tools.get(spec.name))), tool])

    world.patch.setattr(adapters, "builtin_tools", with_tool)
    maka = world.open([Turn(calls=(Call(name="Look", args={}),)), FINE])
    session = maka.session_id
    tool.ask = lambda: maka.manager.send_message(session, "to myself", profile="scripted")
    assert maka.run("look", session).status == "completed"
    (answer,) = maka.contents(FunctionResponse, session)
    assert answer.outcome is Outcome.ERROR and "may not wait" in answer.result
    assert [text.text for text in maka.contents(Text, session)] == ["look", "fine"], "nothing was sent"


def test_h85_a_clean_up_that_fails_is_logged_and_loses_nothing(world: World) -> None:
    """What was acknowledged was durable before; a failing clean-up of one actor stops no other's."""
    maka = world.open([FINE])
    session = maka.session_id
    assert maka.run("do it", session).status == "completed"
    head = maka.host.reader.head()

    def broken(self: SessionActor) -> None:
        raise RuntimeError("planted in the clean-up")

    with world.patch.context() as patch:
        patch.setattr(SessionActor, "cleanup", broken)
        maka.close()
    log = (world.machine.state / "maka.log").read_text()
    assert "planted in the clean-up" in log and "actor_crashed" in log
    reader = LmdbReader.open(world.machine.state)
    assert reader.head() == head
    reader.close()
    maka.open()
    assert maka.run("go on", session).status == "completed"
