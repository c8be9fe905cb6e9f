"""A program: `python -I -S -c THIS FD FD ARGV…` gives up rights by Landlock and then becomes a command.

It stands alone (standard library only) and is handed to the interpreter as text, so no file of a workspace can stand in
for it. Laws:
- It reads its policy, and a filter on system calls for what Landlock can't deny, from two descriptors.
- Whatever fails before the command, the command doesn't run: exit code 126 and a line that says why.
- Where the kernel allows a mount namespace, protected paths are mounted read-only. Else a folder that holds one is
  closed for names that come or go, since Landlock knows no exception below a folder that it allows.
- Where only what was named may be read, nothing else can be listed either.
- This process stays as the parent: it collects what the command leaves behind, and ends it.
"""

import ctypes
import json
import os
import signal
import stat
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any, NoReturn

FAILED, _ORPHANED = 126, signal.SIGUSR2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PDEATHSIG, _SECCOMP, _CAPBSET_DROP, _SUBREAPER, _NO_NEW_PRIVS = 1, 22, 24, 36, 38
_NEW_MOUNTS, _NEW_USER, _BIND_ALL, _PRIVATE_ALL = 0x20000, 0x10000000, 0x1000 | 0x4000, 0x4000 | 0x40000
_MOUNT_SETATTR, _BELOW, _FROM_HERE = 442, 0x8000, -100
_NO_SUID, _NO_DEV, _SHARED = 2, 4, "/dev/shm"
_TMP, _LEFT_S = "/tmp/maka-", 3_600.0

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READS = _EXECUTE | _READ_FILE
_WRITES = 0x7FF2 & ~(1 << 6 | 1 << 11 | _READ_DIR | _READS)
"""Everything but the making of devices."""

_HANDLED = {3: 0x7FFF, 4: 0x7FFF}
_HANDLED_NOW = 0xFFFF
_ATTRIBUTES = {3: "Q", 4: "QQ", 5: "QQ"}
_ATTRIBUTES_NOW = "QQQ"
_DEVICES = ("null", "zero", "full", "random", "urandom")
"""No terminal: those of all other programs of the same person are there, too."""


class Kernel:
    """The calls that Python has no words for. Each raises OSError."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def call(self, number: int, *args: Any) -> int:
        return self._checked(int(self._libc.syscall(ctypes.c_long(number), *args)), f"system call {number}")

    def prctl(self, option: int, *args: int) -> None:
        values = [ctypes.c_ulong(value) for value in (*args, 0, 0, 0, 0)[:4]]
        self._checked(int(self._libc.prctl(option, *values)), f"prctl {option}")

    def unshare(self, flags: int) -> None:
        self._checked(int(self._libc.unshare(flags)), "unshare")

    def mount(self, source: str | None, target: str, flags: int, kind: bytes | None = None, words: bytes = b"") -> None:
        from_ = None if source is None else os.fsencode(source)
        done = self._libc.mount(from_, os.fsencode(target), kind, ctypes.c_ulong(flags), words or None)
        self._checked(int(done), "mount")

    def set_read_only(self, path: str, on: bool) -> None:
        """Change a mount with all below it; writable again becomes only what was so outside."""
        change = struct.pack("QQQQ", on, not on, 0, 0)
        for flags in (_BELOW,) if on else (0, _BELOW):
            with nullcontext() if on else suppress(PermissionError):
                self.call(_MOUNT_SETATTR, _FROM_HERE, os.fsencode(path), flags, change, ctypes.c_size_t(len(change)))

    def _checked(self, result: int, what: str) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")
        return result


def run(policy: dict[str, Any], filter_: bytes, command: list[str]) -> int:
    """Run a command confined, end what it leaves behind, and return its exit code (128 + n after a signal)."""
    kernel, owner = Kernel(), os.getppid()
    # No KILL: who else would end what the command left, once its owner is gone?
    signal.signal(_ORPHANED, _leave)
    kernel.prctl(_PDEATHSIG, _ORPHANED)
    if os.getppid() != owner:
        return FAILED
    kernel.prctl(_SUBREAPER, 1)
    _sweep()
    own_tmp = f"{_TMP}{os.getpid()}-{os.urandom(8).hex()}"
    os.mkdir(own_tmp, 0o700)
    # A stop is for the command: this process ends when that has.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        _become(kernel, policy, filter_, command, own_tmp)
    try:
        _, status = os.waitpid(child, 0)
    finally:
        _end_the_rest()
        _remove(own_tmp)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _leave(number: int, frame: object) -> NoReturn:
    sys.exit(FAILED)


def _become(kernel: Kernel, policy: dict[str, Any], filter_: bytes, command: list[str], own_tmp: str) -> NoReturn:
    try:
        # Python ignores the last two; a command expects a broken pipe to end its writers in silence.
        for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, _ORPHANED):
            signal.signal(number, signal.SIG_DFL)
        kernel.prctl(_PDEATHSIG, signal.SIGKILL)
        os.chdir(policy["cwd"])
        own = _mount(kernel, policy, own_tmp) if policy["may_mount"] else None
        with suppress(OSError):  # who isn't root has none to give up
            for capability in range(64):
                kernel.prctl(_CAPBSET_DROP, capability)
        kernel.prctl(_NO_NEW_PRIVS, 1)
        _restrict(kernel, policy, _special(policy, [own_tmp, *(own or [])], own is not None))
        _filter_calls(kernel, filter_)
        for name in ("TMPDIR", "TMP", "TEMP"):
            os.putenv(name, own_tmp)
        os.execv(command[0], command)
    except BaseException as error:
        os.write(2, f"the sandbox could not be set up: {error}\n".encode("utf-8", "replace"))
    os._exit(FAILED)


def _end_the_rest() -> None:
    """Kill whoever was left to this process, until nobody is."""
    while True:
        for name in os.listdir("/proc"):
            if name.isdigit() and _parent(name) == os.getpid():
                with suppress(OSError):
                    os.kill(int(name), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _sweep() -> None:
    """Remove what those left that were killed before they could."""
    for entry in os.scandir("/tmp"):
        with suppress(OSError):
            name = entry.path.removeprefix(_TMP)
            if name != entry.path and (pid := name.partition("-")[0]).isdigit() and not os.path.exists(f"/proc/{pid}"):
                info = entry.stat(follow_symlinks=False)
                # Another container may share the folder, and know other processes.
                if info.st_uid == os.geteuid() and info.st_mtime < time.time() - _LEFT_S:
                    _remove(entry.path)


def _remove(folder: str) -> None:
    with suppress(OSError):
        os.rmdir(folder)
        return
    import shutil  # most commands leave nothing there, and the import costs more than all else here

    shutil.rmtree(folder, ignore_errors=True)


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


# -- mounts -------------------------------------------------------------------------------------------------------


def _mount(kernel: Kernel, policy: dict[str, Any], own_tmp: str) -> list[str] | None:
    """Let everything be read-only but what is writable. Returns None where the kernel allows no mounts.

    Else what was made new: programs share memory, and Python its locks, in /dev/shm, and others' may not be seen.
    Landlock has no word for modes, owners and times: on a read-only mount they can't be changed either.
    """
    if not _own_mounts(kernel):
        return None
    kernel.set_read_only("/", True)
    protected = policy["protected"]
    for path in sorted({*policy["pinned"], *policy["writable"], own_tmp, *protected}, key=lambda path: path.count("/")):
        try:
            fd = _exactly(path)
        except FileNotFoundError:  # granted, and not there: so it can't come
            continue
        kernel.mount(f"/proc/self/fd/{fd}", f"/proc/self/fd/{fd}", _BIND_ALL)
        os.close(fd)
        # Opened anew: this is the mount now. Where someone swapped the path meanwhile it is none, and this fails.
        fd = _exactly(path)
        kernel.set_read_only(f"/proc/self/fd/{fd}", path in protected)
        os.close(fd)
    os.chdir(os.getcwd())
    with suppress(OSError):
        kernel.mount("tmpfs", _SHARED, _NO_SUID | _NO_DEV, b"tmpfs", b"mode=1777,size=2g")
        return [_SHARED]
    return []


def _own_mounts(kernel: Kernel) -> bool:
    uid, gid = os.geteuid(), os.getegid()
    try:
        if uid == 0:
            try:
                kernel.unshare(_NEW_MOUNTS)
            except OSError:
                _own_user(kernel, uid, gid)
        else:
            _own_user(kernel, uid, gid)
        kernel.mount(None, "/", _PRIVATE_ALL)
    except OSError:
        return False
    return True


def _own_user(kernel: Kernel, uid: int, gid: int) -> None:
    kernel.unshare(_NEW_USER | _NEW_MOUNTS)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _exactly(path: str) -> int:
    """Open what has no link in its path."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    if os.readlink(f"/proc/self/fd/{fd}") != path:
        os.close(fd)
        raise OSError(f"path_changed: {path} turned into a link")
    return fd


# -- Landlock -----------------------------------------------------------------------------------------------------


def _special(policy: dict[str, Any], own: list[str], mounted: bool) -> dict[str, int]:
    """Return the rights of each path that has others than its surroundings; the stricter word of two is the last."""
    ways: tuple[tuple[list[str], int], ...] = (
        ([*map(os.path.realpath, policy["programs"]), *policy["readable"]], _READS),
        ([*policy["writable"], *own], _READS | _WRITES),
        ([] if mounted else policy["protected"], _READS),
        ([*policy["hidden"], *policy["hidden_files"]], 0),
    )
    return {"/dev": 0} | {path: rights for paths, rights in ways for path in paths}


def _restrict(kernel: Kernel, policy: dict[str, Any], special: dict[str, int]) -> None:
    abi = policy["abi"]
    handled = _HANDLED.get(abi, _HANDLED_NOW)
    # Of TCP binding and connecting are denied; of abstract sockets and signals those that leave the sandbox.
    values = [handled, 0 if policy["network"] else 3, 3][: len(_ATTRIBUTES.get(abi, _ATTRIBUTES_NOW))]
    attributes = struct.pack(_ATTRIBUTES.get(abi, _ATTRIBUTES_NOW), *values)
    ruleset = kernel.call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    only = policy["reads_only"]
    listed = [path for path, rights in special.items() if rights] if only else ["/"]
    rules = [*rules_of("/", special.get("/", 0) if only else _READS, special), *((path, _READ_DIR) for path in listed)]
    rules += [(f"/dev/{name}", _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV) for name in _DEVICES]
    for path, rights in rules:
        _add_rule(kernel, ruleset, path, rights & handled)
    kernel.call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def rules_of(path: str, rights: int, special: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Yield the rules that give a folder its rights but not to what lies below it and has fewer.

    A folder's rules hold for everything below it, so where something has fewer, each of its neighbours is named.
    """
    prefix = path.rstrip("/") + "/"
    below = {one: its for one, its in special.items() if one.startswith(prefix) and one != path}
    shared = rights
    for its in below.values():
        shared &= its
    if shared:
        yield path, shared
    if shared == rights:
        for one, its in below.items():
            if its != rights:
                yield from rules_of(one, its, {each: more for each, more in below.items() if each != one})
        return
    with suppress(OSError), os.scandir(path) as found:
        for name in [entry.path for entry in found if not entry.is_symlink()]:
            yield from rules_of(name, special.get(name, rights), below)


def _add_rule(kernel: Kernel, ruleset: int, path: str, rights: int) -> None:
    try:
        fd = _exactly(path)  # a path that turned into a link meanwhile allows nothing
    except OSError:
        return
    try:
        mode = os.fstat(fd).st_mode
        rights = rights if stat.S_ISDIR(mode) else rights & _ON_FILES
        if rights and not stat.S_ISLNK(mode):
            kernel.call(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


# -- system calls -------------------------------------------------------------------------------------------------


def _filter_calls(kernel: Kernel, filter_: bytes) -> None:
    code = ctypes.create_string_buffer(filter_, len(filter_))
    program = struct.pack("HxxxxxxP", len(filter_) // 8, ctypes.addressof(code))
    buffer = ctypes.create_string_buffer(program, len(program))
    kernel.prctl(_SECCOMP, 2, ctypes.addressof(buffer))


if __name__ == "__main__":
    try:
        with open(int(sys.argv[1]), "rb") as policy, open(int(sys.argv[2]), "rb") as filter_:
            given = json.load(policy), filter_.read()
        sys.exit(run(*given, sys.argv[3:]))
    except OSError as problem:
        sys.stderr.write(f"the sandbox could not be set up: {problem}\n")
        sys.exit(FAILED)
