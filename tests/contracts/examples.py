"""One fact of every kind, with every field that it can have: the source of the golden corpus of schema version 1.

The corpus is added to, never edited. A new kind or field gets a new example here and new lines there.
"""

from msgspec.structs import replace

from maka.contracts.actions import (
    Actions,
    ArtifactDelta,
    BoundaryChanged,
    BoundaryDecision,
    BoundaryRequest,
    ConfigurationChanged,
    FileChange,
    FileSeen,
    MessageQueued,
    MessageRetracted,
    ModelRequest,
    ProcessEnded,
    ProcessIdentity,
    ProcessStarted,
    Question,
    Recovery,
    SessionChanged,
    StateDelta,
    TokenUsage,
    ToolDispatch,
    UserQuestionAnswer,
    UserQuestionRequest,
    WorkspaceChanged,
)
from maka.contracts.boundary import CarriedGrant, Expansion, FileEntry
from maka.contracts.content import (
    BlobRef,
    Content,
    Error,
    FunctionCall,
    FunctionResponse,
    InvocationOpened,
    Lineage,
    Outcome,
    RootKind,
    Route,
    RunConfiguration,
    RunLimits,
    SessionOpened,
    SourceKind,
    SystemNote,
    Text,
    Thinking,
)
from maka.contracts.events import Author, Cause, ModelVisibility, Origin, Refs, Role, RuntimeEvent, Status
from maka.contracts.ids import CallId, CommandId, EventId, InvocationId, MessageId, RunId, SessionId, TurnId


def _id(number: int) -> str:
    return f"01890a5d-ac96-774b-bcce-{number:012x}"


CALL, EVENT = CallId(_id(100)), EventId(_id(101))
SHA = "0123456789abcdef" * 4
BLOB = BlobRef(sha256=SHA, size_bytes=70_000)
LINEAGE = Lineage(
    parent_session_id=SessionId(_id(1)),
    parent_turn_id=TurnId(_id(2)),
    parent_run_id=RunId(_id(3)),
    parent_call_id=CALL,
    source_invocation_id=InvocationId(_id(4)),
    agent_name="explorer",
)
LIMITS = RunLimits(steps_max=50, active_s_max=900.5, tokens_max=1_000_000)
EXPANSION = Expansion(filesystem=(FileEntry(path="/data", access="write", scope="subtree"),), network=True)
PROCESS = ProcessIdentity(pid=4_242, group=4_242, start_ticks=123_456, boot_id="b7e1")

CONTENTS: tuple[Content, ...] = (
    Text(text='Grüße, 世界 \U0001f600 \u2028 \x00 "quoted"', interrupted=True, whole=BLOB),
    Text(text=""),
    Thinking(text="hm", signature="c2ln", interrupted=True, whole=BLOB),
    FunctionCall(name="Read", args={"path": "a.txt", "n": 3, "deep": [{"x": None}, 1.5, True]}),
    FunctionCall(name="Read", args={}, malformed='{"path": ', cut=True),
    FunctionResponse(
        call_id=CALL,
        name="Bash",
        result="1 failed",
        outcome=Outcome.ERROR,
        is_error=True,
        duration_ms=12,
        exit_code=1,
        whole=BLOB,
        diff=BLOB,
    ),
    *(FunctionResponse(call_id=CALL, name="Read", result="x", outcome=outcome) for outcome in Outcome),
    Error(message="no route", code="network", provider_code="ECONN", http_status=503, details=("try 1", "try 2")),
    SystemNote(note="step_limit", data={"steps": 50, "text": "No more steps."}),
    InvocationOpened(
        route=Route(profile="local", provider="openai_chat", model="m-1"),
        configuration=RunConfiguration(
            cwd="/w",
            boundary_revision=2,
            limits=LIMITS,
            prompt=BLOB,
            tools=BLOB,
            history_position=41,
            context_window=128_000,
        ),
        root=RootKind.CHILD,
        source=SourceKind.CONTINUATION,
        lineage=LINEAGE,
    ),
    *(
        InvocationOpened(
            route=Route(profile="p", provider="q", model="r"),
            configuration=RunConfiguration(
                cwd="/w", boundary_revision=0, limits=RunLimits(), prompt=BLOB, tools=BLOB, history_position=0
            ),
            root=root,
        )
        for root in (RootKind.USER, RootKind.CHILD, RootKind.SCHEDULE)
    ),
    SessionOpened(number=12, cwd="/link", real_cwd="/w", title="Mend the tests", boundary="full", lineage=LINEAGE),
    SessionOpened(number=1, cwd="/w", real_cwd="/w"),
)

ACTIONS: tuple[Actions, ...] = (
    Actions(
        state_delta=StateDelta(
            stop_reason="stop",
            abort_source="cli.interrupt",
            failure_class="network",
            duration_ms=1_234,
            steps=3,
            recovery=Recovery(reason="app_restarted", verdict="interrupted_tool"),
            wait_closed=EVENT,
            wait_closed_reason="the run was stopped",
        ),
        end_invocation=True,
    ),
    Actions(
        state_delta=StateDelta(
            boundary_request=BoundaryRequest(call_id=CALL, expansion=EXPANSION, justification="the data is there")
        )
    ),
    Actions(
        state_delta=StateDelta(
            boundary_decision=BoundaryDecision(
                request_id=EVENT, decision="allow", scope="workspace", revision=3, client="cli"
            )
        )
    ),
    Actions(
        model_request=ModelRequest(
            step=2,
            attempt=1,
            request_hash=SHA,
            prompt_hash=SHA,
            tools_hash=SHA,
            projector_version=1,
            history_seq=9,
            window_level=1,
            window_position=40,
            active_ms=5_000,
            options={"temperature": 0.2, "stop": ["\n"]},
            losses=("window_level: 1",),
        )
    ),
    Actions(
        tool_dispatch=ToolDispatch(
            call_id=CALL, name="Bash", operation_id=_id(102), args_hash=SHA, recovery_mode="outcome_unknown"
        )
    ),
    Actions(
        token_usage=TokenUsage(
            step=2, input=1_000, output=50, cached_input=800, reasoning=20, total=1_050, finish_reason="tool_calls"
        )
    ),
    Actions(process_started=ProcessStarted(call_id=CALL, process=PROCESS, command="pytest -q", background=True)),
    Actions(process_ended=ProcessEnded(call_id=CALL, process=PROCESS, how="exited", exit_code=0)),
    Actions(
        file_change=FileChange(
            call_id=CALL, path="/w/a", before_sha256=SHA, after_sha256=SHA, pre_image=BLOB, temp_name=".a.maka-1"
        )
    ),
    Actions(
        file_change=FileChange(
            call_id=CALL, path="/w/new", before_sha256=None, after_sha256=SHA, pre_image=None, temp_name=".new.maka-1"
        )
    ),
    Actions(
        file_seen=FileSeen(path="/w/a", sha256=SHA),
        artifact_delta=(ArtifactDelta(call_id=CALL, kind="diff", name="a", blob=BLOB),),
    ),
    Actions(
        user_question_request=UserQuestionRequest(
            call_id=CALL, questions=(Question(question="Which one?", options=("this", "that")),)
        )
    ),
    Actions(user_question_answer=UserQuestionAnswer(request_id=EVENT, answers=("this", None), client="cli")),
    Actions(message_queued=MessageQueued(text="then this")),
    Actions(message_retracted=MessageRetracted(message_id=MessageId(EVENT))),
    Actions(session_changed=SessionChanged(title="New", archived=True)),
    Actions(configuration_changed=ConfigurationChanged(profile="local", model="m-1", limits=LIMITS)),
    Actions(boundary_changed=BoundaryChanged(profile="full", revision=4, grants=EXPANSION, client="cli")),
    Actions(transfer_to_agent="explorer"),
)

REFS = Refs(
    tool_call_id="functions.Read:0",
    operation_id=_id(102),
    step_id=_id(103),
    provider_event_id="chatcmpl-1",
    artifact_id="a-1",
    message_id=MessageId(_id(104)),
    parent_event_id=EventId(_id(105)),
    parent_operation_id=_id(106),
)
CAUSE = Cause(command_id=CommandId("cli:1"), command_hash=SHA)


def _event(number: int, content: Content | None = None, actions: Actions | None = None) -> RuntimeEvent:
    return RuntimeEvent(
        id=EventId(_id(number)),
        session_id=SessionId(_id(1)),
        invocation_id=InvocationId(_id(3)),
        turn_id=TurnId(_id(2)),
        run_id=RunId(_id(3)),
        ts=1_700_000_000_000 + number,
        role=list(Role)[number % len(Role)],
        author=list(Author)[number % len(Author)],
        content=content,
        actions=actions,
    )


FULL = RuntimeEvent(
    id=EventId(_id(1_000)),
    session_id=SessionId(_id(1)),
    invocation_id=InvocationId(_id(3)),
    turn_id=TurnId(_id(2)),
    run_id=RunId(_id(3)),
    branch="main",
    ts=1_700_000_001_000,
    role=Role.MODEL,
    author=Author.AGENT,
    origin=Origin.PROVIDER,
    content=Text(text="whole"),
    actions=Actions(end_invocation=True),
    refs=REFS,
    cause=CAUSE,
    partial=True,
    status=Status.STREAMING,
    model_visibility=ModelVisibility.HIDDEN,
)
CONTROL = RuntimeEvent(
    id=EventId(_id(1_001)),
    session_id=SessionId(_id(1)),
    invocation_id=InvocationId(_id(1)),
    ts=1_700_000_001_001,
    role=Role.SYSTEM,
    author=Author.HOST,
    origin=Origin.IMPORT,
)
STATUSES: tuple[RuntimeEvent, ...] = tuple(
    RuntimeEvent(
        id=EventId(_id(1_010 + at)),
        session_id=SessionId(_id(1)),
        invocation_id=InvocationId(_id(3)),
        turn_id=TurnId(_id(2)),
        run_id=RunId(_id(3)),
        ts=1_700_000_001_010 + at,
        role=Role.SYSTEM,
        author=Author.SYSTEM,
        status=status,
    )
    for at, status in enumerate(Status)
)

ADDED: tuple[RuntimeEvent, ...] = (
    _event(400, actions=Actions(message_queued=MessageQueued(text="then this", profile="local", limits=LIMITS))),
    _event(
        401,
        actions=Actions(
            state_delta=StateDelta(
                boundary_request=BoundaryRequest(
                    call_id=CALL, expansion=EXPANSION, justification="the data is there", active_ms=1_500
                )
            )
        ),
    ),
    _event(
        402,
        actions=Actions(
            user_question_request=UserQuestionRequest(
                call_id=CALL, questions=(Question(question="Which one?"),), active_ms=1_500
            )
        ),
    ),
    _event(
        403,
        actions=Actions(
            boundary_changed=BoundaryChanged(
                profile="ask", revision=4, grants=EXPANSION, scope="workspace", revoked=(EVENT,), client="cli"
            )
        ),
    ),
    _event(
        404,
        content=SessionOpened(
            number=2, cwd="/w", real_cwd="/w", carried=(CarriedGrant(origin=EVENT, expansion=EXPANSION),)
        ),
    ),
    _event(
        405,
        actions=Actions(
            state_delta=StateDelta(
                boundary_decision=BoundaryDecision(request_id=EVENT, decision="allow", covers=(EVENT,))
            )
        ),
    ),
    _event(
        406,
        actions=Actions(
            process_started=ProcessStarted(call_id=CALL, process=replace(PROCESS, mark="5f" * 16), command="make test")
        ),
    ),
    _event(
        407,
        content=InvocationOpened(
            route=Route(profile="p", provider="q", model="r"),
            configuration=RunConfiguration(
                cwd="/w", boundary_revision=0, limits=RunLimits(), prompt=BLOB, tools=BLOB, history_position=7
            ),
            root=RootKind.UNDO,
        ),
    ),
    _event(
        408,
        actions=Actions(
            file_change=FileChange(
                call_id=CALL,
                path="/w/new",
                before_sha256=SHA,
                after_sha256=None,
                pre_image=BLOB,
                temp_name=".tmp.maka-1",
                mode=0o640,
                undoes=EVENT,
            )
        ),
    ),
    _event(
        409,
        actions=Actions(
            workspace_changed=WorkspaceChanged(
                call_id=CALL,
                added=("made",),
                modified=("src/a.py",),
                deleted=("gone",),
                added_count=1,
                modified_count=201,
                deleted_count=1,
            )
        ),
    ),
    _event(410, actions=Actions(workspace_changed=WorkspaceChanged(call_id=CALL, looked=False, why="too many files"))),
    _event(
        431,
        actions=Actions(
            process_started=ProcessStarted(
                call_id=CALL,
                process=PROCESS,
                command="make serve",
                background=True,
                shell_id="b1",
                run_id=RunId(_id(3)),
            )
        ),
    ),
    _event(
        432,
        actions=Actions(
            process_ended=ProcessEnded(
                call_id=CALL,
                process=PROCESS,
                how="stopped",
                exit_code=143,
                shell_id="b1",
                by="cli",
                output=BLOB,
                note="moved aside",
                survivors=(8, 9),
            )
        ),
    ),
    _event(
        433,
        actions=Actions(
            state_delta=StateDelta(
                boundary_request=BoundaryRequest(
                    call_id=CALL, expansion=EXPANSION, justification="the data is there", is_rest=True
                )
            )
        ),
    ),
)
"""Fields that came later, in the order in which they came."""

EXAMPLES: tuple[RuntimeEvent, ...] = (
    *(_event(200 + at, content=content) for at, content in enumerate(CONTENTS)),
    *(_event(300 + at, actions=actions) for at, actions in enumerate(ACTIONS)),
    FULL,
    CONTROL,
    *STATUSES,
    *ADDED,
)
