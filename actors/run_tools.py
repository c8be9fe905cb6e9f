"""PURE: the dispatched calls of one step. Tools' facts, answers, and what follows the last answer."""

from msgspec.structs import replace

from actors import mapper, run_undo, tool_gate
from actors.messages_run import FactWanted, ShellWanted
from actors.run_effects import GrantFact, HandOver, Reply
from actors.run_ending import active_ms, append, claim
from actors.run_types import Built, Deciding, NextRequest, Purpose, Wanted, Work, failure
from actors.verdicts import ToolAnswer
from maka.contracts.actions import Actions
from maka.contracts.content import FunctionCall, Outcome
from maka.contracts.errors import FailureClass, Refusal, RefusalCode
from maka.contracts.events import Committed, RuntimeEvent
from maka.contracts.ids import CallId
from projections import model_history
from projections.model_history import History
from projections.settlement import Ending


def fact_wanted(d: Deciding, wanted: FactWanted) -> None:
    """Make a tool's fact durable before its effect; after a claim there is no further effect."""
    call_id, token = wanted.call_id, wanted.token
    if d.state.claim is not None or all(item.call_id != call_id for item in d.state.work):
        d.do(GrantFact(call_id, token, False))
        return
    actions = Actions(file_change=wanted.file_change, process_started=wanted.process_started)
    event = mapper.tool_fact(d.who, d.at(), actions)
    append(d, Purpose.FACT, (event,), blobs=wanted.blobs, token=token, call_id=call_id)


def shell_wanted(d: Deciding, wanted: ShellWanted) -> None:
    """Let the session name a process that is to outlive the run; after a claim nothing more begins."""
    call_id = wanted.started.call_id
    if d.state.ended or d.state.claim is not None or all(item.call_id != call_id for item in d.state.work):
        d.do(Reply(wanted.reply, Refusal(code=RefusalCode.RUN_SEALED, message="the run has ended or is ending")))
    else:
        d.do(HandOver(wanted.started, wanted.reply))


def tool_ended(d: Deciding, call_id: CallId, answer: ToolAnswer) -> None:
    """Take a call's end; a live run records it at once, an ending one settles with it."""
    if all(item.call_id != call_id or item.answer is not None for item in d.state.work):
        return
    work = tuple(replace(item, answer=answer) if item.call_id == call_id else item for item in d.state.work)
    d.set(work=work)


def died(d: Deciding, call_id: CallId, reason: str) -> ToolAnswer:
    """Return the true answer of a call whose actor is dead: one that was never started has had no effect."""
    if any(item.call_id == call_id and item.started for item in d.state.work):
        text = f"the part of the program that ran this call crashed ({reason}); its outcome is unknown"
        return ToolAnswer(outcome=Outcome.OUTCOME_UNKNOWN, text=text)
    text = f"not started: the part of the program that was to run this call crashed ({reason}); call again"
    return ToolAnswer(outcome=Outcome.NOT_STARTED, text=text)


def answer_due(d: Deciding) -> None:
    """Record the answers that wait; with the last one goes the next request."""
    due = tuple(item for item in d.state.work if item.answer is not None)
    if not due or d.state.in_flight is not None or d.state.claim is not None:
        return
    facts = [response(d, item, item.answer) for item in due if item.answer is not None]
    asks = len(due) == len(d.state.work) and d.state.plan.undo is None
    request = next_request(d, facts) if asks else None
    blobs = tuple(blob for item in due if item.answer is not None for blob in item.answer.blobs)
    append(d, Purpose.ANSWER, tuple(facts), blobs=blobs, work=due, request=request)


def answers_stored(d: Deciding, answered: tuple[Work, ...]) -> None:
    """The answers are durable: they are no work any more."""
    note_failures(d, answered)
    if d.state.plan.undo is not None:
        run_undo.note_trouble(d, answered)
    done = {item.call_id for item in answered}
    d.set(work=tuple(item for item in d.state.work if item.call_id not in done))


def response(d: Deciding, work: Work, answer: ToolAnswer) -> RuntimeEvent:
    """Return the fact of a call's answer."""
    return mapper.response(d.who, d.at(), call_id=work.call_id, name=work.name, step=work.step, answer=answer)


def note_failures(d: Deciding, answered: tuple[Work, ...]) -> None:
    """Fold answers into what is known of a call that fails again and again."""
    failures = d.state.failures
    calls = {CallId(call.id): call for call in d.state.step_calls}
    for item in answered:
        assert item.answer is not None
        call = calls[item.call_id].content
        assert isinstance(call, FunctionCall)
        failures = tool_gate.note(failures, call, failed=item.answer.outcome is not Outcome.OK)
    d.set(failures=failures)


def all_answered(d: Deciding) -> None:
    """Every call of the step is answered and no request went along: end the run, or record the request alone."""
    if d.state.work or d.state.claim is not None or d.state.in_flight is not None:
        return
    if d.state.plan.undo is not None:
        run_undo.next_file(d)
        return
    ending = _limit(d)
    if ending is not None:
        if ending.failure_class == FailureClass.TOOL_STEP_CAP_REACHED:
            words = "The step limit was reached with tools still wanted; the task may be incomplete."
            claim(d, ending, mapper.notice(d.who, d.at(), "step_limit", words))
        else:
            claim(d, ending)
        return
    wanted = _wanted(d, d.state.facts.seq)
    built = d.env.build(d.state.history, wanted, raise_through=d.state.history.position)
    if isinstance(built, Ending):
        claim(d, built)
        return
    assert isinstance(built, Built), "a raise was allowed"
    event = mapper.model_request(d.who, d.at(), built.action)
    request = NextRequest(step=wanted.step, attempt=1, tries=1, body=built.body)
    append(d, Purpose.REQUEST, (event,), request=request)


def _limit(d: Deciding) -> Ending | None:
    limits = d.state.plan.limits
    if limits.steps_max is not None and d.state.step >= limits.steps_max:
        message = f"the step limit of {limits.steps_max} was reached with tools still wanted"
        return failure(FailureClass.TOOL_STEP_CAP_REACHED.value, message)
    if tool_gate.must_fail(d.state.bad_rounds):
        message = f"the model made only calls that can't run, {d.state.bad_rounds} steps in a row; rephrase the task"
        return failure(FailureClass.INVALID_TOOL_CALLS.value, message)
    return None


def _wanted(d: Deciding, history_seq: int) -> Wanted:
    return Wanted(step=d.state.step + 1, attempt=1, history_seq=history_seq, active_ms=active_ms(d))


def next_request(d: Deciding, facts: list[RuntimeEvent]) -> NextRequest | None:
    """Add the next request to the append that answers the last call; None where it must wait for that commit."""
    if _limit(d) is not None:
        return None
    history, seq = _ahead(d, facts)
    wanted = _wanted(d, seq)
    built = d.env.build(history, wanted, raise_through=None)
    if not isinstance(built, Built):
        return None
    facts.append(mapper.model_request(d.who, d.at(), built.action))
    return NextRequest(step=wanted.step, attempt=1, tries=1, body=built.body)


def _ahead(d: Deciding, facts: list[RuntimeEvent]) -> tuple[History, int]:
    """Fold facts that aren't durable yet, to build the request that is recorded together with them.

    Their positions are guesses; only the order counts here, and the guess is thrown away.
    """
    history, seq = d.state.history, d.state.facts.seq
    for offset, event in enumerate(facts, start=1):
        history = model_history.fold(
            history, Committed(position=d.state.history.position + offset, seq=seq + offset, event=event)
        )
    return history, seq + len(facts)
