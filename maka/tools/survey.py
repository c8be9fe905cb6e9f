"""What is really there: repositories, protected files and secrets, looked up anew before each sandboxed command.

Laws:
- The walk is bounded (SURVEY_FOLDERS_MAX folders of each root, SURVEY_DEPTH_MAX levels); what lies deeper keeps no
  protection from commands. What wasn't looked at before is nobody's planting. File tools judge by name at any depth.
- A folder of ours that is closed to us may hold anything, and a command can open it: it is protected, or hidden, as a
  whole. Where it may hold what decides what git runs there is no survey, and so no command: PermissionError.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from functools import cached_property

from msgspec import Struct

from maka.contracts.boundary import Boundary, Profile
from maka.contracts.limits import SURVEY_AFTER_FOLDERS_MAX, SURVEY_DEPTH_MAX, SURVEY_FOLDERS_MAX
from maka.tools.guard import is_closed, seen_of, there
from maka.tools.policy import PROTECTED_NAMES, Found, Ground, entries, is_under
from maka.tools.repositories import (
    git_names,
    is_bare,
    listed,
    modules_of,
    named_by_config,
    repository_of,
    shared_repository,
)

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


class Identity(Struct, frozen=True):
    """Which thing of a file system stands under a name."""

    device: int
    inode: int
    is_link: bool


class Walk:
    """What lies in the folders that a session may write to: walked once, and asked as often as needed."""

    def __init__(self, boundary: Boundary, folders_max: int | None = None) -> None:
        self.boundary = boundary
        self._folders_max = SURVEY_FOLDERS_MAX if folders_max is None else folders_max
        self._folders: set[str] = set()
        self._is_whole = True
        asks = boundary.profile is Profile.ASK
        granted = [entry.path for entry in entries(boundary) if entry.access == "write" and os.path.isdir(entry.path)]
        self.roots: tuple[str, ...] = (*([boundary.workspace] if asks else []), *granted)
        self.git = shared_repository(boundary.workspace) if asks else ()
        self.closed: list[str] = []
        """Folders of ours that can't be looked into."""
        self.places = [(root, path, _repository_at(path)) for root in self.roots for path in self._named(root)]
        named = ((path, _identity(path)) for _, path, _ in self.places if os.path.basename(path) in PROTECTED_NAMES)
        self._there = {path: identity for path, identity in named if identity is not None}
        self._above = {path: _identity(os.path.dirname(path)) for path in self._there}
        self.modules = self._modules()

    @property
    def writable(self) -> tuple[str, ...]:
        return (*self.roots, *self.git)

    @property
    def repositories(self) -> dict[str, str | None]:
        """Each `.git` and bare repository, with the folder that it stands for."""
        return {path: its for _, path, its in self.places if os.path.basename(path) not in PROTECTED_NAMES}

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """By which each repository that can be written decides what git runs."""
        return {
            path: git_names(its) + named_by_config(its, os.path.dirname(path))
            for path, its in self.repositories.items()
            if its is not None and any(is_under(its, root) for root in self.roots)
        }

    @cached_property
    def shared_names(self) -> list[str]:
        """The same of the repository outside. Other worktrees of it are other people's."""
        return [name for repository in self.git for name in git_names(repository, worktrees=False)]

    def after(self) -> "Walk":
        """Walk again: further, since what was made meanwhile is to be seen behind all else that was made."""
        return Walk(self.boundary, SURVEY_AFTER_FOLDERS_MAX)

    def planted(self, now: "Walk") -> list[str]:
        """Return the protected names that have come meanwhile.

        What moved with its folder hasn't, nor has what stands in its old folder: there a sandbox holds the name, and
        only a person can have put another file under it. Links are watched by their names.
        """
        known = {identity for identity in self._there.values() if not identity.is_link}
        return [
            path
            for path, identity in now._there.items()
            if identity not in known
            and self._saw(os.path.dirname(path))
            and (path not in self._there or self._above[path] != now._above[path])
        ]

    def new_repositories(self, now: "Walk") -> dict[str, str | None]:
        """Return the repositories that have come meanwhile, as `repositories` does."""
        before = self.repositories
        new = {
            path: its
            for path, its in now.repositories.items()
            if (path not in before or before[path] != its)
            and self._saw(os.path.dirname(path) if os.path.basename(path) == ".git" else path)
        }
        seen = {*self.git, *before.values(), *new.values()} - {None}
        modules = set(now.modules) - set(self.modules)
        return {**new, **{path: path for path in modules if any(path.startswith(f"{its}/") for its in seen)}}

    def _saw(self, folder: str) -> bool:
        looked = self._is_whole or folder in self._folders
        return looked and not any(is_under(folder, closed) for closed in self.closed)

    @property
    def decisive(self) -> list[str]:
        """All these names, as far as they can be written."""
        paths = [*(name for names in self.names.values() for name in names), *self.shared_names]
        return [path for path in paths if any(is_under(path, root) for root in self.writable)]

    def _modules(self) -> list[str]:
        """Return the folders of the submodules that can be written; what is closed there comes into `closed`."""
        found: list[str] = []
        for repository in dict.fromkeys((*self.git, *filter(None, self.repositories.values()))):
            try:
                found += modules_of(repository) if any(is_under(repository, one) for one in self.writable) else []
            except PermissionError as closed:
                self.closed.append(str(closed.filename))
        return found

    def _named(self, root: str) -> Iterator[str]:
        """Yield what has a protected name, and repositories' `.git`, the upper levels first; of its device alone."""
        device = _device(root)
        level, count = [root], 0
        for _ in range(SURVEY_DEPTH_MAX):
            below: list[str] = []
            for folder in level:
                count += 1
                if count > self._folders_max:
                    self._is_whole = False
                    return
                if is_closed(folder):
                    self.closed.append(folder)
                    continue
                self._folders.add(folder)
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
        self._is_whole = self._is_whole and not level


def survey(seen: Walk, ground: Ground) -> Found:
    """Say what was seen, and what else is there. Reads names and a few small files. Raises PermissionError."""
    granted, writable = entries(seen.boundary), seen.writable
    protected, pinned = _protected(seen, ground), _pinned(seen)
    hidden = [one for path in (*ground.own, *ground.secrets) if (one := seen_of(path)) is not None]
    unseen = [one for one in SPARE if not any(is_under(program, one) for program in ground.programs)]
    hidden += [path for path in _sockets() if not any(is_under(path, one) for one in (*hidden, *writable, *unseen))]
    # What holds something hidden must stay where it is, or the next command finds that under another name.
    pinned += [folder for path in hidden for folder in _between(path, writable)]
    return Found(
        protected=tuple(path for path in dict.fromkeys(protected) if path not in hidden),
        pinned=tuple(dict.fromkeys(pinned)),
        git=seen.git,
        hidden=tuple(path for path in hidden if os.path.isdir(path)),
        hidden_files=tuple(path for path in hidden if not os.path.isdir(path)),
        # What turned into a link isn't what was granted.
        missing=tuple(
            entry.path for entry in granted if not os.path.lexists(entry.path) or _real(entry.path) != entry.path
        ),
    )


def _protected(seen: Walk, ground: Ground) -> list[str]:
    """Return the real paths of what is protected, is there, and lies in what can be written."""
    paths: list[str] = [*seen.closed, *(path for path in ground.code if path not in seen.roots)]
    # Of the last worktree, this one, its own files stay writable.
    paths += [*seen.shared_names, *(os.path.join(repository, "worktrees") for repository in seen.git)]
    for root, path, its in seen.places:
        if path != its:
            paths.append(path)
        if its is not None and is_under(its, root):
            paths += seen.names[path]
    return [real for path in paths if (real := _inside(path, seen.writable)) is not None]


def _pinned(seen: Walk) -> list[str]:
    """Return the repositories' folders, which hold something protected and must stay where they are."""
    return [its for root, _, its in seen.places if its is not None and its != root and is_under(its, root)]


def _between(path: str, roots: Sequence[str]) -> Iterator[str]:
    """Yield the folders above a path that lie inside of one of some roots."""
    folder = os.path.dirname(path)
    while folder not in roots and any(is_under(folder, root) for root in roots):
        yield folder
        folder = os.path.dirname(folder)


def _repository_at(path: str) -> str | None:
    try:
        return None if os.path.basename(path) in PROTECTED_NAMES else repository_of(path)
    except OSError:  # it changes at this moment
        return None


def led_to(seen: Walk, ground: Ground) -> tuple[str, ...]:
    """Return where protected names lead that are links, or settings of a repository, also where nothing is yet."""
    links = (path for _, path, _ in seen.places if os.path.islink(path))
    found = (*_protected(seen, ground), *map(_real, (*links, *seen.decisive)))
    return tuple(path for path in dict.fromkeys(found) if path and path not in seen.roots)


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except OSError:  # it changes at this moment
        return ""


def watched(seen: Walk, ground: Ground) -> tuple[str, ...]:
    """Return what no mount can hold: of the protected names at the roots, those of repositories, and Maka's own files
    what is missing, or a link; further below what is a link. What comes there is `planted`."""
    paths = [os.path.join(root, name) for root in seen.roots for name in (*sorted(PROTECTED_NAMES), ".git")]
    open_ = [path for path in paths + seen.decisive if os.path.islink(path) or not there(path)]
    open_ += [path for _, path, _ in seen.places if os.path.islink(path)]
    # What isn't there yet, and a protected link leads to: the link needn't change.
    ends = [end for path in open_ if os.path.islink(path) and (end := _real(path)) and not os.path.lexists(end)]
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
    return real if any(is_under(real, root) for root in writable) and there(real) else None


def _device(path: str) -> int | None:
    found = _identity(path)
    return None if found is None else found.device


def _identity(path: str) -> Identity | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return Identity(info.st_dev, info.st_ino, stat.S_ISLNK(info.st_mode))
