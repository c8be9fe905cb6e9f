"""PURE: the state of one run between two messages, what may be decided, and the effects that follow.

State is what the facts say (`facts`, `history`, `seen`: folds of this run's log) plus what only lives in memory: text
that streams, tools that run, the append in flight, the claim.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from actors import tool_gate
from actors.mapper import At, Who
from actors.run_effects import Effect
from actors.verdicts import ToolAnswer
from maka.contracts.actions import Actions, ModelRequest
from maka.contracts.commands import AnswerTaken
from maka.contracts.commands import Reply as Replied
from maka.contracts.content import Error, RunLimits
from maka.contracts.events import RuntimeEvent, Status
from maka.contracts.ids import CallId, EventId, IdSource
from maka.contracts.tool_ports import Asked, ToolCatalog, Turn
from projections.boundary import BoundaryState
from projections.chunks import Chunks
from projections.model_history import History
from projections.run_state import RunState
from projections.settlement import Ending
from projections.undo_plan import UndoStep


class Stream(Struct, frozen=True, kw_only=True):
    """A text that streams; all of its `chars` but those of `fresh` are with the ledger as partials."""

    id: EventId
    kind: str
    pieces: Chunks[str] = Chunks()
    chars: int = 0
    fresh: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Work(Struct, frozen=True, kw_only=True):
    """An open call's side in memory. `args` is None where the gate refused it; `wait_id` is that of its request.

    `turn` is the file that it is about, if it is about one.
    """

    call_id: CallId
    name: str
    step: int
    args: dict[str, Any] | None
    turn: Turn | None = None
    started: bool = False
    answer: ToolAnswer | None = None
    wait_id: EventId | None = None


class Purpose(StrEnum):
    """What the append in flight is for, and so what follows its commit."""

    STEP = "step"
    DISPATCH = "dispatch"
    ANSWER = "answer"
    FACT = "fact"
    ASK = "ask"
    REQUEST = "request"
    FINAL = "final"
    SETTLE = "settle"


class NextRequest(Struct, frozen=True):
    """A request that the append in flight records; sent once it is durable."""

    step: int
    attempt: int
    tries: int
    body: bytes


class InFlight(Struct, frozen=True, kw_only=True):
    """The one unanswered append. `token` and `call_id` are those of the FactWanted that it serves.

    `reply` is whom to tell that an answer was taken, and what, but for the position.
    """

    tag: int
    purpose: Purpose
    events: tuple[RuntimeEvent, ...]
    request: NextRequest | None = None
    work: tuple[Work, ...] = ()
    token: int = 0
    call_id: CallId | None = None
    reply: tuple[object, AnswerTaken] | None = None


class Claim(Struct, frozen=True, kw_only=True):
    """The run's ending, taken by the first message that ends it.

    `extras` are facts to settle with it; `final` are the whole last facts of a completed run, in place of a settlement,
    and `blobs` the values that those name.
    """

    ending: Ending
    was: str
    final: tuple[RuntimeEvent, ...] = ()
    blobs: tuple[bytes, ...] = ()
    extras: tuple[RuntimeEvent, ...] = ()
    forced: bool = False
    retry_s: float = 0.0


class Plan(Struct, frozen=True, kw_only=True):
    """What was decided about a run before it began. `started_s` is moved on by the time that it was parked.

    A run with `undo` asks no model: it puts these files back.
    """

    who: Who
    cwd: str
    limits: RunLimits
    started_s: float
    body: bytes
    undo: tuple[UndoStep, ...] | None = None


class State(Struct, frozen=True, kw_only=True):
    """One run. `generation` counts requests sent; `tries` counts those of the current step.

    `gated` are the step's calls until they are dispatched, of which those in `looking` aren't judged yet.
    `dead` are calls whose actor has crashed, some of them before they were dispatched, each with the reason.
    `step_seen` is what was `seen` before them, which is all that the model knew of the files when it made them.

    Of an undo, `undone` counts the files begun, `trouble` names those that were not put back.
    """

    plan: Plan
    facts: RunState
    history: History
    seen: Mapping[str, str]
    boundary: BoundaryState
    step: int = 1
    attempt: int = 1
    tries: int = 1
    generation: int = 0
    body: bytes = b""
    streams: tuple[Stream, ...] = ()
    step_calls: tuple[RuntimeEvent, ...] = ()
    gated: tuple[Work, ...] = ()
    looking: frozenset[CallId] = frozenset()
    step_seen: Mapping[str, str] = {}
    dead: Mapping[CallId, str] = {}
    work: tuple[Work, ...] = ()
    asked: Mapping[EventId, Asked] = {}
    outputs: Mapping[tuple[CallId, str], int] = {}
    in_flight: InFlight | None = None
    tags: int = 0
    claim: Claim | None = None
    waiting_retry: bool = False
    partial_armed: bool = False
    bad_rounds: int = 0
    failures: tool_gate.Failures = tool_gate.Failures()
    tokens: int = 0
    undone: int = 0
    trouble: tuple[str, ...] = ()
    receipt: Replied | None = None
    ended: bool = False


class Built(Struct, frozen=True, kw_only=True):
    """A request ready to be recorded and sent."""

    body: bytes
    action: ModelRequest


class NeedsRaise(Struct, frozen=True):
    """The request would pass the window's share: record what there is, then build again with a raise."""


class Wanted(Struct, frozen=True, kw_only=True):
    """Which request: `history_seq` is the last seq of the run that it includes."""

    step: int
    attempt: int
    history_seq: int
    active_ms: int = 0


class Build(Protocol):
    """Builds a request. `raise_through` is the committed position that a raise may hold through, None for no raise.

    `rise` forces one level more, after a provider's overflow. Returns the run's ending where nothing fits any more.
    """

    def __call__(
        self, history: History, wanted: Wanted, *, raise_through: int | None, rise: bool = False
    ) -> Built | NeedsRaise | Ending: ...


class Env(Struct, frozen=True, kw_only=True):
    """What a decision may use beside the state: ids, the time, the tools' faces and the request builder, all pure."""

    ids: IdSource
    now_ms: int
    now_s: float
    tools: ToolCatalog
    build: Build


class Deciding:
    """One decision in the making: private to `decide`, so that its parts read as steps."""

    def __init__(self, state: State, env: Env) -> None:
        self.state = state
        self.env = env
        self.effects: list[Effect] = []

    def set(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)

    def do(self, *effects: Effect) -> None:
        self.effects.extend(effects)

    def at(self) -> At:
        """Mint an event's id and take its time."""
        return At(self.env.ids(), self.env.now_ms)

    @property
    def who(self) -> Who:
        return self.state.plan.who


class Decision(Struct, frozen=True):
    """The state after a message, and what to do, in this order."""

    state: State
    effects: tuple[Effect, ...] = ()


# -- words --------------------------------------------------------------------------------------------------------


def asked_by(actions: Actions) -> Asked | None:
    """Return what a fact asks a person; None where it asks nothing."""
    if actions.user_question_request is not None:
        return actions.user_question_request
    return actions.state_delta.boundary_request if actions.state_delta is not None else None


def failure(failure_class: str, message: str, *, http_status: int | None = None, code: str | None = None) -> Ending:
    """Return the ending of a failed run."""
    error = Error(message=message, code=failure_class, http_status=http_status, provider_code=code)
    return Ending(status=Status.FAILED, failure_class=failure_class, error=error, stop_reason="error")
