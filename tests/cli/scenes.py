"""A run in memory: a log, the events of its subscription, and the answer to its message."""

from collections.abc import Callable, Sequence

import pytest

from maka.contracts.commands import MessageAccepted
from maka.contracts.ids import MessageId, RunId
from maka.contracts.session_events import SessionEvent
from tests.cli.builders import LogBuilder
from tests.cli.fakes import FakeHost, FakeManager, FakeReader, install

MODEL = ("--base-url", "https://models.example/v1", "--model", "m")


def scene(
    monkeypatch: pytest.MonkeyPatch,
    log: LogBuilder,
    events: Sequence[SessionEvent | Callable[[], None]],
    *,
    run: str | None,
    message: MessageId | None = None,
) -> tuple[FakeHost, FakeManager]:
    """Put a host in place that accepts one message and then tells of these events."""
    accepted = MessageAccepted(
        session_id=log.session_id, position=2, run_id=RunId(run) if run else None, message_id=message
    )
    manager = FakeManager(accepted, events)
    host = FakeHost(FakeReader(log.items), manager)
    install(monkeypatch, host)
    return host, manager
