"""Grep: the lines that fit a regular expression, with their places."""

import os
from collections.abc import Callable

from maka.contracts.actions import RecoveryMode
from maka.contracts.limits import GREP_COLUMNS_MAX, GREP_LINES_MAX, GREP_PER_FILE_MAX
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolListener, ToolResult
from maka.tools.boundary import PathError, Place
from maka.tools.glob_match import PatternError, checked, compiled
from maka.tools.results import error, no_effect
from maka.tools.search import Keep, Ripgrep, Search, Start, exactly

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

    def refusal(self, call: ToolCall, env: ToolEnv) -> ToolResult | None:
        """Return why nothing can be searched there; None where it can."""
        return self._ripgrep.refusal(env, call.args.get("path"), "search")

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        """Spawn and return."""
        if (no_search := self._ripgrep.missing(env, "search")) is not None:
            listener.ended(no_search)
            return no_effect
        try:
            place = self._ripgrep.place(env, call.args.get("path"))
            begin = Start.at(place)
            if "\0" in str(call.args["pattern"]):
                raise PathError("the pattern holds a NUL byte")
            only, keep = _filter(str(call.args.get("glob") or ""), place)
        except PathError as refusal:
            listener.ended(refusal.result)
            return no_effect
        except PatternError as refusal:
            listener.ended(error(str(refusal)))
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
        )
        cwd, way = place.root, ["--", place.shown]
        folder, name = os.path.split(place.real)
        if not begin.is_folder and _is_text(name) and self._ripgrep.can_list(env, folder):
            # As if it were named: no rule leaves it out, and what comes before its first NUL is text.
            cwd, way = folder, ["--binary", "--max-depth=1", f"--glob={exactly(name)}", "--", "."]
            keep = _below(os.path.dirname(place.shown), keep)
        return Search(listener, self._ripgrep.masks, "\n", keep, GREP_LINES_MAX, begin).start(
            self._ripgrep, env, cwd, (*arguments, *way)
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


def _below(folder: str, keep: Keep) -> Keep:
    """Put a folder in front of the names of a search that ran in it."""

    def kept(record: str) -> str | None:
        return keep(os.path.join(folder, record.removeprefix("./")))

    return kept


def _is_text(name: str) -> bool:
    """Say whether a name can be a part of a pattern."""
    return all(not "\ud800" <= sign <= "\udfff" for sign in name)


def _line(record: str) -> str | None:
    path, nul, rest = record.partition("\0")
    return f"{path.removeprefix('./')}:{rest}" if nul else None
