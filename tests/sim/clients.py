"""Everybody who asks: what they sent, what they were answered, and what that answer must mean.

Laws checked here: an answer names only what is durable; a command id has one outcome, however often it is sent; a
refused command leaves nothing behind; a wait has one answer. Who was told nothing, or that nobody knows, asks again
with the same id.
"""

import random
from dataclasses import dataclass, field

from maka.contracts.boundary import Profile
from maka.contracts.commands import (
    AnswerTaken,
    BoundarySet,
    MessageAccepted,
    SessionCreated,
    StopReceipt,
    UndoReceipt,
)
from maka.contracts.content import RunLimits
from maka.contracts.errors import Refusal, RefusalCode
from maka.contracts.events import RuntimeEvent
from maka.contracts.ids import CommandId, EventId, InvocationId, SessionId
from projections import boundary
from tests.sim.host import SimHost
from tests.sim.laws import BrokenLaw
from tests.sim.outside import SimReply

UNKNOWN = (RefusalCode.OUTCOME_UNKNOWN,)
"""What a client takes as a reason to send the same command again."""
NOT_NOW = (RefusalCode.SHUTTING_DOWN, RefusalCode.INTERNAL, RefusalCode.LEDGER_FULL, RefusalCode.NOT_READY)
"""What says of one sending that it did nothing, and nothing about an earlier one with the same id."""


@dataclass
class Asked:
    """One command as one client sent it."""

    kind: str
    reply: SimReply
    command_id: str = ""
    session_id: SessionId | None = None
    text: str = ""
    limits: RunLimits = field(default_factory=RunLimits)
    request_id: str = ""

    @property
    def content(self) -> tuple[object, ...]:
        return (self.kind, self.session_id, self.text, self.limits)


class Clients:
    """All clients of one host, through its crashes."""

    def __init__(self, host: SimHost) -> None:
        self._host = host
        self._count = 0
        self.open: list[Asked] = []
        self.sent: list[Asked] = []
        self._unclear: list[Asked] = []
        self.sessions: list[SessionId] = []
        self._contents: dict[str, list[tuple[object, ...]]] = {}
        self.outcomes: dict[str, SessionCreated | MessageAccepted] = {}
        self._answered: set[str] = set()
        self.has_shut_down = False

    # -- asking ---------------------------------------------------------------------------------------------------

    def create(self) -> None:
        self._count += 1
        self._ask(Asked("create", SimReply(), f"new-{self._count}"))

    def send(self, session_id: SessionId, text: str, limits: RunLimits) -> None:
        self._count += 1
        self._ask(Asked("send", SimReply(), f"say-{self._count}", session_id, text, limits))

    def repeat(self, asked: Asked, *, text: str | None = None) -> None:
        """Send a command again under its id, with another text if one is given."""
        words = asked.text if text is None else text
        self._ask(Asked(asked.kind, SimReply(), asked.command_id, asked.session_id, words, asked.limits))

    def stop(self, session_id: SessionId) -> None:
        self.open.append(Asked("stop", self._host.stop(session_id), session_id=session_id))

    def undo(self, session_id: SessionId) -> None:
        self._count += 1
        command_id = f"undo-{self._count}"
        reply = self._host.undo_changes(session_id, command_id=command_id)
        self.open.append(Asked("undo", reply, command_id="", session_id=session_id))

    def change_boundary(self, session_id: SessionId, chance: random.Random) -> None:
        """Choose a profile, grant something, or take a grant back that stands."""
        header = boundary.project(self._host.session_facts(session_id))
        grants = () if header is None else header.boundary.grants
        profile = chance.choice((None, Profile.ASK, Profile.EXPLORE))
        revoked = (chance.choice(grants).origin,) if grants and chance.random() < 0.5 else ()
        reply = self._host.change_boundary(session_id, profile=profile, revoked=revoked)
        self.open.append(Asked("boundary", reply, session_id=session_id))

    def answer(self, session_id: SessionId, request_id: str) -> None:
        reply = self._host.answer_fitting(session_id, request_id)
        self.open.append(Asked("answer", reply, session_id=session_id, request_id=request_id))

    def shut_down(self) -> None:
        self.has_shut_down = True
        self.open.append(Asked("shutdown", self._host.shut_down()))

    def _ask(self, asked: Asked) -> None:
        self._contents.setdefault(asked.command_id, []).append(asked.content)
        if asked.kind == "create":
            asked.reply = self._host.create(asked.command_id)
        else:
            assert asked.session_id is not None
            asked.reply = self._host.send(
                asked.session_id, asked.text, limits=asked.limits, command_id=asked.command_id
            )
        self.sent.append(asked)
        self.open.append(asked)

    def crashed(self) -> None:
        """Ask a new process what the dead one didn't answer; stops and answers are given up."""
        self.has_shut_down = False
        lost, self.open = self.open, []
        for asked in lost:
            if asked.command_id:
                self.repeat(asked)

    def ask_again(self) -> bool:
        """Send again what had no clear outcome; say whether there was such a thing."""
        unclear, self._unclear = self._unclear, []
        for asked in unclear:
            self.repeat(asked)
        return bool(unclear)

    # -- answers --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Look at the answers that are new."""
        for asked in self.open:
            if asked.reply.values:
                self._check(asked)
        self.open = [asked for asked in self.open if not asked.reply.values]

    def _check_refused(self, asked: Asked, code: RefusalCode) -> None:
        """A no means that nothing was changed, unless it says that nobody knows."""
        if code is RefusalCode.OUTCOME_UNKNOWN or len(self._contents.get(asked.command_id, ())) != 1:
            return
        if self._host.store.command(asked.session_id or "", CommandId(asked.command_id)) is not None:
            raise BrokenLaw(f"{asked.command_id} was refused as {code}, and it is durable")

    def _check(self, asked: Asked) -> None:
        answer = asked.reply.value
        if isinstance(answer, Refusal):
            self._check_refused(asked, answer.code)
        match answer:
            case SessionCreated() | MessageAccepted():
                self._check_outcome(asked, answer)
            case StopReceipt(run_id=run_id, status=status, position=position) if status is not None:
                event = self._fact(position or 0)
                if event.run_id != run_id or event.status is None or event.status.value != status:
                    raise BrokenLaw(f"a receipt names an ending that isn't there: {answer}")
            case AnswerTaken(request_id=request_id, position=position):
                if request_id in self._answered:
                    raise BrokenLaw(f"wait {request_id} was answered twice")
                self._answered.add(request_id)
                given = self._fact(position).actions
                decided = given is not None and given.state_delta is not None and given.state_delta.boundary_decision
                if given is None or not (given.user_question_answer or decided):
                    raise BrokenLaw("an answer was taken, and its fact isn't durable")
            case BoundarySet(position=position):
                if (changed := self._fact(position).actions) is None or changed.boundary_changed is None:
                    raise BrokenLaw("a boundary was set, and its fact isn't durable")
            case UndoReceipt(run_id=run_id) if run_id is not None:
                ended = self._host.store.read_stream(InvocationId(run_id))
                if not ended or ended[-1].event.status is None:
                    raise BrokenLaw("an undo was answered before its run had ended")
            case Refusal(code=RefusalCode.COMMAND_CONFLICT):
                if len(set(self._contents[asked.command_id])) == 1:
                    raise BrokenLaw(f"{asked.command_id} is refused as another command, and it is the same")
            case Refusal(code=code) if asked.command_id and code in UNKNOWN:
                self._unclear.append(asked)
            case Refusal(code=code) if code in NOT_NOW and len(self._contents.get(asked.command_id, ())) > 1:
                self._unclear.append(asked)
            case _:
                return

    def _check_outcome(self, asked: Asked, answer: SessionCreated | MessageAccepted) -> None:
        known = self.outcomes.setdefault(asked.command_id, answer)
        if known != answer:
            raise BrokenLaw(f"{asked.command_id} has two outcomes: {known} and {answer}")
        cause = self._fact(answer.position).cause
        if cause is None or cause.command_id != asked.command_id:
            raise BrokenLaw(f"the outcome of {asked.command_id} isn't durable where its answer says")
        if answer.session_id not in self.sessions:
            self.sessions.append(answer.session_id)

    def _fact(self, position: int) -> RuntimeEvent:
        found = self._host.store.read_positions(position - 1, 1)
        if not found or position < 1:
            raise BrokenLaw(f"an answer names position {position}, which isn't durable")
        return found[0].event

    def all_answered(self) -> None:
        """Check that every command was answered."""
        if self.open:
            raise BrokenLaw(f"commands without an answer: {[asked.kind for asked in self.open]}")

    def settled(self) -> None:
        """Check that every command was answered, and that each accepted one came to one run and no other left any."""
        self.all_answered()
        caused: set[str] = set()
        taken: dict[EventId, int] = {}
        for item in self._host.facts():
            event = item.event
            if event.cause is not None:
                caused.add(event.cause.command_id)
            if event.refs is not None and event.refs.message_id is not None:
                message_id = EventId(event.refs.message_id)
                taken[message_id] = taken.get(message_id, 0) + 1
        mine = {command for command in caused if command in self._contents}
        if mine != self.outcomes.keys():
            raise BrokenLaw(f"facts and answers differ about {sorted(mine ^ self.outcomes.keys())}")
        for command, outcome in self.outcomes.items():
            if isinstance(outcome, MessageAccepted):
                runs = int(outcome.run_id is not None) + taken.get(EventId(outcome.message_id or ""), 0)
                if runs != 1:
                    raise BrokenLaw(f"{command} was accepted and came to {runs} runs")
