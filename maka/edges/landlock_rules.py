"""Giving up rights by Landlock: the kernel's calls, and the rules that say what is left.

It stands alone (standard library only): it is a part of programs that are handed to an interpreter as text. Laws:
- It stands in front of each command, so it imports nothing that takes long.
"""

import ctypes
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_MOUNT_SETATTR, _BELOW, _FROM_HERE = 442, 0x8000, -100

_EXECUTE, _WRITE_FILE, READ_FILE, _READ_DIR, _TRUNCATE, IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE_FILE | READ_FILE | _TRUNCATE | IOCTL_DEV
READS = _EXECUTE | READ_FILE
WRITES = 0x7FF2 & ~(1 << 6 | 1 << 11 | _READ_DIR | READS)
"""Everything but the making of devices."""

INTERRUPT, KILL, PIPE, TERM, CHILD, TOO_LARGE = 2, 9, 13, 15, 17, 25
"""Signals. Python ignores the third and the last; a command expects what they do."""

ON_DEVICES = READ_FILE | _WRITE_FILE | _TRUNCATE | IOCTL_DEV
_HANDLED = {2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF}
_HANDLED_NOW = 0xFFFF
_ATTRIBUTES = {2: "Q", 3: "Q", 4: "QQ", 5: "QQ"}
_ATTRIBUTES_NOW = "QQQ"

GATE = "MAKA_GATE"
"""A variable: where it is set, a sandbox says by a byte of output that it is set up, and waits for a line of input."""

Rule = tuple[str, int]
"""A path, and the rights to it and to all below it."""


class Kernel:
    """The calls that Python has no words for. Each raises OSError."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def call(self, number: int, *args: object) -> int:
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
            try:
                self.call(_MOUNT_SETATTR, _FROM_HERE, os.fsencode(path), flags, change, ctypes.c_size_t(len(change)))
            except PermissionError:
                if on:
                    raise

    def default(self, *signals: int) -> None:
        """Let signals do again what they do by themselves."""
        for number in signals:
            self._libc.signal(number, ctypes.c_void_p(0))

    def ignore(self, number: int) -> None:
        """Let a signal do nothing."""
        self._libc.signal(number, ctypes.c_void_p(1))

    def _checked(self, result: int, what: str) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")
        return result


def read(descriptor: str) -> bytes:
    """Return all that a descriptor holds, and close it."""
    with open(int(descriptor), "rb") as file:
        return file.read()


def environment(given: bytes) -> dict[bytes, bytes]:
    """Return a command's variables: those that it was given, and what those in front of it have added.

    What the kernel was told of this program: the interpreter itself sets LC_CTYPE.
    """
    with open("/proc/self/environ", "rb") as file:
        added = file.read()
    pairs = (one.partition(b"=") for one in (*given.split(b"\0"), *added.split(b"\0")) if one)
    return {name: value for name, _, value in pairs}


def pass_gate(variables: dict[bytes, bytes]) -> None:
    """Where there is a gate, say that all is set up, and wait until the command may begin; end where it may not.

    What says so is taken out of the command's variables.
    """
    if not variables.pop(GATE.encode(), b""):
        return
    os.write(1, b"\n")
    if not os.read(0, 1):
        os._exit(125)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def exactly(path: str) -> int:
    """Open what has no link in its path."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    if os.readlink(f"/proc/self/fd/{fd}") != path:
        os.close(fd)
        raise OSError(f"path_changed: {path} turned into a link")
    return fd


def restrict(
    kernel: Kernel, abi: int, special: dict[str, int], more: list[Rule], *, network: bool, only: bool = False
) -> None:
    """Give up what isn't allowed. `special` are the rights of each path that has others than its surroundings.

    All else can be read, or, with `only`, nothing else can, nor be listed. `more` are rules that hold besides.
    """
    handled = _HANDLED.get(abi, _HANDLED_NOW)
    # Of TCP binding and connecting are denied; of abstract sockets and signals those that leave the sandbox.
    values = [handled, 0 if network else 3, 3][: len(_ATTRIBUTES.get(abi, _ATTRIBUTES_NOW))]
    attributes = struct.pack(_ATTRIBUTES.get(abi, _ATTRIBUTES_NOW), *values)
    ruleset = kernel.call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    listed = [path for path, rights in special.items() if rights] if only else ["/"]
    rules = [*rules_of("/", special.get("/", 0 if only else READS), special), *((path, _READ_DIR) for path in listed)]
    for path, rights in (*rules, *more):
        _add_rule(kernel, ruleset, path, rights & handled)
    kernel.call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def rules_of(path: str, rights: int, special: dict[str, int]) -> "Iterator[Rule]":
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
    inner = {f"{prefix}{one[len(prefix) :].partition('/')[0]}" for one in below}
    try:
        with os.scandir(path) as found:
            names = [entry.path for entry in found if not entry.is_symlink()]
    except OSError:  # who may pass it without listing it still reaches what was named
        names = list(inner)
    for name in names:
        if name in inner:
            yield from rules_of(name, special.get(name, rights), below)
        else:
            yield name, rights


def _add_rule(kernel: Kernel, ruleset: int, path: str, rights: int) -> None:
    try:
        fd = exactly(path)  # a path that turned into a link meanwhile allows nothing
    except OSError:
        return
    # Its kind isn't asked for: a file system whose server is gone would never answer.
    for its in dict.fromkeys((rights, rights & _ON_FILES)):
        try:
            if its:
                kernel.call(_ADD_RULE, ruleset, 1, struct.pack("=Qi", its, fd), 0)
            break
        except OSError:  # a file takes no folder's rights, and what isn't on a disk takes none
            continue
    os.close(fd)
