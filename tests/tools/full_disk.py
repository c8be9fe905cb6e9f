"""One call in a process that finds no room for what it writes: what came of it, and what is left.

`python -m tests.tools.full_disk LACK FOLDER TOOL` reads the call's arguments as JSON, and prints JSON. Before that it
puts a long `run.sh` into the folder: on a disk that lacks room, or a place for another file, or under a limit on a
file's size.
"""

import json
import os
import resource
import signal
import stat
import sys
from pathlib import Path

from tests.mounts import own_mounts
from tests.tools.conftest import make_tools
from tests.tools.harness import Bench

DISKS = {"room": "size=1m", "a place for a file": "size=16m,nr_inodes=2"}
"""The lack is of the disk itself: the system's own error comes from where it comes in life."""

LIMITED = "a file's size"
OLD = "#!/bin/sh\n" + f"{'# old':<99}\n" * 6_000
"""Fits once, and no second time beside itself."""


def main(lack: str, folder: str, tool: str) -> None:
    """Make the call. Prints null where no disk can be mounted."""
    if lack in DISKS:
        mounts = own_mounts()
        try:
            if mounts is None:
                raise PermissionError
            mounts.disk(folder, DISKS[lack])
        except OSError:
            print(json.dumps(None))
            return
    path = Path(folder) / "run.sh"
    path.write_text(OLD)
    path.chmod(0o755)
    was = path.stat()
    if lack == LIMITED:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(OLD) // 2, len(OLD) // 2))
    result = Bench(make_tools(), Path(folder)).run(tool, **json.load(sys.stdin))
    now = path.stat()
    said = {
        "outcome": result.outcome,
        "text": result.text,
        "seen": result.seen is not None,
        "is_whole": path.read_text() == OLD,
        "mode": stat.S_IMODE(now.st_mode),
        "is_same": (was.st_ino, was.st_mtime_ns) == (now.st_ino, now.st_mtime_ns),
        "names": os.listdir(folder),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
