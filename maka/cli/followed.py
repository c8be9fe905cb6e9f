"""One run on the screen: which view it has, what is done when it asks, and how the command leaves."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from maka.contracts.errors import ExitCode

if TYPE_CHECKING:
    from maka.app import Host
    from maka.cli.follow import Events, View
    from maka.cli.interrupts import Interrupts
    from maka.cli.on_ask import Answerer, OnAsk
    from maka.config import Config
    from maka.contracts.commands import MessageAccepted
    from maka.contracts.session_events import RunEnded

RECEIPT_WAIT_S = 5.0
CLI_OUTPUT_CLOSED = "cli.output_closed"


class Look(Struct, frozen=True, kw_only=True):
    """How a run is shown. `timeline` None leaves it to whether stdout is a terminal, `on_ask` None to whether a
    person sits there."""

    as_json: bool = False
    quiet: bool = False
    output: str | None = None
    timeline: bool | None = None
    on_ask: str | None = None

    @property
    def has_timeline(self) -> bool:
        live = sys.stdout.isatty() if self.timeline is None else self.timeline
        return live and not self.quiet and not self.as_json


class Target(Struct, frozen=True, kw_only=True):
    """The session that a message goes to. `boundary` is its profile."""

    session_id: str
    number: int
    cwd: str
    position: int
    boundary: str = "ask"


class Followed(Struct, frozen=True, kw_only=True):
    """How a command leaves a run; `position` is that of the run's end, None where it hasn't ended."""

    code: int
    position: int | None = None


def follow_run(
    host: "Host",
    config: "Config",
    look: Look,
    target: Target,
    interrupts: "Interrupts",
    begin: "Callable[[], MessageAccepted]",
) -> Followed:
    """Begin a run, or find the one that a message begins, and follow it for as long as it goes on by itself."""
    from maka.cli.follow import Follower, Left, Unfinished
    from maka.cli.output import note
    from maka.cli.waits import NOT_KEPT

    view = make_view(config, look, target, interrupts)

    def subscribe(after_position: int) -> "Events":
        return host.manager.subscribe(target.session_id, after_position=after_position)

    try:
        answerer = _answerer(host, look, interrupts, kept=config.waits_keep)
        follower = Follower(subscribe, host.failed.is_set, host.reader, view, interrupts, answerer)
        ended = follower.follow(begin, target.position)
    except Unfinished as error:
        _print_receipt(interrupts)
        note(f"maka: {error}")
        return Followed(code=error.exit_code)
    _print_receipt(interrupts)
    if isinstance(ended, Left):
        view.left(ended)
        if not config.waits_keep:
            note(f"maka: {NOT_KEPT}")
        return Followed(code=ExitCode.NEEDS_ANSWER)
    view.ended(ended)
    return Followed(code=_write_output(look.output, ended) or exit_code_of(ended), position=ended.position)


def _answerer(host: "Host", look: Look, interrupts: "Interrupts", *, kept: bool) -> "Answerer":
    from maka.cli.keys import Keys
    from maka.cli.on_ask import Answerer
    from maka.cli.output import note, say

    def tell(text: str) -> None:
        if not (look.quiet or look.as_json or look.has_timeline):
            note(f"maka: {text}")

    keys = Keys(0, say, lambda: interrupts.source is not None)
    return Answerer(_mode(look), host.manager, interrupts, keys, tell, shown=look.has_timeline, kept=kept)


def _mode(look: Look) -> "OnAsk":
    from maka.cli.keys import is_interactive
    from maka.cli.on_ask import OnAsk

    if look.on_ask is not None:
        return OnAsk(look.on_ask)
    return OnAsk.ASK if is_interactive() and not look.as_json else OnAsk.DENY


def make_view(config: "Config", look: Look, target: Target, interrupts: "Interrupts") -> "View":
    """Return the view that a command line asks for; a bypass is said first."""
    from maka.cli import bypass
    from maka.cli.views import FinalTextView, GuardedView, JsonView

    def on_closed() -> None:
        interrupts.stop(CLI_OUTPUT_CLOSED)

    if look.has_timeline:
        from maka.cli.timeline import Timeline

        timeline = Timeline(cwd=target.cwd, no_color=config.no_color)
        guarded = GuardedView(timeline, on_closed)
        timeline.head(target.number, bypass.warning(target.boundary))
        return guarded
    bypass.tell(target.number, target.boundary)
    return GuardedView(JsonView() if look.as_json else FinalTextView(quiet=look.quiet), on_closed)


def _write_output(output: str | None, ended: "RunEnded") -> int:
    from maka.cli.output import note

    if output is None:
        return 0
    try:
        Path(output).write_text(ended.final_text, encoding="utf-8", errors="replace")
    except OSError as error:
        note(f"maka: {output} can't be written ({error.strerror}); maka show has the text")
        return ExitCode.FAILED
    return 0


def _print_receipt(interrupts: "Interrupts") -> None:
    from maka.cli.output import note
    from maka.cli.words import receipt_lines

    if interrupts.source is None:
        return
    interrupts.answered.wait(RECEIPT_WAIT_S)
    if interrupts.receipt is not None:
        for line in receipt_lines(interrupts.receipt):
            note(line)


def exit_code_of(ended: "RunEnded") -> ExitCode:
    """Return the exit code of a run's record."""
    return ExitCode[ended.exit.upper()]
