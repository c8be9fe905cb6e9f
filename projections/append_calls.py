"""Calls and waits of a run: what dispatching, asking, answering and responding do to those that are open.

Laws: a call has one response; a dispatch lies between the two, at most once; a wait belongs to an open call and is
closed once. A fact that breaks one raises `Refused`; nothing changes in place.
"""

from typing import NoReturn, TypeAlias

from msgspec import Struct

from maka.contracts.actions import Actions
from maka.contracts.content import NEEDS_DISPATCH, FunctionResponse
from maka.contracts.errors import Refusal, RefusalCode
from maka.contracts.events import RuntimeEvent
from maka.contracts.ids import CallId, EventId


class Refused(Exception):
    """Carries a refusal out of the rules; it never leaves the functions that answer with one."""

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(code=code, message=message)


class OpenCall(Struct, frozen=True, array_like=True, gc=False):
    """A call without a response: whether it may have started, and whether it asks a person."""

    dispatched: bool = False
    interaction: bool = False


Calls: TypeAlias = dict[CallId, OpenCall]
Waits: TypeAlias = dict[EventId, CallId]


def has_wait(actions: Actions) -> bool:
    """Say whether a fact may ask a person something, or close what was asked."""
    return (
        actions.state_delta is not None
        or actions.user_question_request is not None
        or actions.user_question_answer is not None
    )


def with_dispatch(calls: Calls, event: RuntimeEvent, call_id: CallId) -> Calls:
    """Return the open calls after a dispatch."""
    call = calls.get(call_id)
    if call is None:
        refuse(RefusalCode.PAIRING_VIOLATION, event, f"call {call_id} isn't open, so it can't be dispatched")
    if call.dispatched:
        refuse(RefusalCode.PAIRING_VIOLATION, event, f"call {call_id} was dispatched already")
    return {**calls, call_id: OpenCall(True, call.interaction)}


def with_response(calls: Calls, event: RuntimeEvent, response: FunctionResponse, answered: set[CallId]) -> Calls:
    """Return the open calls after a response. `answered`: the calls whose wait was answered in the same append."""
    call = calls.get(response.call_id)
    if call is None:
        refuse(RefusalCode.PAIRING_VIOLATION, event, f"call {response.call_id} isn't open: answered or never made")
    if response.outcome in NEEDS_DISPATCH and not call.dispatched and response.call_id not in answered:
        outcome = response.outcome.value
        refuse(RefusalCode.PAIRING_VIOLATION, event, f"outcome {outcome} needs a dispatch, or an answer with it")
    return {other: state for other, state in calls.items() if other != response.call_id}


def with_waits(calls: Calls, waits: Waits, event: RuntimeEvent, answered: set[CallId]) -> tuple[Calls, Waits]:
    """Return the open calls and waits after what a fact asks, answers or closes; answers are added to `answered`."""
    requests, answers, closed = _waits_of(event)
    # One each, so that every fold of waits agrees on what a fact did.
    if len(requests) > 1 or len(answers) + len(closed) > 1:
        refuse(RefusalCode.INVALID_EVENT, event, "one fact opens at most one wait and closes at most one")
    for call_id in requests:
        call = calls.get(call_id)
        if call is None:
            refuse(RefusalCode.PAIRING_VIOLATION, event, f"call {call_id} isn't open, so nothing can be asked for it")
        calls = {**calls, call_id: OpenCall(call.dispatched, True)}
        waits = {**waits, event.id: call_id}
    for wait_id in (*answers, *closed):
        if wait_id not in waits:
            refuse(RefusalCode.PAIRING_VIOLATION, event, f"request {wait_id} isn't waiting for an answer")
        if answers:
            answered.add(waits[wait_id])
        waits = {other: call_id for other, call_id in waits.items() if other != wait_id}
    return calls, waits


def _waits_of(event: RuntimeEvent) -> tuple[list[CallId], list[EventId], list[EventId]]:
    """Return the calls that a fact asks for, and the waits that it answers and that it closes without an answer."""
    requests: list[CallId] = []
    answers: list[EventId] = []
    closed: list[EventId] = []
    actions = event.actions
    if actions is None:
        return requests, answers, closed
    if actions.user_question_request is not None:
        requests.append(actions.user_question_request.call_id)
    if actions.user_question_answer is not None:
        answers.append(actions.user_question_answer.request_id)
    delta = actions.state_delta
    if delta is not None:
        if delta.boundary_request is not None:
            requests.append(delta.boundary_request.call_id)
        if delta.boundary_decision is not None:
            answers.append(delta.boundary_decision.request_id)
        if delta.wait_closed is not None:
            closed.append(delta.wait_closed)
    return requests, answers, closed


def refuse(code: RefusalCode, event: RuntimeEvent, why: str) -> NoReturn:
    """Raise Refused about an event."""
    raise Refused(code, f"event {event.id[:64]}: {why}")
