"""Many sessions with a run each at the same time in one process: all are completed, and the store is whole."""

import pytest

from maka.contracts.content import FunctionResponse, Outcome
from maka.edges.scripted_model import Call, Turn
from tests.e2e.harness import World

SCRIPT = [Turn(text="I look.", calls=(Call(name="Bash", args={"command": "cat a.txt"}),)), Turn(text="alpha, it says")]


@pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_many_runs_at_the_same_time(world: World, count: int) -> None:
    (world.workspace / "a.txt").write_text("alpha\n")
    maka = world.open(SCRIPT)
    sessions = [maka.new_session() for _ in range(count)]
    lives = [maka.send("look", session) for session in sessions]
    ends = [live.end() for live in lives]
    assert {(ended.status, ended.final_text, ended.steps) for ended in ends} == {("completed", "alpha, it says", 2)}
    assert len({ended.run_id for ended in ends}) == count
    for session in sessions:
        (answer,) = maka.contents(FunctionResponse, session)
        assert (answer.outcome, answer.result) == (Outcome.OK, "alpha\n")
    assert maka.model.count == 2 * count
