"""What a model request or a tool call came to, as its actor tells the run. Values, not messages."""

from msgspec import Struct

from maka.contracts.actions import ArtifactDelta, FileSeen, WorkspaceChanged
from maka.contracts.content import BlobRef, Outcome
from maka.contracts.model_ports import AssembledCall, ProviderError, UsageReport


class ToolsWanted(Struct, frozen=True, kw_only=True):
    """The step ended with calls."""

    calls: tuple[AssembledCall, ...]
    usage: UsageReport | None
    finish_reason: str
    provider_id: str | None = None
    signature: str | None = None


class Answered(Struct, frozen=True, kw_only=True):
    """The last step ended: the run is complete."""

    usage: UsageReport | None
    finish_reason: str
    provider_id: str | None = None
    signature: str | None = None


class Retry(Struct, frozen=True, kw_only=True):
    """Nothing observable came and the failure may pass: try again after the wait."""

    error: ProviderError
    delay_s: float


class Overflow(Struct, frozen=True, kw_only=True):
    """The request didn't fit the window: try again with a higher level."""

    error: ProviderError


class StepFailed(Struct, frozen=True, kw_only=True):
    """The run fails with this class. `usage` where it is known all the same."""

    failure_class: str
    message: str
    http_status: int | None = None
    code: str | None = None
    usage: UsageReport | None = None
    finish_reason: str | None = None


class Cancelled(Struct, frozen=True):
    """The request was cancelled, or was never started."""


Verdict = ToolsWanted | Answered | Retry | Overflow | StepFailed | Cancelled


class ToolAnswer(Struct, frozen=True, kw_only=True):
    """How a call ended, with its large values already stored."""

    outcome: Outcome
    text: str
    duration_ms: int | None = None
    exit_code: int | None = None
    whole: BlobRef | None = None
    diff: BlobRef | None = None
    seen: FileSeen | None = None
    workspace: WorkspaceChanged | None = None
    artifacts: tuple[ArtifactDelta, ...] = ()
    blobs: tuple[bytes, ...] = ()
