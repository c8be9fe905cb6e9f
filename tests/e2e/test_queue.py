"""Messages and commands: a busy session queues durably and in order; a command that comes twice is done once."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from maka.contracts.content import Text
from maka.contracts.errors import RefusalCode, RefusedError
from maka.contracts.events import Role
from maka.contracts.ids import MessageId, SessionId
from maka.edges.scripted_model import Gate, Turn
from tests.e2e import checks
from tests.e2e.harness import WAIT_S, Maka, World, by_prompt

TEXTS = ("first", "second", "third", "fourth")


def taken(maka: Maka, session: SessionId | None = None) -> list[tuple[str, MessageId | None]]:
    """Return the messages in the order in which runs took them."""
    return [
        (item.event.content.text, item.event.refs.message_id if item.event.refs is not None else None)
        for item in maka.facts(session)
        if isinstance(item.event.content, Text) and item.event.role is Role.USER
    ]


def test_messages_to_a_busy_session_run_next_in_their_order(world: World) -> None:
    gate = Gate()
    done = [Turn(text="done")]
    maka = world.open(by_prompt(first=[Turn(text="so far", gate=gate)], second=done, third=done, fourth=done))
    live = maka.send("first")
    live.until_said("so far")
    queued = [maka.send(text).accepted for text in TEXTS[1:]]
    assert [accepted.run_id for accepted in queued] == [None] * 3
    assert [header.untaken for header in checks.headers(maka.store)] == [tuple(each.message_id for each in queued)]
    gate.open()
    assert [live.end().status for _ in TEXTS] == ["completed"] * 4
    assert taken(maka) == [("first", None), *((t, q.message_id) for t, q in zip(TEXTS[1:], queued, strict=True))]
    assert maka.model.count == 4


def test_queued_messages_outlive_a_killed_owner(world: World) -> None:
    done = [Turn(text="done")]
    script = by_prompt(first=[Turn(text="so far", gate=Gate())], second=done, third=done, fourth=done, a=done)
    maka = world.maka(world.model(script))
    command = [sys.executable, "-P", "-m", "tests.e2e.busy_host", maka.model.server.base_url, str(world.workspace)]
    with subprocess.Popen([*command, *TEXTS], env=world.machine.env, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        session = SessionId(owner.stdout.readline().strip())
        owner.kill()
    maka.open()
    assert maka.host.recovered_runs == 1
    events = maka.follow(session)
    assert [events.end().status for _ in TEXTS] == ["failed", "completed", "completed", "completed"]
    assert [text for text, _ in taken(maka, session)] == list(TEXTS)
    assert maka.model.count == 4


@pytest.mark.parametrize("restarted", [False, True])
def test_a_command_that_comes_twice_is_done_once(world: World, restarted: bool) -> None:
    maka = world.open([Turn(text="done")])
    made = maka.manager.create_session(str(world.workspace), command_id="make-it")
    live = maka.send("do it", made.session_id, command_id="say-it")
    live.end()
    if restarted:
        maka.reopen()
    assert maka.manager.create_session(str(world.workspace), command_id="make-it") == made
    assert maka.send("do it", made.session_id, command_id="say-it").accepted == live.accepted
    assert maka.model.count == 1
    with pytest.raises(RefusedError) as conflict:
        maka.send("something else", made.session_id, command_id="say-it")
    assert conflict.value.refusal.code is RefusalCode.COMMAND_CONFLICT
    with pytest.raises(RefusedError) as conflict:
        maka.manager.create_session(str(world.workspace), command_id="make-it", title="another")
    assert conflict.value.refusal.code is RefusalCode.COMMAND_CONFLICT
    assert len(checks.headers(maka.store)) == 1


def test_a_command_that_comes_many_times_at_once_is_done_once(world: World) -> None:
    maka = world.open([Turn(text="done")])
    together = threading.Barrier(8)

    def both(number: int) -> tuple[object, object]:
        together.wait(WAIT_S)
        made = maka.manager.create_session(str(world.workspace), command_id="make-it")
        together.wait(WAIT_S)
        said = maka.manager.send_message(made.session_id, "do it", profile="scripted", command_id="say-it")
        return made, said

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(both, range(8)))
    assert len(set(map(repr, answers))) == 1
    (header,) = checks.headers(maka.store)
    maka.follow(header.session_id).end()
    assert maka.model.count == 1
    assert maka.run("next", maka.new_session()).status == "completed"


def test_two_prompts_at_once_are_two_runs(world: World) -> None:
    maka = world.open([Turn(text="done")])
    session = maka.session_id
    together = threading.Barrier(10)

    def say(number: int) -> None:
        together.wait(WAIT_S)
        maka.manager.send_message(session, f"message {number}", profile="scripted")

    events = maka.follow(session)
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(say, range(10)))
    assert [events.end().status for _ in range(10)] == ["completed"] * 10
    assert sorted(text for text, _ in taken(maka)) == [f"message {number}" for number in range(10)]
