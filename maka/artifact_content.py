"""The content of one artifact, from the store alone: never from a file of the workspace, which may be another one now.

Law: what is returned as a file's content has the SHA-256 that the log names.
"""

from hashlib import sha256

from maka.contracts.actions import FileChange
from maka.contracts.content import FunctionCall
from maka.contracts.ids import CallId, SessionId
from maka.contracts.ports import LedgerReader
from maka.tools.edit_match import MatchError, find, replaced
from projections.artifacts import Artifact


def content_of(reader: LedgerReader, session_id: SessionId, artifact: Artifact) -> bytes | None:
    """Return what an artifact holds, None where that isn't to be had."""
    stored = None if artifact.sha256 is None else reader.blob(artifact.sha256)
    if stored is None and artifact.kind == "file" and artifact.call_id is not None:
        return _rewritten(reader, session_id, artifact.call_id, artifact.sha256)
    return stored


def _rewritten(reader: LedgerReader, session_id: SessionId, call_id: CallId, expected: str | None) -> bytes | None:
    """Return what a call of Write or Edit wrote, made again from its arguments and what was there before."""
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


def _made_again(reader: LedgerReader, call: FunctionCall, change: FileChange) -> bytes | None:
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
