"""What a request came to: retries only while nothing was seen, waits within bounds, no empty success."""

import pytest

from actors.step_loop import after_failed, after_finished, retry_delay_s
from actors.verdicts import Answered, Cancelled, Overflow, Retry, StepFailed, ToolsWanted
from maka.contracts.errors import FailureClass
from maka.contracts.limits import RETRY_AFTER_MAX_S, RETRY_MAX_S, RETRY_TRIES_MAX
from maka.contracts.model_ports import AssembledCall, ErrorKind, ProviderError, StepResult, UsageReport

CALL = AssembledCall(provider_id="k", name="Read", args={"path": "a"}, raw='{"path":"a"}')
USAGE = UsageReport(input=3, output=1, total=4)


def error(kind: ErrorKind, *, retryable: bool = True, after_s: float | None = None) -> ProviderError:
    return ProviderError(kind=kind, message="trouble", retryable=retryable, retry_after_s=after_s)


def test_h06_calls_win_over_the_finish_reason() -> None:
    verdict = after_finished(StepResult(finish_reason="stop", calls=(CALL,), usage=USAGE), text_seen=False)
    assert verdict == ToolsWanted(calls=(CALL,), usage=USAGE, finish_reason="stop")


def test_text_and_a_reason_are_an_answer() -> None:
    verdict = after_finished(StepResult(finish_reason="length", usage=USAGE), text_seen=True)
    assert verdict == Answered(usage=USAGE, finish_reason="length")


def test_h15_an_answer_of_nothing_is_a_failure_and_its_usage_is_kept() -> None:
    verdict = after_finished(StepResult(finish_reason="stop", usage=USAGE), text_seen=False)
    assert isinstance(verdict, StepFailed)
    assert (verdict.failure_class, verdict.usage) == (FailureClass.EMPTY_ANSWER, USAGE)


def test_a_content_filter_is_a_failure() -> None:
    verdict = after_finished(StepResult(finish_reason="content_filter"), text_seen=True)
    assert isinstance(verdict, StepFailed)
    assert verdict.failure_class == FailureClass.REJECTED


@pytest.mark.parametrize("kind", [kind for kind in ErrorKind if kind is not ErrorKind.CANCELLED])
def test_what_was_observed_is_never_tried_again(kind: ErrorKind) -> None:
    verdict = after_failed(error(kind), observed=True, tries=1, jitter=0.0)
    assert isinstance(verdict, StepFailed)
    assert verdict.failure_class == kind.value


def test_h81_a_passing_overload_is_tried_again_and_a_hard_quota_is_not() -> None:
    assert isinstance(after_failed(error(ErrorKind.PROVIDER_UNAVAILABLE), observed=False, tries=1, jitter=0), Retry)
    hard = error(ErrorKind.BILLING, retryable=False)
    assert isinstance(after_failed(hard, observed=False, tries=1, jitter=0), StepFailed)


def test_tries_are_bounded() -> None:
    trouble = error(ErrorKind.NETWORK)
    assert isinstance(after_failed(trouble, observed=False, tries=RETRY_TRIES_MAX - 1, jitter=0), Retry)
    assert isinstance(after_failed(trouble, observed=False, tries=RETRY_TRIES_MAX, jitter=0), StepFailed)


def test_h21_an_overflow_asks_for_a_higher_level_not_for_a_retry() -> None:
    trouble = error(ErrorKind.CONTEXT_OVERFLOW, retryable=False)
    assert after_failed(trouble, observed=False, tries=1, jitter=0) == Overflow(error=trouble)


def test_a_cancelled_request_is_no_failure() -> None:
    assert after_failed(error(ErrorKind.CANCELLED), observed=True, tries=1, jitter=0) == Cancelled()


@pytest.mark.parametrize(
    ("after_s", "tries", "jitter", "expected_s"),
    [
        (2.0, 1, 0.9, 2.0),
        (-5.0, 1, 0.0, 0.0),
        (3_600.0, 1, 0.0, RETRY_AFTER_MAX_S),
        (None, 1, 0.0, 1.0),
        (None, 1, 1.0, 1.25),
        (None, 3, 0.0, 4.0),
        (None, 9, 0.0, RETRY_MAX_S),
    ],
)
def test_h19_waits_are_the_providers_wish_within_bounds(
    after_s: float | None, tries: int, jitter: float, expected_s: float
) -> None:
    assert retry_delay_s(error(ErrorKind.RATE_LIMIT, after_s=after_s), tries, jitter) == expected_s
