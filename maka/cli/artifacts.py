"""`maka artifacts`: what a session or a run left to look at, and one of these things itself."""

from typing import TYPE_CHECKING, NoReturn

import click

from maka.cli.options import FILLED, WholeNumber
from maka.contracts.errors import Refusal, RefusalCode, RefusedError

if TYPE_CHECKING:
    from projections.artifacts import Artifact


@click.command()
@click.argument("name", metavar="S|RUN")
@click.argument("number", metavar="[N]", type=WholeNumber(min=1), required=False)
@click.option("-o", "--output", type=FILLED, metavar="FILE", help="Write it to a file instead.")
@click.option("--json", "as_json", is_flag=True, help="One artifact per line.")
def artifacts(name: str, number: int | None, output: str | None, as_json: bool) -> None:
    """List what a session or a run left, or print one of it.

    Files that were written, diffs, long outputs and texts. N is a number of the list for the same name.
    """
    import msgspec

    from maka.app import open_reader, reads_of
    from maka.cli import bypass
    from maka.cli.names import find_session_or_run
    from maka.cli.output import note, write_json
    from maka.config import load_config

    config = load_config()
    reader = open_reader(config)
    header, run_id = find_session_or_run(reader, name)
    reads = reads_of(config, reader)
    found = reads.artifacts(header.session_id, run_id)
    if not as_json:
        bypass.tell(header.number, header.boundary)
    if number is not None:
        if as_json:
            raise click.UsageError("--json is for the list, not for one artifact")
        _put(reads.artifact_content(header.session_id, _one(found, number, name)), output)
        return
    if output is not None:
        raise click.UsageError("-o takes one artifact: give its number, too")
    if as_json:
        for at, artifact in enumerate(found, 1):
            write_json({"number": at, **msgspec.to_builtins(artifact), "boundary": header.boundary})
    elif found:
        _write_list(found)
    else:
        note("maka: nothing was left: no file was written, and every output fits its result")


def _write_list(found: "list[Artifact]") -> None:
    from maka.cli.revealed import brief
    from maka.cli.table import write_table
    from maka.cli.words import moment, short_id

    rows = [
        (
            str(at),
            artifact.kind,
            "-" if artifact.size_bytes is None else f"{artifact.size_bytes:,}",
            brief(artifact.tool or "-", 40),
            short_id(artifact.run_id),
            moment(artifact.ts),
            brief(artifact.name, 100),
        )
        for at, artifact in enumerate(found, 1)
    ]
    write_table(("", "kind", "bytes", "tool", "run", "when", "name"), rows)


def _one(found: "list[Artifact]", number: int, name: str) -> "Artifact":
    if number > len(found):
        _refuse(f"{name} has {len(found)} artifacts, and none with the number {number}: see maka artifacts {name}")
    return found[number - 1]


def _put(data: bytes, output: str | None) -> None:
    import sys
    from pathlib import Path

    from maka.cli.output import printable, write, write_bytes

    if output is not None:
        Path(output).write_bytes(data)
    elif sys.stdout.isatty():
        write(printable(data.decode("utf-8", "replace")))
    else:
        write_bytes(data)


def _refuse(message: str) -> NoReturn:
    raise RefusedError(Refusal(code=RefusalCode.INVALID_INPUT, message=message))
