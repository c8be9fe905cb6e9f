"""What is told of a bound that a command met: for sure where it was ended for it, likely where it was only refused.

The kernel tells of a bound to the process alone. So what a failed command printed is read for the words that programs
have for it: a likely reason, never a proof.
"""

import re
import signal

from maka.contracts.process_ports import ProcessEnd
from maka.contracts.tool_limits import LimitMet

_SCANNED_CHARS = 16_000
_PROCESSES = re.compile(
    r"cannot fork|can't fork|fork: (retry: )?resource temporarily unavailable|can't start new thread"
    r"|BlockingIOError: \[Errno 11\]|pthread_create|spawn\w* \S+ EAGAIN|unable to create (native )?thread",
    re.IGNORECASE,
)
_FILES = re.compile(r"too many open files|\bEMFILE\b", re.IGNORECASE)


def met_words(met: LimitMet) -> str:
    """Say which bound a command was ended for, and how a person raises it."""
    if met.name == "memory_max_mib":
        what = f"{met.used:,} MiB of memory, and the limit is {met.allowed:,} MiB"
    else:
        what = f"{met.used:,} processes and threads at a time, and the limit is {met.allowed:,}"
    return f"killed: the command and what it started used {what} ({how_to_raise(met.name)})"


def likely_words(output: str, end: ProcessEnd) -> str:
    """Say which bound a failed command has probably met; nothing where its output and end don't tell."""
    text = output[-_SCANNED_CHARS:]
    if _FILES.search(text):
        return f"it has probably met the limit of open files ({how_to_raise('open_files_max')})"
    if _PROCESSES.search(text):
        return f"it has probably met the limit of processes and threads ({how_to_raise('processes_max')})"
    killed = end.signal == signal.SIGKILL or end.exit_code == 128 + signal.SIGKILL
    if killed and end.cause == "exited":
        return "not by Maka: the machine may have run out of memory, or the command did it"
    return ""


def how_to_raise(name: str) -> str:
    """Name a limit as a person sets it."""
    return f"a person can raise it: {name} below [tools] in config.toml, or MAKA_TOOLS_{name.upper()}"
