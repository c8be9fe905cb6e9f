"""Folders that are closed to us, though they are ours: whoever isn't root can take the right to look from itself.

Law: a command may close such a folder, and the next one open it again. So what we can't see isn't what isn't there.
"""

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress

_STEP = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


def there(path: str) -> bool:
    """Say whether something has a name. Raises PermissionError, with the folder, where one of ours is closed to us.

    In someone else's closed folder no command finds anything either.
    """
    try:
        os.lstat(path)
    except PermissionError as error:
        closed = next((folder for folder in _above(path) if not os.access(folder, os.X_OK)), None)
        if closed is not None and not _is_ours(closed):
            return False
        raise PermissionError(error.errno, "it is closed to its own user", closed or path) from None
    except OSError:
        return False
    return True


def seen_of(path: str) -> str | None:
    """Return a path that is there, or the closed folder that may hold it."""
    try:
        return path if there(path) else None
    except PermissionError as closed:
        return str(closed.filename)


def is_closed(path: str, wanted: int = os.R_OK | os.X_OK) -> bool:
    """Say whether a folder is ours, and we can't look into it; with `os.R_OK`, the same of a file."""
    return not os.access(path, wanted) and _is_ours(path)


def open_again(folder: str) -> None:
    """Let its user, who we are, look into a folder and change it."""
    with suppress(OSError), held(folder) as fd:
        os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(os.fstat(fd).st_mode) | stat.S_IRWXU)


@contextmanager
def held(folder: str) -> Generator[int]:
    """Open a folder step by step, without following a link: it can't be swapped for another place. Raises OSError."""
    fd = os.open("/", _STEP)
    try:
        for part in filter(None, folder.split("/")):
            inner = os.open(part, _STEP, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _above(path: str) -> Iterator[str]:
    """Yield the folders above a path, the uppermost first."""
    at = path.find("/", 1)
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)


def _is_ours(path: str) -> bool:
    try:
        return os.stat(path).st_uid == os.geteuid()
    except OSError:
        return False
