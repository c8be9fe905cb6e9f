"""Where the program looks for what it imports: nothing that a command may have written is taken for a part of it.

Law: a folder that Maka was installed from in place is searched for its own packages alone, since it may be a workspace,
too, and libraries look for others that aren't there. The current folder isn't searched at all.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_OWN = frozenset({"actors", "maka", "projections"})
_INSTALLED = frozenset({"site-packages", "dist-packages"})


class _OwnPackages:
    """A finder of modules. `folder` holds Maka's packages, and whatever else."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [self._folder], target) if path is None and name in _OWN else None


def hold() -> None:
    """Take the current folder, and one that isn't only for packages, off the search path."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    dropped = {""}
    with suppress(OSError):
        dropped.add(os.path.realpath(os.getcwd()))
    if os.path.basename(folder) not in _INSTALLED and os.path.isdir(folder):
        dropped.add(os.path.realpath(folder))
        sys.meta_path.append(_OwnPackages(folder))
    sys.path[:] = [one for one in sys.path if one and os.path.realpath(one) not in dropped]
