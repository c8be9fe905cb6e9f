"""Damage is found with its place, fences one session, and everything rebuildable can be made again."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from maka.contracts.codec import draft, encode
from maka.contracts.content import Outcome, Text
from maka.contracts.errors import LedgerDamagedError, LedgerError, Refusal, StoreHeldError
from maka.contracts.events import Committed, Refs
from maka.contracts.ids import CommandId, InvocationId, MessageId, SessionId
from maka.contracts.limits import BLOB_INLINE_BYTES_MAX
from maka.contracts.ports import Appended, LedgerHead
from maka.storage.blobs import blob_path
from maka.storage.environment import HEAD, REBUILDABLE
from maka.storage.keys import chained, event_key, number, pack_head, pack_record, unpack_record
from maka.storage.rebuild import rebuild
from maka.storage.replay import Replay
from maka.storage.verify import VerifyReport, verify
from tests.storage.conftest import DiskBench
from tests.storage.facts import Facts, append, blob_ref, caused, code_of, command, one, uuid


def filled(disk: DiskBench) -> tuple[Facts, Facts]:
    """Two sessions with a bit of everything: A at positions 1 to 9, B at 10 to 13."""
    a, b = Facts(1_000), Facts(2_000)
    call, ask, message = a.call(), a.call(), a.queued()
    question = a.question(ask)
    make = append((0, caused([a.session_opened()], "make", "h")), command=command("", "make", "h"))
    send = append((2, caused([a.text()], "send", "h")), command=command(a.session, "send", "h"))
    taking = a.user(refs=Refs(message_id=MessageId(message.id)))
    items = [make, a.started(), send, append((3, [call, a.dispatch(call)])), append((1, [message]))]
    items += [append((5, [taking, ask, question])), b.opened(), b.started(), append((2, [b.terminal()]))]
    assert all(not hasattr(result, "code") for result in disk.store.commit(items))
    return a, b


def check(disk: DiskBench) -> VerifyReport:
    return verify(disk.store.reader)


def places(report: VerifyReport) -> list[tuple[str | None, int | None, str | None]]:
    return [(problem.session_id, problem.position, problem.database) for problem in report.problems]


def put(disk: DiskBench, database: str, key: bytes, value: bytes | None) -> None:
    """Change a row behind the ledger's back."""
    reader = disk.store.reader
    with reader.environment.begin(write=True) as transaction:
        if value is None:
            assert transaction.delete(key, db=getattr(reader.databases, database))
        else:
            transaction.put(key, value, db=getattr(reader.databases, database))


def record_key(disk: DiskBench, position: int) -> bytes:
    with disk.store.reader.environment.begin() as snapshot:
        key = snapshot.get(number(position), db=disk.store.reader.databases.stream)
    assert key is not None
    return key


def record(disk: DiskBench, position: int) -> bytes:
    with disk.store.reader.environment.begin() as snapshot:
        value = snapshot.get(record_key(disk, position), db=disk.store.reader.databases.events)
    assert value is not None
    return value


def rows(disk: DiskBench) -> dict[str, list[tuple[bytes, bytes]]]:
    reader = disk.store.reader
    with reader.environment.begin() as snapshot:
        return {name: list(snapshot.cursor(getattr(reader.databases, name))) for name in REBUILDABLE}


def test_a_whole_store_is_whole(disk: DiskBench) -> None:
    report = check(disk)
    assert report.ok and report.head.position == 0
    filled(disk)
    report = check(disk)
    assert report.problems == ()
    assert (report.head, report.sessions) == (disk.store.head(), 2)


@pytest.mark.parametrize("damage", ["record", "payload", "flipped"])
def test_h36_one_bad_session_blocks_the_others(disk: DiskBench, damage: str) -> None:
    a, b = filled(disk)
    whole = record(disk, 4)
    bad = {
        "record": b"\xc1",
        "payload": whole[:80] + b"\xc1" * (len(whole) - 80),
        "flipped": whole.replace(b"hello", b"jello"),
    }[damage]
    put(disk, "events", record_key(disk, 4), bad)
    store = disk.restart()
    reads: list[Callable[[], object]] = [
        lambda: store.read_session(a.session),
        lambda: store.read_stream(a.invocation),
        store.read_positions,
    ]
    for read in reads:
        with pytest.raises(LedgerDamagedError) as damaged:
            read()
        assert (damaged.value.session_id, damaged.value.position) == (a.session, 4)
        assert a.session in str(damaged.value) and "position 4" in str(damaged.value)
    assert [item.position for item in store.read_session(a.session, 4)] == [5, 6, 7, 8, 9, 10]
    assert len(store.read_session(b.session)) == 4
    assert len(store.header_bytes()) == 2 and len(store.open_work()) == 1
    assert places(check(disk)) == [(a.session, 4, None)]
    b.run()
    assert isinstance(one(store, b.started()), Appended)
    assert places(check(disk)) == [(a.session, 4, None)]


def test_a_changed_chain_or_place_is_found_where_it_is(disk: DiskBench) -> None:
    a, _ = filled(disk)
    old = unpack_record(record(disk, 4))
    put(disk, "events", record_key(disk, 4), pack_record(4, 9, old.digest, old.chain, old.payload))
    assert places(check(disk)) == [(a.session, 4, None)]
    put(disk, "events", record_key(disk, 4), pack_record(4, old.epoch, old.digest, bytes(32), old.payload))
    assert places(check(disk)) == [(a.session, 4, None), (a.session, 5, None)]


def test_a_head_that_is_not_the_chains_end_is_found(disk: DiskBench) -> None:
    filled(disk)
    head = disk.store.head()
    put(disk, "meta", HEAD, pack_head(LedgerHead(head.position, bytes(32))))
    assert places(check(disk)) == [(None, head.position, None)]
    put(disk, "meta", HEAD, pack_head(LedgerHead(head.position - 1, head.hash)))
    assert (None, head.position - 1, None) in places(check(disk))


def test_a_dropped_record_is_found(disk: DiskBench) -> None:
    a, _ = filled(disk)
    put(disk, "events", record_key(disk, 4), None)
    report = check(disk)
    assert (None, 4, None) in places(report)
    assert (a.session, 5, None) in places(report), "what follows in its stream has a gap before it"


def test_a_record_too_many_is_found(disk: DiskBench) -> None:
    a, _ = filled(disk)
    put(disk, "events", event_key(record_key(disk, 4)[:16], 99), record(disk, 4))
    assert places(check(disk)) == [(a.session, 4, None)]


def test_a_missing_tail_is_found_by_an_earlier_head(disk: DiskBench) -> None:
    a, _ = filled(disk)
    early = disk.store.head()
    one(disk.store, append((2, [a.control()])))
    late = disk.store.head()
    reader = disk.store.reader
    assert verify(reader, head=(early.position, early.hash)).ok
    assert verify(reader, head=(late.position, late.hash.hex())).ok
    assert verify(reader, head=(late.position + 1, late.hash)).problems[0].what.startswith("the store ends at")
    assert places(verify(reader, head=(early.position, late.hash))) == [(None, early.position, None)]
    with pytest.raises(LedgerError, match="is no head"):
        verify(reader, head=(early.position, "xyz"))


def test_a_rule_that_is_broken_in_the_log_is_found(disk: DiskBench) -> None:
    """Someone rewrote a payload with its digest and the whole chain: the rules still don't hold."""
    a, _ = filled(disk)
    chain = unpack_record(record(disk, 3)).chain
    for position in range(4, disk.store.head().position + 1):
        old, key = unpack_record(record(disk, position)), record_key(disk, position)
        made = draft(disk.store.read_positions(position - 1, 1)[0].event)
        if position == 6:
            made = draft(a.response(a.call(), Outcome.OK, id=made.event.id))
        chain = chained(chain, position, key, old.epoch, made.digest)
        put(disk, "events", key, pack_record(position, old.epoch, made.digest, chain, made.payload))
    put(disk, "meta", HEAD, pack_head(LedgerHead(disk.store.head().position, chain)))
    report = check(disk)
    assert places(report) == [(a.session, 6, None)]
    assert "isn't open" in report.problems[0].what


@pytest.mark.parametrize("large", [False, True])
def test_a_value_that_is_lost_or_changed_is_found(disk: DiskBench, large: bool) -> None:
    a, _ = filled(disk)
    value = b"v" * (BLOB_INLINE_BYTES_MAX + 1 if large else 9)
    _, small = disk.blobs.put(value)
    event = a.fact(Text(text="t", whole=blob_ref(value)))
    one(disk.store, append((8, [event]), blobs=(small,) if small else ()))
    assert check(disk).ok
    name = blob_ref(value).sha256
    if large:
        path = blob_path(disk.root / "blobs", name)
        path.write_bytes(b"w" * len(value))
    else:
        put(disk, "blobs", bytes.fromhex(name), b"w" * len(value))
    with pytest.raises(LedgerDamagedError):
        disk.store.blob(name)
    assert places(check(disk)) == [(a.session, 14 + 1, None)]


@pytest.mark.parametrize("database", REBUILDABLE)
def test_a_lost_database_is_made_again(disk: DiskBench, database: str) -> None:
    filled(disk)
    before = rows(disk)
    reader = disk.store.reader
    with reader.environment.begin(write=True) as transaction:
        transaction.drop(getattr(reader.databases, database), delete=False)
    report = check(disk)
    assert {problem.database for problem in report.problems} == {database}
    assert report.problem_count == len(before[database])
    disk.close()
    assert rebuild(disk.root).changed == {(database, "missing"): len(before[database])}
    disk.restart()
    assert rows(disk) == before and check(disk).ok


def test_the_last_number_is_known_without_its_rows(disk: DiskBench) -> None:
    filled(disk)
    last = disk.store.last_number()
    assert last > 0
    reader = disk.store.reader
    with reader.environment.begin(write=True) as transaction:
        transaction.drop(reader.databases.session_numbers, delete=False)
    assert disk.store.last_number() == last


@pytest.mark.parametrize("database", REBUILDABLE)
def test_rows_that_are_wrong_or_too_many_are_mended(disk: DiskBench, database: str) -> None:
    filled(disk)
    before = rows(disk)
    key, value = before[database][0]
    extra = key[:-1] + bytes([key[-1] ^ 0x55])
    put(disk, database, extra, value)
    wrong = bytes(len(value)) or b"x"
    put(disk, database, key, wrong)
    report = check(disk)
    assert {problem.database for problem in report.problems} == {database} and report.problem_count == 2
    disk.close()
    assert rebuild(disk.root).changed == {(database, "wrong"): 1, (database, "too many"): 1}
    disk.restart()
    assert rows(disk) == before and check(disk).ok


def test_rebuilding_leaves_the_rows_of_a_damaged_session_alone(disk: DiskBench) -> None:
    a, b = filled(disk)
    before = rows(disk)
    put(disk, "events", record_key(disk, 4), b"\xc1")
    put(disk, "session_headers", bytes.fromhex(b.session.replace("-", "")), b"lost")
    disk.close()
    report = rebuild(disk.root)
    assert report.changed == {("session_headers", "wrong"): 1}
    assert [(problem.session_id, problem.position) for problem in report.problems] == [(a.session, 4)]
    disk.restart()
    assert rows(disk) == before


def test_a_damaged_tail_refuses_its_own_session_only(disk: DiskBench) -> None:
    a, b = filled(disk)
    put(disk, "tails", bytes.fromhex(a.invocation.replace("-", "")), b"\xc1")
    store = disk.restart()
    b.run()
    refused, fine = store.commit([append((8, [a.text()])), b.started()])
    assert code_of(refused).value == "session_damaged" and not hasattr(fine, "code")


def test_rebuilding_needs_ownership_and_a_root_of_ours(disk: DiskBench, tmp_path: Path) -> None:
    with pytest.raises(StoreHeldError):
        rebuild(disk.root)
    assert rebuild(tmp_path / "new").problem_count == 0


def test_a_replay_finds_what_an_append_would_refuse() -> None:
    facts, replay = Facts(), Replay()
    events = [facts.session_opened(), facts.opening(), facts.response(facts.call())]
    seqs = [1, 1, 2]
    found = [
        replay.take(Committed(position=place, seq=seq, event=event), len(encode(event)))
        for place, (seq, event) in enumerate(zip(seqs, events, strict=True), 1)
    ]
    assert found[:2] == [None, None] and found[2] is not None and "isn't open" in found[2]
    assert replay.fenced == {facts.session}
    partial = replace(Facts(50).session_opened(), partial=True)
    assert replay.take(Committed(position=4, seq=1, event=partial), 1) is not None
    assert replay.session_of(InvocationId(uuid(999))) is None and SessionId(partial.session_id) in replay.fenced


@pytest.mark.parametrize("database", REBUILDABLE)
@pytest.mark.parametrize("garbage", [b"", b"\xc1", b"\xff" * 100])
def test_garbage_beside_the_events_is_a_ledger_error_and_nothing_worse(
    disk: DiskBench, database: str, garbage: bytes
) -> None:
    a, b = filled(disk)
    before = rows(disk)
    text = disk.store.read_stream(b.invocation)[1].event
    for key, _ in before[database]:
        put(disk, database, key, garbage)
    store = disk.restart()
    reads: list[Callable[[], object]] = [
        lambda: store.read_session(a.session),
        lambda: store.read_stream(a.invocation),
        lambda: store.command("", CommandId("make")),
        lambda: store.tail(b.invocation),
        store.read_positions,
        store.open_work,
        store.header_bytes,
    ]
    for read in reads:
        with contextlib.suppress(LedgerDamagedError):
            read()
    again = append((0, caused([a.session_opened()], "make", "h")), command=command("", "make", "h"))
    retry = append((1, [text]))
    for result in store.commit([again, retry, append((8, [a.text()])), append((2, [b.control()]))]):
        assert isinstance(result, Appended | Refusal)
    disk.close()
    rebuild(disk.root)
    assert verify(disk.restart().reader).ok


def test_a_command_that_caused_two_appends_is_found() -> None:
    facts, replay = Facts(), Replay()
    first, between, second = facts.control(), facts.control(), facts.control()
    events = [facts.session_opened(), *caused([first], "c", "h"), between, *caused([second], "c", "h")]
    found = [replay.take(Committed(position=n, seq=n, event=event), 1) for n, event in enumerate(events, 1)]
    assert found[:3] == [None] * 3 and found[3] == "command c caused more than one append"
