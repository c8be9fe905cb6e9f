"""What closes a run in one append: unfinished texts, a response for every open call, every wait, the terminal.

The live ending and recovery write the same thing, so it is built here, from what is open and what is known. At most
SETTLEMENT_BYTES_MAX by construction: long text keeps head and tail in the event and the whole goes to a blob; where
many long values meet, each keeps less.
"""

from collections.abc import Sequence
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.actions import Actions, ArtifactDelta, FileSeen, Recovery, StateDelta, WorkspaceChanged
from maka.contracts.codec import encode, hash_hex
from maka.contracts.content import BlobRef, Content, Error, FunctionResponse, Outcome, Text, Thinking
from maka.contracts.events import Author, Refs, Role, RuntimeEvent, Status
from maka.contracts.ids import CallId, EventId, IdSource
from maka.contracts.limits import ERROR_TEXT_CHARS_MAX, SETTLE_KEEP_CHARS, SETTLEMENT_BYTES_MAX
from projections.run_state import OpenCall, RunIdentity
from projections.shorten import head_and_tail

_SHORT_CHARS = 128
COMMAND_TOOL = "Bash"
_NOT_PUT_RIGHT = (
    " What the command left may not have been put right: look in the workspace for a new .git, .envrc, AGENTS.md and "
    "the like, which take effect outside of the sandbox."
)
"""A command's end is looked at before it is told. Nobody remembers over a restart that this wasn't done."""

_NAMES_KEPT_FROM = 4_000
"""With fewer characters of each text kept, the names of changed files go: their counts stay."""


class Unfinished(Struct, frozen=True, kw_only=True):
    """A stream that was cut: `stream_id` becomes the id of its final event. `kind` is text or thinking."""

    stream_id: EventId
    kind: str
    text: str
    refs: Refs | None = None


class KnownResult(Struct, frozen=True, kw_only=True):
    """What a call's end really was, for a call that ended before the run was closed."""

    response: FunctionResponse
    file_seen: FileSeen | None = None
    workspace_changed: WorkspaceChanged | None = None
    artifacts: tuple[ArtifactDelta, ...] = ()


class Ending(Struct, frozen=True, kw_only=True):
    """How the run ends. A failure has its class and error, a stop its source; `reason` is told to the model."""

    status: Status
    failure_class: str | None = None
    error: Error | None = None
    abort_source: str | None = None
    stop_reason: str | None = None
    steps: int | None = None
    duration_ms: int | None = None
    recovery: Recovery | None = None

    @property
    def reason(self) -> str:
        match self.status:
            case Status.COMPLETED:
                return "the run was completed"
            case Status.ABORTED | Status.CANCELLED:
                return "the run was stopped"
            case Status.FAILED | Status.STREAMING:
                return f"the run failed ({self.failure_class})"
            case _ as never:
                assert_never(never)


class Settlement(Struct, frozen=True, kw_only=True):
    """The events of one append, the terminal last, and the values that they name, of any size."""

    events: tuple[RuntimeEvent, ...]
    blobs: tuple[bytes, ...] = ()


def settle(
    run: RunIdentity,
    *,
    calls: Sequence[OpenCall] = (),
    waits: Sequence[EventId] = (),
    streams: Sequence[Unfinished] = (),
    results: Sequence[KnownResult] = (),
    ending: Ending,
    ids: IdSource,
    now_ms: int,
) -> Settlement:
    """Build what closes a run: texts, responses in call order, waits, terminal.

    `results` holds the true results of those open calls that have ended; every other call gets the verdict that is
    true of it (outcome_unknown, aborted, not_started). Blobs over BLOB_INLINE_BYTES_MAX must be stored before.
    """
    known = {result.response.call_id: result for result in results}
    source = _Source(run, now_ms)
    texts = [stream for stream in streams if stream.text]
    response_ids = [EventId(ids()) for _ in calls]
    wait_events = [
        source.event(
            EventId(ids()), actions=Actions(state_delta=StateDelta(wait_closed=wait, wait_closed_reason=ending.reason))
        )
        for wait in waits
    ]
    terminal = source.event(EventId(ids()), content=_error(ending), actions=_terminal_actions(ending))
    terminal = replace(terminal, status=ending.status)
    # The first that fits, so that the next history loses as little as it must of what was seen. The last always
    # fits, as a step has at most 32 calls.
    for keep in SETTLE_KEEP_CHARS:
        blobs: dict[str, bytes] = {}
        bare = keep == SETTLE_KEEP_CHARS[-1]
        said = [_text_event(source, stream, keep, blobs) for stream in texts]
        answered = [
            _response_event(source, event_id, call, known.get(call.call_id), ending, keep, bare, blobs)
            for event_id, call in zip(response_ids, calls, strict=True)
        ]
        events = (*said, *answered, *wait_events, terminal)
        if sum(len(encode(event)) for event in events) <= SETTLEMENT_BYTES_MAX:
            break
    else:
        raise AssertionError(f"a settlement of {len(calls)} calls and {len(waits)} waits has no form that is small")
    return Settlement(events=events, blobs=tuple(blobs.values()))


class _Source(Struct, frozen=True):
    """Makes facts of one run at one time."""

    run: RunIdentity
    now_ms: int

    def event(
        self,
        event_id: EventId,
        *,
        role: Role = Role.SYSTEM,
        author: Author = Author.SYSTEM,
        content: Content | None = None,
        actions: Actions | None = None,
        refs: Refs | None = None,
    ) -> RuntimeEvent:
        run = self.run
        return RuntimeEvent(
            id=event_id,
            session_id=run.session_id,
            invocation_id=run.invocation_id,
            turn_id=run.turn_id,
            run_id=run.run_id,
            branch=run.branch,
            ts=self.now_ms,
            role=role,
            author=author,
            content=content,
            actions=actions,
            refs=refs,
        )


def _shorten(text: str, keep: int, blobs: dict[str, bytes]) -> tuple[str, BlobRef | None]:
    if len(text) <= keep:
        return text, None
    data = text.encode()
    digest = hash_hex(data)
    blobs[digest] = data
    return head_and_tail(text, keep), BlobRef(sha256=digest, size_bytes=len(data))


def _text_event(source: _Source, stream: Unfinished, keep: int, blobs: dict[str, bytes]) -> RuntimeEvent:
    text, whole = _shorten(stream.text, keep, blobs)
    content: Content
    if stream.kind == "thinking":
        content = Thinking(text=text, interrupted=True, whole=whole)
    else:
        content = Text(text=text, interrupted=True, whole=whole)
    return source.event(stream.stream_id, role=Role.MODEL, author=Author.AGENT, content=content, refs=stream.refs)


def _response_event(
    source: _Source,
    event_id: EventId,
    call: OpenCall,
    known: KnownResult | None,
    ending: Ending,
    keep: int,
    bare: bool,
    blobs: dict[str, bytes],
) -> RuntimeEvent:
    refs = _short_refs(call)
    if known is None:
        response = unanswered(call, ending.reason)
        return source.event(event_id, role=Role.TOOL, content=response, refs=refs)
    result, whole = _shorten(known.response.result, keep, blobs)
    response = replace(known.response, result=result, whole=known.response.whole or whole)
    acts = _short_actions(known, keep, bare)
    return source.event(event_id, role=Role.TOOL, author=Author.TOOL, content=response, actions=acts, refs=refs)


def _short_actions(known: KnownResult, keep: int, bare: bool) -> Actions | None:
    """Return what rides on a response, without names where room is short.

    What was seen of a file may be as long as a path; without it a later Edit asks for a new Read, no more.
    """
    if bare:
        return None
    seen, changed = known.file_seen, known.workspace_changed
    if changed is not None and keep < _NAMES_KEPT_FROM:
        changed = replace(changed, added=(), modified=(), deleted=())
    if seen is None and changed is None and not known.artifacts:
        return None
    return Actions(file_seen=seen, workspace_changed=changed, artifact_delta=known.artifacts)


def unanswered(call: OpenCall, reason: str) -> FunctionResponse:
    """Return the true response of a call that has no result: its outcome follows from dispatch and wait."""
    if call.dispatched:
        outcome = Outcome.OUTCOME_UNKNOWN
        words = f"The outcome of this call is unknown: {reason} while it was under way. Check before you repeat it."
        if call.name == COMMAND_TOOL:
            words += _NOT_PUT_RIGHT
    elif call.wait_id is not None:
        outcome, words = Outcome.ABORTED, f"This call was not answered: {reason} before a person answered."
    else:
        outcome, words = Outcome.NOT_STARTED, f"This call was not started: {reason} before."
    return FunctionResponse(
        call_id=CallId(call.call_id), name=call.name[:_SHORT_CHARS], result=words, outcome=outcome, is_error=True
    )


def _short_refs(call: OpenCall) -> Refs | None:
    """Keep what ties the response to its call, where a provider's ids are of a sane length."""
    if call.refs is None and call.operation_id is None:
        return None
    refs = call.refs or Refs()
    provider_id = refs.tool_call_id
    return Refs(
        tool_call_id=provider_id if provider_id is None or len(provider_id) <= _SHORT_CHARS else None,
        operation_id=call.operation_id,
        step_id=refs.step_id,
    )


def _error(ending: Ending) -> Error | None:
    if ending.error is None:
        return None
    details = tuple(detail[:_SHORT_CHARS] for detail in ending.error.details[:8])
    return replace(ending.error, message=ending.error.message[:ERROR_TEXT_CHARS_MAX], details=details)


def _terminal_actions(ending: Ending) -> Actions:
    delta = StateDelta(
        stop_reason=ending.stop_reason,
        abort_source=ending.abort_source,
        failure_class=ending.failure_class,
        duration_ms=None if ending.duration_ms is None else max(0, ending.duration_ms),
        steps=ending.steps,
        recovery=ending.recovery,
    )
    return Actions(state_delta=delta, end_invocation=True)
