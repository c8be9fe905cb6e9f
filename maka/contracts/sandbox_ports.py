"""Ports of the sandbox: what a process in it may touch."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from maka.contracts.process_ports import Launch

PROGRAM_PLACES = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/run/current-system", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    "/etc/ld.so.preload",
)
"""Where programs and the libraries that they begin with are, as far as a system has them."""


class SandboxPolicy(Struct, frozen=True, kw_only=True):
    """What a sandboxed process may touch: real, absolute paths. `protected` stays read-only inside what is writable.

    `hidden` folders and `hidden_files` aren't even readable: secrets, and the state root; nor is what comes where such
    a one is `absent`. Of two paths that hold one another the inner one decides. `pinned` folders are writable, but
    can't be moved away: they hold protected ones.
    `mounts` are where other file systems begin inside of what is writable.
    `reads_only` says that nothing else than what is named here, and `PROGRAM_PLACES`, is readable.
    """

    cwd: str
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    hidden_files: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    network: bool = False
    reads_only: bool = False


class Sandbox(Protocol):
    """An operating-system sandbox, tried once; `wrap` is pure."""

    @property
    def name(self) -> str:
        """Say which one is in force, for people: bubblewrap with its version, Landlock with its ABI, or none."""
        ...

    @property
    def missing(self) -> str | None:
        """Say why there is none and what to install; None where there is one."""
        ...

    @property
    def closes_beside_hidden(self) -> bool:
        """Say whether no name can come or go in a folder that holds something hidden."""
        ...

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy, env: Mapping[str, str]) -> Launch:
        """Return what runs `argv` inside with exactly these variables; asserts that there is a sandbox."""
        ...
