"""The tools of a run, in the order in which the model is shown them."""

import shutil
from collections.abc import Mapping, Sequence

from maka.contracts.masks import NO_MASKS, Masks
from maka.contracts.model_ports import ToolSpec
from maka.contracts.process_ports import Processes
from maka.contracts.sandbox_ports import Sandbox
from maka.contracts.tool_ports import Tool
from maka.tools.ask_boundary import AskBoundaryTool
from maka.tools.ask_question import AskQuestionTool
from maka.tools.background import BackgroundTable
from maka.tools.bash import BashTool
from maka.tools.check_background import CheckBackgroundTool
from maka.tools.edit import EditTool
from maka.tools.files import FileTurns
from maka.tools.glob import GlobTool
from maka.tools.grep import GrepTool
from maka.tools.policy import Ground
from maka.tools.read import ReadTool
from maka.tools.search import Ripgrep
from maka.tools.settler import Settler
from maka.tools.shells import Shells
from maka.tools.stop_background import StopBackgroundTool
from maka.tools.workspace_scan import WatchedTool
from maka.tools.write import WriteTool

FALLBACK_PATH = "/usr/local/bin:/usr/bin:/bin"


class Catalog:
    """Implements `ToolCatalog` over a fixed sequence of tools."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}
        assert len(self._tools) == len(tools), "two tools of one name"

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return what the model is shown."""
        return tuple(tool.spec for tool in self._tools.values())

    def get(self, name: str) -> Tool | None:
        """Return the tool of exactly this name."""
        return self._tools.get(name)


def builtin_tools(
    processes: Processes,
    *,
    child_env: Mapping[str, str],
    rg_path: str | None,
    sandbox: Sandbox,
    ground: Ground,
    shell: str | None = None,
    turns: FileTurns | None = None,
    masks: Masks = NO_MASKS,
    shells: Shells | None = None,
    settler: Settler | None = None,
) -> Catalog:
    """Make the built-in tools. `child_env` is all that their processes see; `shell` is bash where there is one.

    `ground` is what no session may touch unasked; `survey.ground_of` makes it. `turns` are shared with whoever else
    changes files. `masks` takes secrets out of what is read and printed. `shells` are the host's
    background shells, and `settler` puts right what its commands left.
    """
    path = child_env.get("PATH", FALLBACK_PATH)
    found = shell or shutil.which("bash", path=path) or shutil.which("sh", path=path) or "/bin/sh"
    turns = turns or FileTurns(ground, masks)
    shells = shells or Shells(table=BackgroundTable())
    settler = settler or Settler()
    ripgrep = Ripgrep(processes, rg_path, child_env, sandbox, ground, masks, settler)
    return Catalog(
        (
            ReadTool(ground, masks),
            WriteTool(turns),
            EditTool(turns),
            WatchedTool(
                BashTool(processes, found, child_env, sandbox, ground, shells.table, masks, turns.made, settler)
            ),
            GlobTool(ripgrep),
            GrepTool(ripgrep),
            CheckBackgroundTool(shells),
            StopBackgroundTool(shells),
            AskBoundaryTool(ground),
            AskQuestionTool(),
        )
    )
