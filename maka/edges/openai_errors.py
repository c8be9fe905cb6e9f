"""The openai client's exceptions -> ProviderError. Statuses are `provider_errors`; this is what has no status."""

import ssl
from collections.abc import Iterator

import httpx2

from maka.contracts.model_ports import ErrorKind, ProviderError
from maka.edges.provider_errors import HttpStatusError, of_response
from maka.edges.redact import Redactor

_TEXT_CHARS_MAX = 500
# A request that can't be made as the profile has it: the same again would fail the same.
_WRONG_REQUEST = (
    httpx2.UnsupportedProtocol,
    httpx2.InvalidURL,
    httpx2.LocalProtocolError,
    ssl.SSLCertVerificationError,
)


def explain(error: BaseException, base_url: str, redact: Redactor, now_ms: int) -> ProviderError:
    """Say what an exception of the connection means."""
    if isinstance(error, HttpStatusError):
        return of_response(error, redact, now_ms)
    chain = list(_chain(error))
    root = next((str(link) for link in reversed(chain) if str(link)), type(error).__name__)
    why = redact.line(root, _TEXT_CHARS_MAX)
    where = redact.line(base_url, 200)
    if wrong := next((link for link in chain if isinstance(link, _WRONG_REQUEST)), None):
        why = redact.line(str(wrong), _TEXT_CHARS_MAX)
        return ProviderError(kind=ErrorKind.REJECTED, message=f"can't ask {where}: {why}; check base_url")
    if any(isinstance(link, httpx2.ConnectError | httpx2.ConnectTimeout) for link in chain):
        message = f"can't reach {where}: {why or 'no answer to the connection'}; is the server running?"
        return ProviderError(kind=ErrorKind.NETWORK, message=message, retryable=True)
    if any(isinstance(link, httpx2.RequestError | OSError) for link in chain):
        message = f"the connection to {where} broke: {why}"
        return ProviderError(kind=ErrorKind.NETWORK, message=message, retryable=True)
    return ProviderError(kind=ErrorKind.UNKNOWN, message=f"the request failed: {type(error).__name__}: {why}")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and what it was raised from, outermost first."""
    seen = 0
    while error is not None and seen < 16:
        yield error
        error = error.__cause__ or error.__context__
        seen += 1
