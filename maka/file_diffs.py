"""What a session's tools changed, file by file: the record beside the files as they are.

Law: a stretch of changes is shown from the contents that the record names; a file is read only to say what it is now,
and its content is used only where it is exactly what the last change left.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.commands import CommandChanges
from maka.contracts.ids import RunId, SessionId
from maka.contracts.ports import LedgerReader
from maka.contracts.tool_ports import FileNow
from maka.tools.diffs import unified
from projections.artifacts import relative
from projections.changes import Changes
from projections.segments import Segment, is_undone, segments
from projections.undo_plan import shown

BINARY_PROBE_BYTES = 8_000
Look = Callable[[str, str], tuple[FileNow, bytes | None]]
"""Says what a file is now, given a session's folder and the file's path, and returns its content."""


class FileDiff(Struct, frozen=True, kw_only=True, rename="camel"):
    """One stretch of changes of one file. `how` is created, changed or removed; of a hash None means: no file.

    `path` is relative to the workspace where it lies inside. `diff` is None where it is binary, too large, or no longer
    known; `notes` say which, and what became of the file since.
    """

    path: str
    how: str
    added: int = 0
    removed: int = 0
    is_binary: bool = False
    diff: str | None = None
    notes: tuple[str, ...] = ()
    before_sha256: str | None
    after_sha256: str | None
    current_sha256: str | None


class SessionChanges(Struct, frozen=True, kw_only=True, rename="camel"):
    """What stands of a session's changes, or all that one run changed, in order of path.

    `commands` is what changed while commands ran: listed, never undone. `boundary` is the session's profile now.
    """

    session_id: SessionId
    run_id: RunId | None
    boundary: str
    files: tuple[FileDiff, ...]
    commands: CommandChanges


def file_diffs(
    reader: LedgerReader, look: Look, found: Changes, run_id: RunId | None, paths: Sequence[str] = ()
) -> tuple[FileDiff, ...]:
    """Return the changes of a session or of one run, of all files or of some, which are given by their real paths."""
    diffs: list[FileDiff] = []
    for path, parts in segments(found, run_id).items():
        if not paths or path in paths:
            diffs += _of_file(reader, look, found, parts, run_id)
    return tuple(diffs)


def _of_file(
    reader: LedgerReader, look: Look, found: Changes, parts: tuple[Segment, ...], run_id: RunId | None
) -> list[FileDiff]:
    now, data = look(found.root, parts[0].path)
    diffs: list[FileDiff] = []
    for index, part in enumerate(parts):
        notes: list[str] = []
        if not part.is_sure:
            notes.append("it isn't known whether this change was made: its call was interrupted")
        undone = run_id is not None and is_undone(found, part.path, run_id)
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
        path = relative(found.root, part.path)
        diffs.append(_one(reader, part, path, current, tuple(notes), now.sha256))
    return diffs


def _one(
    reader: LedgerReader, part: Segment, path: str, current: bytes | None, notes: tuple[str, ...], now: str | None
) -> FileDiff:
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
        return replace(base, is_binary=True, notes=(f"a binary file: {sizes}", *notes))
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
