"""PURE: which call a Python error was about: its line has names alone, the traceback or the command has the rest."""

import re
from collections.abc import Sequence
from typing import Literal

Called = Literal["rename", "symlink", "link", "mkdir", "remove", ""]

_ERROR = re.compile(r"\[Errno \d+\]")
_PAIR = re.compile(r"'' -> ''")
_FRAME = re.compile(r'^\s+File "([^"]*)", line \d+, in (\S+)')
_NO_SOURCE = re.compile(r"<(?:string|stdin)>")
_CALL = re.compile(r"(?:\b(os|shutil)\.)?\b(\w+)\(")
_OF_TWO: dict[str, Called] = {
    **dict.fromkeys(("rename", "renames", "replace", "move"), "rename"),
    **dict.fromkeys(("symlink", "symlink_to"), "symlink"),
    **dict.fromkeys(("link", "hardlink_to"), "link"),
}
_OF_ONE: dict[str, Called] = {
    **dict.fromkeys(("mkdir", "makedirs", "mkdtemp"), "mkdir"),
    **dict.fromkeys(("open", "touch", "write_text", "write_bytes", "copy", "copy2", "copyfile", "copytree"), ""),
    **dict.fromkeys(("remove", "unlink", "rmdir", "rmtree"), "remove"),
    **dict.fromkeys(("chmod", "chown", "utime", "truncate"), ""),
}
_NAMES_MADE_UP = re.compile(r"(?:^|/)tempfile\.py$")
_VENV = re.compile(r"\s-m\s+venv\b")
"""It catches the error of its first `makedirs`, and prints it."""


def called(lines: Sequence[str], at: int, bare: str, command: str) -> Called:
    """Return the call that the error in line `at` comes from, "" where that isn't clear; `bare` is without names."""
    if not _ERROR.search(bare):
        return ""
    if bare.startswith("Error: ") and _VENV.search(command):
        return "mkdir"
    frame = _innermost(lines, at)
    match = _FRAME.match(frame[0]) if frame else None
    if match is None or _NO_SOURCE.fullmatch(match[1]):
        text = command
    else:
        text = "\n".join((f"{match[2]}()", *frame[1:]))
    calls = _OF_TWO if _PAIR.search(bare) else _OF_ONE
    found: set[Called] = {
        calls[name] for module, name in _CALL.findall(text) if name in calls and (module or name != "replace")
    }
    return found.pop() if len(found) == 1 else ""


def made_its_name_up(lines: Sequence[str], at: int) -> bool:
    """Say whether the error in line `at` is about a name that the next call will not use again."""
    frame = _innermost(lines, at)
    match = _FRAME.match(frame[0]) if frame else None
    return match is not None and _NAMES_MADE_UP.search(match[1]) is not None


def _innermost(lines: Sequence[str], at: int) -> list[str]:
    """Return the frame right above an error: where it is, and its source, as far as that is known."""
    first = at
    while first > 0 and lines[first - 1].startswith("  "):
        first -= 1
        if _FRAME.match(lines[first]):
            return list(lines[first:at])
    return []
