"""Plays stories with the real tools, and tells what was read or changed that may not be."""

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from maka.contracts.ids import CallId
from maka.contracts.sandbox_ports import Sandbox
from maka.contracts.tool_ports import FileFact, ToolCall, ToolEnv
from maka.edges import bubblewrap
from maka.edges.processes import AsyncProcesses
from maka.tools.files import FileTurns
from maka.tools.put_back import PutBackTool
from tests.tools.conftest import make_tools
from tests.tools.harness import SESSION, Bench, Recorder
from tests.tools.racer import Racer
from tests.tools.stories import Kind, Step, Story, of_commands, of_files
from tests.tools.worlds import HIDDEN, MARK, WORD, Escape, World, Worlds

Run = Callable[[Story], None]
Tales = Literal["files", "commands"]


class Stage:
    """A sandbox, a racer, and worlds that stories are played in. `name` is the sandbox's among those of the tests."""

    def __init__(
        self, processes: AsyncProcesses, sandbox: Sandbox, worlds: Worlds, patch: pytest.MonkeyPatch, *, name: str
    ) -> None:
        self.name = name
        self.processes = processes
        self.sandbox = sandbox
        self.worlds = worlds
        self.racer = Racer(patch)
        # Its folders stand for a person's home, which no sandbox replaces by an empty one.
        patch.setattr(bubblewrap, "_SPARE", ("/var/tmp", "/run"))

    def files(self, story: Story) -> None:
        """Play a story of all tools: none may say a word of what is outside. Raises Escape."""
        self._play(story, (WORD, HIDDEN))

    def commands(self, story: Story) -> None:
        """Play a story of commands: they may read what is ordinary. Raises Escape."""
        self._play(story, (HIDDEN,))

    def _play(self, story: Story, words: tuple[str, ...]) -> None:
        with self.worlds.one(story.profile, story.granted) as world:
            tools = make_tools(self.processes, sandbox=self.sandbox, ground=world.ground)
            bench = Bench(tools, world.workspace, world.boundary)
            world.has_names_outside = all(step.kind != "Bash" for step in story.steps)
            facts: list[FileFact] = []
            for step in story.steps:
                self._take(step, world, bench, facts, words)

    def _take(self, step: Step, world: World, bench: Bench, facts: list[FileFact], words: tuple[str, ...]) -> None:
        if step.kind == "move":
            world.move(step.races[0].move)
            world.check(None, None, words)
            return
        recorder = Recorder(on_commit=lambda _: self.racer.at("commit"))
        with self.racer.racing(world, step.races, step.path):
            if step.kind == "Undo":
                put_back(world, facts, recorder)
            else:
                bench.begin(step.kind, recorder, **arguments(step.kind, world.filled(step.path)))
            result = recorder.wait()
        facts += recorder.file_facts
        world.check(result, recorder, words)


def play(stage: Stage, tales: Tales, numbers: Iterable[int], *, shorten: bool = True) -> None:
    """Play the stories with these numbers. Raises Escape at the first that escapes, with the command to replay it."""
    run, tell = (stage.files, of_files) if tales == "files" else (stage.commands, of_commands)
    for number in numbers:
        try:
            play_one(run, tell(number), shorten=shorten)
        except Escape as escape:
            again = f"python -m tests.tools.replay {tales} {stage.name} {number}"
            raise Escape(f"story {number}, which this plays again: {again}\n{escape}") from escape


def play_one(run: Run, story: Story, *, shorten: bool = True) -> None:
    """Play a story. Raises Escape with as few of its steps as still escape."""
    try:
        run(story)
    except Escape as escape:
        raise Escape(f"{escape}\n{shortened(run, story) if shorten else story}") from escape


def shortened(run: Run, story: Story) -> Story:
    """Leave out one step after another, as long as it still escapes."""
    for step in story.steps:
        rest = list(story.steps)
        rest.remove(step)
        try:
            run(replace(story, steps=tuple(rest)))
        except Escape:
            return shortened(run, replace(story, steps=tuple(rest)))
    return story


def put_back(world: World, facts: list[FileFact], recorder: Recorder) -> None:
    """Undo the last change, as the runtime does; where there is none, what would have been one."""
    none = FileFact(
        path=f"{world.workspace}/d/a", before_sha256=None, after_sha256=None, pre_image=None, temp_name=".maka-undo"
    )
    fact = facts[-1] if facts else none
    blobs = {sha256(one.pre_image).hexdigest(): one.pre_image for one in facts if one.pre_image is not None}
    args = {"path": fact.path, "from_sha256": fact.after_sha256, "to_sha256": fact.before_sha256, "undoes": "x"}
    call = ToolCall(call_id=CallId("0198c0de-0000-7000-8000-00000000000f"), name="Undo", args=args)
    env = ToolEnv(session_id=SESSION, cwd=str(world.workspace), temp_suffix=".maka-undo", boundary=world.boundary)
    PutBackTool(FileTurns(world.ground), blobs.get).start(call, env, recorder)


def arguments(kind: Kind, path: str) -> dict[str, Any]:
    match kind:
        case "Bash":
            return {"command": path}
        case "Write":
            return {"path": path, "content": MARK}
        case "Edit":
            return {"path": path, "old_string": "mine", "new_string": MARK}
        case "Grep":
            return {"path": path, "pattern": "."}
        case "Glob":
            return {"path": path, "pattern": "**"}
        case _:
            return {"path": path}
