"""`maka diff`: what the agent changed, from the record and the files as they are."""

from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from maka.cli.options import FILLED
from maka.contracts.commands import CommandChanges

if TYPE_CHECKING:
    from maka.contracts.ports import LedgerReader
    from maka.tools.policy import Ground
    from projections.changes import Changes
    from projections.segments import Segment

BINARY_PROBE_BYTES = 8_000


class FileDiff(Struct, frozen=True, kw_only=True, rename="camel"):
    """One stretch of changes of one file. `diff` is None where it is binary, too large, or no longer known."""

    path: str
    how: str
    added: int = 0
    removed: int = 0
    diff: str | None = None
    notes: tuple[str, ...] = ()
    before_sha256: str | None
    after_sha256: str | None
    current_sha256: str | None


class ChangesShown(Struct, frozen=True, kw_only=True, rename="camel"):
    """What `maka diff --json` prints."""

    session_id: str
    run_id: str | None
    files: tuple[FileDiff, ...]
    commands: CommandChanges


@click.command()
@click.argument("name", metavar="S|RUN")
@click.option("--file", "files", multiple=True, type=FILLED, metavar="P", help="This file only; may be given again.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def diff(name: str, files: tuple[str, ...], as_json: bool) -> None:
    """Show what the agent changed, as a unified diff.

    Of a session: what stands of its changes. Of a run: all that it changed. What commands changed is listed only.
    """
    from maka.adapters import untouchable
    from maka.app import open_reader
    from maka.cli.changed import command_lines, read_changes, resolved
    from maka.cli.output import note, printable, write_json
    from maka.cli.revealed import revealed
    from maka.config import load_config
    from projections.changes import by_commands
    from projections.segments import segments

    config = load_config()
    reader, ground = open_reader(config), untouchable(config)
    found, run_id = read_changes(reader, name)
    wanted = resolved(found, files)
    shown: list[FileDiff] = []
    for path, parts in segments(found, run_id).items():
        if not wanted or path in wanted:
            shown += _file_diffs(reader, ground, found, parts, run_id)
    commands = by_commands(found, run_id)
    if as_json:
        write_json(ChangesShown(session_id=found.session_id, run_id=run_id, files=tuple(shown), commands=commands))
        return
    for each in shown:
        _write(each)
        for words in each.notes:
            note(f"maka: {revealed(each.path)}: {printable(words)}")
    if not shown:
        note("maka: the agent's tools changed no file" + (" that is named here" if wanted else ""))
    for line in command_lines(commands):
        note(f"maka: {line}")


def _file_diffs(
    reader: "LedgerReader", ground: "Ground", found: "Changes", parts: "tuple[Segment, ...]", run_id: str | None
) -> list[FileDiff]:
    from maka.cli.changed import relative
    from maka.contracts.ids import RunId
    from maka.tools.put_back import read_now
    from projections.segments import is_undone
    from projections.undo_plan import shown

    now, data = read_now(found.root, parts[0].path, ground)
    diffs: list[FileDiff] = []
    for index, part in enumerate(parts):
        notes: list[str] = []
        if not part.is_sure:
            notes.append("it isn't known whether this change was made: its call was interrupted")
        undone = run_id is not None and is_undone(found, part.path, RunId(run_id))
        if undone:
            notes.append("undone since")
        elif index < len(parts) - 1:
            notes.append("someone else changed the file after this, and before the next change shown")
        elif now.problem is not None:
            notes.append(now.problem)
        elif now.sha256 != part.after_sha256:
            then = f"the agent left {shown(part.after_sha256)}, it is {shown(now.sha256)} now"
            notes.append(f"the file changed since: {then}")
        current = data if now.problem is None and now.sha256 == part.after_sha256 else None
        path = relative(found, part.path)
        diffs.append(_one(reader, part, path, current, tuple(notes), now.sha256))
    return diffs


def _one(
    reader: "LedgerReader", part: "Segment", path: str, current: bytes | None, notes: tuple[str, ...], now: str | None
) -> FileDiff:
    from maka.tools.diffs import unified

    made, gone = part.before_sha256 is None, part.after_sha256 is None
    base = FileDiff(
        path=path,
        how="removed" if gone else "created" if made else "changed",
        notes=notes,
        before_sha256=part.before_sha256,
        after_sha256=part.after_sha256,
        current_sha256=now,
    )
    before = None if part.before_sha256 is None else reader.blob(part.before_sha256)
    after = current if current is not None or part.after_sha256 is None else reader.blob(part.after_sha256)
    if (before is None and not made) or (after is None and not gone):
        stored = [reader.blob(edit.diff.sha256) for edit in part.edits if edit.diff is not None]
        text = "".join(each.decode("utf-8", "replace") for each in stored if each is not None)
        why = "shown change by change, since the content that the agent left isn't there any more"
        return replace(base, diff=text or None, notes=(*notes, why))
    if _is_binary(before) or _is_binary(after):
        sizes = f"{len(before or b''):,} bytes before, {len(after or b''):,} after"
        return replace(base, notes=(f"a binary file: {sizes}", *notes))
    found = unified(path, before, after)
    if found.text is None:
        notes = ("too large to be compared line by line", *notes)
    return replace(base, added=found.added, removed=found.removed, diff=found.text, notes=notes)


def _is_binary(data: bytes | None) -> bool:
    if data is None:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return True
    return b"\0" in data[:BINARY_PROBE_BYTES]


def _write(each: FileDiff) -> None:
    import sys

    from maka.cli.output import printable, write, write_bytes
    from maka.cli.revealed import revealed

    if each.diff is None:
        write(f"{revealed(each.path)}: {each.how}, no diff\n")
    elif sys.stdout.isatty():
        write(printable(each.diff))
    else:
        write_bytes(each.diff.encode("utf-8", "replace"))  # what a patch needs, to the byte
