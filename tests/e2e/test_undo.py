"""Undo over a real store and real files: cut at any commit it leaves whole files, and the next one goes on."""

from contextlib import suppress

import pytest

from maka.contracts.errors import LedgerFailedError, OutcomeUnknownError, RefusedError
from maka.contracts.ids import SessionId
from maka.edges.scripted_model import Call, Gate, Turn
from tests.e2e.harness import Maka, World
from tests.e2e.test_crashes import Cut

OLD = {"a": "old a\n"}
NEW = {"a": "new a\n", "b": "new b\n"}
CHANGES = tuple(Call(name="Write", args={"path": name, "content": text}) for name, text in NEW.items())
SCRIPT = (Turn(calls=CHANGES), Turn(text="done"))


def files(world: World) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(world.workspace.iterdir())}


def changed(world: World, maka: Maka) -> SessionId:
    """Let a new session's run change the files; returns the session."""
    for path in world.workspace.iterdir():
        path.unlink()
    for name, text in OLD.items():
        (world.workspace / name).write_text(text)
    maka.model.says(*SCRIPT)
    session = maka.new_session()
    ended = maka.run("do it", session)
    assert ended.status == "completed", ended
    assert files(world) == NEW
    return session


@pytest.mark.parametrize("stored", [True, False])
def test_an_undo_that_is_cut_at_any_commit_leaves_whole_files_and_the_next_one_goes_on(
    world: World, stored: bool
) -> None:
    maka = world.open(SCRIPT)
    number = 0
    passed = False
    while not passed:
        number += 1
        session = changed(world, maka)
        cut = Cut(number, stored=stored)
        world.faults.before, world.faults.after = cut.before, cut.after
        with suppress(OutcomeUnknownError, RefusedError):
            passed = maka.manager.undo(session).status == "completed" and not maka.host.failed.is_set()
        world.faults.before = world.faults.after = lambda _: None
        if maka.host.failed.is_set():
            passed = False
            with pytest.raises(LedgerFailedError):
                maka.close()
            maka.open()
        now = files(world)
        assert set(now) <= set(NEW), "a temp file is left"
        assert all(text in (OLD.get(name), NEW[name]) for name, text in now.items()), "half a file"
        maka.manager.undo(session)
        assert files(world) == OLD
    assert number > 2 * len(NEW)


def test_an_undo_waits_for_no_one_and_is_refused_beside_a_live_run(world: World) -> None:
    gate = Gate()
    maka = world.open([Turn(calls=CHANGES[:1]), Turn(text="slow", gate=gate)])
    live = maka.send("do it")
    live.until_said("slow")
    with pytest.raises(RefusedError, match="is at work"):
        maka.manager.undo(maka.session_id)
    gate.open()
    live.end()
    assert maka.manager.undo(maka.session_id).status == "completed"
    assert files(world) == {}
