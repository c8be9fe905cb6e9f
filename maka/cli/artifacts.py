"""`maka artifacts`: what a session or a run left to look at, and one of these things itself.

Law: everything comes from the store alone, never from a file of the workspace, which may be another one by now. What
is printed as a file's content has the SHA-256 that the log names.
"""

from hashlib import sha256
from typing import TYPE_CHECKING, NoReturn

import click

from maka.cli.options import FILLED, WholeNumber
from maka.contracts.errors import Refusal, RefusalCode, RefusedError

if TYPE_CHECKING:
    from maka.contracts.actions import FileChange
    from maka.contracts.content import FunctionCall
    from maka.contracts.ids import CallId, RunId, SessionId
    from maka.contracts.ports import LedgerReader
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

    from maka.app import open_reader
    from maka.cli.names import find_session_or_run
    from maka.cli.output import note, write_json
    from maka.config import load_config

    reader = open_reader(load_config())
    session_id, run_id = find_session_or_run(reader, name)
    found = _listed(reader, session_id, run_id)
    if number is not None:
        if as_json:
            raise click.UsageError("--json is for the list, not for one artifact")
        _put(_content(reader, session_id, _one(found, number, name)), output)
        return
    if output is not None:
        raise click.UsageError("-o takes one artifact: give its number, too")
    if as_json:
        for at, artifact in enumerate(found, 1):
            write_json({"number": at, **msgspec.to_builtins(artifact)})
    elif found:
        _write_list(found)
    else:
        note("maka: nothing was left: no file was written, and every output fits its result")


def _listed(reader: "LedgerReader", session_id: "SessionId", run_id: "RunId | None") -> "list[Artifact]":
    from projections import artifacts as projection

    state = projection.project(reader.iter_session(session_id))
    found = () if state is None else state.found
    return [artifact for artifact in found if run_id in (None, artifact.run_id)]


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


def _content(reader: "LedgerReader", session_id: "SessionId", artifact: "Artifact") -> bytes:
    stored = None if artifact.sha256 is None else reader.blob(artifact.sha256)
    if stored is None and artifact.kind == "file" and artifact.call_id is not None:
        stored = _rewritten(reader, session_id, artifact.call_id, artifact.sha256)
    if stored is None:
        _refuse(f"the content of this {artifact.kind} isn't in the store; its SHA-256 is {artifact.sha256}")
    return stored


def _rewritten(
    reader: "LedgerReader", session_id: "SessionId", call_id: "CallId", expected: str | None
) -> bytes | None:
    """Return what a call of Write or Edit wrote, made again from its arguments and what was there before."""
    from maka.contracts.content import FunctionCall

    call: FunctionCall | None = None
    change: FileChange | None = None
    for item in reader.iter_session(session_id):
        event = item.event
        if str(event.id) == str(call_id) and isinstance(event.content, FunctionCall):
            call = event.content
        elif event.actions is not None and (found := event.actions.file_change) is not None:
            change = found if found.call_id == call_id else change
    data = None if call is None or change is None else _made_again(reader, call, change)
    return data if data is not None and sha256(data).hexdigest() == expected else None


def _made_again(reader: "LedgerReader", call: "FunctionCall", change: "FileChange") -> bytes | None:
    from maka.tools.edit_match import MatchError, find, replaced

    given = call.args
    if "content" in given:
        return str(given["content"]).encode("utf-8", "surrogatepass")
    before = None if change.pre_image is None else reader.blob(change.pre_image.sha256)
    if before is None or not {"old_string", "new_string"} <= given.keys():
        return None
    text = before.decode("utf-8", "surrogateescape")
    try:
        match = find(text, str(given["old_string"]), str(given["new_string"]))
        return replaced(text, match).encode("utf-8", "surrogateescape")
    except (MatchError, UnicodeEncodeError):
        return None


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
