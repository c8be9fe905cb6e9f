"""A small scripted log: the facts of one session with one run, with real ids and places."""

from itertools import count

from maka.contracts.actions import (
    Actions,
    FileChange,
    MessageQueued,
    ModelRequest,
    StateDelta,
    TokenUsage,
    ToolDispatch,
)
from maka.contracts.content import (
    BlobRef,
    Content,
    FunctionCall,
    FunctionResponse,
    InvocationOpened,
    Outcome,
    Route,
    RunConfiguration,
    RunLimits,
    SessionOpened,
    Text,
)
from maka.contracts.events import Author, Committed, ModelVisibility, Refs, Role, RuntimeEvent, Status
from maka.contracts.ids import CallId, EventId, InvocationId, MessageId, RunId, SessionId, TurnId

BLOB = BlobRef(sha256="0" * 64, size_bytes=1)
TS = 1_700_000_000_000


def uid(number: int) -> str:
    return f"01890000-0000-7000-8000-{number:012x}"


class LogBuilder:
    """Appends facts of one session and gives them their places."""

    def __init__(self, session: int = 1, number: int = 12, cwd: str = "/project", first_position: int = 1) -> None:
        self.session_id = SessionId(uid(0x1000 * session))
        self.items: list[Committed] = []
        self._ids = count(0x1000 * session + 1)
        self._positions = count(first_position)
        self._seqs: dict[str, int] = {}
        self.add(
            None,
            SessionOpened(number=number, cwd=cwd, real_cwd=cwd),
            role=Role.SYSTEM,
            author=Author.SYSTEM,
        )

    def new_id(self) -> str:
        return uid(next(self._ids))

    def add(
        self,
        run: str | None,
        content: Content | None = None,
        actions: Actions | None = None,
        *,
        role: Role = Role.MODEL,
        author: Author = Author.AGENT,
        status: Status | None = None,
        hidden: bool = False,
        event_id: str | None = None,
        refs: Refs | None = None,
    ) -> Committed:
        invocation = run or str(self.session_id)
        self._seqs[invocation] = self._seqs.get(invocation, 0) + 1
        position = next(self._positions)
        event = RuntimeEvent(
            id=EventId(event_id or self.new_id()),
            session_id=self.session_id,
            invocation_id=InvocationId(invocation),
            turn_id=TurnId(run) if run else None,
            run_id=RunId(run) if run else None,
            ts=TS + position * 100,
            role=role,
            author=author,
            content=content,
            actions=actions,
            refs=refs,
            status=status,
            model_visibility=ModelVisibility.HIDDEN if hidden else ModelVisibility.VISIBLE,
        )
        item = Committed(position=position, seq=self._seqs[invocation], event=event)
        self.items.append(item)
        return item

    def queue(self, text: str) -> MessageId:
        item = self.add(
            None, None, Actions(message_queued=MessageQueued(text=text)), role=Role.USER, author=Author.USER
        )
        return MessageId(item.event.id)

    def open_run(self, text: str = "mend it", message_id: MessageId | None = None, run_id: str | None = None) -> str:
        run = run_id or self.new_id()
        configuration = RunConfiguration(
            cwd="/project", boundary_revision=0, limits=RunLimits(), prompt=BLOB, tools=BLOB, history_position=0
        )
        route = Route(profile="scripted", provider="chat", model="demo")
        opened = InvocationOpened(route=route, configuration=configuration)
        self.add(run, opened, role=Role.SYSTEM, author=Author.SYSTEM, hidden=True)
        refs = Refs(message_id=message_id) if message_id else None
        self.add(run, Text(text=text), role=Role.USER, author=Author.USER, refs=refs)
        self.request(run, 1)
        return run

    def request(self, run: str, step: int) -> Committed:
        asked = ModelRequest(
            step=step,
            attempt=1,
            request_hash="0" * 64,
            prompt_hash="0" * 64,
            tools_hash="0" * 64,
            projector_version=1,
            history_seq=self._seqs[run],
        )
        return self.add(run, None, Actions(model_request=asked), role=Role.SYSTEM, author=Author.SYSTEM, hidden=True)

    def call(self, run: str, name: str = "Edit", path: str = "/project/a.py") -> CallId:
        self.add(run, Text(text="I look."))
        call = self.add(run, FunctionCall(name=name, args={"file_path": path}))
        usage = TokenUsage(step=1, input=100, output=10)
        self.add(run, None, Actions(token_usage=usage), role=Role.SYSTEM, author=Author.SYSTEM)
        return CallId(call.event.id)

    def dispatch(self, run: str, call_id: CallId, name: str = "Edit", path: str = "/project/a.py") -> None:
        sent = ToolDispatch(
            call_id=call_id, name=name, operation_id=self.new_id(), args_hash="0" * 64, recovery_mode="idempotent"
        )
        self.add(run, None, Actions(tool_dispatch=sent), role=Role.SYSTEM, author=Author.SYSTEM)
        change = FileChange(
            call_id=call_id, path=path, before_sha256="1" * 64, after_sha256="2" * 64, pre_image=BLOB, temp_name="t"
        )
        self.add(run, None, Actions(file_change=change), role=Role.SYSTEM, author=Author.SYSTEM)

    def answer(
        self, run: str, call_id: CallId, name: str = "Edit", outcome: Outcome = Outcome.OK, result: str = "changed a.py"
    ) -> None:
        response = FunctionResponse(
            call_id=call_id, name=name, result=result, outcome=outcome, is_error=outcome is not Outcome.OK
        )
        self.add(run, response, role=Role.TOOL, author=Author.TOOL)

    def finish(self, run: str, text: str = "Done.", step: int = 2) -> Committed:
        self.add(run, Text(text=text))
        usage = TokenUsage(step=step, input=200, output=20)
        self.add(run, None, Actions(token_usage=usage), role=Role.SYSTEM, author=Author.SYSTEM)
        return self.end(run, Status.COMPLETED, StateDelta(stop_reason="end_turn", duration_ms=1_500, steps=step))

    def end(self, run: str, status: Status, delta: StateDelta) -> Committed:
        return self.add(
            run,
            None,
            Actions(state_delta=delta, end_invocation=True),
            role=Role.SYSTEM,
            author=Author.SYSTEM,
            status=status,
        )


def whole_log() -> tuple[LogBuilder, str, CallId]:
    """Return a session whose one run called a tool and completed."""
    log = LogBuilder()
    run = log.open_run()
    call_id = log.call(run)
    log.dispatch(run, call_id)
    log.answer(run, call_id)
    log.request(run, 2)
    log.finish(run)
    return log, run, call_id
