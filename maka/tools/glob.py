"""Glob: the files whose path fits a pattern, in the order of their paths."""

import os
from collections.abc import Callable

from maka.contracts.actions import RecoveryMode
from maka.contracts.limits import GLOB_RESULTS_MAX
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolListener, ToolResult
from maka.tools.boundary import PathError
from maka.tools.glob_match import PatternError, checked, compiled
from maka.tools.results import error, no_effect
from maka.tools.search import Ripgrep, Search, Start

SPEC = ToolSpec(
    name="Glob",
    description=(
        "List files whose path fits a pattern: `*` within one name, `**/` any folders, `?`, `[ab]`, `{a,b}`. For "
        "example `**/*.py` or `src/*.{ts,tsx}`. Ignored files (.gitignore) are left out; at most "
        f"{GLOB_RESULTS_MAX} results."
    ),
    parameters={
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "minLength": 1, "description": "Pattern relative to the directory searched."},
            "path": {"type": "string", "description": "Directory to search; the workspace if not given."},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    },
)


class GlobTool:
    """The tool Glob."""

    spec: ToolSpec = SPEC
    recovery_mode: RecoveryMode = "replay_safe"
    exclusive: bool = False

    def __init__(self, ripgrep: Ripgrep) -> None:
        self._ripgrep = ripgrep

    def refusal(self, call: ToolCall, env: ToolEnv) -> ToolResult | None:
        """Return why nothing can be searched there; None where it can."""
        return self._ripgrep.refusal(env, call.args.get("path"), "list files")

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        """Spawn and return; names are matched here and not by ripgrep, whose patterns would override ignore rules."""
        if (no_search := self._ripgrep.missing(env, "list files")) is not None:
            listener.ended(no_search)
            return no_effect
        try:
            wanted = compiled(checked(str(call.args["pattern"])))
            place = self._ripgrep.place(env, call.args.get("path"))
            if not os.path.isdir(place.real) or not (begin := Start.at(place)).is_folder:
                raise PathError(f"{place.shown} is not a directory: search in a directory that exists")
        except PathError as refusal:
            listener.ended(refusal.result)
            return no_effect
        except PatternError as refusal:
            listener.ended(error(str(refusal)))
            return no_effect
        prefix = "" if place.is_root else place.shown + "/"

        def keep(record: str) -> str | None:
            return prefix + record if wanted.fullmatch(record) else None

        return Search(listener, self._ripgrep.masks, "\0", keep, GLOB_RESULTS_MAX, begin).start(
            self._ripgrep, env, place.real, ("--files", "--null")
        )
