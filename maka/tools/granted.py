"""Whether a boundary grants what stands at a place, a folder with all in it, and what would where it doesn't.

Law: a name that was granted alone is a file's. A folder that stands there is granted as a subtree, or by the names of
all its files; one that a link leads to as a subtree alone. A person allows what is shown, and nothing beside it.
"""

import os
from collections.abc import Collection
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from maka.contracts.boundary import Boundary
from maka.contracts.limits import EXPANSION_ENTRIES_MAX, GRANTED_FOLDER_ENTRIES_MAX
from maka.contracts.tool_ports import BoundaryNeed
from maka.tools.identity import SAMPLE
from maka.tools.policy import ASIDE, Ground, all_needed, entries, innermost, is_under, judge, protected_in
from maka.tools.put_right_words import BY_A_PERSON, LOOK, as_text
from maka.tools.repositories import kinds_exactly_in

_NO_FILE = "\0"
"""A name that no file can have: only a subtree grants it."""


def is_granted(boundary: Boundary, path: str, ground: Ground, led_to: AbstractSet[str] = frozenset()) -> bool:
    """Say whether what stands there now may be there; a name alone where nothing, or no folder, stands there."""
    name = protected_in(path)
    barriers = led_to if name is None else led_to | {name}
    if not os.path.isdir(path) or innermost(path, barriers) is None:
        return judge(boundary, path, "write", ground, barriers) is None
    if judge(boundary, os.path.join(path, _NO_FILE), "write", ground, barriers) is None:
        return True
    if os.path.islink(path):  # what it leads to is in nobody's hand
        return False
    if not any(entry.access == "write" and is_under(entry.path, path) for entry in entries(boundary)):
        return False
    files = _obeyed(path, path)
    return bool(files) and all(judge(boundary, file, "write", ground, barriers) is None for file in files)


def need_of(boundary: Boundary, moved: Collection[str], ground: Ground, reason: str) -> BoundaryNeed:
    """Return what would let the command make once more what was moved aside; of a folder that is each of its files."""
    wanted: list[str] = []
    for path in sorted(moved):
        if f"{ASIDE}-" in os.path.dirname(path):
            continue  # it lies in another one of these, which is asked for by its own name
        aside = _aside_of(path)
        if aside is not None and os.path.islink(aside) and os.path.isdir(aside):
            continue  # no name that is granted makes that right
        if aside is None or not _is_folder(aside):
            wanted.append(path)
            continue
        files = _obeyed(aside, path)
        wanted += [file for file in files if judge(boundary, file, "write", ground, {path}) is not None]
    found = all_of(wanted, reason)
    return found if found.expansion is not None else replace(found, instead=BY_A_PERSON.format(as_text(moved)))


def all_of(paths: Collection[str], reason: str) -> BoundaryNeed:
    """Return what grants these names, if there are any; what is no text can't be named to a person, nor granted."""
    named = _named(paths)
    expansion = all_needed(named) if named else None
    return BoundaryNeed(expansion=expansion, reason=reason, instead="" if named else LOOK)


def _named(paths: Collection[str]) -> list[str]:
    return [path for path in sorted(paths) if as_text([path]) == path][:EXPANSION_ENTRIES_MAX]


def _aside_of(path: str) -> str | None:
    """Return where what stood there was moved to last: renaming it has changed it."""
    folder, name = os.path.split(path)
    try:
        names = [one for one in os.listdir(folder) if one.startswith(f"{name}{ASIDE}-")]
        return max(
            (os.path.join(folder, one) for one in names), key=lambda one: os.lstat(one).st_ctime_ns, default=None
        )
    except OSError:  # it changes at this moment
        return None


def _obeyed(folder: str, name: str) -> list[str]:
    """Return the files of a folder that have to be granted, as they are called where it has this name.

    In a repository's own folder, what git obeys has names of its own; the rest is made up anew each time.
    """
    files = [name + path[len(folder) :] for path in _files_in(folder) or ()]
    if os.path.basename(name) != ".git":
        return files
    return [path for path in files if protected_in(path) is not None and not path.endswith(SAMPLE)]


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _files_in(folder: str) -> list[str] | None:
    """Return all below a folder that is none; None where that is too much, or a link leads there by now."""
    found: list[str] = []
    waiting, seen = [folder], 0
    try:
        while waiting:
            inner = waiting.pop()
            names, _ = kinds_exactly_in(inner)
            seen += len(names)
            if seen > GRANTED_FOLDER_ENTRIES_MAX:
                return None
            for name, kind in names:
                (waiting if kind == "folder" else found).append(os.path.join(inner, name))
    except OSError:
        return None
    return sorted(found)
