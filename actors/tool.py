"""ToolActor: one tool call, from the look before its dispatch, or from its start, to its one ToolEnded.

Laws: no effect before its fact is durable (`commit` asks the run, `then` runs after the answer); cancel is sticky
and is answered with ToolEnded like everything else; whatever a tool raises, SystemExit included, is a tool error.
Nothing that a tool says is passed on with a secret in it, nor cut before it is looked for.
Large values are stored here, before the append that names them.
"""

from collections.abc import Callable
from functools import partial
from typing import assert_never

from actors.address import Address, ReplyTo
from actors.base import NOT_DONE, MakaActor
from actors.messages import Parent
from actors.messages_run import FactWanted, ShellWanted, ToolEnded, ToolOutput, ToolReady, ToRun
from actors.messages_work import (
    CancelTool,
    CommitWanted,
    Dispatch,
    Grant,
    KeepWanted,
    Look,
    OutputSeen,
    ResultSeen,
    ToTool,
)
from actors.tool_masks import LiveMasks, masked_process, masked_result
from actors.verdicts import ToolAnswer
from actors.wiring import Ports
from maka.contracts.actions import ArtifactDelta, FileChange, ProcessStarted, WorkspaceChanged
from maka.contracts.commands import Reply, ShellKept
from maka.contracts.content import BlobRef, Outcome
from maka.contracts.errors import LedgerError, Refusal, RefusalCode
from maka.contracts.ids import CallId
from maka.contracts.limits import ERROR_TEXT_CHARS_MAX, WORKSPACE_NAMES_BYTES_MAX, WORKSPACE_NAMES_MAX
from maka.contracts.tool_ports import (
    BoundedTool,
    FileFact,
    FileTool,
    Handover,
    ProcessFact,
    Tool,
    ToolFact,
    ToolResult,
    WorkspaceDiff,
)


class Listener:
    """Carries a tool's facts from any thread into the mailbox."""

    def __init__(self, address: Address[ToTool]) -> None:
        self._address = address

    def output(self, stream: str, text: str) -> None:
        self._address.tell(OutputSeen(stream=stream, text=text))

    def commit(self, fact: ToolFact, then: Callable[[bool], None]) -> None:
        if not self._address.tell(CommitWanted(fact=fact, then=then)):
            then(False)

    def keep(self, fact: ProcessFact, then: Callable[[Handover], None]) -> None:
        reply = Keeping(then)
        if not self._address.tell(KeepWanted(fact=fact, reply=reply)):
            reply.set(NOT_DONE)

    def ended(self, result: ToolResult) -> None:
        self._address.tell(ResultSeen(result=result))


class Keeping:
    """The answer to whoever wants to keep a process, from whichever actor has it: told at once, on its thread.

    Not through the call's own actor, which may have ended: a process that waits for an answer must get one.
    """

    def __init__(self, then: Callable[[Handover], None]) -> None:
        self._then = then

    def set(self, value: Reply) -> None:
        if isinstance(value, ShellKept):
            self._then(Handover(shell_id=value.shell_id))
        else:
            assert isinstance(value, Refusal), "nothing else answers this"
            unclear = value.code is RefusalCode.OUTCOME_UNKNOWN
            self._then(Handover(refusal=value.message, unclear=unclear))


class ToolActor(MakaActor[ToTool]):
    """Started by RunActor for one call; stops itself after ToolEnded."""

    def __init__(self, ports: Ports, parent: Parent | None, run: Address[ToRun], tool: Tool, call_id: CallId) -> None:
        super().__init__(ports.log, parent)
        self._clock = ports.clock
        self._blobs = ports.blobs
        self._masks = ports.masks
        self._live = LiveMasks(ports.masks)
        self._run = run
        self._tool = tool
        self._call_id = call_id
        self._cancel: Callable[[], None] | None = None
        self._has_begun = False
        self._cancelled = False
        self._ended = False
        self._started_s = 0.0
        self._token = 0
        self._workspace = ""
        self._written: ArtifactDelta | None = None
        self._waiting: dict[int, Callable[[bool], None]] = {}

    def receive(self, message: ToTool) -> None:
        match message:
            case Look() | Dispatch() if self._ended:
                pass  # a stop came first
            case Look():
                self._look(message)
            case Dispatch():
                self._start(message)
            case CancelTool():
                self._stop_call()
            case Grant(token=token, granted=granted):
                if (then := self._waiting.pop(token, None)) is not None:
                    self._guarded(lambda: then(granted and not self._cancelled))
            case OutputSeen(stream=stream, text=text):
                if not self._ended:  # what comes later could complete what was let go as harmless at the end
                    self._show(stream, self._live.feed(stream, text))
            case CommitWanted():
                self._ask_commit(message)
            case KeepWanted(fact=fact, reply=reply):
                self._ask_to_keep(fact, reply)
            case ResultSeen(result=result):
                self._end(result)
            case _:
                assert_never(message)

    def cleanup(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for then in waiting.values():
            self._guarded(partial(then, False))
        if self._cancel is not None and not self._ended:
            self._guarded(self._cancel)

    def _look(self, message: Look) -> None:
        """Ask the tool whether the call may begin. A tool that fails at that isn't begun."""
        tool = self._tool
        assert isinstance(tool, BoundedTool), "the others are dispatched at once"
        self._started_s = self._clock.monotonic_s()

        def look() -> None:
            refusal = tool.refusal(message.call, message.env)
            if refusal is not None:
                self._end(refusal)
                return
            turn = tool.turn(message.call, message.env) if isinstance(tool, FileTool) else None
            self._run.tell(ToolReady(call_id=self._call_id, turn=turn))

        self._guarded(look)

    def _stop_call(self) -> None:
        self._cancelled = True
        if not self._has_begun:
            self._end(ToolResult(outcome=Outcome.NOT_STARTED, text="not started: the run was stopped first"))
        elif self._cancel is not None:
            self._guarded(self._cancel)

    def _start(self, message: Dispatch) -> None:
        self._has_begun = True
        self._started_s = self._clock.monotonic_s()
        self._workspace = message.env.boundary.workspace or message.env.cwd
        listener = Listener(self.address)

        def start() -> None:
            self._cancel = self._tool.start(message.call, message.env, listener)

        self._guarded(start)

    def _show(self, stream: str, text: str) -> None:
        if text:
            self._run.tell(ToolOutput(call_id=self._call_id, stream=stream, text=text))

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:  # the one place where a tool's own exceptions, SystemExit included, end
            self.log.warning("tool_raised", call_id=self._call_id, error_kind=type(error).__name__)
            text = self._masks(f"the tool failed: {type(error).__name__}: {error}")
            self._end(ToolResult(outcome=Outcome.ERROR, text=text[:ERROR_TEXT_CHARS_MAX]))

    def _ask_commit(self, message: CommitWanted) -> None:
        if self._cancelled or self._ended:
            self._guarded(lambda: message.then(False))
            return
        self._token += 1
        self._waiting[self._token] = message.then
        match message.fact:
            case FileFact() as file:
                self._want_change(file)
            case ProcessFact() as process:
                fact = masked_process(process, self._masks)
                started = ProcessStarted(
                    call_id=self._call_id, process=fact.process, command=fact.command, background=fact.background
                )
                self._run.tell(FactWanted(call_id=self._call_id, token=self._token, process_started=started))
            case _:
                assert_never(message.fact)

    def _ask_to_keep(self, process: ProcessFact, reply: ReplyTo[Reply]) -> None:
        fact = masked_process(process, self._masks)
        started = ProcessStarted(call_id=self._call_id, process=fact.process, command=fact.command, background=True)
        is_over = self._cancelled or self._ended
        if is_over or not self._run.tell(ShellWanted(started=started, reply=reply)):
            reply.set(NOT_DONE)

    def _want_change(self, fact: FileFact) -> None:
        if self._masks.holds(fact.path):
            # The path is what an undo and a recovery go by: it is recorded as it is, or not at all.
            self._refuse_effect(self._token, "the file's path holds a secret, so nothing was changed")
            return
        try:
            pre_image, blobs = self._store(fact.pre_image)
        except LedgerError as error:
            self._refuse_effect(self._token, f"the old content can't be kept, so nothing was changed: {error}")
            return
        change = FileChange(
            call_id=self._call_id,
            path=fact.path,
            before_sha256=fact.before_sha256,
            after_sha256=fact.after_sha256,
            pre_image=pre_image,
            temp_name=fact.temp_name,
            mode=fact.mode,
            undoes=fact.undoes,
        )
        if fact.undoes is None and fact.after_sha256 is not None:
            # No copy of it: the call's arguments and the old content say what it holds, and the fact its hash.
            name = fact.path.removeprefix(self._workspace.rstrip("/") + "/")
            self._written = ArtifactDelta(call_id=self._call_id, kind="file", name=name)
        self._run.tell(FactWanted(call_id=self._call_id, token=self._token, file_change=change, blobs=blobs))

    def _refuse_effect(self, token: int, reason: str) -> None:
        then = self._waiting.pop(token)
        self._end(ToolResult(outcome=Outcome.ERROR, text=reason))
        self._guarded(lambda: then(False))

    def _store_or_drop(self, data: bytes | None) -> tuple[BlobRef | None, tuple[bytes, ...]]:
        """Store what is for people only; without room the call's true result still counts."""
        try:
            return self._store(data)
        except LedgerError as error:
            self.log.error("output_not_stored", call_id=self._call_id, error_kind=str(error))
            return None, ()

    def _store(self, data: bytes | None) -> tuple[BlobRef | None, tuple[bytes, ...]]:
        if data is None:
            return None, ()
        ref, inline = self._blobs.put(data)
        return ref, () if inline is None else (inline,)

    def _end(self, result: ToolResult) -> None:
        if self._ended:
            return
        self._ended = True
        result = masked_result(result, self._masks)
        for stream, held in self._live.end():
            self._show(stream, held)
        whole, whole_blobs = self._store_or_drop(result.whole)
        diff, diff_blobs = self._store_or_drop(None if result.diff is None else result.diff.encode())
        answer = ToolAnswer(
            outcome=result.outcome,
            text=result.text,
            duration_ms=max(0, round(1000 * (self._clock.monotonic_s() - self._started_s))),
            exit_code=result.exit_code,
            whole=whole,
            diff=diff,
            seen=result.seen,
            workspace=None if result.workspace is None else _workspace_changed(self._call_id, result.workspace),
            artifacts=(self._written,) if self._written is not None and result.outcome is Outcome.OK else (),
            blobs=(*whole_blobs, *diff_blobs),
        )
        self._run.tell(ToolEnded(call_id=self._call_id, answer=answer))
        self.stop()


def _workspace_changed(call_id: CallId, found: WorkspaceDiff) -> WorkspaceChanged:
    """Bound the names: what is new first, since nothing else remembers it."""
    room, names_left = WORKSPACE_NAMES_BYTES_MAX, WORKSPACE_NAMES_MAX
    kept: list[tuple[str, ...]] = []
    for names in (found.added, found.deleted, found.modified):
        taken: list[str] = []
        for name in names[:names_left]:
            room -= len(name.encode())
            if room < 0:
                break
            taken.append(name)
        names_left -= len(taken)
        kept.append(tuple(taken))
    added, deleted, modified = kept
    return WorkspaceChanged(
        call_id=call_id,
        looked=found.unlooked is None,
        added=added,
        modified=modified,
        deleted=deleted,
        added_count=len(found.added),
        modified_count=len(found.modified),
        deleted_count=len(found.deleted),
        why=found.unlooked,
    )
