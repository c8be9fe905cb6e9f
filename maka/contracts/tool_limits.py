"""What the processes of a tool call may use, and which bound they met."""

from typing import Literal

from msgspec import Struct

from maka.contracts.limits import TOOL_OPEN_FILES_MAX, TOOL_PROCESSES_MAX


class ToolLimits(Struct, frozen=True, kw_only=True):
    """Bounds of one tool process with everything that it starts; 0 is no limit.

    `memory_max_mib` is over all of them, None a share of the machine's (TOOL_MEMORY_SHARE). `processes_max` counts
    threads as well. `open_files_max` holds for each process by itself. `unix_sockets` says whether bubblewrap lets them
    use unix sockets.
    """

    memory_max_mib: int | None = None
    processes_max: int = TOOL_PROCESSES_MAX
    open_files_max: int = TOOL_OPEN_FILES_MAX
    unix_sockets: bool = False


class LimitMet(Struct, frozen=True, kw_only=True):
    """A bound that was exceeded, in its own unit."""

    name: Literal["memory_max_mib", "processes_max"]
    used: int
    allowed: int
