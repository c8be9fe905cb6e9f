"""Stops and ends of hosts while it is still put right what commands left: neither waits for that."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from maka.contracts.content import FunctionResponse, Outcome
from maka.contracts.tool_ports import BoundaryNeed
from maka.edges.scripted_model import Call, Turn
from maka.tools.inside import Inside
from maka.tools.settler import Settler
from tests.e2e import checks
from tests.e2e.harness import WAIT_S, Maka, World
from tests.e2e.test_background import ends

PLANT = "echo evil > CLAUDE.md"


class Held:
    """Keeps the settling of every command from beginning until it is let."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Semaphore(0)
        self.let = threading.Event()
        right = Inside.verdict

        def verdict(inside: Inside, text: str, **told: Any) -> tuple[BoundaryNeed, str] | None:
            self.reached.release()
            assert self.let.wait(2 * WAIT_S)
            return right(inside, text, **told)

        patch.setattr(Inside, "verdict", verdict)


@contextmanager
def holding(world: World) -> Generator[Held]:
    held = Held(world.patch)
    try:
        yield held
    finally:
        held.let.set()


def bash(command: str, **more: bool) -> Turn:
    return Turn(calls=(Call(name="Bash", args={"command": command, **more}),))


def is_moved(maka: Maka) -> bool:
    folder = maka.machine.workspace
    return (folder / "CLAUDE.md.maka-aside-1").exists() and not (folder / "CLAUDE.md").exists()


def test_a_stop_is_answered_while_it_is_put_right(world: World) -> None:
    maka = world.open([bash(PLANT), Turn(text="never said")])
    with holding(world) as held:
        live = maka.send()
        assert held.reached.acquire(timeout=WAIT_S)
        receipt = maka.manager.stop(maka.session_id, "person")
        assert (receipt.status, [call.outcome for call in receipt.calls]) == ("aborted", ["outcome_unknown"])
        assert live.end().status == "aborted"
        maka.model.says(Turn(text="next"))
        assert maka.run("again").status == "completed", "and the session goes on"
    checks.eventually(lambda: is_moved(maka), "what was planted is moved aside all the same")


@pytest.mark.parametrize("in_background", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_host_ends_while_it_is_put_right_and_the_log_is_true(world: World, in_background: bool) -> None:
    """Its end waits for it, but only within its limit: else this test would never end."""
    turns = [bash(PLANT, run_in_background=in_background), Turn(text="it runs")]
    maka = world.open(turns)
    with holding(world) as held:
        live = maka.send()
        assert held.reached.acquire(timeout=WAIT_S)
        if in_background:
            assert live.end().status == "completed"
        maka.reopen()
        if in_background:
            (end,) = ends(maka)
            assert (end.how, end.exit_code) == ("orphaned", None)
        else:
            (answer,) = maka.contents(FunctionResponse)
            assert answer.outcome is Outcome.OUTCOME_UNKNOWN
            assert "may not have been put right: look in the workspace for a new .git" in answer.result
            assert maka.record(live.run_id).abort_source == "host.shutdown"
    checks.eventually(lambda: is_moved(maka), "what was planted is moved aside all the same")
    assert len(maka.contents(FunctionResponse)) == 1 and len(ends(maka)) == int(in_background)


@pytest.mark.slow
def test_a_host_that_ends_waits_for_what_is_put_right_soon(world: World) -> None:
    maka = world.open([bash(PLANT), Turn(text="never said")])
    with holding(world) as held:
        maka.send()
        assert held.reached.acquire(timeout=WAIT_S)
        assert maka.manager.stop(maka.session_id, "person").status == "aborted"
        wait = Settler.wait

        def let_go(settler: Settler, timeout_s: float) -> bool:
            held.let.set()
            return wait(settler, timeout_s)

        world.patch.setattr(Settler, "wait", let_go)
        maka.close()
        assert is_moved(maka)
