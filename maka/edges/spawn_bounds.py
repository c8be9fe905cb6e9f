"""What bounds a tool's process before it begins: a few words for the shell that stands in front of it.

Laws:
- The words are the shell's own, so no further program is started; what the process starts later inherits the bounds.
- A bound is only ever lowered. One that can't be set keeps the command from running.
- The kernel's own bounds on memory aren't used: it counts what a program reserves, not what it fills, and programs that
  were built with a sanitizer reserve terabytes, so no number lets them start. `tree_watch` looks at what is really used
  instead. When the machine itself runs out of memory, a tool's process is what the kernel ends first.
"""

import os
import resource

from maka.contracts.limits import TOOL_MEMORY_SHARE, TOOL_OOM_SCORE_ADJ
from maka.contracts.tool_limits import ToolLimits
from maka.edges.proc_files import PROC, read_file

_OOM = f"{PROC}/self/oom_score_adj"
_CGROUP_BOUNDS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container sees its own bound, by either version."""

MIB = 1 << 20


def bounding_words(limits: ToolLimits) -> str:
    """Return what a shell runs before it becomes the command."""
    words = ["ulimit -c 0"]
    if limits.open_files_max:
        soft, hard = (_least(limits.open_files_max, bound) for bound in resource.getrlimit(resource.RLIMIT_NOFILE))
        words += [f"ulimit -S -n {soft}", f"ulimit -H -n {hard}"]
    # Raising this needs no right, and lowering it does; where there is no such file, nothing is lost.
    first = "" if _own_score() >= TOOL_OOM_SCORE_ADJ else f"{{ echo {TOOL_OOM_SCORE_ADJ} >{_OOM}; }} 2>/dev/null; "
    return first + " && ".join(words) + " || exit 126; "


def namespace_words(processes_max: int) -> str:
    """Return what a shell runs inside of a user namespace: there the kernel counts the call's own processes alone.

    Shells differ in the letter. Where neither is known the watch holds all the same.
    """
    return f"{{ ulimit -p {processes_max} || ulimit -u {processes_max}; }} 2>/dev/null\n"


def resolved(limits: ToolLimits) -> ToolLimits:
    """Return limits that name their memory in MiB: a share of the machine's, or of the container's, if not given."""
    if limits.memory_max_mib is not None:
        return limits
    return ToolLimits(
        memory_max_mib=int(_memory_bytes() * TOOL_MEMORY_SHARE) // MIB,
        processes_max=limits.processes_max,
        open_files_max=limits.open_files_max,
    )


def _least(bound: int, current: int) -> int:
    return bound if current == resource.RLIM_INFINITY else min(bound, current)


def _own_score() -> int:
    return int(read_file(_OOM) or b"0")


def _memory_bytes() -> int:
    """Return how much memory there is for us; 0, which bounds nothing, where that isn't known."""
    try:
        found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (OSError, ValueError):
        return 0
    said = [(read_file(path) or b"").strip() for path in _CGROUP_BOUNDS]
    return min(found + [int(bound) for bound in said if bound.isdigit()])
