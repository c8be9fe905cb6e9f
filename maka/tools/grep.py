"""Grep: the lines that fit a regular expression, with their places."""

import os
from collections.abc import Callable

from maka.contracts.actions import RecoveryMode
from maka.contracts.limits import GREP_COLUMNS_MAX, GREP_LINES_MAX, GREP_PER_FILE_MAX
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolListener
from maka.tools.boundary import PathError, Place
from maka.tools.glob_match import PatternError, checked, compiled
from maka.tools.results import error, no_effect
from maka.tools.search import Keep, Ripgrep, Search

SPEC = ToolSpec(
    name="Grep",
    description=(
        "Search file contents with a regular expression (ripgrep syntax) and return `path:line:text`. Ignored files "
        f"(.gitignore) and binary files are left out; at most {GREP_PER_FILE_MAX} lines of a file and {GREP_LINES_MAX} "
        "in all."
    ),
    parameters={
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "minLength": 1, "description": "The regular expression."},
            "path": {"type": "string", "description": "File or directory to search; the workspace if not given."},
            "glob": {"type": "string", "description": "Only files that fit, such as `*.py` or `src/**/*.ts`."},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    },
)


class GrepTool:
    """The tool Grep."""

    spec: ToolSpec = SPEC
    recovery_mode: RecoveryMode = "replay_safe"
    exclusive: bool = False

    def __init__(self, ripgrep: Ripgrep) -> None:
        self._ripgrep = ripgrep

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        """Spawn and return."""
        try:
            place = self._ripgrep.place(env, call.args.get("path"))
            if not os.path.exists(place.real):
                raise PathError(f"{place.shown} does not exist: use Glob to find the right path")
            if "\0" in str(call.args["pattern"]):
                raise PathError("the pattern holds a NUL byte")
            only, keep = _filter(str(call.args.get("glob") or ""), place)
        except PathError as refusal:
            listener.ended(refusal.result)
            return no_effect
        except PatternError as refusal:
            listener.ended(error(str(refusal)))
            return no_effect
        if self._ripgrep.path is None:
            listener.ended(error("ripgrep (rg) is missing; search with a command instead"))
            return no_effect
        arguments = (
            "--line-number",
            "--with-filename",
            "--no-heading",
            "--null",
            f"--max-count={GREP_PER_FILE_MAX}",
            f"--max-columns={GREP_COLUMNS_MAX}",
            "--max-columns-preview",
            *only,
            f"--regexp={call.args['pattern']}",
            "--",
            place.shown,
        )
        return Search(listener, self._ripgrep.masks, "\n", keep, GREP_LINES_MAX).start(
            self._ripgrep, env, place.root, arguments
        )


def _filter(glob: str, place: Place) -> tuple[tuple[str, ...], Keep]:
    """Restrict a search to some files without overriding ignore rules, as ripgrep's own --glob would."""
    pattern = checked(glob.removeprefix("!"))
    if glob.startswith("!"):
        return (f"--glob=!{pattern}",), _line
    if not pattern:
        return (), _line
    if "/" not in pattern:
        return ("--type-add", f"wanted:{pattern}", "--type=wanted"), _line
    wanted = compiled(pattern)
    prefix = "" if place.is_root else place.shown + "/"

    def keep(record: str) -> str | None:
        path = record.partition("\0")[0].removeprefix("./").removeprefix(prefix)
        return _line(record) if wanted.fullmatch(path) else None

    return (), keep


def _line(record: str) -> str | None:
    path, nul, rest = record.partition("\0")
    return f"{path.removeprefix('./')}:{rest}" if nul else None
