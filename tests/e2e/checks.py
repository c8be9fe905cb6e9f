"""INV1 to INV5: what must hold after every test, whatever it did.

INV1 each run has exactly one terminal fact, and no projection disagrees; INV2 every request of a model was one that a
strict provider takes; INV3 the session takes a further prompt, and that prompt works; INV4 no process, thread, reader
slot or descriptor is left; INV5 a restart adds nothing, calls no model, runs no tool, and shows the same.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pykka
from msgspec import Struct

from maka.contracts.content import InvocationOpened, SessionOpened
from maka.contracts.events import Committed, is_terminal
from maka.contracts.ids import RunId, SessionId
from maka.contracts.session_events import Abort, Complete
from maka.edges.process_tree import Stat, stat_of
from maka.edges.scripted_model import ScriptRequest, Strictness
from maka.edges.scripted_rules import complaint
from maka.storage.reader import LmdbReader
from maka.storage.verify import verify
from projections import run_record, session_index, session_stream, session_view
from tests.checkers import check_endings

if TYPE_CHECKING:
    from tests.e2e.harness import Maka

JOIN_S = 15.0
POLL_S = 0.01
GO_ON_MAX = 3
"""How many sessions of a store are asked for a further prompt."""


class Around(Struct, frozen=True):
    """What there was in this process before a test."""

    threads: frozenset[threading.Thread]
    actors: frozenset[str]
    children: frozenset[int]

    @staticmethod
    def now() -> "Around":
        children = frozenset(stat.pid for stat in _children())
        return Around(frozenset(threading.enumerate()), _actors(), children)


def check(maka: "Maka") -> None:
    """Hold one state root to the invariants; closes its host, opens it again, and closes it for good."""
    from tests.e2e.harness import FINE

    if not maka.machine.state.exists():
        return
    if not maka.is_open:
        maka.open()
    check_log(maka.store)
    before, asked = everything(maka.store), maka.model.count
    maka.reopen()
    assert maka.host.recovered_runs == 0, "INV5: the restart found something to recover"
    assert everything(maka.store) == before, "INV5: the restart changed what is shown"
    assert maka.model.count == asked, "INV5: the restart called a model"
    maka.model.says(FINE)
    for header in headers(maka.store)[-GO_ON_MAX:]:
        if os.path.isdir(header.real_cwd):
            ended = maka.run("a further prompt", header.session_id)
            assert (ended.status, ended.final_text) == ("completed", "fine"), f"INV3: {ended}"
    check_log(maka.store)
    eventually(lambda: "no active readers" in maka.store.environment.readers(), "INV4: a reader slot is held")
    maka.close()
    check_store(maka)


def check_store(maka: "Maka") -> None:
    """Verify a store that nobody owns, with every chain, rule and row."""
    reader = LmdbReader.open(maka.machine.state)
    try:
        report = verify(reader)
        assert report.ok, report.problems
    finally:
        reader.close()


def check_log(reader: LmdbReader) -> None:
    """INV1, over the whole store and over each projection of it."""
    facts = all_facts(reader)
    check_endings(facts)
    opened = [item.event.run_id for item in facts if isinstance(item.event.content, InvocationOpened)]
    ended = Counter(item.event.run_id for item in facts if is_terminal(item.event))
    assert ended == Counter(opened), "INV1: a run without exactly one terminal"
    assert not reader.open_work(), "INV1: work is left open"
    for header in headers(reader):
        session = [item for item in facts if item.event.session_id == header.session_id]
        _check_session(header, session)


def _check_session(header: session_index.Header, facts: list[Committed]) -> None:
    assert isinstance(facts[0].event.content, SessionOpened)
    assert session_index.project(facts) == header, "INV1: the stored header isn't the fold of the facts"
    assert header.status is session_index.SessionStatus.IDLE
    terminals = {item.event.run_id: item.event.status for item in facts if is_terminal(item.event)}
    assert header.run_count == len(terminals)
    viewed = session_view.project(facts)
    assert viewed is not None
    turns = session_view.view(viewed).turns
    assert {turn.run_id: turn.status for turn in turns} == terminals, "INV1: the view disagrees"
    for run_id, status in terminals.items():
        assert run_id is not None
        assert _record(facts, run_id).status == status, "INV1: the record disagrees"
    state, closing = session_stream.StreamState(), list[RunId | None]()
    for item in facts:
        state, events = session_stream.on_fact(state, item)
        closing += [event.run_id for event in events if isinstance(event, Complete | Abort)]
    assert Counter(closing) == Counter(list(terminals)), "INV1: the stream disagrees"


def _record(facts: Iterable[Committed], run_id: RunId) -> run_record.RunRecord:
    folded = run_record.project(item for item in facts if item.event.run_id == run_id)
    assert folded is not None
    return run_record.record(folded)


def check_requests(requests: Sequence[ScriptRequest], strict: Strictness | None) -> None:
    """INV2: in each request every call has exactly one result, and no result lacks a call."""
    if strict is not None:
        for request in requests:
            assert (why := complaint(request.data, strict)) is None, f"INV2: {why}"


def nothing_left(before: Around, folder: Path) -> None:
    """INV4, once every host and model of a test is closed. Threads that are ending are waited for."""
    for thread in set(threading.enumerate()) - before.threads:
        thread.join(JOIN_S)
        assert not thread.is_alive(), f"INV4: the thread {thread.name} is left"
    assert not _actors() - before.actors, "INV4: an actor is left"
    left = [stat for stat in _children() if stat.pid not in before.children]
    assert not left, f"INV4: child processes are left: {left}"
    assert not living_in(folder), f"INV4: processes live on in the test's folder: {living_in(folder)}"


def eventually(holds: Callable[[], bool], words: str) -> None:
    """Wait for what another thread or process is about to do, where nothing tells of it."""
    patience = threading.Event()
    for _ in range(round(JOIN_S / POLL_S)):
        if holds():
            return
        patience.wait(POLL_S)
    raise AssertionError(words)


# -- reading ------------------------------------------------------------------------------------------------------


def all_facts(reader: LmdbReader) -> list[Committed]:
    facts: list[Committed] = []
    while page := reader.read_positions(facts[-1].position if facts else 0):
        facts += page
    return facts


def headers(reader: LmdbReader) -> list[session_index.Header]:
    return sorted(map(session_index.decode, reader.header_bytes()), key=lambda header: header.number)


def everything(reader: LmdbReader) -> tuple[object, ...]:
    """Return all that a store shows: its facts, headers, and the views made of them."""
    facts = all_facts(reader)
    found = headers(reader)
    return (reader.head(), facts, found, tuple(view_bytes(facts, header.session_id) for header in found))


def view_bytes(facts: Iterable[Committed], session_id: SessionId) -> bytes:
    viewed = session_view.project(item for item in facts if item.event.session_id == session_id)
    assert viewed is not None
    return msgspec.json.encode(session_view.view(viewed))


def living_in(folder: Path) -> list[str]:
    """Return the command lines of processes that work in a folder or below it, whoever's children they are."""
    found: list[str] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if Path(f"/proc/{name}/cwd").readlink().is_relative_to(folder):
                found.append(Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip())
    return found


def _actors() -> frozenset[str]:
    return frozenset(ref.actor_urn for ref in pykka.ActorRegistry.get_all())


def _processes() -> list[Stat]:
    stats = [stat_of(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    return [stat for stat in stats if stat is not None]


def _children() -> list[Stat]:
    return [stat for stat in _processes() if stat.parent == os.getpid()]
