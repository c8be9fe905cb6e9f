"""One damaged row, wherever it is, touches no session but its own: the others start, run, and are made anew."""

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import Struct

from actors.run import RunActor
from maka.contracts.commands import MessageAccepted, SessionCreated
from maka.contracts.errors import FoldError, LedgerDamagedError
from maka.contracts.events import Committed
from maka.contracts.ids import SessionId, id_bytes
from maka.contracts.model_ports import ChatRequest
from maka.storage.environment import Databases, open_databases, open_environment
from maka.storage.keys import number
from maka.storage.reader import LmdbReader
from maka.storage.root import acquire_root
from maka.storage.verify import verify
from projections import session_index
from tests.actors.case import asks
from tests.sim.faults import FaultyLedger
from tests.sim.host import SimHost
from tests.sim.outside import Said

HOW = ("drop", "empty", "garbage", "flip")
TRUTH_OF_ALL = "meta"
"""Holds what is the store's own, not a session's: `tests/storage` damages it."""


class Row(Struct, frozen=True):
    """One row of a store."""

    database: str
    key: bytes
    value: bytes


def script(request: ChatRequest) -> Said:
    """Say what the newest message asks for."""
    said = next(message.text or "" for message in reversed(request.messages) if message.role == "user")
    if request.messages[-1].role == "tool":
        return Said(text=("done",))
    match said:
        case "hang":
            return asks("Hang", text="word " * 50)
        case "ask":
            return asks("Ask")
        case "stream":
            return Said(text=("on and on",), hangs=True)
        case _:
            return Said(text=("fine",))


def build(root: Path) -> list[SessionId]:
    """Make a store as a killed owner leaves it, each session but the first with a run of another kind that is open."""
    acquire_root(root).close()
    host = SimHost(1, script, store=FaultyLedger(root=root))
    sessions = [host.session() for _ in range(5)]
    for session_id, texts in zip(
        sessions, (["hi"], ["hi", "hang"], ["ask"], ["hi", "stream"], ["hang", "wait"]), strict=True
    ):
        for text in texts:
            host.send(session_id, text)
            host.world.run()
    host.world.drop_all()
    host.store.inner.close()
    return sessions


def rows(root: Path) -> Iterator[Row]:
    environment = open_environment(root, write=False)
    databases = open_databases(root, environment, write=False)
    with environment.begin() as snapshot:
        for name in Databases.__struct_fields__:
            if name != TRUTH_OF_ALL:
                yield from (Row(name, key, value) for key, value in list(snapshot.cursor(getattr(databases, name))))
    environment.close()


def damage(root: Path, row: Row, how: str, chance: random.Random) -> None:
    environment = open_environment(root, write=True)
    databases = open_databases(root, environment, write=True)
    with environment.begin(write=True) as transaction:
        database = getattr(databases, row.database)
        match how:
            case "drop":
                transaction.delete(row.key, db=database)
            case "empty":
                transaction.put(row.key, b"", db=database)
            case "garbage":
                transaction.put(row.key, b"\xc1" * max(1, len(row.value)), db=database)
            case _:
                at = chance.randrange(8 * max(1, len(row.value)))
                flipped = bytearray(row.value or b"\0")
                flipped[at // 8] ^= 1 << at % 8
                transaction.put(row.key, bytes(flipped), db=database)
    environment.close()


class DamagedHost(SimHost):
    """Its world checks what it does against those facts that can be read."""

    def facts(self) -> list[Committed]:
        found: list[Committed] = []
        for position in range(self.store.head().position):
            with suppress(LedgerDamagedError):
                found += self.store.read_positions(position, 1)
        return found


def check_others(root: Path, sessions: list[SessionId]) -> None:
    """Start on the store, and use the session that is whole, a new one, and then the others, too."""
    host = DamagedHost(2, script, store=FaultyLedger(root=root))
    host.world.ids = 1 << 20
    try:
        host.world.run()
        assert host.recovered.value is not None, "it starts"
        new = host.create("new")
        host.world.run()
        assert isinstance(new.value, SessionCreated), new.value
        for session_id in (sessions[0], new.value.session_id):
            sent = host.send(session_id, "and now", command_id="now")
            host.world.run()
            assert isinstance(sent.value, MessageAccepted), sent.value
            header = session_index.decode(host.store.header_of(session_id) or b"")
            assert (header.last_status, header.last_run_id) == ("completed", sent.value.run_id)
        told = [host.send(session_id, "you too", command_id="too") for session_id in sessions[1:]]
        told += [host.stop(session_id) for session_id in sessions[1:]]
        host.world.run()
        assert all(reply.value is not None for reply in told), "whoever asks is answered"
        assert host.fatal == [], "the ledger goes on"
        for name, error in host.world.crashes:
            refused = isinstance(error, LedgerDamagedError | FoldError) or "the ledger refused" in str(error)
            assert name == RunActor.__name__ and refused, (name, error)
    finally:
        host.world.drop_all()
        host.store.inner.close()


Whole = tuple[Path, list[SessionId], list[Row]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    root = tmp_path_factory.mktemp("damage") / "root"
    sessions = build(root)
    reader = LmdbReader.open(root)
    facts = reader.read_session(sessions[0])
    reader.close()
    names = {fact.event.invocation_id for fact in facts} | {fact.event.id for fact in facts}
    mine = (*(id_bytes(name) for name in names), *(name.encode() for name in names))
    places = {number(fact.position) for fact in facts}
    others = [
        row for row in rows(root) if row.key not in places and not any(name in row.key + row.value for name in mine)
    ]
    return root, sessions, others


def play(whole: Whole, folder: Path, cases: list[tuple[Row, str]]) -> None:
    root, sessions, _ = whole
    for count, (row, how) in enumerate(cases):
        copy = folder / str(count)
        shutil.copytree(root, copy)
        damage(copy, row, how, random.Random(count))
        try:
            check_others(copy, sessions)
            reader = LmdbReader.open(copy)
            verify(reader)
            reader.close()
        except BaseException as error:
            error.add_note(f"{how} {row.database} {row.key.hex()}")
            raise
        shutil.rmtree(copy)


def test_h36_any_damaged_row_touches_its_own_session_alone(whole: Whole, tmp_path: Path) -> None:
    """The rows that say what is open, and some of every other kind."""
    _, _, others = whole
    few = [row for row in others if row.database in ("tails", "session_headers", "open_work", "session_numbers")]
    rest = random.Random(1).sample([row for row in others if row not in few], 40)
    play(whole, tmp_path, [(row, how) for row in few for how in HOW] + [(row, "drop") for row in rest])


@pytest.mark.slow
def test_h36_every_row_damaged_in_every_way(whole: Whole, tmp_path: Path) -> None:
    _, _, others = whole
    play(whole, tmp_path, [(row, how) for row in others for how in HOW])
