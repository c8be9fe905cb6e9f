"""check_background: what a session's background shells are doing, or what one of them has printed."""

from collections.abc import Callable

from maka.contracts.actions import RecoveryMode
from maka.contracts.content import Outcome
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolListener, ToolResult
from maka.tools.results import error, no_effect, with_footer
from maka.tools.shells import Shells, listed, state, wrong_id


class CheckBackgroundTool:
    """Reads; changes nothing."""

    recovery_mode: RecoveryMode = "replay_safe"
    exclusive: bool = False
    spec = ToolSpec(
        name="check_background",
        description=(
            "Show the background shells of this session: without an id, all of them with how they are; with one, "
            "what it has printed so far. Long output keeps its beginning and end."
        ),
        parameters={
            "type": "object",
            "properties": {"id": {"type": "string", "description": "The shell's id, such as b1."}},
            "additionalProperties": False,
        },
    )

    def __init__(self, shells: Shells) -> None:
        self._shells = shells

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        """Answer at once."""
        found, wanted = self._shells.of(env.session_id), call.args.get("id")
        shell = next((shell for shell in found if shell.shell_id == wanted), None)
        if wanted is None:
            listener.ended(ToolResult(outcome=Outcome.OK, text=listed(found)))
        elif shell is None:
            listener.ended(error(wrong_id(found)))
        else:
            text = with_footer(self._shells.output(shell), *state(shell))
            listener.ended(ToolResult(outcome=Outcome.OK, text=text))
        return no_effect
