"""What is really there: repositories, protected files and secrets, looked up anew before each sandboxed command.

Law: the walk is bounded (SURVEY_FOLDERS_MAX folders, SURVEY_DEPTH_MAX levels); what lies deeper keeps no protection
from commands. File tools judge by name at any depth.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence

from maka.contracts.boundary import Boundary, Profile
from maka.contracts.limits import SURVEY_DEPTH_MAX, SURVEY_FOLDERS_MAX
from maka.tools.policy import PROTECTED_NAMES, Found, Ground, entries, is_under
from maka.tools.repositories import git_names, is_bare, listed, named_by_config, repository_of, shared_repository

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

_PASSED_OVER = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__", "target", ".tox", ".mypy_cache"})
_SOCKET = re.compile(r"\S+: \S+ \S+ \S+ \S+ \S+ +\d+ (/.*)\n")


def ground_of(home: str, own: Sequence[str], search_path: str = "", code: Sequence[str] = ()) -> Ground:
    """Return what no session touches unasked: Maka's own files, and where this person's secrets usually are.

    `search_path` is the tools' PATH: its folders stay visible where a sandbox would hide them.
    """
    real_home = os.path.realpath(home)
    machine = [path for path in SECRETS_OF_THE_MACHINE if not is_under(real_home, path)]
    secrets = [os.path.join(real_home, name) for name in SECRETS_AT_HOME] + machine
    return Ground(
        own=tuple(dict.fromkeys(os.path.realpath(path) for path in own)),
        secrets=tuple(dict.fromkeys(os.path.realpath(path) for path in secrets)),
        programs=tuple(dict.fromkeys(_programs(search_path))),
        code=tuple(dict.fromkeys(os.path.realpath(path) for path in code)),
    )


def _programs(search_path: str) -> Iterator[str]:
    for folder in search_path.split(os.pathsep):
        real = os.path.realpath(folder)
        # A folder `bin` stands beside the libraries of its programs.
        root = os.path.dirname(real) if os.path.basename(real) == "bin" else real
        if os.path.isabs(folder) and os.path.isdir(root) and any(root.startswith(one + "/") for one in SPARE):
            yield root


def survey(boundary: Boundary, ground: Ground) -> Found:
    """Look at the workspace and at what was granted. Reads names and a few small files."""
    granted = entries(boundary)
    roots = _roots(boundary)
    git = shared_repository(boundary.workspace) if boundary.profile is Profile.ASK else ()
    protected: list[str] = [path for path in ground.code if path not in roots]
    pinned: list[str] = []
    for repository in git:
        # Other worktrees of a repository are other people's; of the last, this one, its own files stay writable.
        protected += [*git_names(repository, worktrees=False), os.path.join(repository, "worktrees")]
    for root in roots:
        for path in _named(root):
            its = _repository_at(path)
            if path != its:
                protected.append(path)
            if its is not None and is_under(its, root):
                pinned += [its] if its != root else []
                protected += git_names(its) + named_by_config(its, os.path.dirname(path))
    writable = (*roots, *git)
    there = [real for path in protected if (real := _inside(path, writable)) is not None]
    hidden = [path for path in (*ground.own, *ground.secrets) if os.path.lexists(path)]
    unseen = [one for one in SPARE if not any(is_under(program, one) for program in ground.programs)]
    hidden += [path for path in _sockets() if not any(is_under(path, one) for one in (*hidden, *writable, *unseen))]
    # What holds something hidden must stay where it is, or the next command finds that under another name.
    pinned += [folder for path in hidden for folder in _between(path, writable)]
    return Found(
        protected=tuple(dict.fromkeys(there)),
        pinned=tuple(dict.fromkeys(pinned)),
        git=git,
        hidden=tuple(path for path in hidden if os.path.isdir(path)),
        hidden_files=tuple(path for path in hidden if not os.path.isdir(path)),
        # What turned into a link isn't what was granted.
        missing=tuple(
            entry.path for entry in granted if not os.path.lexists(entry.path) or _real(entry.path) != entry.path
        ),
    )


def _roots(boundary: Boundary) -> list[str]:
    """Return the folders that a session may write to."""
    granted = [entry.path for entry in entries(boundary) if entry.access == "write" and os.path.isdir(entry.path)]
    return [*([boundary.workspace] if boundary.profile is Profile.ASK else []), *granted]


def _between(path: str, roots: Sequence[str]) -> Iterator[str]:
    """Yield the folders above a path that lie inside of one of some roots."""
    folder = os.path.dirname(path)
    while folder not in roots and any(is_under(folder, root) for root in roots):
        yield folder
        folder = os.path.dirname(folder)


def repositories(boundary: Boundary) -> dict[str, str | None]:
    """Return each `.git` and bare repository in what a session may write to, with the folder that it stands for."""
    found = (path for root in _roots(boundary) for path in _named(root))
    return {path: _repository_at(path) for path in found if os.path.basename(path) not in PROTECTED_NAMES}


def _repository_at(path: str) -> str | None:
    try:
        return None if os.path.basename(path) in PROTECTED_NAMES else repository_of(path)
    except OSError:  # it changes at this moment
        return None


def led_to(boundary: Boundary, ground: Ground) -> tuple[str, ...]:
    """Return where protected names lead that are links, or settings of a repository, also where nothing is yet."""
    if boundary.profile is not Profile.ASK:
        return ()
    links = (path for path in _named(boundary.workspace) if os.path.islink(path))
    found = (*survey(boundary, ground).protected, *map(_real, (*links, *_decisive(boundary))))
    return tuple(path for path in dict.fromkeys(found) if path and path != boundary.workspace)


def _decisive(boundary: Boundary) -> list[str]:
    """Return every name by which a repository that a session may write to decides what git runs."""
    paths: list[str] = []
    for path, repository in repositories(boundary).items():
        if repository is not None and any(is_under(repository, root) for root in _roots(boundary)):
            paths += git_names(repository) + named_by_config(repository, os.path.dirname(path))
    shared = shared_repository(boundary.workspace) if boundary.profile is Profile.ASK else ()
    for repository in shared:
        paths += git_names(repository, worktrees=False)
    return [path for path in paths if any(is_under(path, root) for root in (*_roots(boundary), *shared))]


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except OSError:  # it changes at this moment
        return ""


def watched(boundary: Boundary, ground: Ground) -> tuple[str, ...]:
    """Return what no mount can hold: of the protected names at the workspace's root, those of its repositories, and
    Maka's own files what is missing, or a link."""
    root = boundary.workspace
    paths = [os.path.join(root, name) for name in (*sorted(PROTECTED_NAMES), ".git")] + _decisive(boundary)
    open_ = [path for path in paths if os.path.islink(path) or not os.path.lexists(path)]
    # What isn't there yet, and a protected link leads to: the link needn't change.
    ends = [end for path in open_ if os.path.islink(path) and (end := _real(path)) and not os.path.lexists(end)]
    roots = _roots(boundary)
    own = [path for path in ground.own if not os.path.lexists(path) and any(is_under(path, one) for one in roots)]
    return tuple(dict.fromkeys((*open_, *(end for end in ends if is_under(end, root)), *own)))


def _sockets() -> list[str]:
    """Return the sockets of the programs that listen now: one can talk to them on a read-only file system, too."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            named = {match[1] for line in file if (match := _SOCKET.match(line)) is not None}
    except OSError:
        return []
    return sorted(path for path in named if _is_socket(path))


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
    return real if os.path.lexists(real) and any(is_under(real, root) for root in writable) else None


def _named(root: str) -> Iterator[str]:
    """Yield what has a protected name, and repositories' `.git`, the upper levels first; of the root's device alone."""
    device = _device(root)
    level = [root]
    seen = 0
    for _ in range(SURVEY_DEPTH_MAX):
        below: list[str] = []
        for folder in level:
            seen += 1
            if seen > SURVEY_FOLDERS_MAX:
                return
            names = listed(folder)
            if is_bare([name for name, _ in names]):
                yield folder
            for name, is_folder in names:
                path = os.path.join(folder, name)
                if name in PROTECTED_NAMES or name == ".git":
                    if _device(path) == device:
                        yield path
                elif is_folder and name not in _PASSED_OVER:
                    below.append(path)
        level = below


def _device(path: str) -> int | None:
    try:
        return os.lstat(path).st_dev
    except OSError:
        return None
