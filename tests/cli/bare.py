"""`maka` as on a machine that lacks a sandbox: what is named is hidden from this process for good, which then runs it.

`python -P -m tests.cli.bare bubblewrap,landlock ARGS...` hides both. bubblewrap is no program any more in a view of the
files that this process alone has; Landlock's system calls are answered as by a kernel that never had them.
"""

import ctypes
import errno
import os
import struct
import sys

from maka.edges.bubblewrap import PLACES, find_bubblewrap
from tests.mounts import own_mounts

CANT_HIDE = 77
"""The exit code where this machine lets nobody hide bubblewrap, though it works."""

_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2
_LANDLOCK = range(444, 447)
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def main(hidden: str, *args: str) -> None:
    """Hide, and become maka."""
    names = hidden.split(",")
    if "bubblewrap" in names:
        _hide_bubblewrap()
        if not isinstance(find_bubblewrap(), str):
            sys.exit(CANT_HIDE)
    if "landlock" in names:
        _hide_landlock()
    os.execv(sys.executable, (sys.executable, "-P", "-m", "maka", *args))


def _hide_bubblewrap() -> None:
    """Put what is no program in its place. Where no mount is allowed, it doesn't work either."""
    if (mounts := own_mounts()) is not None:
        for place in filter(os.path.exists, PLACES):
            mounts.cover(place, "/dev/null")


def _hide_landlock() -> None:
    """Answer its system calls, which have these numbers on every processor, with "no such call"."""
    libc = ctypes.CDLL(None, use_errno=True)
    steps = [(0x20, 0, 0, 0)]  # the call's number
    steps += [(0x15, len(_LANDLOCK) - at, 0, number) for at, number in enumerate(_LANDLOCK)]
    steps += [(0x06, 0, 0, _ALLOW), (0x06, 0, 0, _ERROR | errno.ENOSYS)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    filter_ = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(text)))
    for words in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SECCOMP, _FILTER, ctypes.addressof(filter_), 0, 0)):
        if libc.prctl(words[0], *map(ctypes.c_ulong, words[1:])) != 0:
            raise OSError(ctypes.get_errno(), "this kernel takes no filter on system calls")


if __name__ == "__main__":
    main(*sys.argv[1:])
