"""What became different in a workspace while a command ran: two cheap looks, one before and one after.

Laws: a look reads names and stamps (inode, size, times), never contents; only files whose stamps differ are read, and
only to tell a changed file from one that was written anew with the same content. A look is bounded in files and time;
beyond that it says that it didn't look. Not looked at: version control's own folders, and what can be made again
(packages, caches, environments): folders of these names, or with the mark that such folders bear.

It lists for people; it is no boundary. Whatever changed in the meantime is listed, whoever did it.
"""

import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256

from msgspec.structs import replace

from maka.contracts.actions import RecoveryMode
from maka.contracts.limits import WORKSPACE_FILES_MAX, WORKSPACE_HASHED_BYTES_MAX, WORKSPACE_SCAN_S_MAX
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import (
    BoundedTool,
    Handover,
    ProcessFact,
    ToolCall,
    ToolEnv,
    ToolFact,
    ToolListener,
    ToolResult,
    WorkspaceDiff,
)
from maka.tools.identity import is_at

SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn", ".jj", "node_modules", "__pycache__"})
SKIPPED_MARKS = frozenset({"CACHEDIR.TAG", "pyvenv.cfg"})
IN_BACKGROUND = "it runs in the background: nobody looks which files it changes"
_HASHES_KEPT = 4_096
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Stamp = tuple[int, int, int, int, int]
Look = dict[str, Stamp]


class UnlookedError(Exception):
    """The workspace is too large, or too slow, to be looked at."""


def take_look(root: str, *, files_max: int = WORKSPACE_FILES_MAX, seconds_max: float = WORKSPACE_SCAN_S_MAX) -> Look:
    """Return the stamp of every file below a real folder, by relative path. Raises UnlookedError past a bound.

    A folder that a link replaces meanwhile is left out: names from elsewhere would be told.
    """
    found: Look = {}
    folders = [""]
    ends = time.monotonic() + seconds_max
    while folders:
        inner = folders.pop()
        inside, files, skipped = _list(os.path.join(root, inner) if inner else root, f"{inner}/" if inner else "")
        if skipped and inner:
            continue
        folders += inside
        found.update(files)
        if len(found) + len(folders) > files_max:
            raise UnlookedError(f"more than {files_max:,} files: nobody looked which of them changed")
        if time.monotonic() > ends:
            raise UnlookedError(f"listing the files takes over {seconds_max:g} s: nobody looked which of them changed")
    return found


def _list(folder: str, prefix: str) -> tuple[list[str], list[tuple[str, Stamp]], bool]:
    """Return a folder's own folders and files, and whether it bears a mark. One that went away is empty."""
    folders: list[str] = []
    files: list[tuple[str, Stamp]] = []
    marked = False
    try:
        descriptor = os.open(folder, _FOLDER)  # files are then stamped relative to it, which costs a fifth less
    except OSError:
        return folders, files, marked
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries if is_at(folder, descriptor) else ():
                name = entry.name
                if entry.is_dir(follow_symlinks=False):
                    if name not in SKIPPED_FOLDERS:
                        folders.append(prefix + name)
                    continue
                marked = marked or name in SKIPPED_MARKS
                with suppress(OSError):
                    files.append((prefix + name, _stamp(entry.stat(follow_symlinks=False))))
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return folders, files, marked


def _stamp(info: os.stat_result) -> Stamp:
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_mode


class Hashes:
    """Contents of files that differed once, by path and stamp: writing the same anew is no change. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, Stamp], str] = OrderedDict()

    def known(self, path: str, stamp: Stamp) -> str | None:
        """Return the hash that a file had while it bore a stamp; None where nobody read it then."""
        with self._lock:
            return self._known.get((path, stamp))

    def read(self, path: str, stamp: Stamp, room: int) -> int:
        """Read a file that bears a stamp now, if `room` bytes allow it; returns the room that is left."""
        if not stat.S_ISREG(stamp[4]) or stamp[1] > room:
            return room
        if (digest := _digest(path)) is not None:
            with self._lock:
                self._known[path, stamp] = digest
                if len(self._known) > _HASHES_KEPT:
                    self._known.popitem(last=False)
        return room - stamp[1]


def _digest(path: str) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        try:
            return sha256(file.read(WORKSPACE_HASHED_BYTES_MAX)).hexdigest()
        except OSError:
            return None


def compare(root: str, before: Look, after: Look, hashes: Hashes) -> WorkspaceDiff:
    """Return what is different between two looks."""
    room, modified = WORKSPACE_HASHED_BYTES_MAX, list[str]()
    added = sorted(after.keys() - before.keys())
    for name in sorted(name for name, stamp in after.items() if before.get(name, stamp) != stamp):
        path, was, stamp = os.path.join(root, name), before[name], after[name]
        room = hashes.read(path, stamp, room)
        digest = hashes.known(path, stamp)
        if digest is None or digest != hashes.known(path, was) or was[4] != stamp[4]:
            modified.append(name)
    for name in added:
        room = hashes.read(os.path.join(root, name), after[name], room)
    return WorkspaceDiff(added=_names(added), modified=_names(modified), deleted=_names(before.keys() - after.keys()))


def _names(paths: Iterable[str]) -> tuple[str, ...]:
    """Return names as text: bytes of a name that are no UTF-8 become question marks."""
    return tuple(sorted(os.fsencode(path).decode("utf-8", "replace") for path in paths))


class WatchedTool:
    """A tool whose calls tell what became different in the workspace while they ran."""

    def __init__(self, inner: BoundedTool, hashes: Hashes | None = None) -> None:
        self._inner = inner
        self._hashes = hashes or Hashes()

    @property
    def spec(self) -> ToolSpec:
        return self._inner.spec

    @property
    def recovery_mode(self) -> RecoveryMode:
        return self._inner.recovery_mode

    @property
    def exclusive(self) -> bool:
        return self._inner.exclusive

    def refusal(self, call: ToolCall, env: ToolEnv) -> ToolResult | None:
        """Return what the tool itself says before the dispatch."""
        return self._inner.refusal(call, env)

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        """Look, then start the call; the second look has a thread of its own, since the end comes on the I/O thread."""
        if call.args.get("run_in_background"):
            return self._inner.start(call, env, _Watch(listener, env.cwd, IN_BACKGROUND, self._hashes))
        try:
            before: Look | str = take_look(env.cwd)
        except UnlookedError as error:
            before = str(error)
        return self._inner.start(call, env, _Watch(listener, env.cwd, before, self._hashes))


class _Watch:
    """A listener that looks again before it passes the end on."""

    def __init__(self, listener: ToolListener, root: str, before: Look | str, hashes: Hashes) -> None:
        self._listener = listener
        self._root = root
        self._before = before
        self._hashes = hashes
        self._committed = False

    def output(self, stream: str, text: str) -> None:
        self._listener.output(stream, text)

    def commit(self, fact: ToolFact, then: Callable[[bool], None]) -> None:
        self._committed = True
        self._listener.commit(fact, then)

    def keep(self, fact: ProcessFact, then: Callable[[Handover], None]) -> None:
        def decided(handover: Handover) -> None:
            self._committed = handover.shell_id is not None
            then(handover)

        self._listener.keep(fact, decided)

    def ended(self, result: ToolResult) -> None:
        if not self._committed:
            self._listener.ended(result)  # nothing ran
        elif isinstance(self._before, str):
            self._listener.ended(replace(result, workspace=WorkspaceDiff(unlooked=self._before)))
        else:
            look = threading.Thread(target=self._look_again, args=(self._before, result), daemon=True)
            try:
                look.start()
            except RuntimeError as error:
                self._listener.ended(replace(result, workspace=WorkspaceDiff(unlooked=str(error))))

    def _look_again(self, before: Look, result: ToolResult) -> None:
        found = WorkspaceDiff(unlooked="the second look failed")
        try:
            found = compare(self._root, before, take_look(self._root), self._hashes)
        except UnlookedError as error:
            found = WorkspaceDiff(unlooked=str(error))
        finally:
            self._listener.ended(replace(result, workspace=found))
