"""The receipt of an undo, as its run's facts say: one file per call, and the files that its opening note leaves.

The note and the arguments of the calls are made here, too, so that writing and reading stand side by side.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from maka.contracts.commands import CommandChanges, LeftFile, UndoneFile, UndoReceipt
from maka.contracts.content import FunctionCall, FunctionResponse, SystemNote
from maka.contracts.events import Committed, is_terminal
from maka.contracts.ids import CallId
from maka.contracts.limits import WORKSPACE_NAMES_MAX
from projections.undo_plan import UndoStep

TOOL = "Undo"
NOTE = "undo"


def call_args(step: UndoStep) -> dict[str, Any]:
    """Return the arguments of a step's call, as its tool takes them."""
    args: dict[str, Any] = {
        "path": step.path,
        "from_sha256": step.now_sha256,
        "to_sha256": step.then_sha256,
        "undoes": step.undoes,
    }
    return args if step.mode is None else {**args, "mode": step.mode}


def note(left: tuple[LeftFile, ...], commands: CommandChanges) -> SystemNote | None:
    """Return the note of what an undo leaves; None where there is nothing to say."""
    if not left and commands == CommandChanges():
        return None
    words = [f"{file.path} stays: {file.message}" for file in left if file.reason != "already"]
    if commands != CommandChanges():
        words.append("what commands changed can't be undone")
    text = "; ".join(words[:WORKSPACE_NAMES_MAX]) or "some files hold already what they held before"
    data = msgspec.to_builtins({"text": text, "left": left[:WORKSPACE_NAMES_MAX], "commands": commands})
    return SystemNote(note=NOTE, data=data)


def receipt(items: Iterable[Committed]) -> UndoReceipt | None:
    """Return the receipt of a run, given whole and in order; None for no facts."""
    found: UndoReceipt | None = None
    files: dict[CallId, UndoneFile] = {}
    for item in items:
        event, content = item.event, item.event.content
        if found is None:
            found = UndoReceipt(session_id=event.session_id, run_id=event.run_id)
        if isinstance(content, FunctionCall) and content.name == TOOL:
            files[CallId(event.id)] = _called(content)
        elif isinstance(content, FunctionResponse) and content.call_id in files:
            told = {"outcome": content.outcome.value, "text": content.result}
            files[content.call_id] = msgspec.structs.replace(files[content.call_id], **told)
        elif isinstance(content, SystemNote) and content.note == NOTE:
            left = msgspec.convert(content.data.get("left", ()), tuple[LeftFile, ...])
            commands = msgspec.convert(content.data.get("commands", {}), CommandChanges)
            found = msgspec.structs.replace(found, left=left, commands=commands)
        if is_terminal(event) and event.status is not None:
            found = msgspec.structs.replace(found, status=event.status.value, position=item.position)
    return None if found is None else msgspec.structs.replace(found, files=tuple(files.values()))


def _called(call: FunctionCall) -> UndoneFile:
    path, before, after = call.args.get("path"), call.args.get("from_sha256"), call.args.get("to_sha256")
    return UndoneFile(path=str(path), before_sha256=before, after_sha256=after, outcome="running", text="")
