"""Landlock: a command that gave up its rights by itself, where no bubblewrap is installed.

Law: `wrap` is pure; the work is done by a shim, a small program that stands in front of the command.
"""

import ctypes
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files

from msgspec import Struct
from msgspec.structs import asdict

from maka.contracts.process_ports import Launch
from maka.contracts.sandbox_ports import PROGRAM_PLACES, SandboxPolicy
from maka.edges.call_filter import ARCHITECTURES, call_filter
from maka.edges.inputs import input_word
from maka.edges.landlock_rules import IOCTL_DEV, READS, WRITES
from maka.edges.landlock_shim import FIELDS
from maka.edges.landlock_tmp import sweep
from maka.edges.sandbox_probe import run_probe

ABI_MIN = 3
"""Older ones can't keep a command from emptying a file that it may not write."""

_WALL_ABI_MIN = 2
"""The one before lets nobody move a file to another folder. What a mount holds can't be emptied either."""

_CREATE_RULESET, _ASK_VERSION = 444, 1
_OF_ONE_ANOTHER = re.compile(r"^from maka\.edges\.(\w+) import (?:\([^)]*\)|.*)\n", re.MULTILINE)


class Landlock:
    """A `Sandbox`. `python` is the interpreter that the shim runs in; `mounts` says whether it may try to mount.

    `machine` is one that a filter on system calls is known for.
    """

    def __init__(self, abi: int, python: str, shim: str, machine: str, *, mounts: bool = True) -> None:
        self._abi = abi
        self._machine = machine
        self._mounts = mounts
        self._python = python
        self._shim = shim
        self.name = f"Landlock ABI {abi} with a filter on system calls"

    @property
    def missing(self) -> str | None:
        return None

    @property
    def closes_beside_hidden(self) -> bool:
        return True

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy, env: Mapping[str, str]) -> Launch:
        """Return how the shim is started; pure."""
        may = {"mount": self._mounts, "network": policy.network, "read": not policy.reads_only}
        told: dict[str, Iterable[str]] = {
            **asdict(policy),
            "abi": [str(self._abi)],
            "may": [word for word, allowed in may.items() if allowed],
            "cwd": [policy.cwd],
            "programs": PROGRAM_PLACES if policy.reads_only else (),
        }
        words = "\0\0".join("\0".join(told[name]) for name in FIELDS)
        shim = (self._python, "-I", "-S", "-c", self._shim, *map(input_word, range(3)))
        filter_ = call_filter(self._machine, network=policy.network)
        inputs = (os.fsencode(words), filter_, variables(env))
        return Launch(argv=(*shim, *argv), inputs=inputs, is_boxed=True, sweep=sweep)


class Wall(Struct, frozen=True, kw_only=True):
    """Landlock as a second wall inside of another sandbox: `text` is a program that gives up rights.

    Laws:
    - A mount holds a file, not its name: what comes, or is put in place of it, beside something hidden is denied, too.
    - A pipe with a name can be written on a read-only file system: only what is writable may be opened for that.
    - Beside what is hidden inside of a writable folder new names must work, so there mounts alone hold.
    """

    abi: int
    python: str
    prefix: str
    text: bytes

    def asked(self, policy: SandboxPolicy, own: Sequence[str]) -> bytes:
        """Return what the program is told. `own` are folders of which the sandbox has its own, besides /dev."""
        rules = [f"{rights} {path}" for path, rights in _rights_behind(policy, own).items()]
        return os.fsencode("\0".join((str(self.abi), *rules)))


def _rights_behind(policy: SandboxPolicy, own: Sequence[str]) -> dict[str, int]:
    """Return the rights of each path that has others than its surroundings."""
    writable = (*policy.writable, *own)
    unseen = [
        path for path in (*policy.hidden, *policy.hidden_files, *policy.absent) if base_of(path, writable) is None
    ]
    inside = [path for path in policy.readable if base_of(path, unseen) and not base_of(path, policy.writable)]
    return {
        **dict.fromkeys(unseen, 0),
        **dict.fromkeys(inside, READS),
        **dict.fromkeys(writable, READS | WRITES),
        "/dev": READS | WRITES | IOCTL_DEV,
    }


def base_of(path: str, bases: Sequence[str]) -> str | None:
    """Return the first of some folders that a path lies in."""
    return next((base for base in bases if path.startswith(base.rstrip("/") + "/")), None)


def variables(env: Mapping[str, str]) -> bytes:
    """Return a command's variables as the programs in front of it read them."""
    named = {name: value for name, value in env.items() if name and "=" not in name}  # no program takes others
    return b"\0".join(os.fsencode(f"{name}={value}") for name, value in named.items())


def find_wall(python: str = sys.executable, prefix: str = sys.base_prefix) -> Wall | None:
    """Return it as far as the kernel has Landlock; whoever uses it tries it. The interpreter lies in `prefix`."""
    if not sys.platform.startswith("linux") or (found := abi()) < _WALL_ABI_MIN:
        return None
    text = program("landlock_wall").encode()
    return Wall(abi=found, python=os.path.realpath(python), prefix=os.path.realpath(prefix), text=text)


def program(name: str) -> str:
    """Return a program with its parts as one text: they stand alone but for one another, and no part has parts."""
    text = _text(name)
    return "\n".join(_OF_ONE_ANOTHER.sub("", each) for each in (*map(_text, _OF_ONE_ANOTHER.findall(text)), text))


def _text(name: str) -> str:
    return (files("maka.edges") / f"{name}.py").read_text("utf-8")


def abi() -> int:
    """Return the kernel's Landlock version, 0 where there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        return max(int(libc.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), _ASK_VERSION)), 0)
    except AttributeError:
        return 0


def find_landlock(*, mounts: bool = True) -> Landlock | str:
    """Return a Landlock that works here, or why there is none. Starts a short process."""
    if not sys.platform.startswith("linux"):
        return "Landlock is a part of Linux"
    found = abi()
    if found < ABI_MIN:
        return "this kernel has no Landlock" if not found else f"Landlock ABI {found} is too old ({ABI_MIN} is needed)"
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        return f"there is no filter on system calls for {machine}"
    # The interpreter itself, not an environment's link to it: that one may lie in a workspace.
    landlock = Landlock(found, os.path.realpath(sys.executable), program("landlock_shim"), machine, mounts=mounts)
    tried = run_probe(landlock.wrap(("/bin/sh", "-c", ":"), SandboxPolicy(cwd="/"), {}))
    return landlock if tried.code == 0 else f"Landlock does not work here: {tried.text}"
