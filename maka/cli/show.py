"""`maka show`: a session as a person reads it."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from maka.cli.screen import Screen
    from maka.contracts.ids import CallId
    from maka.contracts.ports import LedgerReader
    from projections.background import Shell
    from projections.session_view import SessionView
    from projections.turn_view import Asking, ToolActivity, TurnView

RESULT_LINES_MAX = 10
_PARTIAL = "streaming"
_SAID = {"user": ("› ", "bold"), "thinking": ("∴ ", "dim italic"), "host": ("maka › ", "dim")}
"""Who spoke -> the mark and the style of the words."""


@click.command()
@click.argument("session", metavar="S")
@click.option("--full", is_flag=True, help="Whole tool results and diffs.")
@click.option("--json", "as_json", is_flag=True, help="The whole view as one JSON object.")
def show(session: str, full: bool, as_json: bool) -> None:
    """Show a session: its conversation, tools and turns."""
    from maka.app import is_running, open_reader
    from maka.cli.names import find_session, read_headers
    from maka.cli.output import write_json
    from maka.cli.screen import Screen
    from maka.config import load_config
    from maka.contracts.errors import FoldError
    from projections import session_view

    config = load_config()
    reader = open_reader(config)
    header = find_session(read_headers(reader), session)
    state = session_view.project(reader.iter_session(header.session_id))
    if state is None:
        raise FoldError(f"session #{header.number} has a header but no facts")
    view = session_view.view(state)
    if as_json:
        write_json(view)
        return
    Page(Screen(no_color=config.no_color), reader, view, full=full, owned=is_running(config)).write()


class Page:
    """A session on its way to the screen."""

    def __init__(
        self, screen: "Screen", reader: "LedgerReader", view: "SessionView", *, full: bool, owned: bool
    ) -> None:
        self._screen = screen
        self._reader = reader
        self._view = view
        self._full = full
        self._owned = owned

    def write(self) -> None:
        """Print the header, every turn, and what waits."""
        from maka.cli import bypass, words
        from maka.cli.revealed import revealed

        header = self._view.header
        archived = " · archived" if header.archived else ""
        status = words.honest_status(header.status, owned=self._owned)
        self._line(f"session #{header.number} · {revealed(header.cwd)} · {status}{archived}", "bold")
        if warning := bypass.warning(header.boundary):
            self._line(warning, "bold red")
        self._line(f"{header.session_id} · through position {self._view.position}", "dim")
        for turn in self._view.turns:
            self._turn(turn)
        for message in self._view.queue:
            self._line(f"\nwaits › {message.text}", "yellow")
        for shell in self._view.background:
            self._shell(shell)

    def _shell(self, shell: "Shell") -> None:
        from maka.cli.revealed import brief
        from projections.background import first_line, status_words

        how = status_words(shell) if self._owned or not shell.is_live else "orphaned; see maka ps"
        self._line(
            f"\nbackground {shell.shell_id} {brief(shell.command, 200)} · pid {shell.process.pid} · {how}", "cyan"
        )
        if shell.note:
            self._line(f"  ! {brief(first_line(shell.note), 1_000)}", "bold yellow")
        if self._full and shell.output is not None:
            output = self._reader.blob(shell.output.sha256) or b"(the output isn't stored)"
            for text in output.decode("utf-8", "replace").splitlines():
                self._line(f"  │ {text}", "dim")

    def _turn(self, turn: "TurnView") -> None:
        from maka.cli import bypass, words
        from maka.cli.revealed import revealed
        from projections.turn_view import Asking, Noted, Said

        model = "undo" if turn.undo else f"{revealed(turn.profile)} · {revealed(turn.model)}"
        parts = [words.moment(turn.started_ts), model, f"run {turn.run_id}", bypass.warning(turn.boundary)]
        self._line(f"\n─── {' · '.join(filter(None, parts))}", "dim")
        waiting = {item.call_id for item in turn.items if isinstance(item, Asking) and item.end_position is None}
        for item in turn.items:
            match item:
                case Said():
                    mark, style = _SAID.get(item.who, ("", ""))
                    self._line(mark + item.text + (" (interrupted)" if item.interrupted else ""), style)
                case Noted():
                    if words.is_told(item.note):
                        self._line(f"  notice: {revealed(str(item.data.get('text', item.note)))}", "yellow")
                case Asking():
                    self._asking(item)
                case _:
                    self._tool(item, waiting)
        self._partials(turn)
        self._ending(turn)

    def _tool(self, tool: "ToolActivity", waiting: "set[CallId]") -> None:
        from maka.cli import words
        from maka.cli.revealed import brief

        given = words.call_args(tool.name, tool.args, 200) if tool.malformed is None else brief(tool.malformed, 200)
        self._line(f"● {brief(tool.name, 80)} {given}".rstrip(), "cyan")
        self._result(tool)
        if tool.outcome is None:
            how = "waits for an answer" if tool.call_id in waiting else "running" if tool.dispatched else "not started"
            self._line(f"  … {how}", "dim")
            return
        for text in words.aside_lines(tool.result or ""):
            self._line(f"  ! {text}", "bold yellow")
        parts = [tool.outcome] if tool.outcome != "ok" else []
        parts += [f"exit {tool.exit_code}"] if tool.exit_code is not None else []
        parts += [words.duration(tool.duration_ms)] if tool.duration_ms is not None else []
        mark, style = ("✗", "red") if tool.is_error else ("✓", "green")
        self._line(f"  {mark} {' · '.join(parts)}".rstrip(), style)

    def _result(self, tool: "ToolActivity") -> None:
        """Show what a call said and which files it set out to change."""
        from maka.cli import words
        from maka.cli.revealed import revealed

        lines = (tool.result or "").strip("\n").split("\n") if tool.result else []
        shown = lines if self._full else lines[:RESULT_LINES_MAX]
        for text in shown:
            self._line(f"  │ {text}", "dim")
        if len(lines) > len(shown):
            self._line(f"  │ … {words.counted(len(lines) - len(shown), 'line')} more (--full)", "dim")
        if self._full and tool.diff is not None:
            diff = self._reader.blob(tool.diff.sha256) or b"(the diff isn't stored)"
            self._line("\n".join(f"  ┆ {text}" for text in diff.decode("utf-8", "replace").splitlines()), "")
        for changed in tool.files:
            how = "removed" if changed.after_sha256 is None else "changed"
            how = "created" if changed.before_sha256 is None else how
            self._line(f"  ✎ {how} {revealed(changed.path)}", "yellow")

    def _asking(self, asking: "Asking") -> None:
        from maka.cli.asking import outcome_line, request_head, request_lines

        for text in (request_head(asking), *request_lines(asking)):
            self._line(text, "magenta")
        ended = outcome_line(asking)
        self._line(f"  {ended or '… waits for a person: maka inbox'}", "magenta")

    def _partials(self, turn: "TurnView") -> None:
        """Show what streams right now, as far as it was kept."""
        if turn.status in ("completed", "failed", "aborted"):
            return
        opening = self._reader.read_session(self._view.session_id, turn.position - 1, 1)
        for item in opening:
            for partial in self._reader.partials(item.event.invocation_id):
                self._line(f"{partial.text} ({_PARTIAL})", "dim italic" if partial.kind == "thinking" else "")

    def _ending(self, turn: "TurnView") -> None:
        from maka.cli import words
        from maka.cli.revealed import revealed

        status = words.honest_status(turn.status, owned=self._owned)
        how = words.verdict(status, turn.failure_class, turn.abort_source)
        parts = [how, words.duration(turn.duration_ms)]
        parts += [] if turn.undo else [words.counted(turn.steps, "step"), words.tokens(turn.usage)]
        style = {"completed": "green", "failed": "red", "aborted": "red"}.get(turn.status, "yellow")
        self._line(" · ".join(parts), style)
        if status == "interrupted":
            self._line(words.INTERRUPTED, "yellow")
        if turn.error:
            self._line(turn.error, "red")
        if todo := words.what_to_do(turn.failure_class, turn.abort_source):
            self._line(todo, "yellow")
        if turn.status == "completed" and (remark := words.cut_answer(turn.stop_reason)):
            self._line(remark, "yellow")
        if turn.files_changed:
            self._line("files changed: " + ", ".join(map(revealed, turn.files_changed)), "")

    def _line(self, text: str, style: str) -> None:
        from maka.cli.output import printable

        self._screen.line(printable(text), style)
