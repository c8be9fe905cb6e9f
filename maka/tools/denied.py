"""What a command's sandbox probably denied: its words, looked at beside what is really there, outside of it."""

import os
import re
from collections.abc import Sequence

from maka.contracts.boundary import Boundary, Expansion
from maka.contracts.sandbox_ports import SandboxPolicy
from maka.contracts.tool_ports import BoundaryNeed
from maka.tools.broad import is_broad
from maka.tools.denial import ANY_NAME, LIKELY, NO_UNIX_SOCKETS, OWN_LOOPBACK, Kind, likely
from maka.tools.denial_words import denials, lacks_network, lacks_unix_socket
from maka.tools.policy import GIT_PROTECTED, PROTECTED_NAMES, Access, Ground, is_under, judge, protected_in
from maka.tools.survey import SPARE

_BASES_MAX = 6
_ENTERED = re.compile(r"""(?:(?:^|[\s;&|(])(?:cd|pushd)|\s-C)\s+(?:--\s+)?("[^"\n]+"|'[^'\n]+'|[^\s;&|()<>]+)""")
_JOINED = re.compile(r"2>\s*&\s*1|\|&|&>")
"""Its errors stand in what it prints for others."""

_NOT_RUNNABLE = 126


class Denied:
    """One command, seen from outside. `policy` is what its sandbox was told; nothing here is asked before it ended."""

    def __init__(
        self, boundary: Boundary, ground: Ground, policy: SandboxPolicy, command: str, *, closes_beside_hidden: bool
    ) -> None:
        self._boundary = boundary
        self._ground = ground
        self._policy = policy
        self._protected = frozenset(policy.protected)
        self._command = command
        self._closes_beside_hidden = closes_beside_hidden
        self._is_run = False

    def need(self, text: str, exit_code: int | None = None) -> BoundaryNeed | None:
        """Return what a failed command has probably lacked, None where its output doesn't say."""
        self._is_run = exit_code == _NOT_RUNNABLE
        if (found := likely(denials(text, command=self._command), self._bases(), self)) is not None:
            return found
        if lacks_unix_socket(text):
            return BoundaryNeed(expansion=None, reason=NO_UNIX_SOCKETS)
        return None if self._policy.network else _network(text)

    def need_all_the_same(self, text: str, errors: str) -> BoundaryNeed | None:
        """Return what a part of a command that ended well has probably lacked.

        Text that it merely printed isn't its own: of that only `errors` are read, unless it joins the two.
        """
        own = text if _JOINED.search(self._command) else errors
        if (found := likely(denials(own, strict=True, command=self._command), self._bases(), self)) is not None:
            return found
        if self._policy.network or not lacks_network(own, strict=True):
            return None
        return BoundaryNeed(expansion=Expansion(network=True), reason=LIKELY)

    def _bases(self) -> list[str]:
        """Return where relative names may begin: in what the command enters, last of all in its own folder."""
        base, found = self._policy.cwd, [self._policy.cwd]
        for word in _ENTERED.findall(self._command):
            base = os.path.normpath(os.path.join(base, os.path.expanduser(word.strip("\"'"))))
            if base not in found and os.path.isdir(base):
                found.append(base)
        return found[-_BASES_MAX:][::-1] if len(found) > _BASES_MAX else found[::-1]

    # -- Sight ----------------------------------------------------------------------------------------------------

    def kind(self, path: str) -> Kind:
        if os.path.isdir(path):
            return "folder"
        return "other" if os.path.lexists(path) else "missing"

    def real(self, path: str, *, last: bool) -> str:
        try:
            if last:
                return os.path.realpath(path)
            return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        except (OSError, ValueError):  # it changes at this moment, or is none
            return ""

    def lacks(self, path: str, access: Access) -> BoundaryNeed | None:
        need = judge(self._boundary, path, access, self._ground, self._protected)
        if need is None and os.path.isdir(path):  # what was granted as one file, and is a folder by now, isn't opened
            inside = os.path.join(path, ANY_NAME)
            need = judge(self._boundary, inside, access, self._ground, self._protected)
        return need

    def is_hidden(self, path: str, *, is_gone: bool) -> bool:
        places = (*self._ground.own, *self._ground.secrets)
        # Of these a sandbox may have empty ones of its own.
        spare = tuple(one for one in SPARE if not any(is_under(path, shown) for shown in self._ground.programs))
        return any(is_under(path, one) for one in (*places, *(spare if is_gone else ())))

    def is_named(self, path: str) -> bool:
        name = re.escape(os.path.basename(path))
        return re.search(rf"(?<![\w.-]){name}(?![\w-])", self._command) is not None

    def is_broad(self, folder: str) -> bool:
        return is_broad(folder, self._boundary.workspace, self._ground)

    def could(self, path: str, access: Access) -> bool:
        if self._is_run and access == "write" and os.path.isfile(path):
            return os.access(path, os.X_OK)  # else that alone is why it didn't run
        try:
            is_ours = os.stat(path).st_uid == os.geteuid()
        except OSError:
            return False
        return is_ours or os.access(path, os.W_OK if access == "write" else os.R_OK)

    def would_close(self, folder: str, *, is_mountless: bool) -> bool:
        if not self._closes_beside_hidden:
            return False
        hidden = (*self._policy.hidden, *self._policy.hidden_files)
        names = (".git", *PROTECTED_NAMES, *GIT_PROTECTED) if is_mountless else ()
        # Who has granted a protected folder has granted what is in it.
        protected = [path for path in (os.path.join(folder, name) for name in names) if _holds_protected(path)]
        is_open = is_mountless and protected_in(os.path.join(folder, ANY_NAME)) is not None
        return any(path != folder and is_under(path, folder) for path in hidden) or bool(protected and not is_open)

    def is_pinned(self, path: str) -> bool:
        return path == self._boundary.workspace or path in self._policy.pinned

    def held(self, folder: str) -> Sequence[str]:
        if not self._closes_beside_hidden:
            return ()
        policy = self._policy
        names = (*policy.protected, *policy.hidden, *policy.hidden_files, *policy.absent)
        return [path for path in names if path != folder and is_under(path, folder)]

    def mounts(self, folder: str) -> Sequence[str]:
        here = [path for path in self._policy.protected if os.path.dirname(path) == folder and os.path.isfile(path)]
        return [path for path in here if os.path.basename(path) in self._command]

    def base(self, path: str) -> str | None:
        mounts = (*self._policy.writable, *self._policy.pinned)
        return max((one for one in mounts if one != path and is_under(path, one)), key=len, default=None)


def _holds_protected(path: str) -> bool:
    return os.path.lexists(path) and (os.path.basename(path) == ".git" or protected_in(path) == path)


def _network(text: str) -> BoundaryNeed | None:
    if lacks_network(text, strict=True):
        return BoundaryNeed(expansion=Expansion(network=True), reason=LIKELY)
    if lacks_network(text):
        return BoundaryNeed(expansion=Expansion(network=True), reason=OWN_LOOPBACK)
    return None
