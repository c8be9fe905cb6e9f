"""How fast a session is replayed: from the ledger's bytes to what a person and a model see.

20,000 events of one session in a real LMDB ledger, read by short snapshots, decoded, folded, and shown. Once as many
turns, once as a single run as long as a run may be. And what one more event costs at 20,000, against 200.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

from bench._report import machine
from maka.contracts.codec import drafts
from maka.contracts.events import Committed, is_terminal
from maka.contracts.ids import SessionId
from maka.contracts.ports import Append, Appended, Group
from maka.storage.ledger import LmdbLedger
from projections import model_history, session_view
from tests.builders import BLOB_BYTES, RunLog, SessionLog

EVENTS = 20_000
SMALL = 200
GOAL = 100_000
ROUNDS = 5
RESULT = "def test_it() -> None:\n    assert answer() == 42\n" * 12
BATCH = 256


def _turn(session: SessionLog, run: RunLog, step: int) -> None:
    run.request()
    run.text(f"Step {step}: I'll read the next file and see what the test expects of it.")
    run.usage(10_000, 120)
    call = run.call("Read", {"file_path": f"/w/src/module_{step}.py"}, provider_id=f"call_{session.position}")
    run.dispatch(call)
    run.answer(call, RESULT, duration_ms=4)


def _many_turns(session: SessionLog) -> None:
    while session.position < EVENTS:
        run = session.run("Find the failing tests in this project, fix the problem, and run the tests again.")
        for step in range(5):
            _turn(session, run, step)
        run.request()
        run.text("The tests pass now.")
        run.complete()


def _one_run(session: SessionLog) -> None:
    run = session.run("Find the failing tests in this project, fix the problem, and run the tests again.")
    step = 0
    # A run keeps room to be settled, so this one stops a little short of its bound.
    while session.position < EVENTS - 20:
        _turn(session, run, step)
        step += 1


def _store(ledger: LmdbLedger, items: list[Committed]) -> None:
    batch: list[Append] = []
    for item in items:
        event = item.event
        group = Group(event.invocation_id, item.seq - 1, drafts([event]))
        batch.append(Append(groups=(group,), blobs=(BLOB_BYTES,), settlement=is_terminal(event)))
        if len(batch) == BATCH or item is items[-1]:
            results = ledger.commit(batch)
            assert all(isinstance(result, Appended) for result in results), results
            batch = []


def _best_s(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest of some rounds: what the code costs, whatever else the machine does meanwhile."""
    times: list[float] = []
    for _ in range(ROUNDS):
        start = process_time()
        work()
        times.append(process_time() - start)
    return min(times)


def _view(items: Iterable[Committed]) -> object:
    state = session_view.project(items)
    assert state is not None
    return session_view.view(state)


def _history(items: Iterable[Committed]) -> object:
    state = model_history.project(items)
    assert state is not None
    return model_history.render(
        state, level=0, through_position=0, keeps_reasoning=False, open_calls="leave_out"
    ).messages


def _one_more_us(fold: Callable[[Any, Committed], Any], items: list[Committed], count: int) -> float:
    """Microseconds of folding one more event on `count`: folds are pure, so the same one is folded many times."""
    state: Any = None
    for item in items[:count]:
        state = fold(state, item)
    repeats = 2_000
    rounds: list[float] = []
    for _ in range(9):
        start = process_time()
        for _ in range(repeats):
            fold(state, items[count])
        rounds.append((process_time() - start) / repeats * 1e6)
    return min(rounds)


class _Facts:
    """A session's facts, read anew from the ledger each time they are iterated over."""

    def __init__(self, ledger: LmdbLedger, session_id: SessionId) -> None:
        self._ledger, self._session_id = ledger, session_id

    def __iter__(self) -> Iterator[Committed]:
        return self._ledger.iter_session(self._session_id)


def _report(name: str, ledger: LmdbLedger, session_id: SessionId, items: list[Committed]) -> None:
    count = len(items)
    read_s = _best_s(lambda: sum(1 for _ in ledger.iter_session(session_id)))
    print(f"{name}: {count:,} events; read and decoded alone {count / read_s:,.0f} events/s")
    works: tuple[tuple[str, Callable[[Iterable[Committed]], object], Callable[[Any, Committed], Any]], ...] = (
        ("session_view", _view, session_view.fold),
        ("model_history", _history, model_history.fold),
    )
    for label, work, fold in works:
        whole_s = _best_s(partial(work, _Facts(ledger, session_id)))
        rate = count / whole_s
        # The same kind of event at both lengths: one that both projections keep.
        few, many = _place(items, SMALL), _place(items, count - 30)
        at_few, at_many = _one_more_us(fold, items, few), _one_more_us(fold, items, many)
        print(
            f"  {label}: {rate:,.0f} events/s of CPU time from the ledger's bytes ({rate / GOAL:.2f}x of the goal); "
            f"one more event {at_few:.2f} us at {few}, {at_many:.2f} us at {many:,} ({at_many / at_few:.2f}x)"
        )


def _place(items: list[Committed], start: int) -> int:
    kinds = ("FunctionResponse",)
    return next(at for at in range(start, len(items)) if type(items[at].event.content).__name__ in kinds)


def main() -> int:
    """Measure both shapes of a session and print the figures."""
    print(machine())
    for number, (name, fill) in enumerate((("many turns", _many_turns), ("one run", _one_run)), 1):
        session = SessionLog(number=number, prefix=number)
        fill(session)
        with tempfile.TemporaryDirectory() as folder:
            ledger = LmdbLedger.open(Path(folder))
            _store(ledger, session.items)
            _report(name, ledger, session.session_id, session.items)
            ledger.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
