"""A program: `python -I -S THIS FD FD ARGV…`, inside of bubblewrap, gives up what mounts can't deny for good.

It stands alone but for `landlock_rules` (standard library only), and both lie as one file in the sandbox. It reads the
kernel's Landlock version and `RIGHTS PATH` of each path that has others than its surroundings, each but the last with a
NUL behind it; then the command's variables.
"""

import os
import sys

from maka.edges.landlock_rules import ON_DEVICES, PIPE, TOO_LARGE, Kernel, environment, pass_gate, read, restrict

_FAILED = 126
_COVER = "/dev/null"
"""It lies over hidden files, and reads as empty there, too."""


def _become(asked: str, env: bytes, command: list[str]) -> None:
    kernel = Kernel()
    kernel.default(PIPE, TOO_LARGE)
    abi, *rules = asked.split("\0")
    rights = {path: int(its) for its, path in (rule.split(" ", 1) for rule in rules)}
    # The sandbox's network is its own, or was granted.
    restrict(kernel, int(abi), rights, [(_COVER, ON_DEVICES)], network=True)
    variables = environment(env)
    pass_gate(variables)
    os.execve(command[0], command, variables)


if __name__ == "__main__":
    try:
        rules_given, env_given = map(read, sys.argv[1:3])
        _become(os.fsdecode(rules_given), env_given, sys.argv[3:])
    except Exception as problem:
        sys.stderr.write(f"the sandbox could not be set up: {problem}\n")
        sys.exit(_FAILED)
