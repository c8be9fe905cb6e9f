"""What `maka diff` and `maka undo` share: how a path is shown, and what commands changed."""

from collections.abc import Sequence

from maka.cli.revealed import revealed
from maka.cli.words import counted
from maka.contracts.commands import CommandChanges
from projections.artifacts import relative

NAMES_SHOWN = 20


def shown_path(root: str, path: str) -> str:
    """Return a path as people read it, nothing in it hidden: relative to the workspace where it lies inside."""
    return revealed(relative(root, path))


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
