"""`maka undo`: put back what files held before the agent changed them."""

from typing import TYPE_CHECKING

import click

from maka.cli.options import FILLED
from maka.contracts.errors import ExitCode, Refusal, RefusalCode, RefusedError

if TYPE_CHECKING:
    from maka.config import Config
    from maka.contracts.commands import UndoneFile, UndoReceipt


@click.command()
@click.argument("name", metavar="S|RUN")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--file", "files", multiple=True, type=FILLED, metavar="P", help="This file only; may be given again.")
@click.option("--force", is_flag=True, help="Put the named files back although someone else changed them since.")
@click.option("--json", "as_json", is_flag=True, help="The receipt as one JSON object.")
def undo(name: str, dry_run: bool, files: tuple[str, ...], force: bool, as_json: bool) -> int:
    """Put back what files held before the agent changed them.

    Of a session, or of one run. A file that isn't what the agent left is refused. An undo is a run of its own: undo
    that run to take it back. What commands changed is listed; no undo takes it back.
    """
    import msgspec

    from maka.app import open_reader, reads_of
    from maka.cli import bypass
    from maka.cli.names import find_session_or_run
    from maka.cli.output import write_json
    from maka.config import load_config

    if force and not files:
        words = "--force goes with --file: name each file that is to be put back whatever it holds."
        raise RefusedError(Refusal(code=RefusalCode.INVALID_INPUT, message=words))
    config = load_config()
    reader = open_reader(config)
    try:
        header, run_id = find_session_or_run(reader, name)
        reads = reads_of(config, reader)
        plan = reads.undo_plan(header.session_id, run_id=run_id, files=files, force=force) if dry_run else None
    finally:
        reader.close()
    if not as_json:
        bypass.tell(header.number, header.boundary)
    receipt = plan or _perform(config, header.session_id, run_id, files, force)
    if as_json:
        write_json({**msgspec.to_builtins(receipt), "boundary": header.boundary})
    else:
        _write(header.real_cwd, receipt, dry_run=dry_run)
    return _exit(receipt, dry_run=dry_run)


def _perform(
    config: "Config", session_id: str, run_id: str | None, files: tuple[str, ...], force: bool
) -> "UndoReceipt":
    from maka.app import open_host

    with open_host(config) as host:
        return host.manager.undo(session_id, run_id=run_id, files=files, force=force)


def _write(root: str, receipt: "UndoReceipt", *, dry_run: bool) -> None:
    from maka.cli.changed import command_lines, shown_path
    from maka.cli.output import note, printable, write
    from maka.cli.words import counted, short_id

    for file in receipt.files:
        write(_line(file, shown_path(root, file.path)) + "\n")
    for left in receipt.left:
        hint = "" if left.reason not in ("changed", "changed_between", "later") else " (--file with --force overrides)"
        write(f"- {shown_path(root, left.path)} stays: {printable(left.message)}{hint}\n")
    for line in command_lines(receipt.commands):
        note(f"maka: {line}")
    if not receipt.files and not receipt.left:
        note("maka: there is nothing to undo")
    elif dry_run:
        note(f"maka: nothing was done; {counted(len(receipt.files), 'file')} would be put back")
    elif receipt.run_id is not None:
        note(f"maka: undone as run {receipt.run_id}; maka undo {short_id(receipt.run_id)} takes it back")
        if receipt.status != "completed":
            note(f"maka: the undo was cut off ({receipt.status}): undo again to go on")


def _line(file: "UndoneFile", path: str) -> str:
    from maka.cli.output import printable

    verb = "remove" if file.after_sha256 is None else "make anew" if file.before_sha256 is None else "put back"
    done = {"remove": "removed", "make anew": "made anew", "put back": "put back"}[verb]
    match file.outcome:
        case "planned":
            return f"would {verb} {path}"
        case "ok":
            return f"✓ {done} {path}"
        case _:
            return f"✗ {path}: {file.outcome}: {printable(file.text)}"


def _exit(receipt: "UndoReceipt", *, dry_run: bool) -> ExitCode:
    done = all(file.outcome in ("ok", "planned") for file in receipt.files)
    whole = all(left.reason == "already" for left in receipt.left)
    ended = dry_run or receipt.run_id is None or receipt.status == "completed"
    return ExitCode.COMPLETED if done and whole and ended else ExitCode.FAILED
