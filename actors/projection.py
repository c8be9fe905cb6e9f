"""ProjectionActor: the committed stream and the live frames -> SessionEvents for each reader.

Laws: a reader sees a fact only after it is durable, and each fact once, in order; a frame is shown only after the
facts before it; a failure here never touches a run. It reads gaps from the ledger, holds the text of live streams
for readers that join in mid-stream, and drops a reader that doesn't keep up.

The snapshot for a joining reader is kept here rather than asked of RunActor: every frame passes this mailbox anyway,
so the order is the same and no run is bothered by its readers.
"""

from typing import assert_never

from actors.base import Log, MakaActor
from actors.messages import Parent
from actors.messages_ledger import Published, Show, Sink, Subscribe, ToFeed, Unsubscribe
from maka.contracts.errors import LedgerError
from maka.contracts.events import Committed, is_terminal
from maka.contracts.ids import RunId, SessionId
from maka.contracts.ports import LedgerReader
from maka.contracts.session_events import Frame, SessionEvent
from projections import session_stream

LIVE_KINDS = frozenset({"text", "thinking"})


class Reader:
    """One subscription: how far it was shown the session."""

    def __init__(self, session_id: SessionId, sink: Sink) -> None:
        self.session_id = session_id
        self.sink = sink
        self.state = session_stream.StreamState()
        self.position = 0


class ProjectionActor(MakaActor[ToFeed]):
    """Follows the whole store; costs nothing for sessions that nobody reads, but for the text of live streams."""

    def __init__(self, log: Log, parent: Parent | None, reader: LedgerReader) -> None:
        super().__init__(log, parent)
        self._reader = reader
        self._readers: dict[SessionId, list[Reader]] = {}
        self._live: dict[RunId, dict[str, tuple[Frame, list[str]]]] = {}

    def receive(self, message: ToFeed) -> None:
        match message:
            case Published():
                for item in message.items:
                    self._publish(item)
            case Show():
                self._show(message.frame)
            case Subscribe():
                self._subscribe(message)
            case Unsubscribe():
                self._unsubscribe(message.sink)
            case _:
                assert_never(message)

    def cleanup(self) -> None:
        """Tell every reader to come again: what is durable is not lost with this actor."""
        for readers in self._readers.values():
            for reader in readers:
                reader.sink.lost()

    def _publish(self, item: Committed) -> None:
        event = item.event
        if event.run_id is not None and (streams := self._live.get(event.run_id)) is not None:
            streams.pop(event.id, None)
            if is_terminal(event):
                del self._live[event.run_id]
        for reader in tuple(self._readers.get(event.session_id, ())):
            if item.position > reader.position:
                self._put(reader, self._fold(reader, item))

    def _fold(self, reader: Reader, item: Committed) -> tuple[SessionEvent, ...]:
        reader.state, events = session_stream.on_fact(reader.state, item)
        reader.position = item.position
        return events

    def _show(self, frame: Frame) -> None:
        if frame.kind in LIVE_KINDS:
            streams = self._live.setdefault(frame.run_id, {})
            pieces = streams[frame.stream_id][1] if frame.stream_id in streams else []
            pieces.append(frame.text)
            streams[frame.stream_id] = (frame, pieces)
        for reader in tuple(self._readers.get(frame.session_id, ())):
            self._put(reader, self._fold_frame(reader, frame))

    def _fold_frame(self, reader: Reader, frame: Frame) -> tuple[SessionEvent, ...]:
        reader.state, events = session_stream.on_frame(reader.state, frame)
        return events

    def _subscribe(self, message: Subscribe) -> None:
        reader = Reader(message.session_id, message.sink)
        try:
            for item in self._reader.iter_session(message.session_id):
                events = self._fold(reader, item)
                if item.position > message.after_position and events and not message.sink.put(events):
                    return
        except LedgerError as error:
            self.log.error("subscribe_failed", session_id=message.session_id, error_kind=str(error))
            return
        self._readers.setdefault(message.session_id, []).append(reader)
        for streams in tuple(self._live.values()):
            for frame, pieces in tuple(streams.values()):
                if frame.session_id == message.session_id:
                    self._put(reader, self._fold_frame(reader, whole(frame, pieces)))

    def _put(self, reader: Reader, events: tuple[SessionEvent, ...]) -> None:
        if events and not reader.sink.put(events):
            self._unsubscribe(reader.sink)

    def _unsubscribe(self, sink: Sink) -> None:
        for session_id, readers in tuple(self._readers.items()):
            kept = [reader for reader in readers if reader.sink is not sink]
            if kept:
                self._readers[session_id] = kept
            else:
                del self._readers[session_id]


def whole(last: Frame, pieces: list[str]) -> Frame:
    """Return one frame for a stream's text so far."""
    return Frame(
        session_id=last.session_id,
        run_id=last.run_id,
        turn_id=last.turn_id,
        stream_id=last.stream_id,
        kind=last.kind,
        offset=0,
        text="".join(pieces),
        after_seq=last.after_seq,
    )
