"""The contract of both stores: commands, messages, blobs and partials."""

import pytest
from msgspec.structs import replace

from maka.contracts.content import BlobRef, Text
from maka.contracts.errors import RefusalCode
from maka.contracts.events import Refs, RuntimeEvent
from maka.contracts.ids import MessageId
from maka.contracts.limits import BLOB_INLINE_BYTES_MAX, PARTIAL_CHUNK_BYTES_MAX
from maka.contracts.ports import (
    Appended,
    KnownCommand,
    Partial,
    PutPartial,
)
from projections.append_rules import Limits
from tests.storage.conftest import Bench
from tests.storage.facts import BLOBS, PROMPT, Facts, append, begun, blob_ref, caused, code_of, command, one


def test_a_known_command_gives_the_stored_outcome(bench: Bench) -> None:
    facts = begun(bench.store)
    key = command(facts.session, "c1", "h1")
    first = append((2, caused([facts.text("a"), facts.text("b")], "c1", "h1")), command=key)
    assert one(bench.store, first) == Appended(((4, 3), (5, 4)))
    again = append((4, caused([facts.text("a")], "c1", "h1")), command=key)
    assert one(bench.store, again) == Appended(((4, 3), (5, 4)), known=True)
    assert one(bench.restart(), again) == Appended(((4, 3), (5, 4)), known=True)
    assert bench.store.command(facts.session, key.command_id) == KnownCommand("h1", 4, 2)
    other = append((4, caused([facts.text()], "c1", "h2")), command=command(facts.session, "c1", "h2"))
    assert code_of(one(bench.store, other)) is RefusalCode.COMMAND_CONFLICT


def test_a_command_is_known_within_its_batch(bench: Bench) -> None:
    facts = begun(bench.store)
    key = command(facts.session, "c1", "h1")
    items = [append((2, caused([facts.text()], "c1", "h1")), command=key) for _ in range(2)]
    assert bench.store.commit(items) == [Appended(((4, 3),)), Appended(((4, 3),), known=True)]


def test_the_command_that_makes_a_session_has_the_stores_scope(bench: Bench) -> None:
    facts = Facts()
    key = command("", "make", "h")
    item = append((0, caused([facts.session_opened()], "make", "h")), command=key)
    assert one(bench.store, item) == Appended(((1, 1),))
    assert bench.store.command("", key.command_id) == KnownCommand("h", 1, 1)
    assert bench.store.command(facts.session, key.command_id) is None
    # The same word in the session's own scope is another command.
    own = append((1, caused([facts.control()], "make", "h")), command=command(facts.session, "make", "h"))
    assert one(bench.store, own) == Appended(((2, 2),))


def test_the_last_number_is_the_highest_of_all_sessions(bench: Bench) -> None:
    assert bench.store.last_number() == 0
    for first, number in ((100, 7), (200, 300), (300, 8)):
        assert isinstance(one(bench.store, append((0, [Facts(first).session_opened(number)]))), Appended)
        assert bench.store.last_number() == max(7, number if number != 8 else 300)
    assert bench.restart().last_number() == 300


def test_a_refused_command_is_not_remembered(bench: Bench) -> None:
    facts = begun(bench.store)
    key = command(facts.session, "c1", "h1")
    bad = append((9, caused([facts.text()], "c1", "h1")), command=key)
    assert code_of(one(bench.store, bad)) is RefusalCode.APPEND_CONFLICT
    assert bench.store.command(facts.session, key.command_id) is None


def test_causes_and_commands_belong_together(bench: Bench) -> None:
    facts = begun(bench.store)
    key = command(facts.session, "c1", "h1")
    half = [*caused([facts.text()], "c1", "h1"), facts.text()]
    stray = caused([facts.text()], "c1", "h1")
    made = [*caused([Facts(500).session_opened()], "c2", "h")]
    refused = [
        append((2, half), command=key),
        append((2, stray)),
        append((2, caused([facts.text()], "c1", "other")), command=key),
        append((2, caused([facts.text()], "c1", "h1")), command=command("", "c1", "h1")),
        append((2, caused([facts.text()], "no spaces", "h1")), command=command(facts.session, "no spaces", "h1")),
        append((0, made), command=command(made[0].session_id, "c2", "h")),
    ]
    assert {code_of(result) for result in bench.store.commit(refused)} == {RefusalCode.INVALID_EVENT}


# Messages


def taking(facts: Facts, message: RuntimeEvent) -> RuntimeEvent:
    return facts.user(refs=Refs(message_id=MessageId(message.id)))


def test_a_queued_message_is_taken_once(bench: Bench) -> None:
    facts = begun(bench.store)
    message = facts.queued()
    one(bench.store, append((1, [message])))
    assert [work.invocation_id for work in bench.store.open_work()] == [facts.invocation, facts.control_id]
    assert one(bench.store, append((2, [taking(facts, message)]))) == Appended(((5, 3),))
    assert [work.invocation_id for work in bench.store.open_work()] == [facts.invocation]
    assert code_of(one(bench.store, append((3, [taking(facts, message)])))) is RefusalCode.MESSAGE_TAKEN
    assert code_of(one(bench.restart(), append((2, [facts.retracted(message)])))) is RefusalCode.MESSAGE_TAKEN


def test_a_retracted_message_is_never_taken(bench: Bench) -> None:
    facts = begun(bench.store)
    message = facts.queued()
    one(bench.store, append((1, [message])))
    one(bench.store, append((2, [facts.retracted(message)])))
    assert code_of(one(bench.store, append((2, [taking(facts, message)])))) is RefusalCode.MESSAGE_TAKEN
    assert code_of(one(bench.store, append((3, [facts.retracted(message)])))) is RefusalCode.MESSAGE_TAKEN


def test_a_message_that_was_never_queued_is_not_taken(bench: Bench) -> None:
    facts = begun(bench.store)
    assert code_of(one(bench.store, append((2, [taking(facts, facts.queued())])))) is RefusalCode.MESSAGE_TAKEN


def test_two_runs_of_one_batch_cannot_both_take_a_message(bench: Bench) -> None:
    facts = begun(bench.store)
    message = facts.queued()
    one(bench.store, append((1, [message])))
    first = append((2, [taking(facts, message)]))
    facts.run()
    second = append((0, [facts.opening(), taking(facts, message)]), blobs=BLOBS)
    results = bench.store.commit([first, second])
    assert results[0] == Appended(((5, 3),)) and code_of(results[1]) is RefusalCode.MESSAGE_TAKEN


def test_only_so_many_messages_wait(bench: Bench) -> None:
    facts = Facts()
    store = bench.restart(Limits(untaken_max=2))
    store.commit([facts.opened(), append((1, [facts.queued()])), append((2, [facts.queued()]))])
    assert code_of(one(store, append((3, [facts.queued()])))) is RefusalCode.LIMIT_EXCEEDED


# Blobs


def naming(facts: Facts, value: bytes) -> RuntimeEvent:
    return facts.fact(Text(text="head and tail", whole=blob_ref(value)))


def test_small_blobs_travel_with_their_append(bench: Bench) -> None:
    facts = begun(bench.store)
    value = b"the whole output"
    item = append((2, [naming(facts, value)]))
    assert code_of(one(bench.store, item)) is RefusalCode.MISSING_BLOB
    assert bench.store.blob(blob_ref(value).sha256) is None
    assert one(bench.store, replace(item, blobs=(value,))) == Appended(((4, 3),))
    assert bench.store.blob(blob_ref(value).sha256) == value
    assert one(bench.restart(), append((3, [naming(facts, value)]))) == Appended(((5, 4),))


def test_a_blob_of_an_earlier_append_of_the_batch_is_there(bench: Bench) -> None:
    facts = begun(bench.store)
    first, second = naming(facts, b"x"), naming(facts, b"x")
    results = bench.store.commit([append((2, [first]), blobs=(b"x",)), append((3, [second]))])
    assert results == [Appended(((4, 3),)), Appended(((5, 4),))]


def test_a_large_value_is_stored_before_the_append_that_names_it(bench: Bench) -> None:
    facts = begun(bench.store)
    value = bytes(BLOB_INLINE_BYTES_MAX + 1)
    carried = append((2, [naming(facts, value)]), blobs=(value,))
    assert code_of(one(bench.store, carried)) is RefusalCode.LIMIT_EXCEEDED
    assert bench.blobs.put(value) == (blob_ref(value), None)
    assert one(bench.store, append((2, [naming(facts, value)]))) == Appended(((4, 3),))
    assert bench.store.blob(blob_ref(value).sha256) == value
    small = b"small"
    assert bench.blobs.put(small) == (blob_ref(small), small)


@pytest.mark.parametrize("name", ["", "0", "../../../etc/passwd", "A" * 64, "é" * 64, "f" * 64])
def test_a_name_that_is_no_stored_value_is_missing(bench: Bench, name: str) -> None:
    facts = begun(bench.store)
    event = facts.fact(Text(text="t", whole=BlobRef(sha256=name, size_bytes=1)))
    assert code_of(one(bench.store, append((2, [event])))) is RefusalCode.MISSING_BLOB
    assert bench.store.blob(name) is None


def test_a_blob_has_the_size_that_is_said(bench: Bench) -> None:
    facts = begun(bench.store)
    event = facts.fact(Text(text="t", whole=BlobRef(sha256=blob_ref(PROMPT).sha256, size_bytes=1)))
    assert code_of(one(bench.store, append((2, [event])))) is RefusalCode.MISSING_BLOB


# Partials


def piece(facts: Facts, stream: RuntimeEvent, offset: int, text: str, generation: int = 1) -> PutPartial:
    return PutPartial(
        session_id=facts.session,
        invocation_id=facts.invocation,
        stream_id=stream.id,
        kind="text",
        generation=generation,
        offset=offset,
        text=text,
    )


def kept(bench: Bench, facts: Facts) -> list[str]:
    before = bench.store.partials(facts.invocation)
    assert bench.restart().partials(facts.invocation) == before
    return [partial.text for partial in before]


def test_pieces_of_a_stream_are_kept_until_its_final_event(bench: Bench) -> None:
    facts = begun(bench.store)
    final, other = facts.text("hello world"), facts.text()
    bench.store.commit([], [piece(facts, final, 0, "héllo"), piece(facts, other, 0, "x"), piece(facts, final, 5, " w")])
    assert bench.store.partials(facts.invocation)[0] == Partial(
        stream_id=final.id, kind="text", generation=1, text="héllo w"
    )
    assert kept(bench, facts) == ["héllo w", "x"]
    one(bench.store, append((2, [final])))
    assert kept(bench, facts) == ["x"]
    bench.store.commit([], [piece(facts, final, 0, "late")])
    assert kept(bench, facts) == ["x"]
    one(bench.store, append((3, [facts.terminal()])))
    assert kept(bench, facts) == []
    bench.store.commit([], [piece(facts, other, 0, "late")])
    assert kept(bench, facts) == []


def test_a_piece_in_the_batch_of_its_final_event_is_dropped(bench: Bench) -> None:
    facts = begun(bench.store)
    final = facts.text()
    bench.store.commit([append((2, [final]))], [piece(facts, final, 0, "hel")])
    assert kept(bench, facts) == []


def test_pieces_overlap_restart_and_never_leave_a_hole(bench: Bench) -> None:
    facts = begun(bench.store)
    stream = facts.text()
    bench.store.commit(
        [], [piece(facts, stream, 0, "abc"), piece(facts, stream, 3, "def"), piece(facts, stream, 9, "!")]
    )
    assert kept(bench, facts) == ["abcdef"]
    bench.store.commit([], [piece(facts, stream, 2, "XY")])
    assert kept(bench, facts) == ["abXY"]
    bench.store.commit([], [piece(facts, stream, 4, "Z")])
    assert kept(bench, facts) == ["abXYZ"]
    bench.store.commit([], [piece(facts, stream, 0, "new")])
    assert kept(bench, facts) == ["new"]


def test_a_newer_generation_replaces_and_an_older_one_is_dropped(bench: Bench) -> None:
    facts = begun(bench.store)
    stream = facts.text()
    bench.store.commit([], [piece(facts, stream, 0, "first"), piece(facts, stream, 5, "?", generation=2)])
    assert kept(bench, facts) == ["first"]
    bench.store.commit([], [piece(facts, stream, 0, "second", generation=2), piece(facts, stream, 5, "old")])
    assert kept(bench, facts) == ["second"]


def test_pieces_without_a_run_or_over_the_bound_are_dropped(bench: Bench) -> None:
    facts = begun(bench.store)
    stream, nowhere = facts.text(), Facts(500)
    bench.store.commit([], [piece(nowhere, stream, 0, "x"), piece(facts, facts.text(id="bad"), 0, "x")])
    bench.store.commit([], [piece(facts, stream, 0, "é" * (PARTIAL_CHUNK_BYTES_MAX // 2 + 1))])
    assert kept(bench, facts) == [] and bench.store.partials(nowhere.invocation) == []
    bench.store.commit([], [piece(facts, stream, 0, "é" * (PARTIAL_CHUNK_BYTES_MAX // 2))])
    assert len(kept(bench, facts)) == 1
