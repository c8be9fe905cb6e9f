"""Repositories: which folders git reads settings from, and what in them decides what it runs.

Law: nothing that a command could have written decides what becomes writable: a repository outside of the workspace is
the workspace's only if its own files, which lie outside, name it.
"""

import errno
import os
import re
from collections.abc import Collection

from maka.contracts.limits import SURVEY_DEPTH_MAX, SURVEY_FOLDERS_MAX
from maka.tools.closed import is_closed, there
from maka.tools.policy import GIT_PROTECTED, is_under

_GIT_POINTER = "gitdir: "
_CONFIG_PATH = re.compile(r"^\s*(hookspath|path|worktree)\s*=\s*\"?([^\"#;\n]+?)\"?\s*$", re.IGNORECASE | re.MULTILINE)
_CONFIG_BYTES_MAX = 256 << 10


def is_bare(names: Collection[str]) -> bool:
    """Say whether a folder with these names in it is a repository of its own, as git sees it."""
    return {"HEAD", "objects", "refs"} <= set(names)


def repository_of(path: str) -> str | None:
    """Return the real folder of the repository that a `.git`, or a bare repository, stands for; None where it is none.

    A `.git` is a folder, a file that names one, or a link to either.
    """
    real = os.path.realpath(path)
    if os.path.isdir(real):
        return real
    named = _pointed_to(real)
    return named if named is not None and os.path.isdir(named) else None


def _pointed_to(pointer: str) -> str | None:
    """Return the real path that a `.git` file names, read as git reads it: a blank at its end is a part of the name."""
    text = read_text(pointer)
    if not text.startswith(_GIT_POINTER) or "\0" in text:
        return None
    return os.path.realpath(os.path.join(os.path.dirname(pointer), text[len(_GIT_POINTER) :].rstrip("\r\n")))


def git_names(repository: str, *, worktrees: bool = True) -> list[str]:
    """Return what in a repository's folder decides what git runs: its own, its worktrees' and its submodules' names.

    Also those that aren't there: git looks for them. Raises PermissionError where a folder of ours is closed to us.
    """
    paths = [os.path.join(repository, name) for name in sorted(GIT_PROTECTED)]
    for name, is_folder in _names_in(os.path.join(repository, "worktrees")):
        if is_folder and worktrees:
            paths += [os.path.join(repository, "worktrees", name, one) for one in sorted(GIT_PROTECTED)]
    for module in modules_of(repository):
        paths += [os.path.join(module, one) for one in sorted(GIT_PROTECTED)]
    return paths


def modules_of(repository: str) -> list[str]:
    """Return the folders of a repository's submodules, also where no worktree of theirs is. Raises PermissionError."""
    found: list[str] = []
    level = [os.path.join(repository, "modules")]
    for _ in range(SURVEY_DEPTH_MAX):
        inner = [os.path.join(folder, name) for folder in level for name, is_folder in _names_in(folder) if is_folder]
        found += [module for module in inner if there(os.path.join(module, "HEAD"))]
        level = inner[:SURVEY_FOLDERS_MAX]
    return found


def named_by_config(repository: str, worktree: str) -> list[str]:
    """Return the hooks' folder and the included files that a repository's configuration names.

    Raises PermissionError where that can't be read.
    """
    paths: list[str] = []
    config = os.path.join(repository, "config")
    if there(config) and is_closed(config, os.R_OK):
        raise PermissionError(errno.EACCES, "what it names must be known", config)
    for key, value in _CONFIG_PATH.findall(read_text(config)):
        base = worktree if key.lower() == "hookspath" else repository
        path = os.path.expanduser(value.strip())
        if key.lower() != "worktree" and path not in ("", "."):
            paths.append(os.path.normpath(os.path.join(base, path)))
    return paths


def shared_repository(workspace: str) -> tuple[str, ...]:
    """Return the folders outside of a workspace that its commits are written to: a linked worktree's, a submodule's."""
    pointer = os.path.join(workspace, ".git")
    if os.path.islink(pointer) or not os.path.isfile(pointer):
        return ()
    own = _pointed_to(pointer)
    if own is None:
        return ()
    common = os.path.realpath(os.path.join(own, read_text(os.path.join(own, "commondir")).strip() or "."))
    if is_under(own, workspace) or not os.path.isfile(os.path.join(own, "HEAD")):
        return ()
    if own == common:
        found = dict(_CONFIG_PATH.findall(read_text(os.path.join(own, "config"))))
        back = os.path.join(own, found.get("worktree", "").strip() or ".")
    else:
        back = os.path.dirname(read_text(os.path.join(own, "gitdir")).strip())
        if not is_under(own, os.path.join(common, "worktrees")):
            return ()
    shaped = os.path.isdir(os.path.join(common, "objects")) and os.path.isdir(os.path.join(common, "refs"))
    return tuple(dict.fromkeys((common, own))) if shaped and os.path.realpath(back) == workspace else ()


def _names_in(folder: str) -> list[tuple[str, bool]]:
    if is_closed(folder):
        raise PermissionError(errno.EACCES, "it is closed to its own user", folder)
    return listed(folder)


def listed(folder: str) -> list[tuple[str, bool]]:
    try:
        with os.scandir(folder) as found:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    except OSError:
        return []


def read_text(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, _CONFIG_BYTES_MAX).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    finally:
        os.close(fd)
