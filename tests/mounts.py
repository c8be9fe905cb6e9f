"""Mounts that a process of a test has for itself alone, by the kernel's own calls; they are gone with it."""

import ctypes
import os

_NEW_MOUNTS, _NEW_USER = 0x20000, 0x10000000
_BIND, _PRIVATE = 0x1000, 0x44000


class OwnMounts:
    """This process's own view of the files, from now on."""

    def __init__(self, libc: ctypes.CDLL) -> None:
        self._libc = libc

    def cover(self, path: str, by: str) -> None:
        """Show one file in another one's place. Raises OSError."""
        self._mount(by, path, "", _BIND, "")

    def disk(self, path: str, options: str) -> None:
        """Put an empty file system in memory in a folder's place. Raises OSError."""
        self._mount("tmpfs", path, "tmpfs", 0, options)

    def _mount(self, what: str, where: str, kind: str, flags: int, options: str) -> None:
        words = (os.fsencode(word) for word in (what, where, kind))
        if self._libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options)) != 0:
            raise OSError(ctypes.get_errno(), f"{what} can't be mounted at {where}")


def own_mounts() -> OwnMounts | None:
    """Let this process, and what it starts, have mounts of its own; None where that isn't allowed. One thread only."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_NEW_MOUNTS) != 0:
        if libc.unshare(_NEW_MOUNTS | _NEW_USER) != 0:
            return None
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    if libc.mount(b"none", b"/", None, ctypes.c_ulong(_PRIVATE), None) != 0:
        return None
    return OwnMounts(libc)
