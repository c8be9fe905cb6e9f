"""Folders that hold too much to be opened for what an output says: they can be asked for, and nobody proposes them.

Laws:
- Broad is what is a whole machine's, or a whole person's, and every folder right below that; what others obey, or what
  is started by itself; and what holds such a folder.
- The workspace, which a person chose, isn't broad, unless their home lies in it.
"""

import os
from collections.abc import Iterable

from maka.contracts.sandbox_ports import PROGRAM_PLACES
from maka.tools.policy import Ground, is_under

_ROOTS = ("/", "/home", "/var", "/opt", "/srv", "/mnt", "/media", "/run/media")
"""These, and the folders right below them."""

_DISKS = ("/mnt", "/media", "/run/media")
"""A disk is mounted right below them, or below a folder of its user: what lies right in it is as broad as in `/`."""

_WHOLE = ("/etc", "/usr", "/boot", "/var/lib", "/var/spool", "/run/systemd", *PROGRAM_PLACES)
"""All that is below these is the machine's: programs, their settings, and what it starts by itself."""

_OBEYED_AT_HOME = (
    *(".config/autostart", ".config/autostart-scripts", ".config/systemd", ".config/environment.d"),
    *(".config/plasma-workspace", ".config/fish", ".config/git", ".config/dconf"),
    *(".local/bin", ".local/lib", ".local/share/applications", ".local/share/autostart", ".local/share/systemd"),
    *(".local/share/dbus-1", ".local/share/bash-completion"),
    *("bin", ".cargo/bin", "go/bin", ".bashrc.d", ".bash_completion.d", ".oh-my-zsh", ".vim", ".emacs.d"),
)
"""What a login, a desktop, a shell or an editor starts or reads by itself."""


def is_broad(folder: str, workspace: str, ground: Ground) -> bool:
    """Say whether a folder, by its real path, holds too much to be proposed as a whole."""
    home = os.path.realpath(os.path.expanduser("~"))
    if is_under(home, folder):
        return True
    if workspace and is_under(folder, workspace):
        return False
    above = os.path.dirname(folder)
    roots = _real_all(_ROOTS)
    if is_under(home, above) or folder in roots or above in roots or os.path.dirname(above) in _real_all(_DISKS):
        return True
    obeyed = _real_all((*_WHOLE, *(os.path.join(home, name) for name in _OBEYED_AT_HOME), *ground.searched))
    return any(is_under(folder, one) or is_under(one, folder) for one in obeyed)


def _real_all(paths: Iterable[str]) -> set[str]:
    return {os.path.realpath(path) for path in paths}
