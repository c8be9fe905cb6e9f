"""Write: put whole content into a file, new or not. Parent folders inside the workspace are made as needed."""

from collections.abc import Callable

from maka.contracts.actions import RecoveryMode
from maka.contracts.limits import WRITE_BYTES_MAX
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolListener, ToolResult, Turn
from maka.tools.boundary import PathError, Place, refused
from maka.tools.change import Change, Plan
from maka.tools.files import Before, FileTurns, turn_of

SPEC = ToolSpec(
    name="Write",
    description=(
        "Write a file with exactly this content (UTF-8). An existing file is overwritten as a whole; missing parent "
        "directories are created. To change a part of a file use Edit."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "Path of the file, relative to the workspace."},
            "content": {"type": "string", "description": "The whole new content."},
        },
        "required": ["path", "content"],
        "additionalProperties": False,
    },
)


class WriteTool:
    """The tool Write."""

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
        """Write in the caller's thread and, after the commit, in the thread that calls `then`."""
        content = str(call.args["content"])

        def decide(place: Place, before: Before) -> Plan:
            del place
            try:
                data = content.encode()
            except UnicodeEncodeError:
                raise PathError("the content holds half a surrogate pair, which no file can hold") from None
            if len(data) > WRITE_BYTES_MAX:
                raise PathError(f"the content has {len(data)} bytes, which is more than {WRITE_BYTES_MAX}")
            return Plan(data=data, verb="Created" if before.data is None else "Overwrote")

        return Change(self._turns, call, env, listener, decide).start()
