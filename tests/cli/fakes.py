"""A host in memory, for tests of what is shown: a reader over a scripted log, and scripted events."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, TracebackType
from typing import Self

import pytest

from maka.config import Config
from maka.contracts.commands import AnswerTaken, MessageAccepted, SessionCreated, StopReceipt
from maka.contracts.content import RunLimits
from maka.contracts.errors import Refusal, RefusedError
from maka.contracts.events import Committed
from maka.contracts.ids import CommandId, EventId, InvocationId, SessionId
from maka.contracts.ports import KnownCommand, LedgerHead, OpenWork, Partial, StreamTail
from maka.contracts.session_events import SessionEvent
from projections import background, session_index


class FakeReader:
    """Reads a list of facts."""

    def __init__(self, items: Sequence[Committed], blobs: dict[str, bytes] | None = None) -> None:
        self.items = list(items)
        self.blobs = blobs or {}
        self.streaming: list[Partial] = []

    def close(self) -> None: ...

    def head(self) -> LedgerHead:
        return LedgerHead(self.items[-1].position if self.items else 0, b"\0" * 32)

    def tail(self, invocation_id: InvocationId) -> StreamTail | None:
        raise NotImplementedError

    def read_stream(self, invocation_id: InvocationId, after_seq: int = 0, limit: int = 3) -> list[Committed]:
        found = [item for item in self.items if item.event.invocation_id == invocation_id and item.seq > after_seq]
        return found[:limit]

    def read_session(self, session_id: SessionId, after_position: int = 0, limit: int = 1_000) -> list[Committed]:
        found = [item for item in self.items if item.event.session_id == session_id and item.position > after_position]
        return found[:limit]

    def iter_session(self, session_id: SessionId, after_position: int = 0) -> Iterator[Committed]:
        yield from self.read_session(session_id, after_position)

    def read_positions(self, after_position: int = 0, limit: int = 4) -> list[Committed]:
        return [item for item in self.items if item.position > after_position][:limit]

    def command(self, scope: str, command_id: CommandId) -> KnownCommand | None:
        raise NotImplementedError

    def open_work(self) -> list[OpenWork]:
        """Return the control streams that have background processes."""
        sessions = dict.fromkeys(item.event.session_id for item in self.items)
        states = {session: background.project(self.read_session(session)) for session in sessions}
        return [
            OpenWork(session, InvocationId(session), None, 1)
            for session, state in states.items()
            if state is not None and state.live
        ]

    def header_bytes(self) -> list[bytes]:
        headers: dict[SessionId, session_index.Header] = {}
        for item in self.items:
            key = item.event.session_id
            headers[key] = session_index.fold(headers.get(key), item)
        return [session_index.encode(header) for header in headers.values()]

    def header_of(self, session_id: SessionId) -> bytes | None:
        header = session_index.project(item for item in self.items if item.event.session_id == session_id)
        return None if header is None else session_index.encode(header)

    def partials(self, invocation_id: InvocationId) -> list[Partial]:
        return self.streaming

    def blob(self, sha256: str) -> bytes | None:
        return self.blobs.get(sha256)


class FakeSubscription:
    """Hands out scripted events; a function in the list is called in its turn, and hands out nothing."""

    def __init__(self, events: list[SessionEvent | Callable[[], None]]) -> None:
        self._events = events

    def get(self, timeout_s: float | None = None) -> SessionEvent | None:
        assert self._events, "more events were asked for than the run has"
        event = self._events.pop(0)
        if callable(event):
            event()
            return None
        return event

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class FakeManager:
    """Answers as scripted and remembers what it was asked."""

    def __init__(self, accepted: MessageAccepted, events: Sequence[SessionEvent | Callable[[], None]]) -> None:
        self.accepted = accepted
        self.sent: list[tuple[str, str, str, RunLimits | None]] = []
        self.created: list[str] = []
        self.stops: list[str] = []
        self.subscribed: list[int] = []
        self.answers: list[tuple[str, str | None, tuple[str | None, ...] | None, str | None]] = []
        self.refuses: Refusal | None = None
        self._left: list[SessionEvent | Callable[[], None]] = list(events)

    def create_session(
        self, cwd: str, *, title: str | None = None, boundary: str = "ask", command_id: str | None = None
    ) -> SessionCreated:
        self.created.append(cwd)
        return SessionCreated(session_id=self.accepted.session_id, number=12, position=1)

    def send_message(
        self,
        session_id: str,
        text: str,
        *,
        profile: str,
        limits: RunLimits | None = None,
        command_id: str | None = None,
    ) -> MessageAccepted:
        self.sent.append((session_id, text, profile, limits))
        return self.accepted

    def stop(self, session_id: str, source: str) -> StopReceipt:
        self.stops.append(source)
        return StopReceipt(session_id=self.accepted.session_id, run_id=self.accepted.run_id, was="streaming")

    def answer(
        self,
        session_id: str,
        request_id: str,
        *,
        decision: str | None = None,
        scope: str = "session",
        answers: tuple[str | None, ...] | None = None,
        client: str | None = None,
    ) -> AnswerTaken:
        self.answers.append((request_id, decision, answers, client))
        if self.refuses is not None:
            raise RefusedError(self.refuses)
        run_id = self.accepted.run_id
        assert run_id is not None
        return AnswerTaken(
            session_id=self.accepted.session_id, run_id=run_id, request_id=EventId(request_id), position=1
        )

    def subscribe(self, session_id: str, *, after_position: int = 0) -> FakeSubscription:
        self.subscribed.append(after_position)
        return FakeSubscription(self._left)


class FakeHost:
    """A manager and a reader; counts how often it was closed."""

    def __init__(self, reader: FakeReader, manager: FakeManager | None = None) -> None:
        self.reader = reader
        self.manager = manager
        self.closed = 0
        self.recovered_runs = 0
        self.failed = threading.Event()

    def abandon(self) -> None:
        """Nothing runs here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed += 1


def install(monkeypatch: pytest.MonkeyPatch, host: FakeHost) -> list[Config]:
    """Put a host in the place of the composition root; returns the configurations that it was opened with."""
    opened: list[Config] = []

    def open_host(config: Config) -> FakeHost:
        opened.append(config)
        return host

    def open_reader(config: Config) -> FakeReader:
        opened.append(config)
        return host.reader

    module = ModuleType("maka.app")
    module.open_host = open_host  # type: ignore[attr-defined]
    module.open_reader = open_reader  # type: ignore[attr-defined]
    module.is_running = lambda config: True  # type: ignore[attr-defined]
    module.own_files = lambda config: ()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "maka.app", module)
    return opened
