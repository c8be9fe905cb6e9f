"""request_sandbox_boundary: the model asks a person to widen the boundary; the run waits for the decision.

What is asked for is resolved against what is really there before any fact exists, so that the person decides about
real paths, and the grant is exactly what was shown. What is allowed already isn't asked for: a "deny" would deny
nothing. Never dispatched: it has no effect but the request itself.
"""

from collections.abc import Callable

from maka.contracts.actions import BoundaryRequest, RecoveryMode
from maka.contracts.boundary import Expansion, Profile
from maka.contracts.limits import EXPANSION_ENTRIES_MAX
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import Asked, ToolCall, ToolEnv, ToolListener
from maka.tools.boundary import boundary_of
from maka.tools.expansion import ExpansionError, expansion_of, lacking, normalise
from maka.tools.policy import Ground
from maka.tools.survey import as_now

JUSTIFICATION_CHARS_MAX = 2_000


ALLOWED = (
    "not asked: it is allowed already, so the call can simply be repeated. If it is refused or denied all the same, to "
    "ask for this again changes nothing: what isn't there has to be made first (Write makes a file; its folders only "
    "in what may be written as a whole), what was granted as a file and is a folder is granted by the names of its "
    "files, what has become a link leads to another place, a command that runs already keeps what it began with, and a "
    "process in the background has nothing that was granted once: the person allows that for the session (--allow, of "
    "maka rules). Then do without it, and say so."
)


class AskBoundaryTool:
    """Paths to read or write, exactly or with all below them, and the network."""

    recovery_mode: RecoveryMode = "replay_safe"
    exclusive = False
    spec = ToolSpec(
        name="request_sandbox_boundary",
        description=(
            "Ask the person to widen what your tools may touch, after a call was refused with "
            "sandbox_boundary_required. Ask for exactly what that refusal names, and say why. The run waits for the "
            "answer; then repeat the call."
        ),
        parameters={
            "type": "object",
            "properties": {
                "expansion": {
                    "type": "object",
                    "properties": {
                        "filesystem": {
                            "type": "array",
                            "maxItems": EXPANSION_ENTRIES_MAX,
                            "items": {
                                "type": "object",
                                "properties": {
                                    "path": {"type": "string", "minLength": 1},
                                    "access": {"type": "string", "enum": ["read", "write"]},
                                    "scope": {"type": "string", "enum": ["exact", "subtree"]},
                                },
                                "required": ["path", "access", "scope"],
                                "additionalProperties": False,
                            },
                        },
                        "network": {"type": "boolean"},
                    },
                    "additionalProperties": False,
                },
                "justification": {"type": "string", "minLength": 1, "maxLength": JUSTIFICATION_CHARS_MAX},
            },
            "required": ["expansion", "justification"],
            "additionalProperties": False,
        },
    )

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def prepare(self, call: ToolCall, env: ToolEnv) -> Asked | str:
        justification = str(call.args["justification"]).strip()
        if not justification:
            return "not asked: say why it is needed"
        if env.boundary.profile is Profile.BYPASS:
            return "not asked: this session has no boundary, so the call can simply be repeated"
        ground = as_now(self._ground)
        try:
            whole = normalise(expansion_of(call.args["expansion"]), env.cwd, ground)
        except ExpansionError as error:
            return f"not asked: {error}"
        rest = _rest(whole, env, ground)
        if not (rest.filesystem or rest.network):
            return ALLOWED
        return BoundaryRequest(call_id=call.call_id, expansion=rest, justification=justification, is_rest=rest != whole)

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        raise AssertionError("a boundary is asked for, not dispatched")


def _rest(whole: Expansion, env: ToolEnv, ground: Ground) -> Expansion:
    try:
        return lacking(whole, boundary_of(env), ground)
    except PermissionError:  # nobody can say what is protected: nothing is taken for allowed
        return whole
