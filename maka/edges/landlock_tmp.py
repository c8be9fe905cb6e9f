"""A command's own folder for temporary files: its name says whose it is, and a later one removes what was left.

It stands alone (standard library only), since it is a part of the shim; who has killed a shim uses it, too. Laws:
- Removed is only what is surely left: a real folder of this user, with a name of ours, whose owner is gone. An owner is
  a process number with its start time, and both mean something in one process namespace of one boot only. Who made a
  folder elsewhere may live: such a one stays for an hour, and longer where its number is in use here.
- No link is followed, and nothing that a command did in its folder keeps it there: no depth, and no mode.
- It tells nobody of a failure: whoever is using it has something else to say, and a later one tries again.
"""

import os
import time

TMP = "/tmp/maka-"
_LEFT_S = 3_600.0
_RANDOM_BYTES = 8
_STATE, _PARENT, _START = 0, 1, 19


def make() -> str:
    """Make this process's folder. Its name can't be foreseen: else another user would be there first."""
    fields = _fields("self")
    start = fields[_START].decode() if fields else ""
    folder = f"{TMP}{os.getpid()}-{start}-{_place()}-{os.urandom(_RANDOM_BYTES).hex()}"
    os.mkdir(folder, 0o700)
    return folder


def sweep() -> None:
    """Remove what those left that were killed before they could."""
    place = _place()
    try:
        with os.scandir(os.path.dirname(TMP)) as found:
            left = [entry.path for entry in found if _is_left(entry, place)]
    except OSError:
        return
    for folder in left:
        remove(folder)


def remove(folder: str) -> None:
    """Remove a folder with all that it holds; nothing else, were it a link to one."""
    try:
        try:
            os.rmdir(folder)  # most commands leave nothing there
        except FileNotFoundError:
            return
        except OSError:
            _empty(folder)
            os.rmdir(folder)
    except OSError:
        return


def parent_of(pid: str) -> int:
    """Return the number of a process's parent, 0 where there is no such process."""
    fields = _fields(pid)
    return int(fields[_PARENT]) if fields else 0


def _fields(pid: str) -> list[bytes]:
    """Return what `/proc/PID/stat` says behind the name, which may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _place() -> str:
    """Name the boot and the namespace that process numbers are of; empty where `/proc` shows those of another one."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return ""
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read(8)}{os.stat('/proc/self/ns/pid').st_ino:x}"
    except OSError:
        return ""


def _is_left(entry: "os.DirEntry[str]", place: str) -> bool:
    words = entry.path.removeprefix(TMP).split("-")
    if not entry.path.startswith(TMP) or len(words) != 4 or len(words[3]) != 2 * _RANDOM_BYTES:
        return False
    pid, start, its_place, _ = words
    if not (pid.isascii() and pid.isdigit()):
        return False
    try:
        info = entry.stat(follow_symlinks=False)
    except OSError:  # another one removes it
        return False
    if info.st_uid != os.geteuid():
        return False
    owner = _fields(pid)
    if its_place and its_place == place:
        # Whoever is to collect a killed one may do so later.
        return not owner or owner[_STATE] in (b"Z", b"X") or owner[_START] != start.encode()
    return not owner and info.st_mtime < time.time() - _LEFT_S


def _empty(folder: str) -> None:
    """Remove what a folder holds.

    What lies deeper is moved up first: a folder can be deeper than recursion, descriptors and paths reach. What comes
    meanwhile is left, so that this ends.
    """
    top = _entered(folder)
    try:
        names = os.listdir(top)
        while names:
            names = [moved for name in names for moved in _taken_apart(name, top)]
    finally:
        os.close(top)


def _taken_apart(name: str, top: int) -> list[str]:
    """Remove a file, or a folder whose own folders are moved up; return the names that those have now."""
    moved: list[str] = []
    try:
        if _is_unlinked(name, top):
            return moved
        inner = _entered(name, top)
        try:
            for each in os.listdir(inner):
                if not _is_unlinked(each, inner):
                    os.close(_entered(each, inner))  # only what can be written can be moved
                    new = os.urandom(_RANDOM_BYTES).hex()
                    os.rename(each, new, src_dir_fd=inner, dst_dir_fd=top)
                    moved.append(new)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=top)
    except OSError:  # another one removes it, too, or it can't be removed: then at least the others are
        pass
    return moved


def _is_unlinked(name: str, at: int) -> bool:
    try:
        os.unlink(name, dir_fd=at)
    except IsADirectoryError:
        return False
    return True


def _entered(path: str, at: int | None = None) -> int:
    """Open a folder, and no link to one, whatever its mode was."""
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(fd)
