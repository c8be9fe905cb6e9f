"""Repositories: which folders git reads settings from, and what in them decides what it runs.

Law: nothing that a command could have written decides what becomes writable: a repository outside of the workspace is
the workspace's only if its own files, which lie outside, name it.
"""

import errno
import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Literal

from maka.contracts.limits import SURVEY_DEPTH_MAX, SURVEY_FOLDERS_MAX
from maka.tools.closed import is_closed, there
from maka.tools.git_config import settings_of
from maka.tools.identity import is_at
from maka.tools.policy import GIT_PROTECTED, is_under

Kind = Literal["folder", "link", "other"]

_GIT_POINTER = "gitdir: "
_HEAD = re.compile(r"ref: refs/[^\s\0]+\n|[0-9a-f]{40}\n|[0-9a-f]{64}\n")
_CONFIG_BYTES_MAX = 256 << 10
_MODULES_MAX = SURVEY_FOLDERS_MAX
_CONFIGS_MAX = 100
_ENTRIES_A_LOOK = 1_000
_PERSONS = ("/etc/gitconfig", "~/.gitconfig", "~/.config/git/config")


def is_bare(names: Collection[str]) -> bool:
    """Say whether a folder with these names in it is a repository of its own, as git sees it."""
    return "HEAD" in names and ("commondir" in names or {"objects", "refs"} <= set(names))


def decisive_name(path: str) -> str:
    """Return what makes a repository of a folder: its `.git`, or, of one without a worktree, its HEAD."""
    return path if os.path.basename(path) == ".git" else os.path.join(path, "HEAD")


def repository_of(path: str) -> str | None:
    """Return the real folder of the repository that a `.git`, or a bare repository, stands for; None where it is none.

    A `.git` is a folder, a file that names one, or a link to either.
    """
    real = os.path.realpath(path)
    if os.path.isdir(real):
        return real
    named = _pointed_to(path)
    return named if named is not None and os.path.isdir(named) else None


def repository_at(path: str) -> str | None:
    """Do the same where it may change at this moment."""
    try:
        return repository_of(path)
    except OSError:
        return None


def real_of(path: str) -> str:
    """Return where a path leads, nothing where that changes at this moment, or it is none."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return ""


def _pointed_to(pointer: str) -> str | None:
    """Return the real path that a `.git` file names, read as git reads it.

    A blank at its end is a part of the name, and where a link leads to the file, a name is relative to that link.
    """
    text = read_text(pointer)
    if not text.startswith(_GIT_POINTER) or "\0" in text:
        return None
    return os.path.realpath(os.path.join(os.path.dirname(pointer), text[len(_GIT_POINTER) :].rstrip("\r\n")))


def git_names(repository: str, modules: Iterable[str], *, worktrees: bool = True) -> list[str]:
    """Return what in a repository's folder decides what git runs: its own, its worktrees' and its submodules' names.

    `modules` are those submodules' folders. Also those that aren't there: git looks for them. Raises PermissionError
    where a folder of ours is closed to us.
    """
    paths = [os.path.join(repository, name) for name in sorted(GIT_PROTECTED)]
    for name, is_folder in _names_in(os.path.join(repository, "worktrees")):
        if is_folder and worktrees:
            paths += [os.path.join(repository, "worktrees", name, one) for one in sorted(GIT_PROTECTED)]
    for module in modules:
        paths += [os.path.join(module, one) for one in sorted(GIT_PROTECTED)]
    return paths


def modules_of(repository: str) -> tuple[list[str], bool]:
    """Return the folders of a repository's submodules, also where no worktree of theirs is, and whether that are all.

    Raises PermissionError.
    """
    found: list[str] = []
    level, left = [os.path.join(folder, "modules") for folder in (repository, *worktrees_in(repository))], _MODULES_MAX
    for _ in range(SURVEY_DEPTH_MAX):
        inner = [os.path.join(folder, name) for folder in level for name, is_folder in _names_in(folder) if is_folder]
        found += [module for module in inner if there(os.path.join(module, "HEAD"))]
        if len(inner) > left:
            return found, False
        left -= len(inner)
        # git takes none for a submodule that lies inside of another one, but for those in its `modules`.
        whole = {module for module in inner if is_surely_git_folder(module)}
        level = [module for module in inner if module not in whole]
        level += [within for module in whole if os.path.isdir(within := os.path.join(module, "modules"))]
    return found, not level


def is_surely_git_folder(folder: str) -> bool:
    """Say whether git, too, takes a folder for a repository's own; where that isn't sure it isn't said."""
    shaped = all(os.path.isdir(os.path.join(folder, name)) for name in ("objects", "refs"))
    return shaped and _HEAD.fullmatch(read_text(os.path.join(folder, "HEAD"))) is not None


def worktrees_in(common: str) -> list[str]:
    """Return the folders of a repository's linked worktrees in its own. Raises PermissionError."""
    folder = os.path.join(common, "worktrees")
    return [os.path.join(folder, name) for name, is_folder in _names_in(folder) if is_folder]


def worktrees_of(common: str) -> list[tuple[str, str]]:
    """Return where the worktrees of a repository are, each with the folder that its index is in."""
    named = [one.value for one in settings_of(read_text(os.path.join(common, "config"))) if one.key == "worktree"]
    main = [os.path.join(common, value) for value in named]
    if os.path.basename(common) == ".git":
        main.append(os.path.dirname(common))
    linked = [(os.path.join(common, "worktrees", name)) for name, _ in listed(os.path.join(common, "worktrees"))]
    pointed = [(_linked_worktree(one), one) for one in linked]
    return [*((real_worktree, common) for real_worktree in main), *(one for one in pointed if one[0])]


def _linked_worktree(own: str) -> str:
    """Return where a linked worktree is, by its own folder in the repository; newer git may say it relative to that."""
    named = read_text(os.path.join(own, "gitdir")).rstrip("\r\n")
    return os.path.dirname(os.path.join(own, named)) if named and "\0" not in named else ""


def named_by_config(repository: str, worktree: str) -> list[str]:
    """Return the hooks' folder and the included files that the configuration of a worktree names.

    That is what git reads for it: of its own folder, of the one that it shares, and the person's. Raises
    PermissionError where it can't be read.
    """
    configs: list[str] = []
    for folder in dict.fromkeys((repository, common_of(repository))):
        for config in (os.path.join(folder, name) for name in ("config", "config.worktree")):
            if there(config) and is_closed(config, os.R_OK):
                raise PermissionError(errno.EACCES, "what it names must be known", config)
            configs.append(config)
    return _named((*configs, *map(os.path.expanduser, _PERSONS)), worktree, repository)


def _named(configs: Iterable[str], worktree: str, repository: str) -> list[str]:
    """Follow what some configurations include, whatever it depends on."""
    paths: list[str] = []
    waiting = list(configs)
    read: set[str] = set()
    while waiting and len(read) < _CONFIGS_MAX:
        config = waiting.pop()
        if config in read:
            continue
        read.add(config)
        for one in settings_of(read_text(config)):
            path = os.path.expanduser(one.value)
            if (one.section, one.key) == ("core", "hookspath") and path not in ("", "."):
                # A push into it runs them in its own folder.
                paths += [os.path.normpath(os.path.join(where, path)) for where in (worktree, repository)]
            elif one.section in ("include", "includeif") and one.key == "path" and path:
                included = os.path.normpath(os.path.join(os.path.dirname(os.path.realpath(config)), path))
                paths.append(included)
                waiting.append(included)
    return paths


def common_of(repository: str) -> str:
    """Return the folder that a worktree's own one shares with others: itself where it shares none."""
    named = read_text(os.path.join(repository, "commondir")).rstrip("\r\n")
    return repository if not named or "\0" in named else os.path.realpath(os.path.join(repository, named))


def would_make(path: str) -> str | None:
    """Return the folder that a new file would make a repository of, whose settings git would obey there."""
    parts = path.split("/")
    for at in range(len(parts) - 1, 0, -1):
        folder, name = "/".join(parts[:at]), parts[at]
        is_end = at == len(parts) - 1
        if name in (("HEAD", "commondir") if is_end else ("objects", "refs")):
            names = [one for one, _ in listed(folder)]
            if not is_bare(names) and is_bare([*names, name]):
                return folder
    return None


def shared_repository(workspace: str) -> tuple[str, ...]:
    """Return the folders outside of a workspace that its commits are written to: a linked worktree's, a submodule's."""
    pointer = os.path.join(workspace, ".git")
    if os.path.islink(pointer) or not os.path.isfile(pointer):
        return ()
    own = _pointed_to(pointer)
    if own is None:
        return ()
    common = common_of(own)
    if is_under(own, workspace) or not os.path.isfile(os.path.join(own, "HEAD")):
        return ()
    if own == common:
        settings = settings_of(read_text(os.path.join(own, "config")))
        named = [one.value for one in settings if (one.section, one.key) == ("core", "worktree")]
        back = os.path.join(own, named[-1] if named else ".")
    else:
        back = _linked_worktree(own)
        if not is_under(own, os.path.join(common, "worktrees")):
            return ()
    shaped = os.path.isdir(os.path.join(common, "objects")) and os.path.isdir(os.path.join(common, "refs"))
    return tuple(dict.fromkeys((common, own))) if shaped and os.path.realpath(back) == workspace else ()


def _names_in(folder: str) -> list[tuple[str, bool]]:
    if is_closed(folder):
        raise PermissionError(errno.EACCES, "it is closed to its own user", folder)
    return listed(folder)


def listed(folder: str) -> list[tuple[str, bool]]:
    """Return a folder's names, and which of them are folders; nothing where it can't be read."""
    return [(name, kind == "folder") for name, kind in kinds_in(folder)]


def kinds_in(folder: str) -> list[tuple[str, Kind]]:
    """Return a folder's names with what they are; nothing where it can't be read."""
    try:
        with os.scandir(folder) as found:
            return [(entry.name, _kind(entry)) for entry in found]
    except OSError:
        return []


def kinds_exactly_in(folder: str, until_s: float = inf) -> tuple[list[tuple[str, Kind]], bool]:
    """Do the same of a folder that no link leads to, and say whether all was read until then.

    Raises FileNotFoundError where its path leads elsewhere, or nowhere.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            return [], True
        if error.errno == errno.ENAMETOOLONG:  # git can go there, from a folder further down
            return [], False
        raise FileNotFoundError(error.errno, "it was moved, or replaced", folder) from None
    try:
        if not is_at(folder, fd):
            raise FileNotFoundError(errno.ENOENT, "a link leads to it", folder)
        return _read_until(fd, until_s)
    finally:
        os.close(fd)


def _read_until(fd: int, until_s: float) -> tuple[list[tuple[str, Kind]], bool]:
    names: list[tuple[str, Kind]] = []
    with suppress(OSError), os.scandir(fd) as found:
        for entry in found:
            if len(names) % _ENTRIES_A_LOOK == 0 and monotonic() > until_s:
                return names, False
            names.append((entry.name, _kind(entry)))
    return names, True


def _kind(entry: "os.DirEntry[str]") -> Kind:
    if entry.is_symlink():
        return "link"
    return "folder" if entry.is_dir(follow_symlinks=False) else "other"


def read_text(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):  # nobody's name holds a NUL
        return ""
    try:
        return os.read(fd, _CONFIG_BYTES_MAX).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    finally:
        os.close(fd)
