"""Runs a tool as the runtime does: one listener for its facts, an event for its end."""

import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from maka.contracts.boundary import Boundary, Expansion, FileEntry, Grant, Profile
from maka.contracts.ids import CallId, EventId, SessionId
from maka.contracts.tool_ports import (
    FileFact,
    Handover,
    ProcessFact,
    Tool,
    ToolCall,
    ToolCatalog,
    ToolEnv,
    ToolFact,
    ToolResult,
)
from maka.edges import process_end
from maka.tools.edit_match import MatchError, find, replaced

NAMED = "git -c user.name=a -c user.email=a@example.org"
"""How a command's git is told who commits."""

CHILD_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
PATIENCE_S = 30.0
SESSION = SessionId("0198c0de-0000-7000-8000-000000000001")
Answer = Literal["grant", "refuse", "hold"]


def after_edit(text: str, old: str, new: str) -> str | None:
    """Return the text after an edit; None where it is refused."""
    try:
        return replaced(text, find(text, old, new))
    except MatchError:
        return None


class Recorder:
    """A `ToolListener` that grants, refuses or holds every commit, and keeps all that it hears."""

    def __init__(self, answer: Answer = "grant", on_commit: Callable[[ToolFact], None] | None = None) -> None:
        self.answer = answer
        self.on_commit = on_commit
        self.facts: list[ToolFact] = []
        self.outputs: list[tuple[str, str]] = []
        self.results: list[ToolResult] = []
        self.asked = threading.Event()
        self.spoke = threading.Event()
        self.done = threading.Event()
        self.cancel: Callable[[], None] = lambda: None
        self.keeping: list[Callable[[Handover], None]] = []
        self._held: list[Callable[[bool], None]] = []
        self._kept = 0
        self.call_id = CallId("")

    def output(self, stream: str, text: str) -> None:
        assert not self.results, "output after the end"
        self.outputs.append((stream, text))
        self.spoke.set()

    def commit(self, fact: ToolFact, then: Callable[[bool], None]) -> None:
        self.facts.append(fact)
        if self.on_commit is not None:
            self.on_commit(fact)
        if self.answer == "hold":
            self._held.append(then)
            self.asked.set()
        else:
            self.asked.set()
            then(self.answer == "grant")

    def keep(self, fact: ProcessFact, then: Callable[[Handover], None]) -> None:
        self.facts.append(fact)
        if self.on_commit is not None:
            self.on_commit(fact)
        if self.answer == "hold":
            self.keeping.append(then)
        self.asked.set()
        if self.answer == "grant":
            self._kept += 1
            then(Handover(shell_id=f"b{self._kept}"))
        elif self.answer == "refuse":
            then(Handover(refusal="the test says no"))

    def decide(self, granted: bool) -> None:
        """Answer every commit that is held."""
        held, self._held = self._held, []
        for then in held:
            then(granted)

    def ended(self, result: ToolResult) -> None:
        self.results.append(result)
        self.done.set()

    def wait(self) -> ToolResult:
        assert self.done.wait(PATIENCE_S), "the call did not end"
        (result,) = self.results
        return result

    @property
    def file_facts(self) -> list[FileFact]:
        return [fact for fact in self.facts if isinstance(fact, FileFact)]

    @property
    def process_facts(self) -> list[ProcessFact]:
        return [fact for fact in self.facts if isinstance(fact, ProcessFact)]

    def shown(self, stream: str = "stdout") -> str:
        return "".join(text for name, text in self.outputs if name == stream)


class Bench:
    """A catalogue of tools over one workspace. Remembers what was seen, as a session does."""

    def __init__(self, tools: ToolCatalog, cwd: Path, boundary: Boundary | None = None) -> None:
        self.tools = tools
        self.cwd = cwd
        self.boundary = boundary or Boundary()
        self.seen: dict[str, str] = {}
        self.calls = 0

    def within(self, boundary: Boundary) -> "Bench":
        """Return the same workspace and tools within another boundary."""
        return Bench(self.tools, self.cwd, boundary)

    def tool(self, name: str) -> Tool:
        tool = self.tools.get(name)
        assert tool is not None
        return tool

    def begin(
        self, name: str, recorder: Recorder | None = None, seen: Mapping[str, str] | None = None, **args: Any
    ) -> Recorder:
        """Start a call and return at once."""
        self.calls += 1
        recorder = recorder or Recorder()
        recorder.call_id = CallId(f"0198c0de-0000-7000-8000-{self.calls:012}")
        call = ToolCall(call_id=recorder.call_id, name=name, args=args)
        env = ToolEnv(
            session_id=SESSION,
            cwd=str(self.cwd),
            temp_suffix=f".maka-{self.calls:012}",
            seen=self.seen if seen is None else seen,
            boundary=self.boundary,
        )
        recorder.cancel = self.tool(name).start(call, env, recorder)
        return recorder

    def run(self, name: str, **args: Any) -> ToolResult:
        """Run a call to its end."""
        result = self.begin(name, **args).wait()
        if result.seen is not None:
            self.seen[result.seen.path] = result.seen.sha256
        return result


def boundary(workspace: Path, profile: Profile = Profile.ASK, *entries: FileEntry, network: bool = False) -> Boundary:
    """A boundary with one grant."""
    grant = Grant(
        origin=EventId("0198c0de-0000-7000-8000-00000000000e"),
        scope="session",
        expansion=Expansion(filesystem=entries, network=network),
    )
    grants = (grant,) if entries or network else ()
    return Boundary(profile=profile, grants=grants, workspace=os.path.realpath(workspace))


class Clock:
    """A clock by which processes are ended: it stands still until it is moved."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.looked = threading.Semaphore(0)
        patch.setattr(process_end, "time", SimpleNamespace(monotonic=self._monotonic))

    def _monotonic(self) -> float:
        self.looked.release()
        return self.now_s

    def is_looked_at(self, times: int) -> None:
        """Return when it was looked at so many times more."""
        for _ in range(times):
            assert self.looked.acquire(timeout=PATIENCE_S)


def nap(seconds: int) -> str:
    """A command that sleeps for long, and that no other run of these tests uses at the same time."""
    return f"sleep {seconds}.{os.getpid()}"


def running(command: str) -> list[int]:
    """The pids whose command line is exactly this."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if words == command.replace(" ", "\0").encode() + b"\0":
                found.append(int(entry.name))
    return found


def git(cwd: Path, *args: str) -> str:
    """Run git as a person does, outside of every sandbox."""
    words = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main", *args)
    return subprocess.run(words, cwd=cwd, check=True, capture_output=True, text=True, env=CHILD_ENV).stdout
