"""Kind D through the whole path: one owner of retries, waits that are shown, bounded and ended by a stop."""

import pytest

from maka.contracts.content import Error
from maka.contracts.session_events import ProviderRetry
from maka.edges.scripted_model import Fault, Turn, in_order
from tests.e2e.harness import World

BUSY = {"message": "slow down", "code": "rate_limit_exceeded"}
BACKOFF_S = (1.0, 1.25)
DONE = Turn(text="done")


@pytest.mark.parametrize(
    ("asked", "least_s", "most_s"),
    [
        ("2", 2.0, 2.0),
        ("-5", *BACKOFF_S),
        ("abc", *BACKOFF_S),
        ("Wed, 21 Oct 2099 07:28:00 GMT", 120.0, 120.0),
        ("3600", 120.0, 120.0),
    ],
)
def test_h19_forms_of_retry_after(world: World, asked: str, least_s: float, most_s: float) -> None:
    world.haste.hold()
    maka = world.open(in_order([Fault(status=429, error=BUSY, headers={"Retry-After": asked}), DONE]))
    live = maka.send()
    wait = live.until(ProviderRetry)
    assert (wait.phase, wait.attempt) == ("scheduled", 2)
    assert 1_000 * least_s <= wait.delay_ms <= 1_000 * most_s
    assert maka.model.count == 1, "nobody else tries again"
    (delay_s,) = world.haste.delays
    assert round(1_000 * delay_s) == wait.delay_ms, "what is shown is what is waited"
    world.haste.release()
    assert live.end().status == "completed"
    assert maka.model.count == 2
    assert [(request.step, request.attempt) for request in maka.actions("model_request")] == [(1, 1), (1, 2)]


def test_h20_stop_during_a_retry_wait(world: World) -> None:
    world.haste.hold()
    maka = world.open([Fault(status=429, error=BUSY, headers={"Retry-After": "20"})])
    live = maka.send()
    live.until(ProviderRetry)
    receipt = maka.manager.stop(maka.session_id, "test")
    assert (receipt.status, receipt.abort_source, receipt.was) == ("aborted", "test", "waiting to retry")
    assert live.end().status == "aborted"
    world.haste.release()
    maka.close()
    assert maka.model.count == 1, "no further request"


def test_h21_context_overflow_that_nothing_can_cure(world: World) -> None:
    maka = world.open([Fault(status=400, error={"code": "context_length_exceeded", "message": "too long"})])
    ended = maka.run()
    assert (ended.status, ended.failure_class) == ("failed", "context_overflow")
    assert maka.model.count <= 5
    levels = [request.window_level for request in maka.actions("model_request")]
    assert levels == sorted(set(levels)), "each try abridges more"


def test_h81_hard_quota_against_short_overload(world: World) -> None:
    quota = {"code": "insufficient_quota", "message": "daily limit reached"}
    maka = world.open(in_order([Fault(status=429, error=quota), Fault(status=503, error="busy"), DONE]))
    first = maka.run("one")
    assert (first.status, first.failure_class) == ("failed", "billing")
    assert "daily limit reached" in maka.contents(Error)[0].message
    assert not world.haste.delays, "a hard quota isn't waited for"
    assert maka.run("two").status == "completed"
    assert len(world.haste.delays) == 1


def test_a_server_that_stays_busy_is_given_up_after_a_bounded_number_of_tries(world: World) -> None:
    maka = world.open([Fault(status=503, error="busy")])
    ended = maka.run()
    assert (ended.failure_class, ended.exit) == ("provider_unavailable", "try_again")
    assert maka.model.count == 10
    assert all(1.0 <= delay_s <= 40.0 for delay_s in world.haste.delays)
