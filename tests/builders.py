"""Tiny builders of logs: a session's facts as the runtime writes them, with ids and positions that count up."""

from collections.abc import Iterator
from typing import Any

from maka.contracts.actions import (
    Actions,
    FileChange,
    FileSeen,
    MessageQueued,
    MessageRetracted,
    ModelRequest,
    StateDelta,
    TokenUsage,
    ToolDispatch,
    UserQuestionRequest,
)
from maka.contracts.codec import hash_hex
from maka.contracts.content import (
    BlobRef,
    Content,
    Error,
    FunctionCall,
    FunctionResponse,
    InvocationOpened,
    Outcome,
    Route,
    RunConfiguration,
    RunLimits,
    SessionOpened,
    Text,
    Thinking,
)
from maka.contracts.events import Author, Committed, ModelVisibility, Refs, Role, RuntimeEvent, Status
from maka.contracts.ids import CallId, EventId, InvocationId, MessageId, RunId, SessionId, TurnId

HASH = "a" * 64
BLOB_BYTES = b"a stored value"
BLOB = BlobRef(sha256=hash_hex(BLOB_BYTES), size_bytes=len(BLOB_BYTES))
"""What openings name as prompt and tools: a store must be given these bytes first."""


class Ids:
    """Mints UUIDv7-shaped ids that count up, the same in every run of a test."""

    def __init__(self, prefix: int = 0) -> None:
        self._prefix = prefix
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        return f"{self._prefix:08x}-{self._count >> 16:04x}-7000-8000-{self._count:012x}"


class RunLog:
    """Writes one run into a session's log."""

    def __init__(self, log: "SessionLog", route: Route) -> None:
        self.log = log
        self.run_id = RunId(log.ids())
        self.invocation_id = InvocationId(self.run_id)
        self.turn_id = TurnId(log.ids())
        self.route = route
        self.step = 0
        self.add(
            content=InvocationOpened(
                route=route,
                configuration=RunConfiguration(
                    cwd="/w", boundary_revision=0, limits=RunLimits(), prompt=BLOB, tools=BLOB, history_position=0
                ),
            ),
            model_visibility=ModelVisibility.HIDDEN,
        )

    def add(
        self, *, role: Role = Role.SYSTEM, author: Author = Author.SYSTEM, event_id: str | None = None, **fields: Any
    ) -> EventId:
        """Append any fact of this run."""
        event = RuntimeEvent(
            id=EventId(event_id or self.log.ids()),
            session_id=self.log.session_id,
            invocation_id=self.invocation_id,
            run_id=self.run_id,
            turn_id=self.turn_id,
            ts=self.log.tick(),
            role=role,
            author=author,
            **fields,
        )
        self.log.commit(event)
        return event.id

    def user(self, text: str, message_id: str | None = None) -> EventId:
        refs = None if message_id is None else Refs(message_id=MessageId(message_id))
        return self.add(role=Role.USER, author=Author.USER, content=Text(text=text), refs=refs)

    def request(self, *, attempt: int = 1, level: int = 0, through: int = 0, same_step: bool = False) -> EventId:
        self.step += not same_step
        request = ModelRequest(
            step=self.step,
            attempt=attempt,
            request_hash=HASH,
            prompt_hash=HASH,
            tools_hash=HASH,
            projector_version=1,
            history_seq=self.log.seqs[self.invocation_id],
            window_level=level,
            window_position=through,
        )
        return self.add(actions=Actions(model_request=request), model_visibility=ModelVisibility.HIDDEN)

    def text(self, text: str, *, interrupted: bool = False, event_id: str | None = None) -> EventId:
        content = Text(text=text, interrupted=interrupted)
        return self.add(role=Role.MODEL, author=Author.AGENT, content=content, event_id=event_id)

    def thinking(self, text: str) -> EventId:
        return self.add(role=Role.MODEL, author=Author.AGENT, content=Thinking(text=text))

    def usage(self, input_tokens: int = 10, output_tokens: int = 2, **more: int) -> EventId:
        usage = TokenUsage(step=self.step, input=input_tokens, output=output_tokens, **more)  # type: ignore[arg-type]
        return self.add(actions=Actions(token_usage=usage), model_visibility=ModelVisibility.HIDDEN)

    def call(
        self, name: str = "Read", args: dict[str, Any] | None = None, *, provider_id: str | None = None, **more: Any
    ) -> CallId:
        content = FunctionCall(name=name, args=args or {}, **more)
        refs = None if provider_id is None else Refs(tool_call_id=provider_id)
        return CallId(self.add(role=Role.MODEL, author=Author.AGENT, content=content, refs=refs))

    def dispatch(self, call_id: CallId, name: str = "Read") -> EventId:
        dispatch = ToolDispatch(
            call_id=call_id, name=name, operation_id=self.log.ids(), args_hash=HASH, recovery_mode="outcome_unknown"
        )
        return self.add(actions=Actions(tool_dispatch=dispatch), model_visibility=ModelVisibility.HIDDEN)

    def change(self, call_id: CallId, path: str, before: str | None = None) -> EventId:
        change = FileChange(
            call_id=call_id, path=path, before_sha256=before, after_sha256=HASH, pre_image=None, temp_name=".t"
        )
        return self.add(actions=Actions(file_change=change), model_visibility=ModelVisibility.HIDDEN)

    def answer(
        self, call_id: CallId, result: str = "done", outcome: Outcome = Outcome.OK, *, name: str = "Read", **more: Any
    ) -> EventId:
        seen: FileSeen | None = more.pop("seen", None)
        content = FunctionResponse(
            call_id=call_id, name=name, result=result, outcome=outcome, is_error=outcome is not Outcome.OK, **more
        )
        actions = None if seen is None else Actions(file_seen=seen)
        return self.add(role=Role.TOOL, author=Author.TOOL, content=content, actions=actions)

    def ask(self, call_id: CallId) -> EventId:
        return self.add(actions=Actions(user_question_request=UserQuestionRequest(call_id=call_id, questions=())))

    def unwait(self, wait_id: EventId, reason: str = "stopped") -> EventId:
        return self.add(actions=Actions(state_delta=StateDelta(wait_closed=wait_id, wait_closed_reason=reason)))

    def end(self, status: Status, content: Content | None = None, **delta: Any) -> EventId:
        actions = Actions(state_delta=StateDelta(**delta), end_invocation=True)
        return self.add(content=content, actions=actions, status=status)

    def complete(self) -> EventId:
        return self.end(Status.COMPLETED, stop_reason="stop", steps=self.step)

    def fail(self, failure_class: str = "unknown", message: str = "it failed") -> EventId:
        error = Error(message=message, code=failure_class)
        return self.end(Status.FAILED, error, failure_class=failure_class, steps=self.step)

    def abort(self, source: str = "cli.interrupt") -> EventId:
        return self.end(Status.ABORTED, abort_source=source, steps=self.step)


class SessionLog:
    """A session's log: `items` holds what the ledger would. The clock advances by `tick_ms`, which may be negative."""

    def __init__(self, *, number: int = 1, title: str | None = None, prefix: int = 0) -> None:
        self.ids = Ids(prefix)
        self.session_id = SessionId(self.ids())
        self.items: list[Committed] = []
        self.seqs: dict[InvocationId, int] = {}
        self.now_ms = 1_700_000_000_000
        self.tick_ms = 1
        self.control(content=SessionOpened(number=number, cwd="/w", real_cwd="/w", title=title))

    def tick(self) -> int:
        self.now_ms += self.tick_ms
        return self.now_ms

    def commit(self, event: RuntimeEvent) -> None:
        seq = self.seqs.get(event.invocation_id, 0) + 1
        self.seqs[event.invocation_id] = seq
        self.items.append(Committed(position=self.position + 1, seq=seq, event=event))

    @property
    def position(self) -> int:
        return self.items[-1].position if self.items else 0

    def control(self, **fields: Any) -> EventId:
        """Append a fact of the control stream."""
        event = RuntimeEvent(
            id=EventId(self.ids()),
            session_id=self.session_id,
            invocation_id=InvocationId(self.session_id),
            ts=self.tick(),
            role=Role.SYSTEM,
            author=Author.HOST,
            **fields,
        )
        self.commit(event)
        return event.id

    def queue(self, text: str) -> MessageId:
        return MessageId(self.control(actions=Actions(message_queued=MessageQueued(text=text))))

    def retract(self, message_id: MessageId) -> EventId:
        return self.control(actions=Actions(message_retracted=MessageRetracted(message_id=message_id)))

    def run(self, prompt: str | None = "do it", route: Route | None = None, message_id: str | None = None) -> RunLog:
        """Open a run, with the user's message where there is one."""
        run = RunLog(self, route or Route(profile="p", provider="scripted", model="m"))
        if prompt is not None:
            run.user(prompt, message_id)
        return run

    def of(self, run: RunLog) -> list[Committed]:
        """Return one run's facts."""
        return [item for item in self.items if item.event.invocation_id == run.invocation_id]

    def __iter__(self) -> Iterator[Committed]:
        return iter(self.items)


def log(**options: Any) -> SessionLog:
    """Return a session's log with its opening."""
    return SessionLog(**options)
