"""What is really there: repositories, protected files and secrets, looked up anew before each sandboxed command.

Laws:
- What a walk doesn't reach keeps no protection from commands. File tools judge by name at any depth.
- What is too long to be mounted is protected, or hidden, with the folder above it that isn't.
- A folder of ours that is closed to us is protected, or hidden, as a whole. Where it may hold what decides what git
  runs there is no survey, and so no command: PermissionError.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from maka.contracts.boundary import FileEntry
from maka.tools.closed import is_closed, seen_of, there
from maka.tools.policy import PROTECTED_NAMES, Found, Ground, entries, is_under
from maka.tools.repositories import kinds_in, real_of
from maka.tools.walk import Walk

SECRETS_AT_HOME = (
    *(".ssh", ".aws", ".azure", ".gnupg", ".kube", ".oci", ".password-store", ".vault-token", ".terraform.d"),
    *(".netrc", ".pgpass", ".my.cnf", ".boto", ".s3cfg", ".npmrc", ".pypirc", ".terraformrc", ".git-credentials"),
    *(".docker/config.json", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml"),
    *(".gradle/gradle.properties", ".composer/auth.json", ".cache/huggingface/token", ".huggingface"),
    *(".config/gh", ".config/glab-cli", ".config/hub", ".config/git/credentials", ".config/gcloud", ".config/op"),
    *(".config/rclone", ".config/sops", ".config/age", ".config/doctl", ".config/containers/auth.json"),
    *(".config/composer/auth.json", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware"),
    *(".mozilla", ".thunderbird", ".local/share/keyrings", ".local/share/kwalletd", ".electrum", ".bitcoin"),
    *(".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".mysql_history"),
    *(".local/share/fish/fish_history", ".local/share/atuin", ".Xauthority", ".ICEauthority"),
)
SECRETS_OF_THE_MACHINE = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d"),
    *("/etc/ssl/private", "/etc/ssh", "/etc/NetworkManager/system-connections", "/etc/wireguard"),
)
SPARE = ("/tmp", "/var/tmp", "/run")
"""Folders of which a sandbox may have empty ones of its own."""

MOUNTED_BYTES_MAX = 4_096 - 64
"""Of a path: a sandbox puts names of its own before it, and the kernel takes no longer one."""

_LINKS_MAX = 256
_SOCKET = re.compile(r"\S+: \S+ \S+ \S+ \S+ \S+ +\d+ (/.*)\n")


def ground_of(home: str, own: Sequence[str], search_path: str = "", code: Sequence[str] = ()) -> Ground:
    """Return what no session touches unasked: Maka's own files, and where this person's secrets usually are.

    `search_path` is the tools' PATH: its folders stay visible where a sandbox would hide them, and are never proposed.
    """
    real_home = os.path.realpath(home)
    machine = [path for path in SECRETS_OF_THE_MACHINE if not is_under(real_home, path)]
    secrets = [os.path.join(real_home, name) for name in SECRETS_AT_HOME] + machine
    named = Ground(
        programs=tuple(dict.fromkeys(_programs(search_path))),
        code=tuple(dict.fromkeys(os.path.realpath(path) for path in code)),
        searched=tuple(dict.fromkeys(map(os.path.realpath, filter(os.path.isabs, search_path.split(os.pathsep))))),
        own_names=tuple(os.path.abspath(path) for path in own),
        secret_names=tuple(secrets),
    )
    return as_now(named)


def as_now(ground: Ground) -> Ground:
    """Return a ground with where its names lead now; where they led when it was made stays in it."""
    own = tuple(dict.fromkeys((*ground.own, *_ends(ground.own_names))))
    secrets = tuple(dict.fromkeys((*ground.secrets, *_ends(ground.secret_names))))
    return replace(ground, own=own, secrets=secrets)


def _ends(names: Sequence[str]) -> Iterator[str]:
    """Yield where names lead, but to devices: a history that leads to /dev/null holds nothing."""
    for name in names:
        end = real_of(name)
        try:
            kind = os.lstat(end).st_mode
        except OSError:
            kind = stat.S_IFREG
        if end and not (stat.S_ISCHR(kind) or stat.S_ISBLK(kind)):
            yield end


def _programs(search_path: str) -> Iterator[str]:
    for folder in search_path.split(os.pathsep):
        real = os.path.realpath(folder)
        # A folder `bin` stands beside the libraries of its programs.
        root = os.path.dirname(real) if os.path.basename(real) == "bin" else real
        if os.path.isabs(folder) and os.path.isdir(root) and any(root.startswith(one + "/") for one in SPARE):
            yield root


def survey(seen: Walk, ground: Ground, protected: Sequence[str]) -> Found:
    """Say what was seen, its `protected_paths`, and what else is there. Reads names. Raises PermissionError."""
    granted, writable = entries(seen.boundary), seen.writable
    pinned = _pinned(seen)
    protected = [*protected, *(mounted for path in pinned if (mounted := mounted_at(path)) != path)]
    secrets = {path: seen_of(path) if real_of(path) == path else None for path in (*ground.own, *ground.secrets)}
    hidden = [mounted_at(seen_at) for seen_at in secrets.values() if seen_at is not None]
    absent = [path for path, seen_at in secrets.items() if seen_at is None]
    # One that leads elsewhere may be replaced by what it stands for, at any moment.
    absent += [name for name in (*ground.own_names, *ground.secret_names) if name not in secrets]
    unseen = [one for one in SPARE if not any(is_under(program, one) for program in ground.programs)]
    hidden += [path for path in _sockets() if not any(is_under(path, one) for one in (*hidden, *writable, *unseen))]
    # What holds something hidden must stay where it is, or the next command finds that under another name.
    pinned += [folder for path in hidden for folder in _between(path, writable)]
    return Found(
        protected=tuple(path for path in dict.fromkeys(protected) if path not in hidden),
        pinned=tuple(path for path in dict.fromkeys(pinned) if mounted_at(path) == path),
        git=seen.git,
        mounts=tuple(path for path in _mounts() if any(is_under(path, root) and path != root for root in writable)),
        hidden=tuple(path for path in hidden if os.path.isdir(path)),
        hidden_files=tuple(path for path in hidden if not os.path.isdir(path)),
        absent=tuple(path for path in absent if not any(is_under(path, root) for root in writable)),
        missing=tuple(entry for entry in granted if not _is_as_granted(entry)),
    )


def mounted_at(path: str) -> str:
    """Return a path, or the innermost folder above it whose own path isn't too long to be mounted."""
    while len(os.fsencode(path)) > MOUNTED_BYTES_MAX:
        path = os.path.dirname(path)
    return path


def _is_as_granted(entry: FileEntry) -> bool:
    """Say whether a granted path is there, short enough, no link by now, and, if it was granted alone, no folder."""
    if not os.path.lexists(entry.path) or real_of(entry.path) != entry.path or mounted_at(entry.path) != entry.path:
        return False
    return entry.scope == "subtree" or not os.path.isdir(entry.path)


def protected_paths(seen: Walk, ground: Ground) -> list[str]:
    """Return the real paths of what is protected, is there, and lies in what can be written.

    Reads names and a few small files; ask once for each walk. Raises PermissionError.
    """
    paths: list[str] = [*seen.closed, *(path for path in ground.code if path not in seen.roots)]
    # Of the last worktree, this one, its own files stay writable.
    paths += [*seen.shared_names, *(os.path.join(repository, "worktrees") for repository in seen.git)]
    paths += [*(path for _, path, its in seen.places if path != its), *seen.names]
    found = [real for path in paths if (real := _inside(path, seen.writable)) is not None]
    # A hook is often a link to a script of the workspace.
    links = (link for path in found if path not in ground.code for link in _links_in(path))
    return found + [real for path in links if (real := _inside(path, seen.writable)) is not None]


def _links_in(path: str) -> list[str]:
    if not os.path.isdir(path) or is_closed(path):
        return []
    return [os.path.join(path, name) for name, kind in kinds_in(path)[:_LINKS_MAX] if kind == "link"]


def real_all(paths: Iterable[str]) -> list[str]:
    """Return where paths lead, those that change at this moment left out."""
    return [real for real in map(real_of, paths) if real]


def _pinned(seen: Walk) -> list[str]:
    """Return the repositories' folders, which hold something protected and must stay where they are."""
    return [its for root, _, its in seen.places if its is not None and its != root and is_under(its, root)]


def _between(path: str, roots: Sequence[str]) -> Iterator[str]:
    """Yield the folders above a path that lie inside of one of some roots."""
    folder = os.path.dirname(path)
    while folder not in roots and any(is_under(folder, root) for root in roots):
        yield folder
        folder = os.path.dirname(folder)


def led_to(seen: Walk, protected: Sequence[str]) -> frozenset[str]:
    """Return where protected names lead that are links, or settings of a repository, also where nothing is yet."""
    links = (path for _, path, _ in seen.places if os.path.islink(path))
    found = (*protected, *map(real_of, (*links, *seen.decisive)))
    return frozenset(path for path in found if path and path not in seen.roots)


def watched(seen: Walk, ground: Ground) -> tuple[str, ...]:
    """Return what no mount can hold: of the protected names at the roots, those of repositories, and Maka's own files
    what is missing, or a link; further below what is a link. What comes there is `planted`."""
    paths = [os.path.join(root, name) for root in seen.roots for name in (*sorted(PROTECTED_NAMES), ".git")]
    open_ = [path for path in paths + seen.decisive if os.path.islink(path) or not there(path)]
    open_ += [path for _, path, _ in seen.places if os.path.islink(path)]
    # What isn't there yet, and a protected link leads to: the link needn't change.
    ends = [end for path in open_ if os.path.islink(path) and (end := real_of(path)) and not os.path.lexists(end)]
    own = [path for path in ground.own if not os.path.lexists(path)]
    inside = [path for path in (*ends, *own) if any(is_under(path, root) for root in seen.roots)]
    return tuple(dict.fromkeys((*open_, *inside)))


def _sockets() -> list[str]:
    """Return the sockets of the programs that listen now: one can talk to them on a read-only file system, too."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            named = {match[1] for line in file if (match := _SOCKET.match(line)) is not None}
    except OSError:
        return []
    return sorted(path for path in named if _is_socket(path))


def _mounts() -> list[str]:
    """Return where file systems begin, as far as the kernel tells."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            targets = [line.split(" ")[4] for line in file]
    except OSError:
        return []
    return [re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), target) for target in dict.fromkeys(targets)]


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode) and os.path.realpath(path) == path
    except OSError:
        return False


def _inside(path: str, writable: Sequence[str]) -> str | None:
    try:
        real = os.path.realpath(path)
    except OSError:  # a link that was there is gone before it was read
        return None
    if not any(is_under(real, root) for root in writable):
        return None
    # Of what is too long even to be looked at nobody can say that it isn't there.
    mounted = mounted_at(real)
    return mounted if there(real) or (mounted != real and there(mounted)) else None
