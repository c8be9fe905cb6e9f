"""Background shells on many schedules: each start that is durable has one end, and nothing runs that no fact names."""

import pytest
from msgspec.structs import replace

from tests.sim import mutations_shells
from tests.sim.laws import BrokenLaw
from tests.sim.mutations import Mutation, planted
from tests.sim.story import Story, draw, moments
from tests.sim.swarm import Swarm, attempt
from tests.sim.tools import SHELL

SEEDS = 80
STORIES_MAX = 400
KINDS = (
    "stop", "stop_shell", "shutdown", "crash", "die_kept", "sync_lost", "full",
    "kill_run", "kill_tool", "kill_session", "kill_kernel",
)  # fmt: skip


def told(seed: int, *faults: str) -> Story:
    """Draw a story in which every call begins something in the background."""
    story = draw(seed, faults, share=0.08)
    return replace(story, tools=(SHELL,), calls_max=3, error_share=0.0, odd_share=0.0)


def played(seed: int) -> Swarm:
    """Play such a story."""
    swarm, error = attempt(told(seed))
    if error is not None:
        error.add_note(f"seed {seed}")
        raise error
    assert swarm is not None
    return swarm


def test_every_kind_of_end_is_told_and_no_law_broken() -> None:
    ends: list[tuple[str, str | None]] = []
    for seed in range(SEEDS):
        acts = (item.event.actions for item in played(seed).host.facts())
        ends += [(act.process_ended.how, act.process_ended.by) for act in acts if act is not None and act.process_ended]
    assert {("exited", None), ("orphaned", None), ("stopped", "test.button"), ("stopped", "host.shutdown")} <= set(ends)
    assert any(how == "not_started" for how, _ in ends)
    assert len(ends) > SEEDS


@pytest.mark.parametrize("step", [12, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_trouble_at_each_moment_of_a_start(kind: str, step: int) -> None:
    for number, story in enumerate(moments(kind, SHELL, until=80)):
        if number % step == 0:
            _, error = attempt(story)
            assert error is None, f"{kind} at {story.moves[1].at}"


CASES: tuple[tuple[Mutation, tuple[str, ...], str], ...] = (
    (mutations_shells.begin_before_durable, (), "ran that no durable fact"),
    (mutations_shells.write_no_end, (), "no fact says so"),
    (mutations_shells.forget_what_was_stopped_on_its_way, ("early",), "no fact says so"),
    (mutations_shells.forget_what_is_unclear, ("kill_session",), "no fact says so"),
    (mutations_shells.report_no_orphans, ("crash",), "no fact says so"),
    (mutations_shells.leave_orphans_alive, ("crash",), "processes of a dead owner were killed"),
    (mutations_shells.shut_down_around_them, ("early",), "processes run on"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("mutation", "faults", "law"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_the_stories_see_a_planted_bug(mutation: Mutation, faults: tuple[str, ...], law: str) -> None:
    error: BaseException | None = None
    for seed in range(STORIES_MAX):
        with planted(mutation):
            _, error = attempt(told(seed, *faults))
        if error is not None:
            break
    assert error is not None, "a bug that no story sees"
    with pytest.raises(BrokenLaw, match=law):
        raise error
