"""Order of a session's facts: what every fold over a session checks before it looks at a fact.

One session; positions grow; each invocation is gapless from its seq 1, an opening; nothing follows a terminal. Only
open invocations are kept, so the cost of a check doesn't grow with the number of runs.
"""

from collections.abc import Mapping

from msgspec import Struct

from maka.contracts.content import InvocationOpened, SessionOpened
from maka.contracts.errors import FoldError
from maka.contracts.events import Committed, RuntimeEvent, is_terminal
from maka.contracts.ids import InvocationId, SessionId

# A union would be built anew at each check.
_OPENINGS = (InvocationOpened, SessionOpened)


class LogOrder(Struct, frozen=True, gc=False):
    """Where a session's log is: its last position, and the last seq of its control stream and of each open run."""

    session_id: SessionId
    position: int
    seqs: Mapping[InvocationId, int]


def advance(order: LogOrder | None, item: Committed) -> LogOrder:
    """Take in the place of one fact; raises FoldError where it can't follow what came before."""
    event, invocation_id = item.event, item.event.invocation_id
    if order is None:
        if event.run_id is not None:
            raise FoldError(f"position {item.position}: a session begins with its own opening, not with a run")
        order = LogOrder(event.session_id, 0, {})
    if event.session_id != order.session_id:
        raise FoldError(f"position {item.position} belongs to session {event.session_id}, not {order.session_id}")
    if item.position <= order.position:
        raise FoldError(f"position {item.position} doesn't follow {order.position}")
    last = order.seqs.get(invocation_id)
    if last is None:
        check_opening(item)
    elif item.seq != last + 1:
        raise FoldError(f"position {item.position}: seq {item.seq} of {invocation_id} doesn't follow {last}")
    elif is_opening(event):
        raise FoldError(f"position {item.position}: {invocation_id} is open already")
    if event.status is not None and is_terminal(event):
        if event.run_id is None:
            raise FoldError(f"position {item.position}: a control stream has no terminal")
        return LogOrder(order.session_id, item.position, {k: v for k, v in order.seqs.items() if k != invocation_id})
    return LogOrder(order.session_id, item.position, {**order.seqs, invocation_id: item.seq})


def check_next(item: Committed, session_id: SessionId, position: int) -> None:
    """Raise FoldError unless the fact is of the session, and comes after a position of it."""
    if item.event.session_id != session_id or item.position <= position:
        raise FoldError(f"position {item.position} doesn't follow {position} of session {session_id}")


def is_opening(event: RuntimeEvent) -> bool:
    """Say whether the fact opens a run or a session."""
    return isinstance(event.content, _OPENINGS)


def check_opening(item: Committed) -> None:
    """Raise FoldError unless the fact can be event 1 of its invocation."""
    event = item.event
    expected = SessionOpened if event.run_id is None else InvocationOpened
    if item.seq != 1 or not isinstance(event.content, expected) or event.partial:
        raise FoldError(f"position {item.position}: {event.invocation_id} isn't open, and this is no opening of it")
    control = str(event.invocation_id) == str(event.session_id)
    if (event.run_id is None) is not control or (event.turn_id is None) is not control:
        raise FoldError(f"position {item.position}: run, turn and invocation don't belong together")
