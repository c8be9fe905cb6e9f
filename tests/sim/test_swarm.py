"""The laws hold on every schedule that the seeds draw. A failure tells its seed and the shortest story that fails.

`python -m tests.sim.swarm FIRST COUNT` plays more, `make sim SEEDS=100000` many more on all cores.
"""

import secrets
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from maka.storage.memory import MemoryLedger, MemoryState
from tests.sim.story import ACTIONS, FAULTS, draw
from tests.sim.swarm import attempt, play

FIXED = 300
FRESH = 100
BLOCK = 50


@pytest.mark.parametrize("block", range(FIXED // BLOCK))
def test_laws_hold_on_fixed_seeds(block: int) -> None:
    """Laws 1, 2 and 4, on the same stories each time."""
    for seed in range(BLOCK * block, BLOCK * block + BLOCK):
        play(seed)


def test_laws_hold_on_fresh_seeds() -> None:
    """The same on stories that nobody has seen; the failing seed is in the error's notes."""
    for _ in range(FRESH):
        play(secrets.randbelow(1 << 40))


@pytest.mark.slow
def test_laws_hold_on_many_seeds() -> None:
    for seed in range(10_000, 14_000):
        play(seed)


def test_a_seed_is_a_whole_story() -> None:
    """The same seed gives the same schedule and the same facts, or a failure could not be looked at again."""
    for seed in (7, 8, 9):
        first, second = play(seed), play(seed)
        assert (first.told, first.choices.made) == (second.told, second.choices.made)
        assert [item.event for item in first.host.facts()] == [item.event for item in second.host.facts()]


def test_the_fixed_seeds_tell_of_everything() -> None:
    """Each action and each fault is in many stories, and so is each kind of ending."""
    told = [move.kind for seed in range(FIXED) for move in draw(seed).moves]
    assert {kind for kind in (*ACTIONS, *FAULTS) if told.count(kind) < 20} == set()
    endings: set[str | None] = set()
    for seed in range(60):
        for run in play(seed).checker.runs.values():
            assert run.terminal is not None
            endings.add(run.terminal.failure_class or run.terminal.status.value)
    assert {"completed", "aborted", "app_restarted", "actor_crashed", "interrupted_tool"} <= endings
    assert {"missing_terminal_event", "tool_step_cap_reached", "deadline", "ledger_unavailable"} <= endings


def test_a_failure_is_told_in_its_shortest_story() -> None:
    """A store that loses what it was given: a few moves and hardly any choice of the scheduler are left."""

    def forgetful(self: MemoryLedger) -> MemoryState:
        return replace(whole(self), commands={})

    whole = MemoryLedger.snapshot
    with patch.object(MemoryLedger, "snapshot", forgetful):
        broken = next(seed for seed in range(100) if attempt(draw(seed))[1] is not None)
        with pytest.raises(BaseException, match=r"\w") as failure:
            play(broken)
    (note,) = failure.value.__notes__
    assert note.startswith(f"seed {broken}\n")
    moves = [line for line in note.splitlines() if line.startswith("step")]
    assert len(moves) < len(draw(broken).moves)
    assert len(moves) < 20, note
