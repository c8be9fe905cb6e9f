"""Edit: replace one place of a text file, and nothing else of it.

Laws: a file that changed since this session last saw it is refused (one that it never saw isn't). Bytes that are no
UTF-8, the byte order mark, line ends and a missing final line end stay as they are.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from maka.contracts.actions import RecoveryMode
from maka.contracts.limits import EDIT_CHARS_MAX, EDIT_LINES_MAX
from maka.contracts.masks import Masks
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolListener, ToolResult, Turn
from maka.tools.boundary import PathError, Place, refused
from maka.tools.change import Change, Plan
from maka.tools.edit_match import MatchError, find, replaced
from maka.tools.files import Before, FileTurns, turn_of

SPEC = ToolSpec(
    name="Edit",
    description=(
        "Replace one occurrence of old_string in a file by new_string. old_string must be the file's exact text, with "
        "its indentation, and occur exactly once: add lines around it until it does. new_string is written as it is."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "Path of the file, relative to the workspace."},
            "old_string": {"type": "string", "minLength": 1, "description": "The exact text to replace."},
            "new_string": {"type": "string", "description": "The text to put in its place; may be empty."},
        },
        "required": ["path", "old_string", "new_string"],
        "additionalProperties": False,
    },
)


class EditTool:
    """The tool Edit."""

    spec: ToolSpec = SPEC
    recovery_mode: RecoveryMode = "outcome_unknown"
    exclusive: bool = False

    def __init__(self, turns: FileTurns) -> None:
        self._turns = turns

    def refusal(self, call: ToolCall, env: ToolEnv) -> ToolResult | None:
        """Return why the path can't be written; None where it can."""
        return refused(env, str(call.args["path"]), "write", self._turns.ground)

    def turn(self, call: ToolCall, env: ToolEnv) -> Turn:
        """Return which file the call is about."""
        return turn_of(call, env, writes=True)

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        """Edit in the caller's thread and, after the commit, in the thread that calls `then`."""

        def decide(place: Place, before: Before) -> Plan:
            if before.data is None:
                raise PathError(f"{place.shown} does not exist: use Write to create it, or Glob to find the right path")
            self._unless_changed(place, before.data, env)
            return _plan(place, before.data, call.args, self._turns.masks)

        return Change(self._turns, call, env, listener, decide).start()

    def _unless_changed(self, place: Place, data: bytes, env: ToolEnv) -> None:
        now = sha256(data).hexdigest()
        seen = env.seen.get(place.real)
        if seen is not None and now not in (seen, self._turns.last_written(env.session_id, place.real)):
            raise PathError(f"{place.shown} changed since you last read it; nothing was edited. Read it again first")


def _plan(place: Place, data: bytes, args: Mapping[str, Any], masks: Masks) -> Plan:
    text = data.decode("utf-8", "surrogateescape")
    if len(text) > EDIT_CHARS_MAX or text.count("\n") > EDIT_LINES_MAX:
        raise PathError(f"{place.shown} is too large to edit ({len(text)} characters): change it with a command")
    old, new = str(args["old_string"]), str(args["new_string"])
    try:
        match = find(text, old, new, masks)
        after = replaced(text, match).encode("utf-8", "surrogateescape")
    except MatchError as refusal:
        raise PathError(f"{place.shown}: {refusal}") from None
    except UnicodeEncodeError:
        raise PathError("new_string holds half a surrogate pair, which no file can hold") from None
    if after == data and old != new and old.replace("\r", "") == new.replace("\r", ""):
        raise PathError(
            f"{place.shown}: Edit keeps the line ends of a file, so this changes nothing; change them with a command"
        )
    lines = (
        f"line {match.first_line}"
        if match.first_line == match.last_line
        else (f"lines {match.first_line}-{match.last_line}")
    )
    note = f". Not an exact match: {match.how}" if match.how else ""
    return Plan(data=after, verb="Edited", detail=f" at {lines}{note}")
