"""The suite sees planted bugs: each breaks the law that it should, within a bounded number of stories.

A mutation that nobody sees means a checker that is missing. The same stories pass without a mutation.
"""

from collections.abc import Iterable
from itertools import islice

import pytest

from maka.contracts.model_ports import ErrorKind
from maka.contracts.session_events import TextDelta
from tests.actors.case import Case, stop, then, trouble
from tests.sim import mutations, mutations_log
from tests.sim.checkers import Checker
from tests.sim.laws import BrokenLaw
from tests.sim.model import Said
from tests.sim.mutations import Mutation, planted
from tests.sim.story import Story, draw, moments
from tests.sim.swarm import attempt

STORIES_MAX = 400
SAME_STORIES = 25


def swarm(*faults: str) -> Iterable[Story]:
    """Stories of the swarm, with these faults or with any."""
    return (draw(seed, faults) for seed in range(STORIES_MAX))


STUCK = "nobody works on it|nobody takes them"
CASES: tuple[tuple[Mutation, tuple[str, ...], str], ...] = (
    (mutations.drop_the_claim, ("full", "refuse", "early"), "was to end as|names an ending"),
    (mutations.skip_a_settle, (), "pairing_violation"),
    (mutations.forget_the_waits, ("early",), "pairing_violation"),
    (mutations.settle_before_the_tools_end, ("early",), "had been answered|is said to be"),
    (mutations.never_try_again, ("full",), STUCK),
    (mutations.start_after_a_stop, (), "for a run that had ended|asks nothing"),
    (mutations_log.publish_before_commit, (), "published before it was durable"),
    (mutations_log.publish_not, (), r"position \d+ was published after"),
    (mutations_log.dispatch_before_durable, (), "no durable dispatch"),
    (mutations_log.dispatch_what_is_refused, (), "its tool had refused"),
    (mutations_log.look_after_the_dispatch, (), "dispatched already"),
    (mutations_log.start_all_at_once, (), "an earlier one on its file"),
    (mutations_log.grant_before_durable, (), "an effect before its fact"),
    (mutations_log.next_request_without_a_response, (), "open calls"),
    (
        mutations_log.accept_after_seal,
        ("crash", "kill_run"),
        "run .* has ended|after its terminal|position|identity_conflict",
    ),
    (mutations_log.commit_half_a_batch, (), "durable|published|append_conflict|seq"),
    (mutations_log.forget_command_ids, (), "two outcomes|more than one append|came to"),
    (mutations_log.partial_after_final, (), "unfinished text is left"),
    (mutations_log.wrong_seq_after_a_refusal, ("refuse",), "append_conflict"),
    (mutations.reuse_a_generation, (), "a generation is used once"),
    (mutations.unsticky_cancel, ("early",), "for a run that had ended"),
    (mutations.lost_stash, ("early",), STUCK),
    (mutations.no_answer_to_a_dropped_command, ("kill_session", "kill_run"), "without an answer"),
    (mutations.accept_a_second_answer, (), "answered twice|isn't durable"),
    (mutations.hold_the_queue, ("refuse",), f"{STUCK}|without an answer"),
    (mutations.keep_what_a_tool_prints, (), "a secret was stored"),
    (mutations.show_what_a_tool_prints, (), "a secret was shown"),
    (mutations.name_a_process_as_it_is, (), "a secret was stored"),
    (mutations_log.recovery_runs_a_tool_again, ("crash",), f"started twice|no durable dispatch|{STUCK}"),
    (mutations_log.recovery_leaves_runs_open, ("crash",), f"{STUCK}|open calls"),
    (mutations_log.recovery_forgets_the_queue, ("crash",), STUCK),
    (mutations_log.recovery_kills_nothing, ("crash",), "before the processes"),
    (mutations_log.recovery_removes_no_temp_file, ("crash",), "before the temp files"),
)
MOMENTS: tuple[tuple[Mutation, str, str], ...] = (
    (mutations.passivate_with_a_command_on_its_way, "send", "Quick"),
    (mutations.let_a_run_go_with_an_answer_on_its_way, "answer", "Ask"),
)


def seen(mutation: Mutation, stories: Iterable[Story]) -> BaseException:
    """Return what the first story that fails with a mutation says."""
    for story in stories:
        with planted(mutation):
            _, error = attempt(story)
        if error is not None:
            return error
    raise AssertionError(f"{mutation.__name__} is a bug that no story sees")


@pytest.mark.slow
@pytest.mark.parametrize(("mutation", "faults", "law"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_the_swarm_sees_a_planted_bug(mutation: Mutation, faults: tuple[str, ...], law: str) -> None:
    error = seen(mutation, swarm(*faults))
    with pytest.raises((BrokenLaw, AssertionError), match=law):
        raise error


@pytest.mark.slow
@pytest.mark.parametrize(("mutation", "kind", "tool"), MOMENTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_bug_of_one_moment_is_seen_at_that_moment(mutation: Mutation, kind: str, tool: str) -> None:
    error = seen(mutation, moments(kind, tool))
    with pytest.raises(BrokenLaw, match=STUCK):
        raise error


@pytest.mark.slow
@pytest.mark.parametrize("faults", sorted({faults for _, faults, _ in CASES}), ids=",".join)
def test_the_same_stories_pass_without_a_planted_bug(faults: tuple[str, ...]) -> None:
    for story in islice(swarm(*faults), SAME_STORIES):
        _, error = attempt(story)
        assert error is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "tool"), [("send", "Quick"), ("answer", "Ask"), ("stop", "Process"), ("stop", "Late")]
)
def test_whatever_comes_at_any_moment_breaks_nothing(kind: str, tool: str) -> None:
    for story in moments(kind, tool):
        _, error = attempt(story)
        assert error is None, story


# -- bugs that need a scenario of their own -----------------------------------------------------------------------


def stopped_without_room() -> Case:
    """A stop whose ending finds no room, while a model that heeds no cancel goes on to its end."""
    case = Case(then(Said(text=("a", "b", "c"), odd="deaf"), Said(text=("fine",))))
    case.until(lambda: len(case.shown(TextDelta)) == 1)
    case.host.store.full = True
    refused = stop(case)
    case.until(lambda: refused.value is not None)
    for _ in range(60):
        case.host.world.step()
    case.host.store.full = False
    assert case.finish().status == "aborted"
    assert "c" not in "".join(event.text for event in case.shown(TextDelta))
    return case


def test_h24_a_model_that_heeds_no_cancel_changes_nothing_after_a_stop_without_room() -> None:
    stopped_without_room()


def test_late_facts_are_seen() -> None:
    with planted(mutations.late_facts_count), pytest.raises(AssertionError):
        stopped_without_room()


def test_a_forgotten_bound_of_retries_is_seen() -> None:
    def plays() -> None:
        case = Case(lambda _: trouble(ErrorKind.NETWORK, retryable=True))
        for _ in range(3_000):
            if not case.host.world.step():
                break
        Checker(case.host).step()

    plays()
    with planted(mutations.forget_the_retry_bound), pytest.raises(BrokenLaw, match="was asked for"):
        plays()
