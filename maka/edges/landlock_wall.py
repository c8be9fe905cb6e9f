"""A program: `python -I -S THIS FD ARGV…`, inside of bubblewrap, gives up by Landlock what mounts can't deny for good.

It stands alone but for `landlock_rules` (standard library only), and both lie as one file in the sandbox. It reads the
kernel's Landlock version and `RIGHTS PATH` of each path that has others than its surroundings, each but the last with a
NUL behind it.
"""

import os
import sys

from maka.edges.landlock_rules import ON_DEVICES, PIPE, TOO_LARGE, Kernel, forget_locale, restrict

_FAILED = 126
_COVER = "/dev/null"
"""It lies over hidden files, and reads as empty there, too."""


def _become(asked: str, command: list[str]) -> None:
    kernel = Kernel()
    kernel.default(PIPE, TOO_LARGE)
    forget_locale()
    abi, *rules = asked.split("\0")
    rights = {path: int(its) for its, path in (rule.split(" ", 1) for rule in rules)}
    # The sandbox's network is its own, or was granted.
    restrict(kernel, int(abi), rights, [(_COVER, ON_DEVICES)], network=True)
    os.execv(command[0], command)


if __name__ == "__main__":
    try:
        with open(int(sys.argv[1]), encoding="utf-8", errors="surrogateescape") as given:
            rules_given = given.read()
        _become(rules_given, sys.argv[2:])
    except OSError as problem:
        sys.stderr.write(f"the sandbox could not be set up: {problem}\n")
        sys.exit(_FAILED)
