"""What a live session knows of its log: header, history, files seen and queue, folded from the ledger as it grows."""

from actors.session_protocol import Waiting
from maka.contracts.events import Committed
from maka.contracts.ids import MessageId, SessionId
from maka.contracts.ports import LedgerReader
from projections import background, boundary, files_seen, model_history, session_index


class SessionLog:
    """One session's folds, through `position`. Owned by its SessionActor."""

    def __init__(self, session_id: SessionId) -> None:
        self._id = session_id
        self.header: session_index.Header | None = None
        self.history: model_history.History | None = None
        self.boundary: boundary.BoundaryState | None = None
        self._seen: files_seen.FilesSeen | None = None
        self.background = background.Background()
        self.queue: dict[MessageId, Waiting] = {}
        self.control_seq = 0
        self.position = 0

    @property
    def seen(self) -> dict[str, str]:
        """Return the SHA-256 that this session last saw of each file, by real path."""
        return {} if self._seen is None else dict(self._seen.files)

    def catch_up(self, reader: LedgerReader) -> None:
        """Fold what the ledger has and this doesn't. Raises LedgerError or FoldError on damage."""
        for item in reader.iter_session(self._id, self.position):
            self._fold(item)

    def _fold(self, item: Committed) -> None:
        self.header = session_index.fold(self.header, item)
        self.history = model_history.fold(self.history, item)
        self._seen = files_seen.fold(self._seen, item)
        self.boundary = boundary.fold(self.boundary, item)
        self.background = background.fold(self.background, item)
        self.position = item.position
        event = item.event
        if event.run_id is None:
            self.control_seq = item.seq
        if event.refs is not None and event.refs.message_id is not None:
            self.queue.pop(event.refs.message_id, None)
        if event.actions is None:
            return
        if (queued := event.actions.message_queued) is not None:
            message_id = MessageId(event.id)
            self.queue[message_id] = Waiting(message_id=message_id, queued=queued)
        if event.actions.message_retracted is not None:
            self.queue.pop(event.actions.message_retracted.message_id, None)
