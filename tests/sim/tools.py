"""A scripted, virtual toolbox: what calls do and say, in every order that a real one may.

A tool refuses a call that no durable dispatch names, that was started before, or that it had refused itself.
"""

from collections.abc import Callable, Iterator
from functools import partial

from maka.contracts.actions import (
    BoundaryRequest,
    FileSeen,
    ProcessIdentity,
    Question,
    RecoveryMode,
    UserQuestionRequest,
)
from maka.contracts.boundary import Expansion, FileEntry
from maka.contracts.content import FunctionCall, FunctionResponse, Outcome
from maka.contracts.ids import CallId, EventId
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import (
    Asked,
    FileFact,
    FileNow,
    ProcessFact,
    Tool,
    ToolCall,
    ToolEnv,
    ToolListener,
    ToolResult,
    Turn,
)
from tests.sim.laws import SECRET, Facts
from tests.sim.world import World

LATE_S = 5.0
"""How long a late tool takes to end after its cancel: longer than a run waits for it."""


class Effects:
    """What calls really did, through every crash: a call is started once, and what had an effect isn't denied.

    `alive` are background processes that run, whoever started them.
    """

    def __init__(self) -> None:
        self.started: set[str] = set()
        self.done: set[str] = set()
        self.hanging: set[str] = set()
        self.disk: dict[str, str | None] = {}
        self.alive: dict[int, CallId] = {}
        self.pids = 100


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
        if is_outside(call) and isinstance(self, SimBounded):
            self.world.breaks("a call was started that its tool had refused")
        self.check_start(call)
        if self.spec.name == "Raise":
            raise SystemExit(f"3 {SECRET}")
        run = _Running(self, call, listener)
        self.soon(run.begin)
        return run.cancel

    def check_start(self, call: ToolCall) -> None:
        """Check that a call may be started, and note that it was."""
        if not self.is_dispatched(call):
            self.world.breaks("a tool was started that no durable dispatch names")
        if call.call_id in self.seen.started:
            self.world.breaks("a call was started twice")
        if self.answer_of(call) is not None:
            self.world.breaks("a call was started that had been answered")
        self.seen.started.add(call.call_id)

    def is_dispatched(self, call: ToolCall) -> bool:
        """Say whether a durable dispatch names the call."""
        dispatches = (item.event.actions.tool_dispatch for item in self.facts() if item.event.actions is not None)
        return any(dispatch is not None and dispatch.call_id == call.call_id for dispatch in dispatches)

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
        self._has_written = False
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
            case "Undo" if self._has_written:
                return  # as the real one: a write that has begun is finished, and told
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
            self._has_written = True
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


def is_outside(call: ToolCall) -> bool:
    """Say whether a call names what no boundary allows."""
    return str(call.args["path"]).startswith("/outside")


class SimBounded(SimTool):
    """A tool that is asked before the dispatch; it refuses what is outside, and may fail at looking."""

    def refusal(self, call: ToolCall, env: ToolEnv) -> ToolResult | None:
        if self.is_dispatched(call):
            self.world.breaks("a tool was asked about a call that was dispatched already")
        if str(call.args["path"]) == "/outside/raise":
            raise OSError(f"no look {SECRET}")
        return ToolResult(outcome=Outcome.REFUSED, text=f"outside {SECRET}") if is_outside(call) else None


class SimFile(SimBounded):
    """A tool that is about one file; it sees that calls of one step on that file run in their order."""

    def turn(self, call: ToolCall, env: ToolEnv) -> Turn:
        return Turn(path=str(call.args["path"]), writes=True)

    def check_start(self, call: ToolCall) -> None:
        super().check_start(call)
        for earlier in self._calls_before(call):
            if self.is_dispatched(earlier) and self.answer_of(earlier) is None:
                self.world.breaks("a call was started before an earlier one on its file had ended")

    def _calls_before(self, call: ToolCall) -> Iterator[ToolCall]:
        """Tell the earlier calls of a call's run on its file."""
        facts = self.facts()
        run_id = next(item.event.run_id for item in facts if str(item.event.id) == call.call_id)
        for item in facts:
            content = item.event.content
            if str(item.event.id) == call.call_id:
                return
            if not isinstance(content, FunctionCall) or item.event.run_id != run_id:
                continue
            if content.name == self.spec.name and content.args.get("path") == call.args["path"]:
                yield ToolCall(call_id=CallId(item.event.id), name=content.name, args=content.args)


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
BOUNDED = ("Process", "Hang", "Late")
HANGING = ("Hang", "Deaf")
SHELL = "Shell"
"""The tool whose processes outlive their calls: see `shells`."""


class SimCatalog:
    def __init__(self, world: World, facts: Facts, seen: Effects, *more: SimTool) -> None:
        self.tools = {name: SimTool(name, world, facts, seen) for name in (*TOOL_NAMES, "Raise")}
        self.tools.update((name, SimBounded(name, world, facts, seen)) for name in BOUNDED)
        self.tools["File"] = SimFile("File", world, facts, seen)
        self.tools["Ask"] = SimAsking("Ask", world, facts, seen)
        self.tools.update((tool.spec.name, tool) for tool in more)

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self.tools.values())

    def get(self, name: str) -> Tool | None:
        return self.tools.get(name)
