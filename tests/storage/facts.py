"""Small valid facts and appends, for the store's tests. Ids count up, so that every example is the same each time."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from msgspec.structs import replace

from maka.contracts.actions import (
    Actions,
    BoundaryDecision,
    BoundaryRequest,
    MessageQueued,
    MessageRetracted,
    Question,
    StateDelta,
    ToolDispatch,
    UserQuestionAnswer,
    UserQuestionRequest,
)
from maka.contracts.boundary import Expansion
from maka.contracts.codec import drafts, hash_hex
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
from maka.contracts.errors import Refusal, RefusalCode
from maka.contracts.events import Author, Cause, Role, RuntimeEvent, Status
from maka.contracts.ids import CallId, CommandId, EventId, InvocationId, MessageId, RunId, SessionId, TurnId
from maka.contracts.ports import Append, Appended, AppendResult, CommandKey, Group, LedgerStore

PROMPT, TOOLS = b"You are an agent.", b"[]"
BLOBS = (PROMPT, TOOLS)


def blob_ref(data: bytes) -> BlobRef:
    return BlobRef(sha256=hash_hex(data), size_bytes=len(data))


def uuid(number: int) -> str:
    return f"01900000-0000-7000-8000-{number:012x}"


def append(*groups: tuple[int, Sequence[RuntimeEvent]], **more: Any) -> Append:
    """An append of (expected_seq, events) groups."""
    made = tuple(Group(events[0].invocation_id, seq, drafts(events)) for seq, events in groups)
    return Append(groups=made, **more)


def caused(events: Sequence[RuntimeEvent], command_id: str, command_hash: str) -> list[RuntimeEvent]:
    cause = Cause(command_id=CommandId(command_id), command_hash=command_hash)
    return [replace(event, cause=cause) for event in events]


def command(scope: str, command_id: str, command_hash: str) -> CommandKey:
    return CommandKey(scope, CommandId(command_id), command_hash)


class Facts:
    """Mints facts of one session and one run; `run()` begins another."""

    def __init__(self, first: int = 1) -> None:
        self._numbers = count(first)
        self.session = SessionId(self.mint())
        self.run()

    def mint(self) -> str:
        return uuid(next(self._numbers))

    def run(self) -> None:
        self.invocation = InvocationId(self.mint())
        self.run_id = RunId(self.mint())
        self.turn = TurnId(self.mint())

    @property
    def control_id(self) -> InvocationId:
        return InvocationId(self.session)

    def fact(self, content: Content | None = None, **more: Any) -> RuntimeEvent:
        """A fact of the run, by the model unless said otherwise."""
        base = RuntimeEvent(
            id=EventId(self.mint()),
            session_id=self.session,
            invocation_id=self.invocation,
            run_id=self.run_id,
            turn_id=self.turn,
            ts=1_700_000_000_000,
            role=Role.MODEL,
            author=Author.AGENT,
            content=content,
        )
        return replace(base, **more)

    def control(self, content: Content | None = None, **more: Any) -> RuntimeEvent:
        """A fact of the session's control stream."""
        places = {"invocation_id": self.control_id, "run_id": None, "turn_id": None}
        return self.fact(content, **{**places, "role": Role.SYSTEM, "author": Author.HOST, **more})

    def session_opened(self, number: int = 1) -> RuntimeEvent:
        return self.control(SessionOpened(number=number, cwd="/w", real_cwd="/w"))

    def opening(self) -> RuntimeEvent:
        configuration = RunConfiguration(
            cwd="/w",
            boundary_revision=0,
            limits=RunLimits(),
            prompt=blob_ref(PROMPT),
            tools=blob_ref(TOOLS),
            history_position=0,
        )
        route = Route(profile="p", provider="openai", model="m")
        return self.fact(InvocationOpened(route=route, configuration=configuration), role=Role.SYSTEM)

    def text(self, text: str = "hello", **more: Any) -> RuntimeEvent:
        return self.fact(Text(text=text), **more)

    def call(self, name: str = "Bash") -> RuntimeEvent:
        return self.fact(FunctionCall(name=name, args={"command": "ls"}))

    def dispatch(self, call: RuntimeEvent) -> RuntimeEvent:
        act = ToolDispatch(
            call_id=CallId(call.id), name="Bash", operation_id="o", args_hash="h", recovery_mode="outcome_unknown"
        )
        return self.fact(actions=Actions(tool_dispatch=act))

    def response(self, call: RuntimeEvent, outcome: Outcome = Outcome.OK, **more: Any) -> RuntimeEvent:
        content = FunctionResponse(call_id=CallId(call.id), name="Bash", result="done", outcome=outcome)
        return self.fact(content, role=Role.TOOL, author=Author.TOOL, **more)

    def question(self, call: RuntimeEvent) -> RuntimeEvent:
        ask = UserQuestionRequest(call_id=CallId(call.id), questions=(Question(question="which?"),))
        return self.fact(actions=Actions(user_question_request=ask))

    def answer(self, request: RuntimeEvent) -> RuntimeEvent:
        act = UserQuestionAnswer(request_id=request.id, answers=("this",))
        return self.fact(actions=Actions(user_question_answer=act))

    def boundary_request(self, call: RuntimeEvent) -> RuntimeEvent:
        ask = BoundaryRequest(call_id=CallId(call.id), expansion=Expansion(network=True), justification="to fetch")
        return self.fact(actions=Actions(state_delta=StateDelta(boundary_request=ask)))

    def decision(self, request: RuntimeEvent) -> RuntimeEvent:
        act = BoundaryDecision(request_id=request.id, decision="allow")
        return self.fact(actions=Actions(state_delta=StateDelta(boundary_decision=act)))

    def wait_closed(self, request: RuntimeEvent) -> RuntimeEvent:
        return self.fact(actions=Actions(state_delta=StateDelta(wait_closed=request.id, wait_closed_reason="stopped")))

    def terminal(self, status: Status = Status.COMPLETED) -> RuntimeEvent:
        failure = "unknown" if status is Status.FAILED else None
        source = "test" if status is Status.ABORTED else None
        delta = StateDelta(stop_reason="stop", failure_class=failure, abort_source=source)
        return self.fact(status=status, actions=Actions(state_delta=delta))

    def queued(self, text: str = "next") -> RuntimeEvent:
        return self.control(actions=Actions(message_queued=MessageQueued(text=text)))

    def retracted(self, message: RuntimeEvent) -> RuntimeEvent:
        act = MessageRetracted(message_id=MessageId(message.id))
        return self.control(actions=Actions(message_retracted=act))

    def user(self, text: str = "hi", **more: Any) -> RuntimeEvent:
        return self.text(text, role=Role.USER, author=Author.USER, **more)

    def opened(self) -> Append:
        """The append that makes the session."""
        return append((0, [self.session_opened()]))

    def started(self) -> Append:
        """The append that begins the run: its opening and the user's words."""
        return append((0, [self.opening(), self.user()]), blobs=BLOBS)


def code_of(result: AppendResult) -> RefusalCode:
    assert isinstance(result, Refusal), result
    assert "\n" not in result.message
    return result.code


def one(store: LedgerStore, item: Append) -> AppendResult:
    (result,) = store.commit([item])
    return result


def begun(store: LedgerStore) -> Facts:
    """A session with a run of two facts: positions 1 to 3."""
    facts = Facts()
    assert store.commit([facts.opened(), facts.started()]) == [Appended(((1, 1),)), Appended(((2, 1), (3, 2)))]
    return facts
