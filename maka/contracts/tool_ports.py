"""Ports of tools, and what they make durable.

A tool's `start` returns at once or after short file work; it reports through its listener, from any thread. No
effect happens before its fact is durable: the tool hands the fact to `listener.commit` and goes on in `then`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from maka.contracts.actions import BoundaryRequest, FileSeen, ProcessIdentity, RecoveryMode, UserQuestionRequest
from maka.contracts.boundary import Boundary, Expansion
from maka.contracts.content import Outcome
from maka.contracts.ids import CallId, EventId, SessionId
from maka.contracts.model_ports import ToolSpec


class ToolCall(Struct, frozen=True, kw_only=True):
    """A call that passed the gate: `args` fits the tool's schema."""

    call_id: CallId
    name: str
    args: dict[str, Any]


class ToolEnv(Struct, frozen=True, kw_only=True):
    """Where a call runs. `seen` maps real paths to the SHA-256 that this session last saw there, before this step.

    `boundary` is what the call may touch; it is read anew for each call.
    """

    session_id: SessionId
    cwd: str
    temp_suffix: str
    seen: Mapping[str, str] = {}
    boundary: Boundary = Boundary()


class FileFact(Struct, frozen=True, kw_only=True):
    """A change that a tool wants to make: the raw material of a `file_change` fact."""

    path: str
    before_sha256: str | None
    after_sha256: str | None
    pre_image: bytes | None
    temp_name: str
    mode: int | None = None
    undoes: EventId | None = None


class FileNow(Struct, frozen=True, kw_only=True):
    """A file as it is: its SHA-256, None where no file is. `problem` says why it can't be used, for people."""

    sha256: str | None = None
    problem: str | None = None


class WorkspaceDiff(Struct, frozen=True, kw_only=True):
    """The raw material of a `workspace_changed` fact: sorted paths relative to the workspace, all of them."""

    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    unlooked: str | None = None


class ProcessFact(Struct, frozen=True, kw_only=True):
    """A process that waits behind its gate: the raw material of a `process_started` fact."""

    process: ProcessIdentity
    command: str
    background: bool = False


ToolFact = FileFact | ProcessFact


class Handover(Struct, frozen=True, kw_only=True):
    """What became of the wish that a process outlives its run.

    With a `shell_id` its fact is durable. Else `refusal` says why it must not begin; where it is `unclear` whether
    there is a fact, the process must not begin either, and its end has to be told all the same.
    """

    shell_id: str | None = None
    refusal: str = ""
    unclear: bool = False


class BoundaryNeed(Struct, frozen=True, kw_only=True):
    """What a call would have needed: an expansion that can be asked for, or None where only a bypass would do.

    `instead` is what a person can do where no answer to a request helps, but something short of a bypass does.
    """

    expansion: Expansion | None
    reason: str
    instead: str = ""


class ToolResult(Struct, frozen=True, kw_only=True):
    """How a call ended. `text` is what the model sees, within bounds; `whole` and `diff` are for people."""

    outcome: Outcome
    text: str
    whole: bytes | None = None
    diff: str | None = None
    exit_code: int | None = None
    seen: FileSeen | None = None
    need: BoundaryNeed | None = None
    workspace: WorkspaceDiff | None = None

    @property
    def is_error(self) -> bool:
        return self.outcome is not Outcome.OK


class ToolListener(Protocol):
    """Receives one call's facts: outputs and commits, then exactly one `ended`."""

    def output(self, stream: str, text: str) -> None:
        """Show a piece of live output; it isn't durable."""
        ...

    def commit(self, fact: ToolFact, then: Callable[[bool], None]) -> None:
        """Make a fact durable, then call `then(True)`; `then(False)` means that the effect must not happen."""
        ...

    def keep(self, fact: ProcessFact, then: Callable[[Handover], None]) -> None:
        """Make the fact of a background process durable in its session, then call `then`, once or, if it was
        unclear at first, twice. Any thread.
        """
        ...

    def ended(self, result: ToolResult) -> None: ...


class Tool(Protocol):
    """One thing that a model may call."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def recovery_mode(self) -> RecoveryMode: ...

    @property
    def exclusive(self) -> bool:
        """Say whether the call must be alone in its step."""
        ...

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        """Begin, and return a function that cancels: thread-safe, idempotent, `ended` still comes."""
        ...


class UndoTool(Tool, Protocol):
    """Puts one file back: a tool of Maka's own, which no model is offered."""

    def look(self, cwd: str, path: str) -> FileNow:
        """Say what a file is now, by the rules that file tools go by."""
        ...


@runtime_checkable
class BoundedTool(Tool, Protocol):
    """A tool whose call may be refused by the session's boundary: it is asked before the call is dispatched."""

    def refusal(self, call: ToolCall, env: ToolEnv) -> ToolResult | None:
        """Return why the call must not begin; None where it may. Short file work without an effect.

        What it finds may change before the call begins: `start` judges again.
        """
        ...


class Turn(Struct, frozen=True, kw_only=True):
    """Which file a call is about, by its real path, and whether it may change it."""

    path: str
    writes: bool


@runtime_checkable
class FileTool(BoundedTool, Protocol):
    """A tool that is about one named file: calls of one step on the same file run in the order of the calls."""

    def turn(self, call: ToolCall, env: ToolEnv) -> Turn:
        """Return which file a call that isn't refused is about. Short file work without an effect."""
        ...


Asked = BoundaryRequest | UserQuestionRequest


@runtime_checkable
class AskingTool(Protocol):
    """A tool whose answer comes from a person: it isn't dispatched, its request parks the run."""

    def prepare(self, call: ToolCall, env: ToolEnv) -> Asked | str:
        """Return the request, normalised against what is really there, or the text of a refusal. Short file work."""
        ...


class ToolCatalog(Protocol):
    """The tools of a run, in the order in which the model is shown them."""

    def specs(self) -> tuple[ToolSpec, ...]: ...

    def get(self, name: str) -> Tool | None: ...
