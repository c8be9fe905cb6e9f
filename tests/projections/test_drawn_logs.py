"""The drawn logs are valid: a ledger takes each of their facts, and gives back what was folded."""

from hypothesis import given, settings

from maka.contracts.codec import drafts
from maka.contracts.events import Committed, is_terminal
from maka.contracts.ports import Append, Appended, Group
from maka.storage.memory import MemoryLedger
from projections import session_index
from tests.strategies import BLOBS, session_logs


@given(session_logs())
@settings(max_examples=150)
def test_a_ledger_takes_every_drawn_log(items: list[Committed]) -> None:
    ledger = MemoryLedger()
    for item in items:
        event = item.event
        group = Group(event.invocation_id, item.seq - 1, drafts([event]))
        (result,) = ledger.commit([Append(groups=(group,), blobs=BLOBS, settlement=is_terminal(event))])
        assert result == Appended(((item.position, item.seq),))
    session_id = items[0].event.session_id
    assert ledger.read_session(session_id) == items
    header = session_index.project(items)
    assert header is not None
    assert ledger.header_of(session_id) == session_index.encode(header)
