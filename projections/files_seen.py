"""What a session last saw of each file: real path -> SHA-256 (hex). Edit refuses a file that changed since.

Only `file_seen` counts: it rides on the response of a Read, Write or Edit, so it is true of what happened, where a
`file_change` says only what was about to happen.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from maka.contracts.events import Committed
from maka.contracts.ids import SessionId
from projections.log_order import check_next


class FilesSeen(Struct, frozen=True, kw_only=True):
    """The files that one session knows, as of a position."""

    session_id: SessionId
    position: int
    files: Mapping[str, str] = {}


def fold(state: FilesSeen | None, item: Committed) -> FilesSeen:
    """Take in one fact of the session. Raises FoldError on a foreign session or a position that doesn't grow."""
    event = item.event
    files: Mapping[str, str] = {}
    if state is not None:
        check_next(item, state.session_id, state.position)
        files = state.files
    if event.actions is not None and (seen := event.actions.file_seen) is not None:
        files = {**files, seen.path: seen.sha256}
    return FilesSeen(session_id=event.session_id, position=item.position, files=files)


def project(items: Iterable[Committed], state: FilesSeen | None = None) -> FilesSeen | None:
    """Fold many facts of one session, in order of position."""
    for item in items:
        state = fold(state, item)
    return state
