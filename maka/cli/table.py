"""Plain columns: readable in a terminal, whole in a pipe."""

import shutil
import sys
from collections.abc import Sequence

from maka.cli.output import one_line, write

_GAP = "  "
_CELL_CHARS_MAX = 1_000


def write_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write rows under their heads; to a terminal, lines end where it does."""
    cells = [list(head), *([one_line(cell, _CELL_CHARS_MAX) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        write(fitted(_GAP.join(padded).rstrip()) + "\n")


def fitted(line: str) -> str:
    """Return a line, cut at the width of the terminal where stdout is one."""
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return line if len(line) <= width else line[: width - 1] + "…"
