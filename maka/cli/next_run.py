"""What runs next in a session when a run has ended: its queue goes on by itself, and leaving would stop it."""

from collections.abc import Container

from maka.contracts.commands import MessageAccepted
from maka.contracts.ids import MessageId, SessionId
from maka.contracts.ports import LedgerReader
from projections import session_index


def next_run(reader: LedgerReader, session_id: SessionId, profiles: Container[str]) -> MessageAccepted | None:
    """Return the run that has begun, or the message that will begin one; None where nothing goes on by itself.

    A message whose profile isn't known here waits for the next one that is sent, and a parked run for its answer.
    """
    data = reader.header_of(session_id)
    header = None if data is None else session_index.decode(data)
    if header is None or header.waiting:
        return None
    if header.open_runs:
        return MessageAccepted(session_id=session_id, position=header.position, run_id=header.open_runs[0])
    if not header.untaken or _profile_of(reader, session_id, header.untaken[0]) not in profiles:
        return None
    return MessageAccepted(session_id=session_id, position=header.position, message_id=header.untaken[0])


def _profile_of(reader: LedgerReader, session_id: SessionId, message_id: MessageId) -> str:
    for item in reader.iter_session(session_id):
        actions = item.event.actions
        if MessageId(item.event.id) == message_id and actions is not None and actions.message_queued is not None:
            return actions.message_queued.profile or ""
    return ""
