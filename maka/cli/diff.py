"""`maka diff`: what the agent changed, from the record and the files as they are."""

from typing import TYPE_CHECKING

import click

from maka.cli.options import FILLED

if TYPE_CHECKING:
    from maka.file_diffs import FileDiff


@click.command()
@click.argument("name", metavar="S|RUN")
@click.option("--file", "files", multiple=True, type=FILLED, metavar="P", help="This file only; may be given again.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def diff(name: str, files: tuple[str, ...], as_json: bool) -> None:
    """Show what the agent changed, as a unified diff.

    Of a session: what stands of its changes. Of a run: all that it changed. What commands changed is listed only.
    """
    from maka.app import open_reader, reads_of
    from maka.cli import bypass
    from maka.cli.changed import command_lines
    from maka.cli.names import find_session_or_run
    from maka.cli.output import note, printable, write_json
    from maka.cli.revealed import revealed
    from maka.config import load_config

    config = load_config()
    reader = open_reader(config)
    header, run_id = find_session_or_run(reader, name)
    found = reads_of(config, reader).changes(header.session_id, run_id, files=files)
    if as_json:
        write_json(found)
        return
    bypass.tell(header.number, found.boundary)
    for each in found.files:
        _write(each)
        for words in each.notes:
            note(f"maka: {revealed(each.path)}: {printable(words)}")
    if any(each.diff is not None and each.path.startswith("/") for each in found.files):
        note(
            "maka: git apply takes no diff with a file outside of the workspace; leave it out (--file names the others)"
        )
    if not found.files:
        note("maka: the agent's tools changed no file" + (" that is named here" if files else ""))
    for line in command_lines(found.commands):
        note(f"maka: {line}")


def _write(each: "FileDiff") -> None:
    import sys

    from maka.cli.output import printable, write, write_bytes
    from maka.cli.revealed import revealed

    if each.diff is None:
        write(f"{revealed(each.path)}: {each.how}, no diff\n")
    elif sys.stdout.isatty():
        write(printable(each.diff))
    else:
        write_bytes(each.diff.encode("utf-8", "replace"))  # what a patch needs, to the byte
