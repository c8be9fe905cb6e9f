"""PURE: what a model request came to, and whether it may be tried again.

One owner of retries: per step, and only while nothing observable has come, since a second answer beside a first one
that a person saw would be a lie.
"""

from actors.verdicts import Answered, Cancelled, Overflow, Retry, StepFailed, ToolsWanted, Verdict
from maka.contracts.errors import FailureClass
from maka.contracts.limits import RETRY_AFTER_MAX_S, RETRY_FIRST_S, RETRY_MAX_S, RETRY_TRIES_MAX
from maka.contracts.model_ports import ErrorKind, ProviderError, StepResult

JITTER_SHARE = 0.25
FILTERED = frozenset({"content_filter", "content-filter"})


def after_finished(result: StepResult, *, text_seen: bool) -> Verdict:
    """Decide after a request that ended with a finish reason.

    Calls win over the reason, since some servers say `stop` with calls. An answer of no text and no call is a
    failure: a run that says nothing isn't complete.
    """
    if result.calls:
        return ToolsWanted(
            calls=result.calls,
            usage=result.usage,
            finish_reason=result.finish_reason,
            provider_id=result.provider_id,
            signature=result.signature,
        )
    if result.finish_reason in FILTERED:
        message = "the provider's content filter ended the answer; change the request and send it again"
        return _failed(FailureClass.REJECTED, message, result)
    if not text_seen:
        message = f"the model gave an empty answer (finish reason {result.finish_reason}); send the message again"
        return _failed(FailureClass.EMPTY_ANSWER, message, result)
    return Answered(
        usage=result.usage,
        finish_reason=result.finish_reason,
        provider_id=result.provider_id,
        signature=result.signature,
    )


def after_failed(error: ProviderError, *, observed: bool, tries: int, jitter: float) -> Verdict:
    """Decide after a failed request; `tries` counts this step's requests so far, `jitter` is in [0, 1)."""
    if error.kind is ErrorKind.CANCELLED:
        return Cancelled()
    if error.kind is ErrorKind.CONTEXT_OVERFLOW and not observed:
        return Overflow(error=error)
    if error.retryable and not observed and tries < RETRY_TRIES_MAX:
        return Retry(error=error, delay_s=retry_delay_s(error, tries, jitter))
    return StepFailed(
        failure_class=FailureClass(error.kind.value).value,
        message=error.message,
        http_status=error.http_status,
        code=error.code,
    )


def retry_delay_s(error: ProviderError, tries: int, jitter: float) -> float:
    """Return the wait before the next try: the provider's wish within bounds, else doubling with up to 25% more."""
    if error.retry_after_s is not None:
        return min(max(error.retry_after_s, 0.0), RETRY_AFTER_MAX_S)
    return float(min(RETRY_FIRST_S * 2 ** (tries - 1), RETRY_MAX_S) * (1 + JITTER_SHARE * jitter))


def _failed(failure: FailureClass, message: str, result: StepResult) -> StepFailed:
    return StepFailed(
        failure_class=failure.value, message=message, usage=result.usage, finish_reason=result.finish_reason
    )
