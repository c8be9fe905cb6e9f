"""SQLite as an event store, to compare with: one table with the same payloads, durable at each acknowledgement.

It does less than the ledger: no rules, no chain, no index by session, no head.
"""

import sqlite3
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue

from bench._world import Run
from bench._writers import Acknowledged, Window
from maka.contracts.ids import id_bytes
from maka.contracts.limits import BATCH_EVENTS_MAX
from maka.contracts.ports import Append

TABLE = """CREATE TABLE IF NOT EXISTS events (
    position INTEGER PRIMARY KEY, invocation BLOB NOT NULL, seq INTEGER NOT NULL, id BLOB NOT NULL UNIQUE,
    payload BLOB NOT NULL, UNIQUE (invocation, seq))"""
INSERT = "INSERT INTO events (invocation, seq, id, payload) VALUES (?, ?, ?, ?)"
BUSY_S = 600.0

Row = tuple[bytes, int, bytes, bytes]


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection for any one thread: write-ahead log, fsync at each commit, each statement a transaction."""
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(TABLE)
    return connection


def row_of(append: Append) -> Row:
    """Return the row of an append of one event."""
    (group,) = append.groups
    (draft,) = group.drafts
    return id_bytes(group.invocation_id), group.expected_seq + 1, id_bytes(draft.event.id), draft.payload


def write_alone(connection: sqlite3.Connection, run: Run, window: Window) -> None:
    """Write events, each a transaction of its own, until the window is over; for a thread of its own."""
    goes_on = True
    while goes_on:
        row = row_of(run.texts())
        sent_s = time.perf_counter()
        connection.execute(INSERT, row)
        goes_on = window.note(sent_s)


class BatchWriter:
    """One thread that writes for everyone: what has come meanwhile is one transaction, as in LedgerActor."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path)
        self._inbox: SimpleQueue[tuple[Row, Acknowledged] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def send(self, append: Append, writer: Acknowledged) -> None:
        self._inbox.put((row_of(append), writer))

    def close(self) -> None:
        self._inbox.put(None)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while (first := self._inbox.get()) is not None:
            batch = [first]
            try:
                while len(batch) < BATCH_EVENTS_MAX:
                    item = self._inbox.get_nowait()
                    assert item is not None, "closed while someone waits"
                    batch.append(item)
            except Empty:
                pass
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(INSERT, [row for row, _ in batch])
            self._connection.execute("COMMIT")
            for _, writer in batch:
                writer.acknowledged()
