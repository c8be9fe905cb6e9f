"""PURE: whether a sandbox failed before its command began, told from what it printed and how it ended.

Law: what a command prints itself isn't taken for that: only words of a sandbox that has got as far as to its mounts,
which no sandbox inside of another one does, with nothing beside them and the exit code that belongs to them.
"""

import re

from maka.contracts.tool_ports import ProcessEnd

NOT_RUN = "No command was run: the sandbox could not be set up"
_AGAIN = "Something there changed as it began, so call again; where that doesn't help, a person should run maka doctor"
_MEND = "A person should run maka doctor, which says what is missing"
_BY_MOUNTS = re.compile(
    r"bwrap: ((?:Can't (?:find source path|bind mount|bind-mount|mkdir|create|mount|get|make|remount|open|chdir to|"
    r"read|write|stat|resolve|set permissions)|Unable to (?:remount|mount|create|open|find)|Failed to (?:remount|mount)"
    r"|Failed to make / slave|execvp )[^\n]*)\n?"
)
_BY_SHIM = re.compile(r"the sandbox could not be set up: ([^\n]*)\n?")
_NO_PROGRAM = re.compile(r"\S+: \d+: exec: (/\S*/bwrap: (?:not found|Permission denied)[^\n]*)\n?")
_CHANGED = re.compile(r"path_changed|No such file|Not a directory|Invalid argument|Too many levels")


def was_not_set_up(text: str, end: ProcessEnd) -> str | None:
    """Return why no command was run, and what to do, as far as that is known; None where a command may have run.

    `text` is all that the process printed.
    """
    if end.cause != "exited" or end.signal is not None:
        return None
    codes = {1: (_BY_MOUNTS,), 126: (_BY_SHIM, _NO_PROGRAM), 127: (_NO_PROGRAM,)}
    for pattern in codes.get(end.exit_code or 0, ()):
        if (match := pattern.fullmatch(text)) is not None:
            why = match[1].strip()
            return f"{NOT_RUN}: {why}. {_AGAIN if _CHANGED.search(why) else _MEND}."
    return None
