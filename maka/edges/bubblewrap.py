"""Bubblewrap: a command in namespaces of its own, in which everything but what was allowed is read-only or not there.

Laws:
- The command has its own processes (it sees no others, and all of them die with it or with us), its own network (none,
  unless granted), its own /tmp, /run, /dev and /proc, and no capability.
- Mounts are made from the outside in: of two paths that hold one another the inner one decides.
- Whoever talks to a service of the machine is out of every sandbox, and a socket can be reached on a read-only file
  system, too. So /run, where most of them live, is empty, and a filter on system calls refuses sockets but the
  internet's, which have a network of their own; with it io_uring, which could make others, and kernel keyrings.
- A mount's path inside of a writable folder may be swapped for a link by another command at that moment. So before the
  command begins, the mounts that were really made are compared with those that were asked for.
- Where only what was named may be read, the root is an empty one, in which nothing but that and programs is mounted.
- A mount is given up by the kernel once its file is replaced outside, and pipes aren't held by any: Landlock stands as
  a second wall inside, where the kernel has it.
- What stands in front of the command gets none of its variables: some name libraries that a command may have written.
- What grows with the workspace is read from descriptors: an argument has a limit. So have the mounts: bubblewrap reads
  the whole table of them after each, so that twice as many take four times as long, and takes 9,000 words in all.
"""

import os
import re
from collections.abc import Callable, Mapping
from itertools import product
from shlex import quote

from msgspec.structs import replace

from maka.contracts.errors import NoLaunchError
from maka.contracts.limits import SANDBOX_MOUNTS_MAX
from maka.contracts.process_ports import Launch
from maka.contracts.sandbox_ports import PROGRAM_PLACES, SandboxPolicy
from maka.edges.call_filter import call_filter
from maka.edges.inputs import input_word
from maka.edges.landlock import Wall, base_of, find_wall, variables
from maka.edges.landlock_rules import GATE
from maka.edges.process_tree import MARK_VARIABLE
from maka.edges.sandbox_probe import Outcome, run_probe
from maka.edges.spawn_bounds import namespace_words

PLACES = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap", "/run/current-system/sw/bin/bwrap")
"""A search path isn't asked: it may name folders that a command can write to."""

TMP_BYTES_MAX = 2 << 30
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_SHELLS = ("UID", "EUID", "PPID", "PWD", "OLDPWD", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO", "OPTIND")
"""Variables that a shell sets by itself; some can't be set by anyone else."""

_OF_SANDBOX = ("TMPDIR", "TMP", "TEMP", MARK_VARIABLE)
_ISOLATED = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent")
_USER = ("--unshare-user",)
_SPARE = ("/tmp", "/var/tmp", "/run")
# Root owns these, and writing to them needs no capability: /proc/sys names the program that handles every crash.
_PROC_LOCKED = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "asound", "mtrr")
# What name resolution and some distributions' programs need of /run; the first only with the network.
_RUN_NETWORK = ("/run/systemd/resolve", "/run/NetworkManager/resolv.conf", "/run/resolvconf")
_RUN_PROGRAMS = ("/run/current-system", "/run/booted-system", "/run/opengl-driver")
_CHECK, _WALL = "/run/maka-check", "/run/maka-wall"
_PASS_GATE = f'if [ "${{{GATE}-}}" ]; then unset {GATE}; echo; read -r _ || exit 125; exec </dev/null; fi\n'


class Bubblewrap:
    """A `Sandbox`. `user` says whether a user namespace is made: root may do without one where none is allowed.

    `processes_max` bounds the command's processes by the kernel's own count; 0 leaves that to others. `filter_` is the
    filter on system calls as the kernel reads it, empty for none. `wall` is a second one, inside.
    """

    def __init__(
        self,
        program: str,
        version: str,
        *,
        user: bool,
        processes_max: int = 0,
        filter_: bytes = b"",
        wall: Wall | None = None,
    ) -> None:
        self._program = program
        self._user = user
        self._processes_max = processes_max
        self._filter = filter_
        self._wall = wall
        inner = f" with Landlock ABI {wall.abi}" if wall is not None else ""
        lacks = ([] if user else ["a user namespace"]) + ([] if filter_ else ["a filter on system calls"])
        lacks += [] if wall is not None else ["Landlock"]
        self.name = f"{version} ({program}){inner}" + (f", without {' and '.join(lacks)}" if lacks else "")

    @property
    def missing(self) -> str | None:
        return None

    @property
    def closes_beside_hidden(self) -> bool:
        return False

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy, env: Mapping[str, str]) -> Launch:
        """Return how bubblewrap is started; pure. Raises NoLaunchError where there would be too many mounts."""
        policy = _bare(policy) if policy.reads_only else policy
        inputs = [os.fsencode("\0".join(self._options(policy)))]
        own = [self._program, "--args", input_word(0)]

        def given(option: str, data: bytes, *rest: str) -> None:
            own.extend((option, input_word(len(inputs)), *rest))
            inputs.append(data)

        if self._filter:
            given("--seccomp", self._filter)
        words = _check(policy) + (namespace_words(self._processes_max) if self._processes_max else "")
        # What a search may read was mounted for it alone.
        if self._wall is not None and not policy.reads_only:
            given("--ro-bind-data", self._wall.text, _WALL)
            told = map(input_word, range(len(inputs), len(inputs) + 2))
            argv = (self._wall.python, "-I", "-S", _WALL, *told, *argv)
            inputs += [self._wall.asked(policy, (*_SPARE, "/proc")), variables(env)]
        else:
            words += _PASS_GATE + _exports(env)
        given("--ro-bind-data", os.fsencode(f'{words}exec "$@"\n'), _CHECK)
        argv = ("/bin/sh", _CHECK, *argv)
        return Launch(argv=(*own, "--", *argv), inputs=tuple(inputs), is_boxed=True)

    def _options(self, policy: SandboxPolicy) -> list[str]:
        options = [*(_USER if self._user else ()), *_ISOLATED, *(() if policy.network else ("--unshare-net",))]
        for variable in _OF_SANDBOX[:3]:
            options += ["--setenv", variable, "/tmp"]
        options += ["--cap-drop", "ALL", *_root(policy), "--proc", "/proc", "--dev", "/dev"]
        for name in _PROC_LOCKED:
            options += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
        for folder in _SPARE:
            options += ["--perms", "1777", "--size", str(TMP_BYTES_MAX), "--tmpfs", folder]
        own = [self._wall.prefix] if self._wall is not None and base_of(self._wall.prefix, _SPARE) else []
        for path in (*own, *_RUN_PROGRAMS, *(_RUN_NETWORK if policy.network else ())):
            options += ["--ro-bind-try", path, path]
        if len(mounts := _mounts(policy)) > SANDBOX_MOUNTS_MAX:
            raise NoLaunchError(_too_many(len(mounts), policy))
        for _, mount in sorted(mounts, key=lambda one: one[0]):
            options += mount
        # Only now: what was granted inside of a hidden folder is mounted there first.
        for path in policy.hidden:
            options += ["--remount-ro", path]
        if policy.reads_only:
            options += ["--remount-ro", "/"]
        return [*options, "--chdir", policy.cwd]


def _root(policy: SandboxPolicy) -> list[str]:
    if not policy.reads_only:
        return ["--bind" if "/" in policy.writable else "--ro-bind", "/", "/"]
    return [word for path in PROGRAM_PLACES for word in ("--ro-bind-try", path, path)]


def _bare(policy: SandboxPolicy) -> SandboxPolicy:
    """Leave out what a root with nothing in it hides by itself."""
    if "/" in (*policy.readable, *policy.writable):
        return replace(policy, reads_only=False)  # all was named
    shown = (*policy.readable, *policy.writable, *PROGRAM_PLACES)
    return replace(
        policy,
        hidden=tuple(path for path in policy.hidden if base_of(path, shown) is not None),
        hidden_files=tuple(path for path in policy.hidden_files if base_of(path, shown) is not None),
    )


def _mounts(policy: SandboxPolicy) -> list[tuple[tuple[int, int], list[str]]]:
    """Return each mount with its place in the order: the depth of its path, then the stricter one last."""
    ways = (
        (policy.readable, ["--ro-bind", "PATH", "PATH"]),
        (policy.pinned, ["--bind", "PATH", "PATH"]),
        (policy.writable, ["--bind", "PATH", "PATH"]),
        (policy.protected, ["--ro-bind", "PATH", "PATH"]),
        (policy.hidden, ["--perms", "0500", "--tmpfs", "PATH"]),
        (policy.hidden_files, ["--ro-bind", "/dev/null", "PATH"]),
    )
    return [
        (
            (len([part for part in path.split("/") if part]), strictness),
            [path if word == "PATH" else word for word in way],
        )
        for strictness, (paths, way) in enumerate(ways)
        for path in paths
        if path != "/"  # it lies below all else: `_root`
    ]


def _too_many(count: int, policy: SandboxPolicy) -> str:
    return (
        f"No command was run: the sandbox would have to hold {count:,} paths, most of them in {policy.cwd}, and "
        f"bubblewrap can hold {SANDBOX_MOUNTS_MAX:,}. Each repository counts a few times: a person should remove some, "
        "or start Maka in a folder with fewer"
    )


def _check(policy: SandboxPolicy) -> str:
    """Return a shell's script that goes on if each mount inside of a writable folder is what was asked for.

    It starts no program, and compares where in its file system each mount begins with where its folder's does. Where
    only what was named may be read, it looks inside of readable folders, too: other commands may write to them.
    """
    bases = sorted((*policy.writable, *(policy.readable if policy.reads_only else ())), key=len)
    others = sorted(policy.mounts, key=len, reverse=True)
    known: dict[str, str] = {}
    tests: list[str] = []
    binds = (*policy.readable, *policy.pinned, *policy.protected, *policy.writable)
    for bound, paths in ((True, binds), (False, (*policy.hidden, *policy.hidden_files))):
        for path in paths:
            base = base_of(path, others) or base_of(path, bases)
            if base is None:
                continue
            is_, its = (known.setdefault(one, f"m{len(known)}") for one in (path, base))
            below = quote(_as_kernel(path[len(base.rstrip("/")) :]))
            # Where another file system begins the kernel tells no place within the outer one.
            is_told = bound and path not in policy.mounts
            right = f'[ "${is_}" = "${{{its}%/}}"{below} ]' if is_told else f'[ "${is_}" ]'
            tests.append(f"{right} || fail {quote(path)}")
    if not tests:
        return ""
    cases = [f"{quote(_as_kernel(path))}) {name}=$root ;;" for path, name in known.items()]
    return "\n".join(
        (
            *(f"{name}=" for name in known.values()),
            'fail() { echo "the sandbox could not be set up: path_changed: $1" >&2; exit 126; }',
            "while read -r _ _ _ root target _; do case $target in",
            *cases,
            "esac; done </proc/self/mountinfo",
            *tests,
            "",
        )
    )


def _exports(env: Mapping[str, str]) -> str:
    """Return a shell's script that sets a command's variables; those with a name that no shell knows are left out."""
    names = (name for name in env if _NAME.fullmatch(name) and name not in (*_OF_SHELLS, *_OF_SANDBOX))
    return "".join(f"export {name}={quote(env[name])}\n" for name in names)


def _as_kernel(path: str) -> str:
    """Escape what /proc/self/mountinfo escapes."""
    return "".join(f"\\{ord(sign):03o}" if sign in " \t\n\\" else sign for sign in path)


def find_bubblewrap(
    places: tuple[str, ...] = PLACES,
    *,
    processes_max: int = 0,
    unix_sockets: bool = False,
    wall: Callable[[], Wall | None] = find_wall,
) -> Bubblewrap | str:
    """Return a bubblewrap that works here, or why there is none. Starts a few short processes.

    `unix_sockets` lets commands use them, among themselves and with whoever else's they find. `wall` finds a second
    wall; one that doesn't work is left out.
    """
    # The kernel holds nobody to a number of processes who is root outside of the namespace.
    counted = 0 if os.geteuid() == 0 else processes_max
    program = next((path for path in places if os.access(path, os.X_OK)), None)
    if program is None:
        return "bubblewrap is not installed"
    said = run_probe(Launch(argv=(program, "--version")))
    if said.code != 0:
        return f"{program} does not start: {said.text}"
    tries: list[Outcome] = []
    filter_ = call_filter(os.uname().machine, network=True, alone=True, unix=unix_sockets)
    users = (True, False) if os.geteuid() == 0 else (True,)
    # A machine that was busy for a moment isn't one without the second wall.
    for user, its in product(users, (*[wall()] * 2, None)):
        found = Bubblewrap(
            program, said.text, user=user, processes_max=counted if user else 0, filter_=filter_, wall=its
        )
        tries.append(run_probe(found.wrap(("/bin/sh", "-c", ":"), SandboxPolicy(cwd="/"), {})))
        if tries[-1].code == 0:
            return found
    return f"{program} does not work here: {tries[0].text}"
