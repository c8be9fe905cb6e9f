"""Landlock: a command that gave up its rights by itself, where no bubblewrap is installed.

Law: `wrap` is pure; the work is done by a shim, a small program that stands in front of the command.
"""

import ctypes
import json
import os
import sys
from importlib.resources import files

from msgspec.structs import asdict

from maka.contracts.tool_ports import PROGRAM_PLACES, Launch, SandboxPolicy
from maka.edges.call_filter import ARCHITECTURES, call_filter
from maka.edges.inputs import input_word
from maka.edges.sandbox_probe import run_probe

ABI_MIN = 3
"""Older ones can't keep a command from emptying a file that it may not write."""

_CREATE_RULESET, _ASK_VERSION = 444, 1


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

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        """Return how the shim is started; pure."""
        own = {"abi": self._abi, "may_mount": self._mounts, "programs": PROGRAM_PLACES if policy.reads_only else ()}
        words = json.dumps({**own, **asdict(policy)})
        shim = (self._python, "-I", "-S", "-c", self._shim, input_word(0), input_word(1))
        filter_ = call_filter(self._machine, network=policy.network)
        return Launch(argv=(*shim, *argv), inputs=(words.encode(), filter_))


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
    shim = (files("maka.edges") / "landlock_shim.py").read_text("utf-8")
    landlock = Landlock(found, os.path.realpath(sys.executable), shim, machine, mounts=mounts)
    tried = run_probe(landlock.wrap(("/bin/sh", "-c", ":"), SandboxPolicy(cwd="/")))
    return landlock if tried.code == 0 else f"Landlock does not work here: {tried.text}"
