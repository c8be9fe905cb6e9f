"""The world outside the actors, scripted and virtual: tools, processes, readers. The model is in `model`.

Each part checks the laws where it stands: a tool refuses a call that no durable dispatch names or that was started
before, a reader a fact that isn't durable.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from maka.contracts.actions import (
    BoundaryRequest,
    FileSeen,
    ProcessIdentity,
    Question,
    RecoveryMode,
    UserQuestionRequest,
)
from maka.contracts.boundary import Expansion, FileEntry
from maka.contracts.content import FunctionResponse, Outcome
from maka.contracts.events import Committed
from maka.contracts.ids import EventId
from maka.contracts.model_ports import ToolSpec
from maka.contracts.session_events import SessionEvent, ToolOutputDelta
from maka.contracts.tool_ports import (
    Asked,
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
from tests.sim.laws import SECRET, BrokenLaw, Facts
from tests.sim.model import Said, SimProvider
from tests.sim.world import World

__all__ = ["TOOL_NAMES", "BrokenLaw", "Facts", "Said", "SimProvider"]

LATE_S = 5.0
"""How long a late tool takes to end after its cancel: longer than a run waits for it."""


class Effects:
    """What calls really did, through every crash: a call is started once, and what had an effect isn't denied."""

    def __init__(self) -> None:
        self.started: set[str] = set()
        self.done: set[str] = set()
        self.hanging: set[str] = set()
        self.disk: dict[str, str | None] = {}


# -- tools --------------------------------------------------------------------------------------------------------


class SimTool:
    """A tool of one of a few kinds.

    Quick; File and Process, whose effect waits for its fact; Hang (until cancelled), Late (ends long after its
    cancel), Deaf (never ends), Twice (ends twice, and goes on talking), Raise.
    """

    recovery_mode: RecoveryMode = "outcome_unknown"
    exclusive = False

    def __init__(self, name: str, world: World, facts: Facts, seen: Effects) -> None:
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
        self.world = world
        self.facts = facts
        self.seen = seen
        self.effects: list[str] = []

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        dispatches = (item.event.actions.tool_dispatch for item in self.facts() if item.event.actions is not None)
        if not any(dispatch is not None and dispatch.call_id == call.call_id for dispatch in dispatches):
            self.world.breaks("a tool was started that no durable dispatch names")
        if call.call_id in self.seen.started:
            self.world.breaks("a call was started twice")
        if self.answer_of(call) is not None:
            self.world.breaks("a call was started that had been answered")
        self.seen.started.add(call.call_id)
        if self.spec.name == "Raise":
            raise SystemExit(f"3 {SECRET}")
        run = _Running(self, call, listener)
        self.soon(run.begin)
        return run.cancel

    def soon(self, act: Callable[[], None]) -> None:
        self.world.soon(f"tool {self.spec.name}", act)

    def committed(self, call: ToolCall) -> bool:
        """Say whether a fact of the call's effect is durable."""
        for item in self.facts():
            actions = item.event.actions
            if actions is None:
                continue
            fact = actions.file_change or actions.process_started
            if fact is not None and fact.call_id == call.call_id:
                return True
        return False

    def answer_of(self, call: ToolCall) -> Outcome | None:
        """Return what the log says of a call."""
        for item in self.facts():
            content = item.event.content
            if isinstance(content, FunctionResponse) and content.call_id == call.call_id:
                return content.outcome
        return None


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
                before = self._tool.seen.disk.get(path)
                self._change = FileFact(
                    path=path, before_sha256=before, after_sha256="a" * 64, pre_image=b"old" * 20, temp_name=".tmp"
                )
                self._listener.commit(self._change, self._granted)
            case "Undo":
                before, after = self._call.args["from_sha256"], self._call.args["to_sha256"]
                self._change = FileFact(
                    path=path,
                    before_sha256=before,
                    after_sha256=after,
                    pre_image=None if before is None else b"new" * 20,
                    temp_name=".tmp",
                    undoes=EventId(str(self._call.args["undoes"])),
                )
                self._listener.commit(self._change, self._granted)
            case "Process" | "Late":
                process = ProcessIdentity(pid=7, group=7, start_ticks=1, boot_id="boot")
                self._listener.commit(ProcessFact(process=process, command=f"true {SECRET}"), self._granted)
            case "Hang" | "Deaf":
                self._tool.seen.hanging.add(self._call.call_id)
                self._listener.output("stdout", "still here")
            case _:
                self._end(Outcome.OK, "read " + path, FileSeen(path=path, sha256="b" * 64))

    def cancel(self) -> None:
        def end() -> None:
            self._end(Outcome.ABORTED, "stopped", None)

        match self._tool.spec.name:
            case "Deaf":
                return
            case "Late":
                self._tool.world.after(LATE_S, end)
            case _:
                self._tool.soon(end)

    def _granted(self, granted: bool) -> None:
        if not granted:
            self._end(Outcome.NOT_STARTED, "not done", None)
            return
        if not self._tool.committed(self._call):
            self._tool.world.breaks("an effect before its fact")
        if self._tool.answer_of(self._call) not in (None, Outcome.OUTCOME_UNKNOWN):
            self._tool.world.breaks("an effect of a call whose outcome was known")
        self._tool.effects.append(str(self._call.call_id))
        self._tool.seen.done.add(self._call.call_id)
        if self._change is not None:
            self._tool.seen.disk[self._change.path] = self._change.after_sha256
        for piece in (f"line {SECRET[:9]}", f"{SECRET[9:]}\n"):
            self._tool.soon(partial(self._listener.output, "stdout", piece))
        self._tool.soon(lambda: self._end(Outcome.OK, "done", None))

    def _end(self, outcome: Outcome, text: str, seen: FileSeen | None) -> None:
        if self._over:
            return
        self._over = True
        self._tool.seen.hanging.discard(self._call.call_id)
        whole = f"whole {text} {SECRET}".encode()
        self._listener.ended(ToolResult(outcome=outcome, text=text, seen=seen, whole=whole, diff=f"+{SECRET}\n"))
        if self._tool.spec.name == "Twice":
            self._tool.soon(self._once_more)

    def _once_more(self) -> None:
        self._listener.output("stdout", "late")
        self._listener.ended(ToolResult(outcome=Outcome.ERROR, text="the second end"))
        process = ProcessIdentity(pid=8, group=8, start_ticks=1, boot_id="boot")
        self._listener.commit(ProcessFact(process=process, command="late"), self._late_grant)

    def _late_grant(self, granted: bool) -> None:
        if granted:
            self._tool.world.breaks("an effect was granted after the call's end")


class SimAsking(SimTool):
    """A call that a person answers."""

    def prepare(self, call: ToolCall, env: ToolEnv) -> Asked | str:
        path = str(call.args["path"])
        if path == "/refused":
            return "this can't be asked for"
        if path.startswith("/boundary"):
            entries = (FileEntry(path=path, access="write", scope="subtree"),)
            expansion = Expansion(filesystem=entries)
            return BoundaryRequest(call_id=call.call_id, expansion=expansion, justification="since")
        return UserQuestionRequest(call_id=call.call_id, questions=(Question(question=path),))


class SimUndo(SimTool):
    """Puts files back; a file that nobody changed isn't there."""

    def __init__(self, world: World, facts: Facts, seen: Effects) -> None:
        super().__init__("Undo", world, facts, seen)

    def look(self, cwd: str, path: str) -> FileNow:
        return FileNow(sha256=self.seen.disk.get(path))


TOOL_NAMES = ("Quick", "File", "Process", "Hang", "Deaf", "Late", "Twice")
HANGING = ("Hang", "Deaf")


class SimCatalog:
    def __init__(self, world: World, facts: Facts, seen: Effects) -> None:
        self.tools = {name: SimTool(name, world, facts, seen) for name in (*TOOL_NAMES, "Raise")}
        self.tools["Ask"] = SimAsking("Ask", world, facts, seen)

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self.tools.values())

    def get(self, name: str) -> Tool | None:
        return self.tools.get(name)


# -- the rest -----------------------------------------------------------------------------------------------------


class SimProcesses:
    def __init__(self) -> None:
        self.killed: list[ProcessIdentity] = []

    def spawn(self, spec: ProcessSpec, listener: ProcessListener) -> ProcessHandle:
        raise AssertionError("simulated tools start no process")

    def kill_left_over(self, found: Sequence[ProcessIdentity]) -> list[ProcessIdentity]:
        self.killed += found
        return list(found)


class SimLeftovers:
    def __init__(self) -> None:
        self.unlinked: list[str] = []

    def unlink_temp(self, path: str) -> bool:
        self.unlinked.append(path)
        return True


class LeftOver:
    """What the calls that a dead owner left open may have left on the machine: a start ends it before it writes."""

    def __init__(self, facts: Sequence[Committed]) -> None:
        self._processes: dict[str, ProcessIdentity] = {}
        self._temp_files: dict[str, str] = {}
        for item in facts:
            content, actions = item.event.content, item.event.actions
            if isinstance(content, FunctionResponse):
                self._processes.pop(content.call_id, None)
                self._temp_files.pop(content.call_id, None)
            if actions is not None and (started := actions.process_started) is not None:
                self._processes[started.call_id] = started.process
            if actions is not None and (change := actions.file_change) is not None:
                self._temp_files[change.call_id] = f"{change.path.rpartition('/')[0]}/{change.temp_name}"

    def check(self, processes: SimProcesses, leftovers: SimLeftovers) -> None:
        """Raise where something of it is still there."""
        if any(process not in processes.killed for process in self._processes.values()):
            raise BrokenLaw("a verdict was written before the processes of a dead owner were killed")
        if any(path not in leftovers.unlinked for path in self._temp_files.values()):
            raise BrokenLaw("a verdict was written before the temp files of a dead owner were removed")


class SimSink:
    """A reader that checks what it is shown: durable facts only, in order, each once."""

    def __init__(self, world: World, head: Callable[[], int]) -> None:
        self._world = world
        self._head = head
        self.events: list[SessionEvent] = []
        self._live: dict[str, str] = {}
        self.last_position = 0
        self.is_lost = False

    def put(self, events: tuple[SessionEvent, ...]) -> bool:
        for event in events:
            live = ""
            if isinstance(event, ToolOutputDelta):
                live = self._live.get(event.call_id, "") + event.text
                self._live[event.call_id] = live
            if SECRET in repr(event) or SECRET in live:
                self._world.breaks("a secret was shown")
            if event.position is not None:
                if event.position > self._head():
                    self._world.breaks("a fact was shown before it was durable")
                if event.position <= self.last_position:
                    self._world.breaks("a fact was shown twice or out of order")
                self.last_position = event.position
            self.events.append(event)
        return True

    def lost(self) -> None:
        self.is_lost = True


class Watch:
    """Stands before the feed: what the ledger publishes is durable, in order, each fact once and none left out."""

    def __init__(self, world: World, head: Callable[[], int], tell: Callable[[Any], object]) -> None:
        self._world = world
        self._head = head
        self._tell = tell
        self.position = head()

    def tell(self, message: Any) -> None:
        items: tuple[Committed, ...] = message.items
        for item in items:
            if item.position > self._head():
                self._world.breaks("a fact was published before it was durable")
            if item.position != self.position + 1:
                self._world.breaks(f"position {item.position} was published after {self.position}")
            self.position = item.position
        self._tell(message)


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
