"""The state root: whose it is, who holds it, and who may look.

Laws: one owner at a time, by a kernel lock that dies with its process (the pid file is a hint for people); a folder
that isn't ours is never touched; what is ours is readable by its user alone.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
import weakref
from pathlib import Path

from maka.contracts.errors import LedgerError, LedgerFullError, StoreHeldError, StoreOpenError
from maka.contracts.limits import FREE_BYTES_MIN

LEDGER_DIR, BLOBS_DIR, TEMP_DIR = "ledger", "blobs", "tmp"
DATA_FILE = "data.mdb"
LOCK_FILE, PID_FILE = "lock", "pid"
LOCK_WAIT_S, LOCK_POLL_S = 2.0, 0.01
"""A process that its owner was starting as it was killed holds the lock too, until it has become its own program."""
_OURS = frozenset({LEDGER_DIR, BLOBS_DIR, LOCK_FILE, PID_FILE, "maka.log"})
"""What a root may hold before its first store exists, after a start that was cut short."""


class RootLock:
    """Ownership of a state root, from `acquire_root` until `close` or the end of the process."""

    def __init__(self, root: Path, descriptor: int) -> None:
        self.root = root
        self._descriptor: int | None = descriptor

    def close(self) -> None:
        """Give the root up; idempotent."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                (self.root / PID_FILE).unlink()
            self.drop_descriptor()

    def drop_descriptor(self) -> None:
        """Close this process's handle of the lock: what a forked child does, whose parent goes on holding it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def acquire_root(root: Path) -> RootLock:
    """Become the one owner of a state root, made where it is missing.

    Tightens wide modes of what is there and removes unfinished values. Raises StoreHeldError where someone owns it,
    StoreOpenError where it isn't ours or can't be written, and LedgerFullError where the disk is full.
    """
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_ours(root)
        close_to_others(root)
        lock = RootLock(root, _locked(root))
    except OSError as error:
        raise unusable(root, error) from None
    try:
        _prepare(root)
    except OSError as error:
        lock.close()
        raise unusable(root, error) from None
    _let_go_in_children(lock)
    return lock


def has_store(root: Path) -> bool:
    """Say whether a ledger was ever begun in a state root; a file without a byte is what a cut start leaves."""
    path = root / LEDGER_DIR / DATA_FILE
    try:
        return path.is_file() and path.stat().st_size > 0
    except OSError as error:
        raise unusable(root, error) from None


def close_to_others(root: Path) -> None:
    """Take from all but its user what rights they have in a state root that is ours; for readers and owners alike.

    The root may be a link to it. Closed first, since nothing behind a closed folder can be reached; then whatever it
    holds is looked through, but only where the root was open. Raises StoreOpenError where it can't be closed.
    """
    try:
        mode = stat.S_IMODE(root.stat().st_mode)
        if not mode & ~0o700:
            return
        root.chmod(mode & 0o700)
    except OSError as error:
        why = error.strerror or str(error)
        words = f"others can get into {root}, and that can't be changed ({why}): chmod 700 it, or set another MAKA_HOME"
        raise StoreOpenError(words) from None
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            with contextlib.suppress(OSError):  # gone meanwhile, or somebody else's
                _tighten(Path(folder, name))


def unusable(root: Path, error: OSError) -> LedgerError:
    """Say what the system's refusal of something in a state root means."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LedgerFullError(f"the disk of {root} is full: free {FREE_BYTES_MIN >> 20} MiB")
    in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
    why = "a file is in its place" if in_the_way else error.strerror or str(error)
    if error.filename is not None and root in Path(error.filename).parents:
        return StoreOpenError(f"can't use {error.filename} ({why}): mend its rights, or set another MAKA_HOME")
    return StoreOpenError(f"can't use {root} as the state root ({why}): set MAKA_HOME to a folder of your own")


def _check_ours(root: Path) -> None:
    owner = root.stat().st_uid
    if os.geteuid() not in (owner, 0):
        raise StoreOpenError(f"{root} belongs to user {owner}: set MAKA_HOME to a folder of your own")
    if has_store(root):
        return
    foreign = sorted(set(os.listdir(root)) - _OURS)
    if foreign:
        what = ", ".join(foreign[:3])
        raise StoreOpenError(f"{root} holds other things ({what}) and no maka store: set MAKA_HOME to an empty folder")


def _locked(root: Path) -> int:
    path = root / LOCK_FILE
    give_up_s = time.monotonic() + LOCK_WAIT_S
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A lock on a file that was unlinked meanwhile keeps nobody out.
            if os.path.exists(path) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
            os.close(descriptor)
        except BlockingIOError:
            os.close(descriptor)
            if time.monotonic() < give_up_s and _holder_is_dead(root):
                time.sleep(LOCK_POLL_S)
                continue
            raise StoreHeldError(
                f"{root} is in use by {_holder(root)}: stop that one or set another MAKA_HOME"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise


def is_owned(root: Path) -> bool:
    """Say whether a living process owns a root, without a lock of our own: that could keep an owner out."""
    try:
        info = os.stat(root / LOCK_FILE)
    except OSError:
        return False
    name = f":{info.st_ino}"
    try:
        lines = Path("/proc/locks").read_text("ascii", "replace").splitlines()
    except OSError:  # no such list on this system: a shared lock for a moment tells
        return _lock_is_taken(root / LOCK_FILE)
    return any("FLOCK" in line and any(word.endswith(name) for word in line.split()) for line in lines)


def _lock_is_taken(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _hint(root: Path) -> tuple[int, str] | None:
    """Return what the pid file says: a pid and its machine."""
    try:
        words = (root / PID_FILE).read_text("utf-8", "replace").split()
    except OSError:
        words = []
    return (int(words[0]), words[1]) if len(words) == 2 and words[0].isdecimal() else None


def _holder(root: Path) -> str:
    hint = _hint(root)
    return "another process" if hint is None else f"pid {hint[0]} on {hint[1][:64]}"


def _holder_is_dead(root: Path) -> bool:
    hint = _hint(root)
    if hint is None or hint[1] != socket.gethostname():
        return False
    try:
        os.kill(hint[0], 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # somebody's, so alive
        return False
    return False


def _prepare(root: Path) -> None:
    for name in (LEDGER_DIR, BLOBS_DIR, f"{BLOBS_DIR}/{TEMP_DIR}"):
        (root / name).mkdir(mode=0o700, exist_ok=True)
    for left_over in (root / BLOBS_DIR / TEMP_DIR).iterdir():
        left_over.unlink()
    # One level below the closed root and its ledger is enough: behind a closed folder nothing can be reached.
    for path in (*root.iterdir(), *(root / LEDGER_DIR).iterdir()):
        _tighten(path)
    hint = os.open(root / PID_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(hint, "w") as file:
        file.write(f"{os.getpid()} {socket.gethostname()}\n")


def _tighten(path: Path) -> None:
    mode = path.lstat().st_mode
    wanted = 0o700 if stat.S_ISDIR(mode) else 0o600
    if not stat.S_ISLNK(mode) and stat.S_IMODE(mode) & ~wanted:
        path.chmod(stat.S_IMODE(mode) & wanted)


def _let_go_in_children(lock: RootLock) -> None:
    """A forked child would keep the root held after its parent's death; it drops its handle as it starts."""
    held = weakref.ref(lock)

    def drop() -> None:
        lock_in_child = held()
        if lock_in_child is not None:
            lock_in_child.drop_descriptor()

    os.register_at_fork(after_in_child=drop)
