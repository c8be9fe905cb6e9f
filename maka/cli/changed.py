"""What `maka diff` and `maka undo` share: the changes that a name means, their paths, and what commands changed."""

import os
from collections.abc import Iterable, Sequence

from maka.cli.names import find_session_or_run
from maka.cli.revealed import revealed
from maka.cli.words import counted
from maka.contracts.commands import CommandChanges
from maka.contracts.errors import FoldError
from maka.contracts.ids import RunId
from maka.contracts.ports import LedgerReader
from projections import changes
from projections.changes import Changes

NAMES_SHOWN = 20


def read_changes(reader: LedgerReader, name: str) -> tuple[Changes, RunId | None]:
    """Return the changes of the session that a name means, and the run where it means one."""
    session_id, run_id = find_session_or_run(reader, name)
    folded = changes.project(reader.iter_session(session_id))
    if folded is None:
        raise FoldError(f"session {session_id} has a header but no facts")
    return changes.changes(folded), run_id


def resolved(found: Changes, files: Iterable[str]) -> tuple[str, ...]:
    """Return real paths: of the workspace where the agent changed such a file, else of the shell's folder."""
    paths: list[str] = []
    for name in files:
        inside = os.path.realpath(os.path.join(found.root, name))
        paths.append(inside if inside in found.chains else os.path.realpath(name))
    return tuple(paths)


def shown_path(found: Changes, path: str) -> str:
    """Return a path as people read it, nothing in it hidden: relative to the workspace where it lies inside."""
    return revealed(relative(found, path))


def relative(found: Changes, path: str) -> str:
    """Return a path relative to the workspace where it lies inside."""
    return path.removeprefix(found.root.rstrip("/") + "/")


def command_lines(commands: CommandChanges) -> list[str]:
    """Say what changed while commands ran."""
    lines: list[str] = []
    for names, word in ((commands.added, "added"), (commands.modified, "modified"), (commands.deleted, "deleted")):
        if names:
            lines.append(f"{word} while a command ran, not undoable: {_listed(names)}")
    if commands.more:
        lines.append(f"{counted(commands.more, 'further file')} changed while a command ran, not listed, not undoable")
    if commands.unlooked:
        lines.append(
            f"of {counted(commands.unlooked, 'command')} nobody looked what changed: too many files, too slow, "
            "or in the background"
        )
    return lines


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(map(revealed, names[:NAMES_SHOWN])) + (f" and {more:,} more" if more > 0 else "")
