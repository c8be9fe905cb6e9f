"""A small world around a workspace, with someone who swaps things there between two system calls.

Nothing in it leads above its own scratch folder, however often a link to a parent is moved up: also where a test has
planted a fault, and commands are held by nothing.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from maka.contracts.boundary import Boundary, FileEntry, Profile
from maka.contracts.tool_ports import ToolResult
from maka.tools.policy import Ground
from tests.tools.harness import Recorder, boundary

WORD = "swordfish"
"""Is in every file outside, and in one's name: no file tool may say it."""

HIDDEN = "clownfish"
"""Is where secrets are kept: no command may say it either."""

MARK = "made-by-a-tool"
"""Is in all that a tool is asked to write, and in nothing else."""

NAMES = ("a", "b", "d", "e", "l", "n")
TREE = ("a", "b", "d/a", "d/d/a", "e/a")
PROTECTED = (".envrc", "AGENTS.md", ".git/config", ".git/hooks/pre-commit")
OBEYED = frozenset({".envrc", ".vscode", ".idea", "AGENTS.md", "CLAUDE.md"})
SETTINGS = frozenset({"hooks", "config", "config.worktree", "commondir", "gitdir"})

Granted = Literal["read", "write"] | None
Way = Literal["swap", "back", "link", "rename", "remove", "folder", "file", "hard"]
Seen = dict[str, tuple[int, int, int, bytes]]


class Escape(AssertionError):
    """Something was read, made or changed that may not be."""


SETTLING = 1_000


class Move(Struct, frozen=True):
    """A change in the workspace by someone else. `name` is a path in it, or the number of a call's path's component."""

    kind: Way
    name: str | int
    target: str


When = int | Literal["commit", "end"]


class Race(Struct, frozen=True):
    """A move in the middle of a call: before its so-many-th system call that names what is moved (or, with a negative
    number, that names anything), at its commit, or when its process has ended.

    From SETTLING on the system calls are those by which things are put right when a command has ended.
    """

    when: When
    move: Move


class World:
    """A home with a workspace, what lies beside it, and a folder that may be granted."""

    profile: Profile
    access: Granted
    held: list[tuple[Path, Path]]
    raced: bool
    has_names_outside: bool
    """Says whether a person gives files outside a second name inside: a command may write to those."""

    def __init__(self, scratch: Path, *, is_granted: bool) -> None:
        self.scratch = scratch
        base = scratch / "1" / "2" / "3" / "4"
        self.home = base / "home"
        self.workspace = self.home / "ws"
        self.outside = self.home / "outside"
        self.granted = base / "granted"
        text = f"mine {WORD}\n"
        for folder in (self.outside, self.home / "ws2"):
            fill(folder, *((path, text) for path in (*TREE, *PROTECTED, f"{WORD}/x")))
        fill(self.home, ("notes", text), (".profile", text), (".ssh/id", HIDDEN), (".ssh/d/a", HIDDEN))
        fill(self.outside, ("plain", "mine\n"), ("d/.envrc", text), ("d/CLAUDE.md", text), ("e/.envrc", text))
        fill(self.granted, *((path, "mine\n" if is_granted else text) for path in TREE), (".ssh/id", HIDDEN))
        fill(self.workspace, *((path, "mine\n") for path in (*TREE, *PROTECTED)), (".git/HEAD", "ref: refs/heads/x\n"))
        for name in ("objects", "refs"):
            (self.workspace / ".git" / name).mkdir()
        self.first = self.last = snapshot(scratch)

    def begin(self, profile: Profile, granted: Granted) -> None:
        """Put all back as it was at first: what may change has changed."""
        self.profile, self.access = profile, granted
        self.held, self.raced, self.has_names_outside = [], False, False
        for path in sorted(self.last, reverse=True):
            was, now = self.first.get(path), self.last[path]
            if was is None or was[1] != now[1] or was[3] != now[3]:
                remove(Path(path))
        for path, (mode, _, _, content) in sorted(self.first.items()):
            if not os.path.lexists(path):
                if stat.S_ISDIR(mode):
                    os.mkdir(path)
                else:
                    Path(path).write_bytes(content)
        self.first = self.last = snapshot(self.scratch)

    @property
    def ground(self) -> Ground:
        return Ground(secrets=(str(self.home / ".ssh"), str(self.granted / ".ssh")))

    @property
    def boundary(self) -> Boundary:
        if self.access is None:
            return boundary(self.workspace, self.profile)
        wide = FileEntry(path=str(self.granted), access=self.access, scope="subtree")
        return boundary(self.workspace, self.profile, wide)

    def filled(self, text: str) -> str:
        for word, folder in (("OUT", self.outside), ("HOME", self.home), ("GRANTED", self.granted)):
            text = text.replace(word, str(folder))
        return text

    def may_change(self, path: str, mode: int) -> bool:
        """Say whether a tool may make or change what stands under a real path, a folder or something else."""
        inside = self.workspace if self.profile is Profile.ASK else None
        for base in (inside, self.granted if self.access == "write" else None):
            if base is not None and path.startswith(f"{base}/"):
                parts = path.removeprefix(f"{base}/").split("/")
                repository = parts[-1] == ".git" and stat.S_ISDIR(mode)
                return not is_obeyed([*parts, ""] if repository else parts) and parts[0] != ".ssh"
        return False

    def check(self, result: ToolResult | None, recorder: Recorder | None, words: tuple[str, ...]) -> None:
        """Raise Escape where a call's answer holds a word, or anything changed that may not."""
        said = (
            [] if result is None else [result.text, result.diff or "", (result.whole or b"").decode("utf-8", "replace")]
        )
        if recorder is not None:
            said += [text for _, text in recorder.outputs]
            said += [(fact.pre_image or b"").decode("utf-8", "replace") for fact in recorder.file_facts]
        for word in words:
            if any(word in text for text in said):
                raise Escape(f"{word} was said: {said}")
        before, self.last = self.last, snapshot(self.scratch)
        whose = (str(self.workspace), *((str(self.granted),) if self.access == "write" else ()))
        for path in before.keys() | self.last.keys():
            was, now = before.get(path), self.last.get(path)
            mode = (now or was or (0,))[0]
            shared = self.raced and any(path == one or path.startswith(f"{one}/") for one in whose)
            kept = is_kept(path, self.workspace)
            if was != now and not self.may_change(path, mode) and path not in whose and (kept or not shared):
                raise Escape(f"{path} was {was} and is {now}")
            if now is not None and MARK.encode() in now[3] and not self.may_change(path, mode):
                raise Escape(f"{path} was written: {now}")
            if now is not None and HIDDEN.encode() in now[3] and "/.ssh/" not in path:
                raise Escape(f"{path} holds what is hidden")
        self.raced = False

    def move(self, what: Move, aim: str = "") -> None:
        """Change the workspace, or what is granted to be written, as another command of the session could."""
        self.raced = True
        with suppress(OSError, shutil.Error, IndexError):
            if what.kind == "back":
                path, held = self.held.pop()
                remove(path)
                held.rename(path)
            elif (found := self._movable(what.name, aim)) is not None:
                same = "/".join(components(what.name, aim))
                self._change(what.kind, found, self.filled(what.target.replace("SAME", same)))

    def _movable(self, name: str | int, aim: str) -> Path | None:
        """Return a path whose folder really is where others may make changes, and that isn't protected."""
        parts = components(name, aim)
        if not parts or parts[-1] not in NAMES:
            return None
        path = self.workspace / "/".join(parts)
        folder = os.path.realpath(path.parent)
        for base in (self.workspace, *([self.granted] if self.access == "write" else [])):
            if folder == str(base) or (folder.startswith(f"{base}/") and ".git" not in folder):
                return Path(folder) / path.name
        return None

    def _change(self, kind: str, path: Path, target: str) -> None:
        match kind:
            case "swap":
                held = self.workspace / f"held{len(self.held)}"
                path.rename(held)
                self.held.append((path, held))
                path.symlink_to(target)
            case "link":
                path.symlink_to(target)
            case "rename":
                path.rename(path.parent / (target if target in NAMES else "n"))
            case "remove":
                remove(path)
            case "folder":
                path.mkdir()
            case "file":
                with path.open("x") as file:
                    file.write("mine\n")
            case _:
                path.hardlink_to(self.outside / "plain" if self.has_names_outside else path.parent / "a")


def fill(folder: Path, *files: tuple[str, str]) -> None:
    for path, text in files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def remove(path: Path) -> None:
    if not os.path.lexists(path):
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def is_obeyed(parts: list[str]) -> bool:
    """Say whether someone obeys a file with this path, outside of every sandbox; nobody works inside of a `.git`."""
    if ".git" in parts[:-1]:
        above, inside = parts[: parts.index(".git")], parts[parts.index(".git") + 1 :]
        return bool(OBEYED & set(above)) or (".git" not in inside and bool(SETTINGS & set(inside)))
    return bool(OBEYED & set(parts)) or parts[-1] == ".git"


def is_kept(path: str, workspace: Path) -> bool:
    """Say whether this lies in a workspace, and nobody of this world may change it."""
    names = (".envrc", "AGENTS.md", ".git/config", ".git/hooks")
    return any(path == f"{workspace}/{name}" or path.startswith(f"{workspace}/{name}/") for name in names)


def snapshot(folder: Path) -> Seen:
    """Every entry below a folder: mode, inode, change time, content or where a link leads."""
    found: Seen = {}
    waiting = [str(folder)]
    while waiting:
        path = waiting.pop()
        info = os.lstat(path)
        content, changed = b"", info.st_ctime_ns
        if stat.S_ISLNK(info.st_mode):
            content = os.readlink(path).encode()
        elif stat.S_ISDIR(info.st_mode):
            waiting += [entry.path for entry in os.scandir(path)]
            changed = 0  # what it holds is looked at
        elif stat.S_ISREG(info.st_mode):
            content = Path(path).read_bytes()
        if path.endswith("/plain"):
            changed = info.st_mtime_ns  # whoever makes or drops a name of a file changes the other time
        found[path] = (info.st_mode, info.st_ino, changed, content)
    return found


class Worlds:
    """Keeps worlds, since to make one costs more than to put it back. After an escape it is given up."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._kept: dict[bool, World] = {}

    @contextmanager
    def one(self, profile: Profile, granted: Granted) -> Generator[World]:
        is_granted = granted is not None
        found = self._kept.pop(is_granted, None) or World(self._new(), is_granted=is_granted)
        try:
            found.begin(profile, granted)
            yield found
        except BaseException:
            shutil.rmtree(found.scratch, ignore_errors=True)
            raise
        self._kept[is_granted] = found

    def _new(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="world-", dir=self._base)).resolve()

    def close(self) -> None:
        for found in self._kept.values():
            shutil.rmtree(found.scratch, ignore_errors=True)
        self._kept.clear()


def components(name: str | int, aim: str) -> list[str]:
    """Return the parts of a path in a workspace; a number counts those of a call's path that may be moved."""
    if isinstance(name, str):
        return name.split("/")
    parts = aim.split("/")
    ends = [at for at, part in enumerate(parts) if part in NAMES]
    return parts[: ends[name % len(ends)] + 1] if ends else []
