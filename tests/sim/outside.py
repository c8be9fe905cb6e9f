"""The world outside the actors, scripted and virtual: a provider, tools, a disk for blobs, readers.

Each part checks the laws where it stands: a provider refuses a body that no durable request names, a tool a call
that no durable dispatch names, a reader a fact that isn't durable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from maka.contracts.actions import FileSeen, ProcessIdentity, Question, RecoveryMode, UserQuestionRequest
from maka.contracts.codec import hash_hex
from maka.contracts.content import BlobRef, Outcome
from maka.contracts.events import Committed
from maka.contracts.ids import EventId
from maka.contracts.model_ports import (
    AssembledCall,
    ChatRequest,
    DeltaBatch,
    ErrorKind,
    ModelProfile,
    ProviderError,
    ProviderListener,
    StepResult,
    ToolSpec,
    UsageReport,
)
from maka.contracts.session_events import SessionEvent
from maka.contracts.tool_ports import (
    FileFact,
    FileNow,
    ProcessFact,
    ProcessHandle,
    ProcessListener,
    ProcessSpec,
    Tool,
    ToolCall,
    ToolEnv,
    ToolListener,
    ToolResult,
)
from tests.sim.world import World

Facts = Callable[[], list[Committed]]
"""Everything durable, in order."""


class BrokenLaw(AssertionError):
    """Something happened that the design forbids."""


# -- provider -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """One scripted answer: pieces of text, calls, then a finish; or an error after the pieces."""

    text: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()
    calls: tuple[AssembledCall, ...] = ()
    error: ProviderError | None = None
    hangs: bool = False


class SimProvider:
    """Answers each request with what `script` says for it."""

    kind = "simulated"

    def __init__(self, world: World, facts: Facts, script: Callable[[ChatRequest], Said], window: int | None) -> None:
        self.profile = ModelProfile(
            name="sim", base_url="sim:", model="sim-1", context_window=window, send_reasoning_back=True
        )
        self._world = world
        self._facts = facts
        self.script = script
        self.requests: list[ChatRequest] = []

    def encode(self, request: ChatRequest) -> bytes:
        return msgspec.json.encode(request)

    def start(self, body: bytes, listener: ProviderListener) -> "SimStream":
        digest = hash_hex(body)
        durable = (item.event.actions.model_request for item in self._facts() if item.event.actions is not None)
        if not any(request is not None and request.request_hash == digest for request in durable):
            raise BrokenLaw("a request was sent that no durable fact names")
        request = msgspec.json.decode(body, type=ChatRequest)
        self.requests.append(request)
        return SimStream(self._world, listener, self.script(request))


class SimStream:
    """One request under way: acts at later steps of the world, one unanswered batch at a time."""

    def __init__(self, world: World, listener: ProviderListener, said: Said) -> None:
        self._world = world
        self._listener = listener
        self._said = said
        self._pieces = [("thinking", each) for each in said.thinking] + [("text", each) for each in said.text]
        self._over = False
        self._observed = False
        world.soon("provider", self._next)

    def ack(self) -> None:
        self._world.soon("provider", self._next)

    def cancel(self) -> None:
        if not self._over:
            self._over = True
            error = ProviderError(kind=ErrorKind.CANCELLED, message="cancelled")
            self._world.soon("provider", lambda: self._listener.failed(error, self._observed))

    def _next(self) -> None:
        if self._over:
            return
        if self._pieces:
            self._observed = True
            self._listener.batch(DeltaBatch(pieces=(self._pieces.pop(0),)))
            return
        if self._said.hangs:
            return
        self._over = True
        if self._said.error is not None:
            self._listener.failed(self._said.error, self._observed)
            return
        usage = UsageReport(input=10, output=5, total=15)
        reason = "tool_calls" if self._said.calls else "stop"
        self._listener.finished(StepResult(finish_reason=reason, calls=self._said.calls, usage=usage))


# -- tools --------------------------------------------------------------------------------------------------------


class SimTool:
    """A tool of one of a few kinds: quick, file, process, hangs (until cancelled), deaf (never ends)."""

    recovery_mode: RecoveryMode = "outcome_unknown"
    exclusive = False

    def __init__(self, name: str, world: World, facts: Facts, disk: dict[str, str | None]) -> None:
        self.disk = disk
        self.spec = ToolSpec(
            name=name,
            description=name,
            parameters={
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
                "additionalProperties": False,
            },
        )
        self._world = world
        self._facts = facts
        self.effects: list[str] = []

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        dispatches = (item.event.actions.tool_dispatch for item in self._facts() if item.event.actions is not None)
        if not any(dispatch is not None and dispatch.call_id == call.call_id for dispatch in dispatches):
            raise BrokenLaw("a tool was started that no durable dispatch names")
        if self.spec.name == "Raise":
            raise SystemExit(3)
        run = _Running(self, call, listener)
        self._world.soon(f"tool {self.spec.name}", run.begin)
        return run.cancel

    def soon(self, act: Callable[[], None]) -> None:
        self._world.soon(f"tool {self.spec.name}", act)

    def committed(self, call: ToolCall) -> bool:
        """Say whether a fact of the call's effect is durable."""
        for item in self._facts():
            actions = item.event.actions
            if actions is None:
                continue
            fact = actions.file_change or actions.process_started
            if fact is not None and fact.call_id == call.call_id:
                return True
        return False


class _Running:
    def __init__(self, tool: SimTool, call: ToolCall, listener: ToolListener) -> None:
        self._tool = tool
        self._call = call
        self._listener = listener
        self._change: FileFact | None = None
        self._over = False

    def begin(self) -> None:
        if self._over:
            return
        path = str(self._call.args["path"])
        match self._tool.spec.name:
            case "File":
                before = self._tool.disk.get(path)
                fact = FileFact(
                    path=path, before_sha256=before, after_sha256="a" * 64, pre_image=b"old" * 20, temp_name=".tmp"
                )
                self._change = fact
                self._listener.commit(fact, self._granted)
            case "Undo":
                undoes = EventId(str(self._call.args["undoes"]))
                before, after = self._call.args["from_sha256"], self._call.args["to_sha256"]
                fact = FileFact(
                    path=path,
                    before_sha256=before,
                    after_sha256=after,
                    pre_image=None if before is None else b"new" * 20,
                    temp_name=".tmp",
                    undoes=undoes,
                )
                self._change = fact
                self._listener.commit(fact, self._granted)
            case "Process":
                process = ProcessIdentity(pid=7, group=7, start_ticks=1, boot_id="boot")
                self._listener.commit(ProcessFact(process=process, command="true"), self._granted)
            case "Hang" | "Deaf":
                self._listener.output("stdout", "still here")
            case _:
                self._end(Outcome.OK, "read " + path, FileSeen(path=path, sha256="b" * 64))

    def cancel(self) -> None:
        if self._tool.spec.name != "Deaf":
            self._tool.soon(lambda: self._end(Outcome.ABORTED, "stopped", None))

    def _granted(self, granted: bool) -> None:
        if not granted:
            self._end(Outcome.NOT_STARTED, "not done", None)
            return
        if not self._tool.committed(self._call):
            raise BrokenLaw("an effect before its fact")
        self._tool.effects.append(str(self._call.call_id))
        if self._change is not None:
            self._tool.disk[self._change.path] = self._change.after_sha256
        self._tool.soon(lambda: self._listener.output("stdout", "line\n"))
        self._tool.soon(lambda: self._end(Outcome.OK, "done", None))

    def _end(self, outcome: Outcome, text: str, seen: FileSeen | None) -> None:
        if not self._over:
            self._over = True
            self._listener.ended(ToolResult(outcome=outcome, text=text, seen=seen, whole=b"whole " + text.encode()))


class SimAsking(SimTool):
    """A call that a person answers."""

    def request(self, call: ToolCall, active_ms: int) -> UserQuestionRequest:
        questions = (Question(question=str(call.args["path"])),)
        return UserQuestionRequest(call_id=call.call_id, questions=questions, active_ms=active_ms)


class SimUndo(SimTool):
    """Puts files back; a file that nobody changed isn't there."""

    def __init__(self, world: World, facts: Facts, disk: dict[str, str | None]) -> None:
        super().__init__("Undo", world, facts, disk)

    def look(self, cwd: str, path: str) -> FileNow:
        return FileNow(sha256=self.disk.get(path))


TOOL_NAMES = ("Quick", "File", "Process", "Hang", "Deaf")


class SimCatalog:
    def __init__(self, world: World, facts: Facts, disk: dict[str, str | None]) -> None:
        self.tools = {name: SimTool(name, world, facts, disk) for name in (*TOOL_NAMES, "Raise")}
        self.tools["Ask"] = SimAsking("Ask", world, facts, disk)

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self.tools.values())

    def get(self, name: str) -> Tool | None:
        return self.tools.get(name)


# -- the rest -----------------------------------------------------------------------------------------------------


@dataclass
class SimBlobs:
    """Keeps large values; small ones travel with the append."""

    stored: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def put(self, data: bytes) -> tuple[BlobRef, bytes | None]:
        ref = BlobRef(sha256=hash_hex(data), size_bytes=len(data))
        return ref, data


class SimProcesses:
    def __init__(self) -> None:
        self.killed: list[ProcessIdentity] = []

    def spawn(self, spec: ProcessSpec, listener: ProcessListener) -> ProcessHandle:
        raise AssertionError("simulated tools start no process")

    def kill_left_over(self, found: Sequence[ProcessIdentity]) -> list[ProcessIdentity]:
        self.killed += found
        return list(found)


class SimLeftovers:
    def unlink_temp(self, path: str) -> bool:
        return False


class SimSink:
    """A reader that checks what it is shown: durable facts only, in order, each once."""

    def __init__(self, head: Callable[[], int]) -> None:
        self._head = head
        self.events: list[SessionEvent] = []
        self.last_position = 0

    def put(self, events: tuple[SessionEvent, ...]) -> bool:
        for event in events:
            if event.position is not None:
                if event.position > self._head():
                    raise BrokenLaw("a fact was shown before it was durable")
                if event.position <= self.last_position:
                    raise BrokenLaw("a fact was shown twice or out of order")
                self.last_position = event.position
            self.events.append(event)
        return True

    def lost(self) -> None:
        return


class SimReply:
    """A one-shot answer that can be looked at."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def set(self, value: Any) -> None:
        if not self.values:
            self.values.append(value)

    @property
    def value(self) -> Any:
        return self.values[0] if self.values else None
