"""stop_background: end a background shell with all that it has started; TERM first, KILL after a grace."""

from collections.abc import Callable
from functools import partial

from maka.contracts.actions import RecoveryMode
from maka.contracts.background_ports import ShellEnd
from maka.contracts.content import Outcome
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolListener, ToolResult
from maka.tools.results import error, no_effect, with_footer
from maka.tools.shells import Shells, state, wrong_id
from projections.background import Shell, just_ended

BY_MODEL = "model"


class StopBackgroundTool:
    """Ends one shell of its own session. A stop of the call leaves the shell to its end, which is on its way."""

    recovery_mode: RecoveryMode = "idempotent"
    exclusive: bool = False
    spec = ToolSpec(
        name="stop_background",
        description="End a background shell of this session and all that it has started, and return its last output.",
        parameters={
            "type": "object",
            "properties": {"id": {"type": "string", "description": "The shell's id, such as b1."}},
            "required": ["id"],
            "additionalProperties": False,
        },
    )

    def __init__(self, shells: Shells) -> None:
        self._shells = shells

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        """Ask the shell to end, and answer when it has."""
        found = self._shells.of(env.session_id)
        shell = next((shell for shell in found if shell.shell_id == call.args["id"]), None)
        if shell is None:
            listener.ended(error(wrong_id(found)))
            return no_effect
        held = self._shells.held(shell)
        if held is None or held.end is not None:
            output = self._shells.output(shell)
            text = with_footer(output, f"{shell.shell_id} had ended before", *state(shell))
            listener.ended(ToolResult(outcome=Outcome.OK, text=text))
            return no_effect
        held.stop(BY_MODEL)
        answer = partial(_tell, shell, lambda: held.glance().text, listener)
        held.when_ended(answer)
        return partial(_leave, shell, listener)


def _tell(shell: Shell, output: Callable[[], str], listener: ToolListener, end: ShellEnd) -> None:
    ended = just_ended(shell, end)
    outcome = Outcome.OUTCOME_UNKNOWN if end.survivors else Outcome.OK
    listener.ended(ToolResult(outcome=outcome, text=with_footer(output(), *state(ended))))


def _leave(shell: Shell, listener: ToolListener) -> None:
    text = f"Stopped before {shell.shell_id} had ended; it was asked to, and is being ended."
    listener.ended(ToolResult(outcome=Outcome.ABORTED, text=text))
