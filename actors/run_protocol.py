"""PURE: (state, message, env) -> Decision. One run's durable envelope: what each message means, and in which order.

Laws: nothing is shown or done before its facts are durable (deltas excepted); one append is unanswered at a time;
the first message handled that ends the run wins, and everything after it changes nothing. A refusal that only a bug
can cause is an assertion.
"""

from typing import assert_never

from msgspec.structs import replace

from actors import run_ending, run_gate, run_steps, run_tools, run_undo, run_waits
from actors.messages_ledger import AppendDone, LedgerUp
from actors.messages_run import (
    AnswerRun,
    AskReady,
    BackendDied,
    ControlFact,
    Deltas,
    Due,
    FactWanted,
    Resume,
    ShellWanted,
    StepEnded,
    StopRun,
    ToolDied,
    ToolEnded,
    ToolOutput,
    ToolReady,
    ToRun,
)
from actors.messages_run import Start as StartRun
from actors.run_effects import AnswerStops, Arm, Finish, GrantFact, Reply
from actors.run_types import Deciding, Decision, Env, InFlight, NextRequest, Purpose, State, asked_by, failure
from actors.verdicts import ToolAnswer
from maka.contracts.commands import HOST_SHUTDOWN
from maka.contracts.content import FunctionCall
from maka.contracts.errors import FailureClass, LedgerDamagedError, Refusal, RefusalCode
from maka.contracts.events import Committed, RuntimeEvent, Status
from maka.contracts.ids import CallId, EventId
from maka.contracts.ports import Appended
from projections import boundary, model_history, run_state
from projections.boundary import BoundaryState
from projections.settlement import Ending

STASHED = (Deltas, StepEnded, FactWanted, ShellWanted, ToolReady, ToolOutput, ToolEnded, AskReady, AnswerRun)
"""Data: waits while an append is in flight."""


def decide(state: State, message: ToRun, env: Env) -> Decision:
    """Handle one message. The caller stashes data while `state.in_flight` is set."""
    d = Deciding(state, env)
    if not state.ended:
        _handle(d, message)
    elif isinstance(message, StopRun) and state.receipt is not None:
        d.do(AnswerStops(state.receipt))
    elif isinstance(message, FactWanted):
        d.do(GrantFact(message.call_id, message.token, False))
    elif isinstance(message, ShellWanted):
        run_tools.shell_wanted(d, message)
    elif isinstance(message, AnswerRun):
        run_waits.answer(d, message.command, message.reply)
    return Decision(d.state, tuple(d.effects))


ToolWord = FactWanted | ShellWanted | ToolReady | ToolOutput | ToolEnded | ToolDied
Work = StartRun | Resume | AskReady | AnswerRun | Deltas | StepEnded | ToolWord
"""What the run's own course brings."""

Word = StopRun | Due | BackendDied | ControlFact | AppendDone | LedgerUp
"""What comes from its surroundings: stops, time, the ledger."""


def _handle(d: Deciding, message: ToRun) -> None:
    if isinstance(message, Word):
        _hear(d, message)
    else:
        _work(d, message)


def _work(d: Deciding, message: Work) -> None:
    match message:
        case StartRun() if d.state.claim is not None:
            pass  # a stop is control and came before it: nothing begins
        case StartRun() if d.state.plan.undo is not None:
            run_undo.next_file(d)
        case StartRun():
            run_steps.send(d, NextRequest(step=1, attempt=1, tries=1, body=d.state.plan.body))
            _arm_deadline(d)
        case Resume():
            if d.state.claim is None:
                _arm_deadline(d)
            run_waits.park_if_idle(d)
        case AskReady(call_id=call_id, asked=asked):
            run_waits.ask(d, call_id, asked)
        case AnswerRun(command=command, reply=reply):
            run_waits.answer(d, command, reply)
            if d.state.claim is None:
                _arm_deadline(d)
            run_waits.park_if_idle(d)
        case Deltas(generation=generation, batch=batch):
            if _is_live(d, generation):
                run_steps.deltas(d, generation, batch)
        case StepEnded(generation=generation, verdict=verdict):
            if _is_live(d, generation):
                run_steps.step_ended(d, verdict)
        case FactWanted():
            run_tools.fact_wanted(d, message)
        case ShellWanted():
            run_tools.shell_wanted(d, message)
        case ToolOutput(call_id=call_id, stream=stream, text=text):
            if d.state.claim is None:
                run_steps.tool_output(d, call_id, stream, text)
        case ToolReady(call_id=call_id, turn=turn):
            run_gate.looked(d, call_id, None, turn)
        case ToolEnded(call_id=call_id, answer=answer):
            _call_ended(d, call_id, answer)
        case ToolDied(call_id=call_id, reason=reason):
            d.set(dead={**d.state.dead, call_id: reason})
            _call_ended(d, call_id, run_tools.died(d, call_id, reason))
        case _:
            assert_never(message)


def _hear(d: Deciding, message: Word) -> None:
    match message:
        case StopRun(source=source) if source == HOST_SHUTDOWN and run_waits.is_parked(d):
            run_waits.stay_parked(d)
        case StopRun(source=source):
            run_ending.claim(d, Ending(status=Status.ABORTED, abort_source=source, stop_reason="user_stop"))
            run_ending.try_settle(d)
        case Due(kind=kind):
            _due(d, kind)
        case BackendDied(reason=reason):
            text = f"the part of the program that talked to the model crashed ({reason}); send the message again"
            run_ending.claim(d, failure(FailureClass.MISSING_TERMINAL_EVENT.value, text))
        case ControlFact(item=item):
            d.set(boundary=_with_fact(d.state.boundary, item))
        case AppendDone(tag=tag, result=result):
            flight = d.state.in_flight
            assert flight is not None and flight.tag == tag, "an answer to an append that nobody sent"
            d.set(in_flight=None)
            if isinstance(result, Appended):
                _stored(d, flight, result)
            else:
                _refused(d, flight, result)
        case LedgerUp():
            run_ending.try_settle(d)
        case _:
            assert_never(message)


def _arm_deadline(d: Deciding) -> None:
    if (limit_s := d.state.plan.limits.active_s_max) is not None:
        d.do(Arm("deadline", max(0.0, limit_s - run_ending.active_ms(d) / 1000)))


def _is_live(d: Deciding, generation: int) -> bool:
    return d.state.claim is None and generation == d.state.generation


def _call_ended(d: Deciding, call_id: CallId, answer: ToolAnswer) -> None:
    if call_id in d.state.looking:
        run_gate.looked(d, call_id, answer)
        return
    run_tools.tool_ended(d, call_id, answer)
    if d.state.claim is not None:
        run_ending.try_settle(d)
    else:
        run_tools.answer_due(d)


def _due(d: Deciding, kind: str) -> None:
    match kind:
        case "partial":
            run_steps.store_partials(d)
        case "retry":
            if d.state.claim is None:
                run_steps.retry_due(d)
        case "deadline":
            limit_s = d.state.plan.limits.active_s_max
            words = f"the time limit of {limit_s:g} s was reached"
            run_ending.claim(d, failure(FailureClass.DEADLINE.value, words))
        case "settle":
            run_ending.force(d)
        case "settle_retry":
            run_ending.try_settle(d)
        case _:
            raise AssertionError(f"a timer of an unknown kind: {kind}")


# -- answers of the ledger ----------------------------------------------------------------------------------------


def _stored(d: Deciding, flight: InFlight, result: Appended) -> None:
    _fold(d, flight.events, result)
    match flight.purpose:
        case Purpose.STEP:
            d.set(step_calls=tuple(event for event in flight.events if isinstance(event.content, FunctionCall)))
            if d.state.claim is None:
                run_gate.step_stored(d, flight.events)
            else:
                d.set(streams=())
        case Purpose.DISPATCH:
            run_gate.dispatches_stored(d, flight.work)
        case Purpose.ANSWER:
            run_tools.answers_stored(d, flight.work)
            run_gate.start_free(d)
            if flight.reply is not None:
                to, taken = flight.reply
                d.do(Reply(to, replace(taken, position=result.places[0][0])))
        case Purpose.FACT:
            assert flight.call_id is not None
            d.do(GrantFact(flight.call_id, flight.token, d.state.claim is None))
        case Purpose.ASK:
            assert flight.call_id is not None
            run_waits.asked_stored(d, flight.call_id, EventId(flight.events[0].id))
        case Purpose.REQUEST:
            pass
        case Purpose.FINAL | Purpose.SETTLE:
            run_ending.sealed(d, flight, result.places[-1][0])
            return
        case _:
            assert_never(flight.purpose)
    _follow(d, flight)


def _follow(d: Deciding, flight: InFlight) -> None:
    """Do what the commit made possible; after a claim that is only the settlement."""
    if d.state.claim is not None:
        run_ending.try_settle(d)
    elif flight.request is not None:
        run_steps.send(d, flight.request)
    elif flight.purpose in (Purpose.DISPATCH, Purpose.ANSWER, Purpose.FACT, Purpose.ASK):
        run_tools.answer_due(d)
        run_tools.all_answered(d)
        run_waits.park_if_idle(d)


def _fold(d: Deciding, events: tuple[RuntimeEvent, ...], result: Appended) -> None:
    facts, history, seen, tokens = d.state.facts, d.state.history, d.state.seen, d.state.tokens
    asked, bounds = d.state.asked, d.state.boundary
    for event, (position, seq) in zip(events, result.places, strict=True):
        item = Committed(position=position, seq=seq, event=event)
        facts, history = run_state.fold(facts, item), model_history.fold(history, item)
        bounds = _with_fact(bounds, item)
        if event.actions is not None:
            if (file := event.actions.file_seen) is not None:
                seen = {**seen, file.path: file.sha256}
            if (usage := event.actions.token_usage) is not None:
                tokens += usage.input + usage.output
            if (request := asked_by(event.actions)) is not None:
                asked = {**asked, event.id: request}
    d.set(facts=facts, history=history, seen=seen, tokens=tokens, asked=asked, boundary=bounds)


def _with_fact(state: BoundaryState, item: Committed) -> BoundaryState:
    """Fold a fact into the boundary.

    A control fact and this run's own reach it on different ways, so that one may come after facts of higher
    positions; what they do to the boundary doesn't depend on that.
    """
    if item.position <= state.position:
        item = Committed(position=state.position + 1, seq=item.seq, event=item.event)
    return boundary.fold(state, item)


def _refused(d: Deciding, flight: InFlight, refusal: Refusal) -> None:
    if flight.purpose is Purpose.FACT:
        assert flight.call_id is not None
        d.do(GrantFact(flight.call_id, flight.token, False))
    if flight.reply is not None:
        d.do(Reply(flight.reply[0], refusal))
    match refusal.code:
        case RefusalCode.LEDGER_FULL | RefusalCode.LEDGER_CLOSED:
            run_ending.claim_waiting(d, failure(FailureClass.LEDGER_UNAVAILABLE.value, refusal.message))
            run_ending.cannot_store(d, refusal)
        case RefusalCode.LIMIT_EXCEEDED:
            assert flight.purpose is not Purpose.SETTLE, f"a settlement is refused: {refusal.message}"
            run_ending.replace_claim(d, failure(FailureClass.RUN_LIMIT_REACHED.value, refusal.message))
        case RefusalCode.RUN_SEALED:
            # CloseRun ended it, in the belief that nobody lived here: the log is right.
            d.set(ended=True, receipt=refusal)
            run_ending.cancel_effects(d)
            d.do(AnswerStops(refusal), Finish(d.state.facts.position))
        case RefusalCode.SESSION_DAMAGED:
            # Nothing more can be recorded of it: whoever looks after the dead tries to end it, and fences the session.
            raise LedgerDamagedError(refusal.message, session_id=d.who.session_id)
        case _:
            raise AssertionError(f"the ledger refused {flight.purpose}: {refusal.code} {refusal.message}")
