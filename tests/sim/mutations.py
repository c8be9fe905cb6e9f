"""Planted bugs: each breaks one rule of the protocol, and `test_mutations` shows that the suite sees it.

A mutation replaces a function of the product while a block runs. Those that fit a story are found by the swarm; the
others have a scenario of their own.
"""
# A planted bug reaches for names that modules keep to themselves, and replaces functions by short ones.
# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportDeprecated=false
# mypy: disable-error-code="attr-defined,no-any-return"

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from actors import kernel, run_ending, run_steps, session, session_run, tool, tool_masks
from actors import run as _run
from actors import run_gate as _run_gate
from actors import run_protocol as _run_protocol
from actors import run_tools as _run_tools
from actors import run_waits as _run_waits
from actors.backend import BackendActor
from actors.base import MakaActor
from actors.messages_ledger import LedgerUp
from actors.messages_work import Cancel
from maka.contracts.commands import AnswerTaken
from maka.contracts.ids import EventId, RunId, SessionId

Mutation = Callable[[ExitStack], None]
# As their own names import them: a bug is planted where a function is used, not only where it is defined.
run: Any = _run
run_protocol: Any = _run_protocol
run_gate: Any = _run_gate
run_tools: Any = _run_tools
run_waits: Any = _run_waits


@contextmanager
def planted(mutation: Mutation) -> Generator[None]:
    """Let a planted bug live for a block."""
    with ExitStack() as stack:
        mutation(stack)
        yield


def always(value: object) -> Callable[..., object]:
    """Return a function that gives the same, whatever it is asked."""

    def answer(*_: object, **__: object) -> object:
        return value

    return answer


def swap(stack: ExitStack, where: Any, name: str, new: Any) -> Any:
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

    for module in (run_ending, run_gate, run_tools, run_steps):
        swap(stack, module, "claim", claim)


def late_facts_count(stack: ExitStack) -> None:
    """What the model still says after the claim is taken in, by its backend and by the run."""

    def run_hears(d: Any, generation: int) -> bool:
        return bool(generation == d.state.generation)

    def backend_hears(self: Any, generation: int) -> bool:
        return bool(generation == self._generation)

    swap(stack, run_protocol, "_is_live", run_hears)
    swap(stack, BackendActor, "_is_live", backend_hears)


def skip_a_settle(stack: ExitStack) -> None:
    """The newest open call gets no response when its run ends."""

    def settle(*args: Any, **options: Any) -> Any:
        return old(*args, **{**options, "calls": tuple(options.get("calls", ()))[:-1]})

    old = swap(stack, run_ending, "settle", settle)


def forget_the_waits(stack: ExitStack) -> None:
    """A wait stays open when its run ends."""

    def settle(*args: Any, **options: Any) -> Any:
        return old(*args, **{**options, "waits": ()})

    old = swap(stack, run_ending, "settle", settle)


def settle_before_the_tools_end(stack: ExitStack) -> None:
    """The verdict about a running call is written without waiting for what it has to say, as one never started."""
    swap(stack, run_ending, "waiting_for", always(()))

    def known(d: Any, work: Any) -> Any:
        return old(d, replace(work, started=False))

    old = swap(stack, run_ending, "_known", known)


def never_try_again(stack: ExitStack) -> None:
    """An ending that found no room is forgotten."""

    def arm(self: Any, kind: str, delay_s: float) -> None:
        if kind != "settle_retry":
            old(self, kind, delay_s)

    old = swap(stack, run.Deadlines, "arm", arm)

    def handle(d: Any, message: Any) -> None:
        if not isinstance(message, LedgerUp):
            handled(d, message)

    handled = swap(stack, run_protocol, "_handle", handle)


def start_after_a_stop(stack: ExitStack) -> None:
    """A stop that is handled before Start doesn't keep the run from sending its first request."""

    def handle(d: Any, message: Any) -> None:
        if isinstance(message, run_protocol.StartRun):
            plan = d.state.plan
            first = run_protocol.NextRequest(step=1, attempt=1, tries=1, body=plan.body)
            run_steps.send(d, first)
        else:
            old(d, message)

    old = swap(stack, run_protocol, "_handle", handle)


# -- secrets ------------------------------------------------------------------------------------------------------


def keep_what_a_tool_prints(stack: ExitStack) -> None:
    """A result is stored as the tool gave it."""
    swap(stack, tool, "masked_result", lambda result, _: result)


def show_what_a_tool_prints(stack: ExitStack) -> None:
    """Each piece of live output is masked by itself."""
    swap(stack, tool_masks.LiveMasks, "feed", lambda self, _, text: self._masks(text))


def name_a_process_as_it_is(stack: ExitStack) -> None:
    """The command line of a process is recorded with the secret in it."""
    swap(stack, tool, "masked_process", lambda fact, _: fact)


# -- actors -------------------------------------------------------------------------------------------------------


def reuse_a_generation(stack: ExitStack) -> None:
    """Two requests have one generation."""

    def send(d: Any, request: Any) -> None:
        old(d, request)
        if d.state.generation > 1:
            last = d.effects[-1]
            d.set(generation=d.state.generation - 1)
            d.effects[-1] = type(last)(last.generation - 1, last.body, last.tries)

    old = swap(stack, run_steps, "send", send)


def unsticky_cancel(stack: ExitStack) -> None:
    """A cancel ends what runs, and not what arrives later."""

    def receive(self: Any, message: Any) -> None:
        old(self, message)
        if isinstance(message, Cancel):
            self._cancelled_through = 0

    old = swap(stack, BackendActor, "receive", receive)


def lost_stash(stack: ExitStack) -> None:
    """Data that comes while an append is in flight is dropped."""

    def receive(self: Any, message: Any) -> None:
        if self._state.in_flight is None or not isinstance(message, run_protocol.STASHED):
            old(self, message)

    old = swap(stack, run.RunActor, "receive", receive)


def no_answer_to_a_dropped_command(stack: ExitStack) -> None:
    """Commands in the mailbox of a dead actor are lost in silence."""
    swap(stack, MakaActor, "_answer", always(None))


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

    swap(stack, kernel.KernelActor, "_note_idle", note_idle)


def let_a_run_go_with_an_answer_on_its_way(stack: ExitStack) -> None:
    """A parked run's actor is let go although an answer was sent to it."""

    def let_go(self: Any, run_id: RunId, handled: int) -> None:
        self._sent = handled
        old(self, run_id, handled)

    old = swap(stack, session_run.OwnRun, "let_go", let_go)


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

    old = swap(stack, run_waits, "answer", answer)


def forget_the_retry_bound(stack: ExitStack) -> None:
    """A failure that may pass is tried again for ever."""
    stack.enter_context(patch("actors.step_loop.RETRY_TRIES_MAX", 1 << 30))


def hold_the_queue(stack: ExitStack) -> None:
    """A queued message that found no room is never tried again."""

    def receive(self: Any, message: Any) -> None:
        if not isinstance(message, LedgerUp):
            old(self, message)

    old = swap(stack, session.SessionActor, "receive", receive)
