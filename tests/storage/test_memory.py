"""What is special to the twin in memory: snapshots stand for what a crash leaves."""

from maka.contracts.ports import Appended
from maka.storage.memory import MemoryBlobs, MemoryLedger
from tests.storage.facts import append, begun, one


def test_a_snapshot_is_what_was_committed_then() -> None:
    store = MemoryLedger()
    facts = begun(store)
    snapshot, before = store.snapshot(), store.read_positions()
    first, second = append((2, [facts.text("a")])), append((2, [facts.text("b")]))
    assert one(store, first) == Appended(((4, 3),))
    crashed, other = MemoryLedger(snapshot), MemoryLedger(snapshot)
    assert crashed.read_positions() == before
    assert one(crashed, second) == one(other, second) == Appended(((4, 3),))
    assert crashed.head() == other.head() != store.head()
    assert [item.event for item in store.read_stream(facts.invocation, 2)] == [first.groups[0].drafts[0].event]
    assert snapshot.head.position == 3


def test_large_values_are_shared_with_their_writer() -> None:
    blobs = MemoryBlobs()
    ref, small = blobs.put(bytes(100_000))
    assert small is None and MemoryLedger(blobs=blobs).blob(ref.sha256) == bytes(100_000)
    assert MemoryLedger().blob(ref.sha256) is None
