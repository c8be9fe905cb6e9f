"""The command line with two tools that ask: questions as they are, and a boundary request of a test's own making."""

import fcntl
import sys
import termios
from collections.abc import Callable
from typing import Any

from maka import adapters
from maka.cli import main
from maka.contracts.actions import BoundaryRequest, RecoveryMode
from maka.contracts.boundary import Expansion, FileEntry
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import Asked, ToolCall, ToolEnv, ToolListener
from maka.tools.ask_question import AskQuestionTool
from maka.tools.registry import Catalog

START = "from tests.cli.asking_app import start; start()"


class WiderTool:
    """Asks for one path, as it is given: what a real tool makes of a path is tested where that tool is."""

    recovery_mode: RecoveryMode = "replay_safe"
    exclusive = False
    spec = ToolSpec(
        name="wider",
        description="Ask to write below a path.",
        parameters={
            "type": "object",
            "properties": {"path": {"type": "string"}, "why": {"type": "string"}},
            "required": ["path", "why"],
            "additionalProperties": False,
        },
    )

    def prepare(self, call: ToolCall, env: ToolEnv) -> Asked | str:
        entry = FileEntry(path=str(call.args["path"]), access="write", scope="subtree")
        return BoundaryRequest(
            call_id=call.call_id, expansion=Expansion(filesystem=(entry,)), justification=str(call.args["why"])
        )

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        raise AssertionError("asked, not dispatched")


def asking_tools(*_: Any, **__: Any) -> Catalog:
    """Return the catalogue of these tests, in the place of the built-in one."""
    return Catalog((WiderTool(), AskQuestionTool()))


def start() -> None:
    """Run the command line with these tools; stdin becomes the controlling terminal where it is one."""
    if sys.stdin.isatty():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    adapters.__dict__["builtin_tools"] = asking_tools
    main()
