"""Any mix of an agent's writes, a person's edits, undo and redo, on real files: nothing of a person's is lost."""

import os
import stat
import tempfile
from itertools import count
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from maka.contracts.actions import Actions, FileChange
from maka.contracts.codec import hash_hex
from maka.contracts.content import BlobRef, Outcome
from maka.contracts.events import ModelVisibility
from maka.contracts.ids import CallId, RunId
from maka.contracts.tool_ports import FileFact, Tool, ToolCall, ToolEnv
from maka.tools.files import FileTurns
from maka.tools.policy import Ground
from maka.tools.put_back import PutBackTool
from maka.tools.write import WriteTool
from projections import changes, undo_plan, undo_record
from tests.builders import RunLog, SessionLog
from tests.tools.harness import SESSION, Recorder

NAMES = ("a", "b", "sub/c")
Held = tuple[bytes, int] | None
"""A file's content and permission bits; None where there is none."""

names = st.sampled_from(NAMES)
operations = st.one_of(
    st.tuples(st.just("write"), names, st.integers(0, 3)),
    st.tuples(st.just("write"), names, st.integers(0, 3)),
    st.tuples(st.just("person"), names, st.just(0)),
    st.tuples(st.just("delete"), names, st.just(0)),
    st.tuples(st.just("chmod"), names, st.sampled_from([0o600, 0o644, 0o755])),
    st.tuples(st.just("undo"), names, st.just(-1)),
    st.tuples(st.just("undo"), names, st.integers(0, 5)),
    st.tuples(st.just("force"), names, st.just(0)),
)


class Desk:
    """A workspace, and the log of what was done to it by the tools."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.realpath(folder))
        self.log = SessionLog()
        self.blobs: dict[str, bytes] = {}
        turns = FileTurns(Ground())
        self.write_tool = WriteTool(turns)
        self.undo_tool = PutBackTool(turns, self.blobs.get)
        self.writer: dict[str, str] = {}
        self.left: dict[str, Held] = {}
        """What the agent or an undo left last: a person's file that is the same again can't be told from that."""
        self.runs: list[RunId] = []
        self.numbers = count()

    def path(self, name: str) -> Path:
        return self.folder / name

    def held(self, name: str) -> Held:
        try:
            return self.path(name).read_bytes(), stat.S_IMODE(self.path(name).stat().st_mode)
        except FileNotFoundError:
            return None

    def all(self) -> dict[str, Held]:
        return {name: self.held(name) for name in NAMES}

    # -- what is done ---------------------------------------------------------------------------------------------

    def write(self, name: str, number: int) -> None:
        run = self.log.run()
        self.runs.append(run.run_id)
        if self._call(run, self.write_tool, {"path": name, "content": f"agent {number}\n"}):
            self.writer[name], self.left[name] = "agent", self.held(name)
        run.complete()

    def person(self, name: str) -> None:
        self.path(name).parent.mkdir(exist_ok=True)
        self.path(name).write_text(f"person {next(self.numbers)}\n")
        self.writer[name] = "person"

    def delete(self, name: str) -> None:
        if self.held(name) is not None:
            self.path(name).unlink()
            self.writer[name] = "person"

    def chmod(self, name: str, mode: int) -> None:
        if self.held(name) is not None:
            self.path(name).chmod(mode)

    def undo(self, run_id: RunId | None, files: tuple[str, ...] = (), *, force: bool = False) -> RunId | None:
        """Undo as a session does; returns the undo's run where there was anything to do."""
        folded = changes.project(self.log)
        assert folded is not None
        found = changes.changes(folded)
        paths = tuple(str(self.path(name)) for name in files)
        now = {path: self.undo_tool.look(str(self.folder), path) for path in undo_plan.candidates(found, run_id, paths)}
        plan = undo_plan.plan(found, run_id, now, files=paths, force=force)
        if not plan.steps:
            return None
        run = self.log.run(None)
        for step in plan.steps:
            assert self._call(run, self.undo_tool, undo_record.call_args(step))
            name = os.path.relpath(step.path, self.folder)
            self.writer[name], self.left[name] = "undo", self.held(name)
        run.complete()
        self.runs.append(run.run_id)
        return run.run_id

    def _call(self, run: RunLog, tool: Tool, args: dict[str, object]) -> bool:
        """Run a call and record its facts; say whether it changed a file."""
        call_id = run.call(tool.spec.name, args)
        run.dispatch(call_id, tool.spec.name)
        suffix = f".maka-{call_id[-12:]}"
        recorder = Recorder()
        call = ToolCall(call_id=call_id, name=tool.spec.name, args=args)
        tool.start(call, ToolEnv(session_id=SESSION, cwd=str(self.folder), temp_suffix=suffix), recorder)
        result = recorder.wait()
        for fact in recorder.file_facts:
            self._record(run, call_id, fact)
        run.answer(call_id, result.text, result.outcome, name=tool.spec.name)
        return bool(recorder.file_facts) and result.outcome is Outcome.OK

    def _record(self, run: RunLog, call_id: CallId, fact: FileFact) -> None:
        pre_image: BlobRef | None = None
        if fact.pre_image is not None:
            pre_image = BlobRef(sha256=hash_hex(fact.pre_image), size_bytes=len(fact.pre_image))
            self.blobs[pre_image.sha256] = fact.pre_image
        change = FileChange(
            call_id=call_id,
            path=fact.path,
            before_sha256=fact.before_sha256,
            after_sha256=fact.after_sha256,
            pre_image=pre_image,
            temp_name=fact.temp_name,
            mode=fact.mode,
            undoes=fact.undoes,
        )
        run.add(actions=Actions(file_change=change), model_visibility=ModelVisibility.HIDDEN)


def checked_undo(desk: Desk, run_id: RunId | None) -> None:
    """Undo, hold it to its promises, undo that, and undo once more."""
    before, writers, left = desk.all(), dict(desk.writer), dict(desk.left)
    undo = desk.undo(run_id)
    after = desk.all()
    for name in NAMES:
        if writers.get(name) == "person" and before[name] != left.get(name):
            assert after[name] == before[name], "what a person did last was touched"
        held = before[name]
        if after[name] != held and held is not None:
            assert hash_hex(held[0]) in desk.blobs, "what was replaced isn't kept"
    if undo is None:
        assert after == before
        return
    redo = desk.undo(undo)
    assert desk.all() == before, "undoing the undo doesn't restore"
    assert redo is not None
    assert desk.undo(redo) is not None
    assert desk.all() == after, "undoing that doesn't restore"


@given(st.lists(operations, max_size=16))
@settings(max_examples=150, deadline=None)
def test_undo_never_loses_a_persons_bytes_and_undo_of_undo_restores(story: list[tuple[str, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        for what, name, number in story:
            match what:
                case "write":
                    desk.write(name, number)
                case "person":
                    desk.person(name)
                case "delete":
                    desk.delete(name)
                case "chmod":
                    desk.chmod(name, number)
                case "force":
                    held = desk.held(name)
                    desk.undo(None, (name,), force=True)
                    if held is not None and desk.held(name) != held:
                        assert hash_hex(held[0]) in desk.blobs, "even by force what was replaced is kept"
                case _:
                    checked_undo(desk, desk.runs[number % len(desk.runs)] if number >= 0 and desk.runs else None)


@given(st.lists(st.tuples(names, st.integers(0, 3)), max_size=10), st.sets(names))
@settings(max_examples=60, deadline=None)
def test_without_anyone_else_an_undo_restores_all(writes: list[tuple[str, int]], there: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        for name in sorted(there):
            desk.person(name)
        before = desk.all()
        for name, number in writes:
            desk.write(name, number)
        desk.undo(None)
        assert desk.all() == before
        assert desk.undo(None) is None
