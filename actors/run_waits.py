"""PURE: calls that a person answers. The request, the answer, and parking while nothing else is missing.

An answer is one append: the decision, which closes the wait, the call's response, and the next request if no call is
left open. The first answer that is handled wins; every other one is refused and changes nothing.
"""

from msgspec.structs import replace

from actors import mapper
from actors.run_effects import AnswerStops, Disarm, LetGo, Reply
from actors.run_ending import active_ms, append
from actors.run_tools import answer_due, next_request, tool_ended
from actors.run_types import Deciding, Purpose, Work
from actors.session_protocol import wait_closed
from actors.verdicts import ToolAnswer
from maka.contracts import commands
from maka.contracts.actions import (
    Actions,
    BoundaryDecision,
    BoundaryRequest,
    StateDelta,
    UserQuestionAnswer,
    UserQuestionRequest,
)
from maka.contracts.boundary import covers
from maka.contracts.content import Outcome
from maka.contracts.errors import Refusal, RefusalCode
from maka.contracts.events import RuntimeEvent
from maka.contracts.ids import CallId, EventId
from maka.contracts.tool_ports import Asked

NO_ANSWER = "none was given. Go on as you think best, and say in the end what you assumed."


def ask(d: Deciding, call_id: CallId, asked: Asked | str) -> None:
    """Make a prepared request durable; what can't be asked is answered at once. After a claim nothing is asked."""
    if d.state.claim is not None:
        return
    if isinstance(asked, str):
        tool_ended(d, call_id, ToolAnswer(outcome=Outcome.REFUSED, text=asked))
        answer_due(d)
        return
    asked = replace(asked, active_ms=active_ms(d))
    if isinstance(asked, BoundaryRequest):
        actions = Actions(state_delta=StateDelta(boundary_request=asked))
    else:
        actions = Actions(user_question_request=asked)
    append(d, Purpose.ASK, (mapper.request(d.who, d.at(), actions),), call_id=call_id)


def asked_stored(d: Deciding, call_id: CallId, wait_id: EventId) -> None:
    """The request is durable: its call waits for a person."""
    work = tuple(replace(each, wait_id=wait_id) if each.call_id == call_id else each for each in d.state.work)
    d.set(work=work)


def is_parked(d: Deciding) -> bool:
    """Say whether nothing but a person's answers is missing."""
    state = d.state
    if state.claim is not None or state.ended or state.in_flight is not None or not state.work:
        return False
    return all(work.wait_id is not None for work in state.work)


def park_if_idle(d: Deciding) -> None:
    """Offer to let the run's actors go: its waits are durable, and an answer revives it.

    From then on nothing but a command may move it: the session may take it for one without actors already.
    """
    if is_parked(d):
        d.do(Disarm("deadline"), LetGo())


def stay_parked(d: Deciding) -> None:
    """Answer the host's own stop: a parked run outlives it."""
    receipt = commands.StopReceipt(session_id=d.who.session_id, run_id=d.who.run_id, was="waiting for a person")
    d.do(AnswerStops(receipt))
    park_if_idle(d)


def answer(d: Deciding, command: commands.Answer, reply: object) -> None:
    """Take an answer, if its wait is still open."""
    work = next((each for each in d.state.work if each.wait_id == command.request_id), None)
    if work is None or d.state.claim is not None:
        d.do(Reply(reply, wait_closed()))
        return
    fact = _answer_fact(d, command)
    if fact is None:
        words = "a boundary request takes allow or deny, a question takes answers; send the one that was asked for"
        d.do(Reply(reply, Refusal(code=RefusalCode.INVALID_INPUT, message=words)))
        return
    told = ToolAnswer(outcome=Outcome.OK, text=_words(command, d.state.asked.get(command.request_id)))
    response = mapper.response(d.who, d.at(), call_id=work.call_id, name=work.name, step=work.step, answer=told)
    facts = [fact, response]
    others = tuple(each for each in d.state.work if each is not work)
    request = None if others else next_request(d, facts)
    taken = commands.AnswerTaken(
        session_id=d.who.session_id, run_id=d.who.run_id, request_id=command.request_id, position=0
    )
    answered = Work(call_id=work.call_id, name=work.name, step=work.step, args=work.args, answer=told)
    append(d, Purpose.ANSWER, tuple(facts), work=(answered,), request=request, reply=(reply, taken))


def _answer_fact(d: Deciding, command: commands.Answer) -> RuntimeEvent | None:
    """Return the decision's fact; None where the answer isn't of the kind that was asked for."""
    asked = d.state.asked.get(command.request_id)
    if isinstance(asked, BoundaryRequest) and command.decision is not None:
        decision = BoundaryDecision(
            request_id=command.request_id,
            decision=command.decision,
            scope=command.scope,
            revision=d.state.boundary.boundary.revision + (command.decision == "allow"),
            client=command.client,
            covers=_covered(d, command, asked) if command.decision == "allow" else (),
        )
        return mapper.decision(d.who, d.at(), Actions(state_delta=StateDelta(boundary_decision=decision)))
    if isinstance(asked, UserQuestionRequest) and command.answers is not None:
        if len(command.answers) != len(asked.questions):
            return None
        given = UserQuestionAnswer(request_id=command.request_id, answers=command.answers, client=command.client)
        return mapper.decision(d.who, d.at(), Actions(user_question_answer=given))
    return None


def _covered(d: Deciding, command: commands.Answer, granted: BoundaryRequest) -> tuple[EventId, ...]:
    """Return the other open requests that this grant would satisfy: they are named, and still wait."""
    others = [each.wait_id for each in d.state.work if each.wait_id is not None]
    asked = {wait_id: d.state.asked[wait_id] for wait_id in others if wait_id != command.request_id}
    return tuple(
        wait_id
        for wait_id, each in asked.items()
        if isinstance(each, BoundaryRequest) and covers(granted.expansion, each.expansion)
    )


def _words(command: commands.Answer, asked: Asked | None) -> str:
    """Return what the model is told."""
    if command.decision == "allow":
        return "The person allowed it. Repeat the call that needed it."
    if command.decision == "deny":
        its = "the part that wasn't allowed already" if isinstance(asked, BoundaryRequest) and asked.is_rest else "it"
        return f"The person denied {its}. Go on without it, or say what can't be done."
    return "\n".join(f"Answer {number}: {each or NO_ANSWER}" for number, each in enumerate(command.answers or (), 1))
