"""Planted bugs: each breaks one rule of the protocol, and `test_mutations` shows that the suite sees it.

A mutation replaces a function of the product while a block runs. Those that fit a story are found by the swarm; the
others have a scenario of their own.
"""
# A planted bug reaches for names that modules keep to themselves, and replaces functions by short ones.
# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportDeprecated=false
# mypy: disable-error-code="attr-defined,no-any-return"

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from actors import kernel, ledger, recovery, run, run_ending, run_protocol, run_tools, run_waits, session, session_run
from actors.backend import BackendActor
from actors.base import MakaActor
from actors.messages_ledger import LedgerUp, Published
from actors.messages_run import Resume, StopRun
from actors.messages_work import Cancel
from actors.run_effects import GrantFact, StartTool
from actors.run_types import Purpose
from maka.contracts.commands import AnswerTaken
from maka.contracts.errors import Refusal
from maka.contracts.events import Committed
from maka.contracts.ids import EventId, RunId, SessionId
from maka.contracts.ports import Append, Appended
from maka.contracts.tool_ports import ToolCall, ToolEnv
from maka.storage.memory import MemoryLedger
from projections import append_rules, append_tail, recovery_verdict
from projections.recovery_verdict import Verdict
from projections.run_state import Phase, project

Mutation = Callable[[ExitStack], None]


@contextmanager
def planted(mutation: Mutation) -> Iterator[None]:
    """Let a planted bug live for a block."""
    with ExitStack() as stack:
        mutation(stack)
        yield


def _swap(stack: ExitStack, where: Any, name: str, new: Any) -> Any:
    """Replace a function; return the old one."""
    old = getattr(where, name)
    stack.enter_context(patch.object(where, name, new))
    return old


# -- ending -------------------------------------------------------------------------------------------------------


def drop_the_claim(stack: ExitStack) -> None:
    """The last message that ends a run wins, not the first."""
    old = run_ending.claim

    def claim(d: Any, ending: Any, *extras: Any) -> None:
        d.set(claim=None)
        old(d, ending, *extras)

    for module in (run_ending, run_tools, run_protocol.run_steps):
        _swap(stack, module, "claim", claim)


def late_facts_count(stack: ExitStack) -> None:
    """What the model still says after the claim is taken in, by its backend and by the run."""
    _swap(stack, run_protocol, "_is_live", lambda d, generation: generation == d.state.generation)
    _swap(stack, BackendActor, "_is_live", lambda self, generation: generation == self._generation)


def skip_a_settle(stack: ExitStack) -> None:
    """The newest open call gets no response when its run ends."""

    def settle(*args: Any, **options: Any) -> Any:
        return old(*args, **{**options, "calls": tuple(options.get("calls", ()))[:-1]})

    old = _swap(stack, run_ending, "settle", settle)


def forget_the_waits(stack: ExitStack) -> None:
    """A wait stays open when its run ends."""

    def settle(*args: Any, **options: Any) -> Any:
        return old(*args, **{**options, "waits": ()})

    old = _swap(stack, run_ending, "settle", settle)


def settle_before_the_tools_end(stack: ExitStack) -> None:
    """The verdict about a running call is written without waiting for what it has to say, as one never started."""
    _swap(stack, run_ending, "waiting_for", lambda d: ())

    def known(d: Any, work: Any) -> Any:
        return old(d, replace(work, started=False))

    old = _swap(stack, run_ending, "_known", known)


def never_try_again(stack: ExitStack) -> None:
    """An ending that found no room is forgotten."""

    def arm(self: Any, kind: str, delay_s: float) -> None:
        if kind != "settle_retry":
            old(self, kind, delay_s)

    old = _swap(stack, run.Deadlines, "arm", arm)

    def handle(d: Any, message: Any) -> None:
        if not isinstance(message, LedgerUp):
            handled(d, message)

    handled = _swap(stack, run_protocol, "_handle", handle)


def start_after_a_stop(stack: ExitStack) -> None:
    """A stop that is handled before Start doesn't keep the run from sending its first request."""

    def handle(d: Any, message: Any) -> None:
        if isinstance(message, run_protocol.StartRun):
            plan = d.state.plan
            first = run_protocol.NextRequest(step=1, attempt=1, tries=1, body=plan.body)
            run_protocol.run_steps.send(d, first)
        else:
            old(d, message)

    old = _swap(stack, run_protocol, "_handle", handle)


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

    old = _swap(stack, ledger.LedgerActor, "_flush", flush)


def publish_not(stack: ExitStack) -> None:
    """Some batches are never published."""

    def publish(self: Any, appends: list[Append], results: list[Any]) -> None:
        if len(appends) < 2:
            old(self, appends, results)

    old = _swap(stack, ledger.LedgerActor, "_publish", publish)


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

    old = _swap(stack, run_tools, "append", append)
    dispatched = _swap(stack, run_tools, "dispatches_stored", stored)


def grant_before_durable(stack: ExitStack) -> None:
    """An effect is granted at once, and its fact is never written."""

    def wanted(d: Any, message: Any) -> None:
        d.do(GrantFact(message.call_id, message.token, True))

    _swap(stack, run_tools, "fact_wanted", wanted)


def next_request_without_a_response(stack: ExitStack) -> None:
    """The next request goes with the first answer of a step, not with the last."""

    def limit(d: Any) -> Any:
        return None

    def answer_due(d: Any) -> None:
        state = d.state
        due = tuple(item for item in state.work if item.answer is not None)
        if not due or state.in_flight is not None or state.claim is not None:
            return
        facts = [run_tools._response(d, item, item.answer) for item in due]
        request = run_tools.next_request(d, facts)
        run_tools.append(d, Purpose.ANSWER, tuple(facts), work=due, request=request)

    _swap(stack, run_tools, "_limit", limit)
    _swap(stack, run_tools, "answer_due", answer_due)


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

    old = _swap(stack, append_rules, "_check_tail", check)
    entered = _swap(stack, append_tail.Book, "enter", enter)

    def decide(state: Any, message: Any, env: Any) -> Any:
        return decided(handle(state, message), message, env)

    decided = _swap(stack, run_protocol, "decide", decide)

    def verdict(events: Any, partials: Any, **options: Any) -> Verdict:
        found = verdicted(events, partials, **options)
        if found.name == "already_ended":
            return verdicted(events[:-1], partials, **options)
        return found

    verdicted = _swap(stack, recovery_verdict, "verdict", verdict)


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

    old = _swap(stack, MemoryLedger, "commit", commit)


def forget_command_ids(stack: ExitStack) -> None:
    """A repeated command is carried out again."""
    _swap(stack, append_rules, "_known_command", lambda append, lookup: None)
    _swap(stack, MemoryLedger, "command", lambda self, scope, command_id: None)


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

    old = _swap(stack, MemoryLedger, "_store", store)
    _swap(stack, MemoryLedger, "_put_partial", put)


def wrong_seq_after_a_refusal(stack: ExitStack) -> None:
    """A refused append moves the run's own count of its facts."""

    def refused(d: Any, flight: Any, refusal: Refusal) -> None:
        d.set(facts=replace(d.state.facts, seq=d.state.facts.seq + len(flight.events)))
        old(d, flight, refusal)

    old = _swap(stack, run_protocol, "_refused", refused)


# -- actors -------------------------------------------------------------------------------------------------------


def reuse_a_generation(stack: ExitStack) -> None:
    """Two requests have one generation."""

    def send(d: Any, request: Any) -> None:
        old(d, request)
        if d.state.generation > 1:
            last = d.effects[-1]
            d.set(generation=d.state.generation - 1)
            d.effects[-1] = type(last)(last.generation - 1, last.body, last.tries)

    old = _swap(stack, run_protocol.run_steps, "send", send)


def unsticky_cancel(stack: ExitStack) -> None:
    """A cancel ends what runs, and not what arrives later."""

    def receive(self: Any, message: Any) -> None:
        old(self, message)
        if isinstance(message, Cancel):
            self._cancelled_through = 0

    old = _swap(stack, BackendActor, "receive", receive)


def lost_stash(stack: ExitStack) -> None:
    """Data that comes while an append is in flight is dropped."""

    def receive(self: Any, message: Any) -> None:
        if self._state.in_flight is None or not isinstance(message, run_protocol.STASHED):
            old(self, message)

    old = _swap(stack, run.RunActor, "receive", receive)


def no_answer_to_a_dropped_command(stack: ExitStack) -> None:
    """Commands in the mailbox of a dead actor are lost in silence."""
    _swap(stack, MakaActor, "_answer", lambda self, message, *why: None)


def passivate_with_a_command_on_its_way(stack: ExitStack) -> None:
    """A session is let go although a command was sent to it."""

    def note_idle(self: Any, session_id: SessionId, handled: int) -> None:
        live = self._live.get(session_id)
        if live is not None:
            live.sent = handled
            self._live.pop(session_id).address.stop()
            self._supervisor.runs = {
                key: each for key, each in self._supervisor.runs.items() if each.session_id != session_id
            }

    _swap(stack, kernel.KernelActor, "_note_idle", note_idle)


def let_a_run_go_with_an_answer_on_its_way(stack: ExitStack) -> None:
    """A parked run's actor is let go although an answer was sent to it."""

    def let_go(self: Any, run_id: RunId, handled: int) -> None:
        self._sent = handled
        old(self, run_id, handled)

    old = _swap(stack, session_run.OwnRun, "let_go", let_go)


def accept_a_second_answer(stack: ExitStack) -> None:
    """Whoever answers late is told that the answer was taken."""

    def answer(d: Any, command: Any, reply: Any) -> None:
        work = next((each for each in d.state.work if each.wait_id == command.request_id), None)
        if work is None:
            ids = {"session_id": command.session_id, "run_id": d.who.run_id}
            taken = AnswerTaken(**ids, request_id=EventId(command.request_id), position=d.state.facts.position)
            d.do(run_waits.Reply(reply, taken))
        else:
            old(d, command, reply)

    old = _swap(stack, run_waits, "answer", answer)


def forget_the_retry_bound(stack: ExitStack) -> None:
    """A failure that may pass is tried again for ever."""
    stack.enter_context(patch("actors.step_loop.RETRY_TRIES_MAX", 1 << 30))


def hold_the_queue(stack: ExitStack) -> None:
    """A queued message that found no room is never tried again."""

    def receive(self: Any, message: Any) -> None:
        if not isinstance(message, LedgerUp):
            old(self, message)

    old = _swap(stack, session.SessionActor, "receive", receive)


# -- recovery -----------------------------------------------------------------------------------------------------


def recovery_runs_a_tool_again(stack: ExitStack) -> None:
    """A run with a dispatched call is kept as if it waited for a person, and starts its calls when it is revived."""

    def verdict(events: Any, partials: Any, **options: Any) -> Verdict:
        state = project(events)
        if state is not None and state.phase is not Phase.ENDED and any(call.dispatched for call in state.calls):
            return Verdict(name="parked", keep_parked=True)
        return old(events, partials, **options)

    old = _swap(stack, recovery_verdict, "verdict", verdict)

    def handle(d: Any, message: Any) -> None:
        if isinstance(message, Resume):
            for item in d.state.work:
                call = ToolCall(call_id=item.call_id, name=item.name, args=item.args)
                d.do(StartTool(call, ToolEnv(session_id=d.who.session_id, cwd="/w", temp_suffix=".x", seen={})))
        handled(d, message)

    handled = _swap(stack, run_protocol, "_handle", handle)


def recovery_leaves_runs_open(stack: ExitStack) -> None:
    """What a dead owner left is only looked at."""

    def inventory(reader: Any, log: Any) -> Any:
        return replace(old(reader, log), runs=())

    old = _swap(stack, recovery, "take_inventory", inventory)
    _swap(stack, session.SessionActor, "_close", lambda self, invocation_id: None)


def recovery_forgets_the_queue(stack: ExitStack) -> None:
    """After a restart nobody goes on with what waits."""

    def inventory(reader: Any, log: Any) -> Any:
        return replace(old(reader, log), sessions=())

    old = _swap(stack, recovery, "take_inventory", inventory)
