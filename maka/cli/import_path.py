"""Where the program looks for what it imports: nothing that a command may have written is taken for a part of it.

Law: a folder that Maka was installed from in place is searched for its own packages alone, since it may be a workspace,
too, and libraries look for others that aren't there. The current folder isn't searched at all, as far as that is this
program's to say: `python -m maka` imports from it before our first line, `maka` and `python -P -m maka` don't.
"""

import os
import sys
import sysconfig
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_OWN = frozenset({"actors", "maka", "projections"})


class _OwnPackages:
    """A finder of modules. `folder` holds Maka's packages, and whatever else."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [self._folder], target) if path is None and name in _OWN else None


def hold() -> None:
    """Take the current folder, and a checkout, off the search path; nothing that only holds what was installed."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    dropped: set[str] = set()
    if os.path.isfile(os.path.join(folder, "pyproject.toml")):
        sys.meta_path.append(_OwnPackages(folder))
        dropped.add(folder)
    real = {one: os.path.realpath(one) for one in sys.path if one}
    by_module = os.path.basename(sys.argv[0]) == "__main__.py" and not sys.flags.safe_path
    if by_module and (current := real.get(sys.path[0])) not in (None, folder):
        dropped.add(str(current))
    installed = {os.path.realpath(path) for path in sysconfig.get_paths().values()}
    sys.path[:] = [one for one, its in real.items() if its in installed or its not in dropped]
