"""A host that closes: every actor has ended before what it uses is closed."""

import threading
from pathlib import Path

import pytest

from actors.session import SessionActor
from maka.app import open_host
from maka.config import load_config
from maka.storage.ledger import LmdbLedger


def test_no_session_is_left_when_a_host_has_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions are slow to go, as when their run's end is still to be read."""
    ended: list[str] = []
    is_free = threading.Event()
    close = LmdbLedger.close

    def slow(actor: SessionActor) -> None:
        is_free.wait(0.5)
        ended.append(actor.actor_urn)

    def close_store(store: LmdbLedger) -> None:
        is_free.set()
        ended.append("store")
        close(store)

    monkeypatch.setattr(SessionActor, "cleanup", slow)
    monkeypatch.setattr(LmdbLedger, "close", close_store)
    config = load_config({"MAKA_HOME": str(tmp_path / "state"), "PATH": "/usr/bin"})
    with open_host(config) as host:
        for _ in range(3):
            host.manager.create_session(str(tmp_path))
    assert ended.index("store") == 3
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("SessionActor")]
    assert "crashed" not in (tmp_path / "state" / "maka.log").read_text()
