"""Styled text on stdout: the one place where a printing library writes, and so the one that escapes for it.

Law: a style is ours, never a text's: what acts on a terminal or isn't drawn is shown as an escape.
"""

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from maka.cli.output import harmless, styled_stdout


class Screen:
    """Prints lines, pieces of lines and frames. Used by one thread. Everything raises OutputClosedError."""

    def __init__(self, *, no_color: bool = False, width: int | None = None) -> None:
        self._console = Console(
            file=styled_stdout(), no_color=no_color, highlight=False, markup=False, emoji=False, width=width
        )

    def line(self, text: str, style: str = "") -> None:
        """Print a text and a line break; a long line is left to the terminal."""
        self._console.print(_text(text, style), soft_wrap=True)

    def parts(self, *parts: tuple[str, str]) -> None:
        """Print a line of texts, each with its style."""
        self._console.print(Text.assemble(*((harmless(text), style) for text, style in parts)), soft_wrap=True)

    def piece(self, text: str, style: str = "") -> None:
        """Print a text without a line break."""
        self._console.print(_text(text, style), end="", soft_wrap=True)

    def end_line(self) -> None:
        """Print a line break."""
        self._console.print()

    def frame(self, title: str, lines: list[str], style: str) -> None:
        """Print lines in a frame with a title."""
        body, head = _text("\n".join(lines), ""), _text(title, "")
        self._console.print(Panel(body, title=head, title_align="left", border_style=style))


def _text(text: str, style: str) -> Text:
    return Text(harmless(text), style=style)
