"""A program: `python -I -S -c THIS FD FD FD ARGV…` gives up rights by Landlock and then becomes a command.

It stands alone but for `landlock_rules` and `landlock_tmp` (standard library only), and they are handed to the
interpreter as one text, so no file of a workspace can stand in for it. Laws:
- It reads its policy, a filter on system calls for what Landlock can't deny, and the command's variables from three
  descriptors.
- Whatever fails before the command, the command doesn't run: exit code 126 and a line that says why.
- Where the kernel allows a mount namespace, protected paths are mounted read-only. Else a folder that holds one is
  closed for names that come or go, since Landlock knows no exception below a folder that it allows.
- Where only what was named may be read, nothing else can be listed either.
- This process stays as the parent: it collects what the command leaves behind, and ends it. No signal raises anything
  in it, and none but KILL reaches it while it does that: who else would?
- Whoever has ended is collected at once, also while the command runs, so that its end is as much work as there are
  living ones.
"""

import ctypes
import os
import struct
import sys

from maka.edges.landlock_rules import (
    CHILD,
    INTERRUPT,
    KILL,
    ON_DEVICES,
    PIPE,
    READS,
    TERM,
    TOO_LARGE,
    WRITES,
    Kernel,
    environment,
    exactly,
    pass_gate,
    read,
    restrict,
)
from maka.edges.landlock_tmp import make, parent_of, remove, sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

Policy = dict[str, list[str]]
"""What is listed under each of FIELDS."""

FIELDS = (
    *("abi", "may", "cwd", "programs", "readable", "writable"),
    *("protected", "pinned", "hidden", "hidden_files", "absent"),
)
"""The order in which a policy lists things: an end of a list is two NULs, of an item one.

`may` holds what is allowed: `mount` (to try to), `network`, `read` (what isn't named).
"""

FAILED, _ORPHANED = 126, 12
_PDEATHSIG, _SECCOMP, _CAPBSET_DROP, _SUBREAPER, _NO_NEW_PRIVS = 1, 22, 24, 36, 38
_NEW_MOUNTS, _NEW_USER, _BIND_ALL, _PRIVATE_ALL = 0x20000, 0x10000000, 0x1000 | 0x4000, 0x4000 | 0x40000
_NO_SUID, _NO_DEV, _SHARED = 2, 4, "/dev/shm"
_CHILDREN = "/proc/thread-self/children"
_COLLECTED_MAX = 4_096

_DEVICES = ("null", "zero", "full", "random", "urandom")
"""No terminal: those of all other programs of the same person are there, too."""


def policy_of(text: str) -> Policy:
    """Read a policy."""
    return {name: words.split("\0") if words else [] for name, words in zip(FIELDS, text.split("\0\0"), strict=True)}


def run(policy: Policy, filter_: bytes, env: bytes, command: list[str]) -> int:
    """Run a command confined, end what it leaves behind, and return its exit code (128 + n after a signal)."""
    kernel, owner = Kernel(), os.getppid()
    kernel.prctl(_SUBREAPER, 1)
    own_tmp = make()
    # Where Maka was started with this one ignored, nobody could be waited for.
    kernel.default(CHILD)
    # A stop is for the command: this process ends when that has.
    kernel.ignore(TERM)
    kernel.ignore(INTERRUPT)
    child = os.fork()
    if child == 0:
        _become(kernel, policy, filter_, own_tmp, env, command)
    try:
        _leave_with(owner, kernel, child)
        end = _wait_for(child)
    finally:
        _hold_signals()
        _end_the_rest()
        remove(own_tmp)
        sweep()
    return end.si_status if end.si_code == os.CLD_EXITED else 128 + end.si_status


def _leave_with(owner: int, kernel: Kernel, child: int) -> None:
    """End the command when the owner ends; this process then ends as it does after every command."""
    import signal  # it takes long: the command has begun meanwhile

    def leave(number: int, frame: object) -> None:
        del number, frame
        _kill(child)

    signal.signal(_ORPHANED, leave)
    kernel.prctl(_PDEATHSIG, _ORPHANED)
    if os.getppid() != owner:
        _kill(child)


def _hold_signals() -> None:
    """Let no signal come any more. One that has come is handled in here."""
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _become(kernel: Kernel, policy: Policy, filter_: bytes, own_tmp: str, env: bytes, command: list[str]) -> "NoReturn":
    try:
        kernel.default(TERM, INTERRUPT, PIPE, TOO_LARGE)
        kernel.prctl(_PDEATHSIG, KILL)
        tmp = dict.fromkeys((b"TMPDIR", b"TMP", b"TEMP"), os.fsencode(own_tmp))
        variables = {**environment(env), **tmp}
        os.chdir(*policy["cwd"])
        own = _mount(kernel, policy, own_tmp) if "mount" in policy["may"] else None
        _drop_capabilities(kernel)
        kernel.prctl(_NO_NEW_PRIVS, 1)
        special = _special(policy, [own_tmp, *(own or [])], own is not None)
        devices = [(f"/dev/{name}", ON_DEVICES) for name in _DEVICES]
        network, only = "network" in policy["may"], "read" not in policy["may"]
        restrict(kernel, int(*policy["abi"]), special, devices, network=network, only=only)
        _filter_calls(kernel, filter_)
        pass_gate(variables)
        os.execve(command[0], command, variables)
    except BaseException as error:
        os.write(2, f"the sandbox could not be set up: {error}\n".encode("utf-8", "replace"))
    os._exit(FAILED)


def _drop_capabilities(kernel: Kernel) -> None:
    try:
        for capability in range(64):
            kernel.prctl(_CAPBSET_DROP, capability)
    except OSError:  # who isn't root has none to give up, and of others there are fewer
        return


def _wait_for(child: int) -> "os.waitid_result":
    """Wait for the command's end, and collect meanwhile whoever else ends.

    The command isn't collected yet: until no signal comes any more its number must be nobody else's.
    """
    while (end := _next_end()).si_pid != child:
        os.waitpid(end.si_pid, 0)
    return end


def _next_end() -> "os.waitid_result":
    """Wait until one has ended that isn't collected."""
    end = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    if end is None:
        raise AssertionError("only who doesn't wait is told so")
    return end


def _end_the_rest() -> None:
    """Kill whoever was left to this process, until nobody is.

    One more of those who lived has ended before each further look. So there is always one to wait for: whoever is left
    to this process after a look was a descendant of one who lived then.
    """
    while _is_one_left():
        for pid in _children():
            _kill(pid)
        _next_end()


def _is_one_left() -> bool:
    """Collect those who have ended, but not without end where there are always more; say whether others are left."""
    try:
        for _ in range(_COLLECTED_MAX):
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
    except ChildProcessError:
        return False
    return True


def _children() -> list[int]:
    try:
        with open(_CHILDREN, "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:  # not every kernel keeps that list, which is there at once: who forks and ends is found, too
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and parent_of(pid) == os.getpid()]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, KILL)
    except OSError:  # it has ended
        return


# -- mounts -------------------------------------------------------------------------------------------------------


def _mount(kernel: Kernel, policy: Policy, own_tmp: str) -> list[str] | None:
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
            fd = exactly(path)
        except FileNotFoundError:
            if path in protected or path in policy["pinned"]:
                raise  # it was there, and what nothing holds could come back
            continue  # granted, and not there: so it can't come
        kernel.mount(f"/proc/self/fd/{fd}", f"/proc/self/fd/{fd}", _BIND_ALL)
        os.close(fd)
        # Opened anew: this is the mount now. Where someone swapped the path meanwhile it is none, and this fails.
        fd = exactly(path)
        kernel.set_read_only(f"/proc/self/fd/{fd}", path in protected)
        os.close(fd)
    os.chdir(os.getcwd())
    try:
        kernel.mount("tmpfs", _SHARED, _NO_SUID | _NO_DEV, b"tmpfs", b"mode=1777,size=2g")
    except OSError:
        return []
    return [_SHARED]


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


# -- Landlock -----------------------------------------------------------------------------------------------------


def _special(policy: Policy, own: list[str], mounted: bool) -> dict[str, int]:
    """Return the rights of each path that has others than its surroundings; the stricter word of two is the last."""
    ways: tuple[tuple[list[str], int], ...] = (
        ([*map(os.path.realpath, policy["programs"]), *policy["readable"]], READS),
        ([*policy["writable"], *own], READS | WRITES),
        ([] if mounted else policy["protected"], READS),
        ([*policy["hidden"], *policy["hidden_files"], *policy["absent"]], 0),
    )
    return {"/dev": 0} | {path: rights for paths, rights in ways for path in paths}


# -- system calls -------------------------------------------------------------------------------------------------


def _filter_calls(kernel: Kernel, filter_: bytes) -> None:
    code = ctypes.create_string_buffer(filter_, len(filter_))
    program = struct.pack("HxxxxxxP", len(filter_) // 8, ctypes.addressof(code))
    buffer = ctypes.create_string_buffer(program, len(program))
    kernel.prctl(_SECCOMP, 2, ctypes.addressof(buffer))


if __name__ == "__main__":
    try:
        policy_given, filter_given, env_given = map(read, sys.argv[1:4])
        sys.exit(run(policy_of(os.fsdecode(policy_given)), filter_given, env_given, sys.argv[4:]))
    except OSError as problem:
        sys.stderr.write(f"the sandbox could not be set up: {problem}\n")
        sys.exit(FAILED)
