"""`maka log`: the facts themselves, and the state as of any one of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import click

from maka.cli.options import WholeNumber
from maka.contracts.errors import Refusal, RefusalCode, RefusedError

if TYPE_CHECKING:
    from maka.cli.moment import Moment
    from maka.contracts.events import Committed
    from maka.contracts.ports import LedgerReader


@click.command()
@click.argument("name", metavar="S|RUN")
@click.option("--at", "position", type=WholeNumber(min=1), metavar="N", help="The state as of the fact at position N.")
@click.option("--json", "as_json", is_flag=True, help="One fact per line.")
def log(name: str, position: int | None, as_json: bool) -> None:
    """List the facts of a session or a run.

    A line has position, seq, who and what. With --at N: what the model had seen as of that fact, which calls were
    open, and what the session was doing.
    """
    from maka.app import open_reader
    from maka.cli import bypass
    from maka.cli.names import find_session_or_run
    from maka.config import load_config

    reader = open_reader(load_config())
    header, run_id = find_session_or_run(reader, name)
    if position is None:
        if not as_json:
            bypass.tell(header.number, header.boundary)
        _write_facts(reader, header.session_id, run_id, as_json=as_json)
    else:
        _write_moment(reader, header.session_id, run_id, position, as_json=as_json)


def _facts(reader: "LedgerReader", session_id: str, run_id: str | None) -> "Iterator[Committed]":
    from maka.contracts.ids import SessionId

    for item in reader.iter_session(SessionId(session_id)):
        if run_id is None or item.event.run_id == run_id:
            yield item


def _write_facts(reader: "LedgerReader", session_id: str, run_id: str | None, *, as_json: bool) -> None:
    from maka.cli.facts import fact_line
    from maka.cli.output import write, write_json
    from maka.cli.table import fitted
    from projections.boundary import profile_after

    write("" if as_json else f"{'position':>8}  {'seq':>5}  {'run':8}  {'who':12}  what\n")
    boundary: str | None = None
    for item in _facts(reader, session_id, None):
        boundary = profile_after(boundary, item.event)
        if run_id is not None and item.event.run_id != run_id:
            continue
        line = fact_line(item, boundary)
        if as_json:
            write_json(line)
            continue
        write(fitted(f"{line.position:>8}  {line.seq:>5}  {line.run:8}  {line.who:12}  {line.what}") + "\n")


def _write_moment(reader: "LedgerReader", session_id: str, run_id: str | None, position: int, *, as_json: bool) -> None:
    from maka.cli.moment import moment_of
    from maka.cli.output import write, write_json

    places = [item.position for item in _facts(reader, session_id, run_id)]
    if position not in places:
        _refuse(f"Position {position} is no fact of this log, which goes from {places[0]} to {places[-1]}.")
    items = (item for item in _facts(reader, session_id, None))
    moment = moment_of(_through(items, position))
    if as_json:
        write_json(moment)
    else:
        write(_moment_text(moment))


def _through(items: "Iterator[Committed]", position: int) -> "Iterator[Committed]":
    for item in items:
        if item.position > position:
            return
        yield item


def _moment_text(moment: "Moment") -> str:
    from maka.cli import bypass
    from maka.cli.output import printable
    from maka.cli.revealed import brief, revealed
    from maka.cli.words import counted

    lines = [f"As of position {moment.position}: session {moment.status}, {counted(moment.run_count, 'run')}."]
    lines += [words] if (words := bypass.warning(moment.boundary)) else []
    if moment.last_status is not None:
        lines.append(f"The newest run had {moment.last_status}.")
    if moment.queued:
        lines.append(f"{counted(moment.queued, 'message')} waited in the queue.")
    for run in moment.open_runs:
        lines.append(f"Run {run.run_id} was {run.phase}, step {run.step}.")
        for call in run.calls:
            how = "dispatched" if call.dispatched else "not dispatched"
            lines.append(f"  open call {brief(call.name, 80)} ({call.call_id}): {how}")
    level = f" at window level {moment.window_level}" if moment.window_level else ""
    lines.append(f"The model had seen {counted(len(moment.messages), 'message')}{level}:")
    for message in moment.messages:
        lines.append(f"[{message.role}]")
        lines += [f"  {text}" for text in printable(message.text or "").split("\n") if message.text]
        lines += [f"  calls {brief(call.name, 80)} {revealed(call.arguments)}" for call in message.calls]
    return "\n".join(lines) + "\n"


def _refuse(message: str) -> NoReturn:
    raise RefusedError(Refusal(code=RefusalCode.INVALID_INPUT, message=message))
