"""`maka ps`: background processes of every session, from the store and from what the kernel says of them."""

from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

if TYPE_CHECKING:
    from maka.contracts.ports import LedgerReader
    from projections.background import Shell
    from projections.session_index import Header

COMMAND_CHARS_MAX = 200
HELD = (
    "maka: they belong to the Maka that runs now: it ends them when it leaves, its model can end one "
    "(stop_background), and so can its program (SessionManager.stop_background); no other process can"
)
LEFT = "maka: the Maka that they belonged to has ended; the next maka run ends what is left of them and records it"


class Listed(Struct, frozen=True, kw_only=True):
    """A shell, and what is true of it now: its own status, or orphaned where the facts don't know it yet.

    `boundary` is its session's profile now.
    """

    number: int
    boundary: str
    shell: "Shell"
    alive: bool
    status: str


@click.command()
@click.argument("session", required=False, metavar="[S]")
@click.option("-a", "--all", "with_ended", is_flag=True, help="Those that have ended, too, and how.")
@click.option("--json", "as_json", is_flag=True, help="One process per line.")
def ps(session: str | None, with_ended: bool, as_json: bool) -> None:
    """List background processes: of one session, or of all.

    Works beside a running Maka. Whether anything of a process is really alive is asked of the system, by its
    number, its start time, the boot, and the mark that its children inherit.
    """
    from maka.app import is_running, open_reader
    from maka.cli.bypass import mark
    from maka.cli.names import find_session, read_headers
    from maka.cli.output import note, write_json
    from maka.cli.revealed import brief
    from maka.cli.table import write_table
    from maka.cli.words import moment
    from maka.config import load_config

    config = load_config()
    reader = open_reader(config)
    headers = read_headers(reader)
    if session is not None:
        headers = [find_session(headers, session)]
    owned = is_running(config)
    found = _found(reader, headers, owned=owned, with_ended=with_ended)
    if as_json:
        for each in found:
            write_json(_record(each))
        return
    if not found:
        note("No background process." if with_ended else "No background process lives; --all lists those that ended.")
        return
    rows = [
        (
            f"#{each.number}",
            mark(each.boundary),
            each.shell.shell_id,
            str(each.shell.process.pid),
            each.status,
            moment(each.shell.started_ts),
            brief(each.shell.command, COMMAND_CHARS_MAX),
        )
        for each in found
    ]
    write_table(("session", "boundary", "id", "pid", "status", "started", "command"), rows)
    if any(each.shell.is_live for each in found):
        note(HELD if owned else LEFT)


def _found(reader: "LedgerReader", headers: "list[Header]", *, owned: bool, with_ended: bool) -> list[Listed]:
    from maka.edges.process_tree import which_live
    from projections import background

    known = {header.session_id: header for header in headers}
    if with_ended or len(headers) == 1:
        shells = background.read_all(reader, known)
    else:
        shells = background.live(reader)
    shells = [shell for shell in shells if (with_ended or shell.is_live) and shell.session_id in known]
    live = [shell for shell in shells if shell.is_live]
    living = dict(zip((shell.call_id for shell in live), which_live([each.process for each in live]), strict=True))
    found: list[Listed] = []
    for shell in shells:
        alive = living.get(shell.call_id, False)
        status = _status(shell, alive=alive, owned=owned)
        header = known[shell.session_id]
        listed = Listed(number=header.number, boundary=header.boundary, shell=shell, alive=alive, status=status)
        found.append(listed)
    return found


def _status(shell: "Shell", *, alive: bool, owned: bool) -> str:
    """Say how a shell is: what the facts call live is only that while its process and its owner are."""
    from projections.background import status_words

    if not shell.is_live:
        return status_words(shell)
    if owned:
        return "running" if alive else "ending"
    return "left over" if alive else "orphaned"


def _record(each: Listed) -> dict[str, Any]:
    import msgspec

    return {
        **msgspec.to_builtins(each.shell),
        "sessionNumber": each.number,
        "boundary": each.boundary,
        "status": each.shell.status if not each.shell.is_live else each.status,
        "alive": each.alive,
    }


def note_of_ends(reader: "LedgerReader", *, quiet: bool) -> None:
    """Say which background processes end now, since the command that leaves was their host."""
    from maka.cli.output import note
    from maka.cli.revealed import brief
    from projections import background

    live = background.live(reader)
    if live and not quiet:
        named = ", ".join(f"{shell.shell_id} ({brief(shell.command, 60)})" for shell in live)
        note(f"maka: leaving ends what runs in the background: {named}")
