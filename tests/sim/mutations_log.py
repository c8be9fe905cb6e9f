"""Planted bugs of the log: order of commit, publish and effect, the ledger's rules, and recovery. See `mutations`."""
# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from actors import ledger, recovery, session_load, tool
from actors import run_gate as _run_gate
from actors import run_protocol as _run_protocol
from actors import run_tools as _run_tools
from actors.messages_ledger import Published
from actors.messages_run import Resume, StopRun, ToolReady
from actors.run_effects import GrantFact, LookAhead, StartTool
from actors.run_types import Purpose
from maka.contracts.errors import Refusal
from maka.contracts.events import Committed
from maka.contracts.ports import Append, Appended
from maka.contracts.tool_ports import ToolCall, ToolEnv
from maka.storage.memory import MemoryLedger
from projections import append_rules, append_tail, recovery_verdict
from projections.recovery_verdict import Verdict
from projections.run_state import Phase, project
from tests.sim.mutations import always, swap

run_protocol: Any = _run_protocol
run_gate: Any = _run_gate
run_tools: Any = _run_tools


# -- order --------------------------------------------------------------------------------------------------------


def publish_before_commit(stack: ExitStack) -> None:
    """Followers hear of a batch before it is stored."""

    def flush(self: Any) -> None:
        position = self._store.head().position
        events = [draft.event for m in self._appends for group in m.append.groups for draft in group.drafts]
        items = tuple(Committed(position=position + n, seq=n, event=event) for n, event in enumerate(events, 1))
        for follower in self._followers if items else ():
            follower.tell(Published(items=items))
        old(self)

    old = swap(stack, ledger.LedgerActor, "_flush", flush)


def publish_not(stack: ExitStack) -> None:
    """Some batches are never published."""

    def publish(self: Any, appends: list[Append], results: list[Any]) -> None:
        if len(appends) < 2:
            old(self, appends, results)

    old = swap(stack, ledger.LedgerActor, "_publish", publish)


def dispatch_before_durable(stack: ExitStack) -> None:
    """Tools are started with the append that dispatches them, not after it."""

    def append(d: Any, purpose: Purpose, events: Any, **options: Any) -> None:
        if purpose is Purpose.DISPATCH:
            for item in options["work"]:
                if item.args is not None and item.wait_id is None:
                    call = ToolCall(call_id=item.call_id, name=item.name, args=item.args)
                    env = ToolEnv(session_id=d.who.session_id, cwd="/w", temp_suffix=".x", seen={})
                    d.do(StartTool(call, env))
        old(d, purpose, events, **options)

    def stored(d: Any, work: Any) -> None:
        before = len(d.effects)
        dispatched(d, work)
        d.effects[before:] = [effect for effect in d.effects[before:] if not isinstance(effect, StartTool)]

    old = swap(stack, run_gate, "append", append)
    dispatched = swap(stack, run_gate, "dispatches_stored", stored)


def dispatch_what_is_refused(stack: ExitStack) -> None:
    """No tool is asked whether its call may begin."""

    def look(self: Any, message: Any) -> None:
        self._run.tell(ToolReady(call_id=message.call.call_id))

    swap(stack, tool.ToolActor, "_look", look)


def look_after_the_dispatch(stack: ExitStack) -> None:
    """A tool is asked only when its call's dispatch is durable."""

    def stored(d: Any, work: Any) -> None:
        dispatched(d, work)
        starts = [effect for effect in d.effects if isinstance(effect, StartTool)]
        d.effects[:0] = [LookAhead(each.call, each.env) for each in starts if run_gate._is_bounded(d, each.call.name)]

    dispatched = swap(stack, run_gate, "dispatches_stored", stored)


def start_all_at_once(stack: ExitStack) -> None:
    """Calls of a step wait for none that is about the same file."""
    swap(stack, run_gate, "_goes_before", always(False))


def grant_before_durable(stack: ExitStack) -> None:
    """An effect is granted at once, and its fact is never written."""

    def wanted(d: Any, message: Any) -> None:
        d.do(GrantFact(message.call_id, message.token, True))

    swap(stack, run_tools, "fact_wanted", wanted)


def next_request_without_a_response(stack: ExitStack) -> None:
    """The next request goes with the first answer of a step, not with the last."""

    def limit(d: Any) -> Any:
        return None

    def answer_due(d: Any) -> None:
        state = d.state
        due = tuple(item for item in state.work if item.answer is not None)
        if not due or state.in_flight is not None or state.claim is not None:
            return
        facts = [run_tools.response(d, item, item.answer) for item in due]
        request = run_tools.next_request(d, facts)
        blobs = tuple(blob for item in due for blob in item.answer.blobs)
        run_tools.append(d, Purpose.ANSWER, tuple(facts), blobs=blobs, work=due, request=request)

    swap(stack, run_tools, "_limit", limit)
    swap(stack, run_tools, "answer_due", answer_due)


# -- the ledger's rules -------------------------------------------------------------------------------------------


def accept_after_seal(stack: ExitStack) -> None:
    """The append doesn't look at the seal, and recovery closes a run that has ended once more."""

    def check(tail: Any, group: Any) -> Any:
        return old(None if tail is None else replace(tail, sealed=False), group)

    def enter(self: Any, event: Any, position: int, size: int, answered: Any) -> Any:
        tail = self.get(event.invocation_id)
        if tail is not None and tail.sealed:
            self.changed[event.invocation_id] = replace(tail, sealed=False)
        return entered(self, event, position, size, answered)

    def handle(d: Any, message: Any) -> Any:
        state = replace(d, ended=False) if isinstance(message, StopRun) else d
        return state

    old = swap(stack, append_rules, "_check_tail", check)
    entered = swap(stack, append_tail.Book, "enter", enter)

    def decide(state: Any, message: Any, env: Any) -> Any:
        return decided(handle(state, message), message, env)

    decided = swap(stack, run_protocol, "decide", decide)

    def verdict(events: Any, partials: Any, **options: Any) -> Verdict:
        found: Verdict = verdicted(events, partials, **options)
        if found.name == "already_ended":
            found = verdicted(events[:-1], partials, **options)
        return found

    verdicted = swap(stack, recovery_verdict, "verdict", verdict)


def commit_half_a_batch(stack: ExitStack) -> None:
    """A batch loses its last append, which is acknowledged all the same."""

    def commit(self: Any, appends: Sequence[Append], partials: Any = ()) -> Any:
        results = old(self, appends[: max(1, len(appends) - 1)], partials)
        head = self.head().position
        for append in appends[len(results) :]:
            count = sum(len(group.drafts) for group in append.groups)
            seq = append.groups[0].expected_seq
            results.append(Appended(tuple((head + n, seq + n) for n in range(1, count + 1))))
        return results

    old = swap(stack, MemoryLedger, "commit", commit)


def forget_command_ids(stack: ExitStack) -> None:
    """A repeated command is carried out again."""
    swap(stack, append_rules, "_known_command", always(None))
    swap(stack, MemoryLedger, "command", always(None))


def partial_after_final(stack: ExitStack) -> None:
    """A piece of a stream that comes after its final event is kept."""

    def put(self: Any, piece: Any) -> None:
        streams = self._state.partials.setdefault(piece.invocation_id, {})
        streams[piece.stream_id] = _Piece(piece)

    class _Piece:
        def __init__(self, piece: Any) -> None:
            self.stream_id, self.kind, self.text = piece.stream_id, piece.kind, piece.text
            self.generation = piece.generation

    def store(self: Any, new: Any) -> None:
        kept = {key: dict(streams) for key, streams in self._state.partials.items()}
        old(self, new)
        self._state.partials.update(kept)

    old = swap(stack, MemoryLedger, "_store", store)
    swap(stack, MemoryLedger, "_put_partial", put)


def wrong_seq_after_a_refusal(stack: ExitStack) -> None:
    """A refused append moves the run's own count of its facts."""

    def refused(d: Any, flight: Any, refusal: Refusal) -> None:
        d.set(facts=replace(d.state.facts, seq=d.state.facts.seq + len(flight.events)))
        old(d, flight, refusal)

    old = swap(stack, run_protocol, "_refused", refused)


# -- recovery -----------------------------------------------------------------------------------------------------


def recovery_runs_a_tool_again(stack: ExitStack) -> None:
    """A run with a dispatched call is kept as if it waited for a person, and starts its calls when it is revived."""

    def verdict(events: Any, partials: Any, **options: Any) -> Verdict:
        state = project(events) if events[0].event.run_id is not None else None
        if state is not None and state.phase is not Phase.ENDED and any(call.dispatched for call in state.calls):
            return Verdict(name="parked", keep_parked=True)
        found: Verdict = old(events, partials, **options)
        return found

    old = swap(stack, recovery_verdict, "verdict", verdict)

    def handle(d: Any, message: Any) -> None:
        if isinstance(message, Resume):
            for item in d.state.work:
                call = ToolCall(call_id=item.call_id, name=item.name, args=item.args)
                d.do(StartTool(call, ToolEnv(session_id=d.who.session_id, cwd="/w", temp_suffix=".x", seen={})))
        handled(d, message)

    handled = swap(stack, run_protocol, "_handle", handle)


def recovery_leaves_runs_open(stack: ExitStack) -> None:
    """What a dead owner left is only looked at."""

    def inventory(reader: Any, log: Any) -> Any:
        return replace(old(reader, log), runs=())

    old = swap(stack, recovery, "take_inventory", inventory)
    swap(stack, session_load.Loading, "_close", always(None))


def recovery_forgets_the_queue(stack: ExitStack) -> None:
    """After a restart nobody goes on with what waits."""

    def inventory(reader: Any, log: Any) -> Any:
        return replace(old(reader, log), control=())

    old = swap(stack, recovery, "take_inventory", inventory)


def recovery_kills_nothing(stack: ExitStack) -> None:
    """A start closes the runs of a dead owner whose processes go on."""
    _forget(stack, processes=())


def recovery_removes_no_temp_file(stack: ExitStack) -> None:
    """A start closes the runs of a dead owner and leaves half a file."""
    _forget(stack, temp_files=())


def _forget(stack: ExitStack, **nothing: tuple[()]) -> None:
    def inventory(reader: Any, log: Any) -> Any:
        found = old(reader, log)
        return replace(found, runs=tuple(replace(run, **nothing) for run in found.runs))

    old = swap(stack, recovery, "take_inventory", inventory)
