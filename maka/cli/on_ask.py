"""What is done when a run asks a person: ask the one at the terminal, deny, leave it parked, or fail.

Laws: an answer of ours names its client; what was open before is never denied in passing; the first answer wins, and
losing to another one is said and is no error.
"""

from collections.abc import Callable
from enum import StrEnum

from maka.cli.asking import Asked, questions_of, request_head, request_id, request_lines
from maka.cli.follow import Request
from maka.cli.interrupts import Interrupts
from maka.cli.keys import Keys, LeftError
from maka.cli.person import Given, ask
from maka.contracts.errors import CLI_ON_ASK, RefusalCode, RefusedError
from maka.contracts.ids import SessionId
from maka.session_manager import SessionManager
from projections.inbox import PendingWait

CLI = "cli"
_MORE = {"l": "later (leave it waiting)"}


class OnAsk(StrEnum):
    """`ask` is what a terminal has; the others are for where nobody sits."""

    ASK = "ask"
    DENY = "deny"
    PARK = "park"
    FAIL = "fail"


class Answerer:
    """Deals with the requests of one run. Used by one thread.

    `tell` says a line where no view does; `shown` says that the view has shown a request already, `kept` that what is
    left waiting can be answered later.
    """

    def __init__(
        self,
        mode: OnAsk,
        manager: SessionManager,
        interrupts: Interrupts,
        keys: Keys,
        tell: Callable[[str], None],
        *,
        shown: bool,
        kept: bool,
    ) -> None:
        self._mode = mode
        self._manager = manager
        self._interrupts = interrupts
        self._keys = keys
        self._tell = tell
        self._shown = shown
        self._more = _MORE if kept else {}
        self.leaves = mode is OnAsk.PARK

    def asked(self, request: Request) -> None:
        """Deal with a request that was just shown."""
        match self._mode:
            case OnAsk.ASK:
                self._ask(request, request.session_id, shown=self._shown)
            case OnAsk.DENY:
                self._deny(request)
            case OnAsk.FAIL:
                self._tell(f"{request_head(request)}: the run is stopped, as --on-ask says")
                self._interrupts.stop(CLI_ON_ASK)
            case OnAsk.PARK:
                pass

    def found(self, wait: PendingWait) -> None:
        """Deal with a request that was open before: only a person answers it."""
        if self._mode is OnAsk.ASK and not self.leaves:
            self._ask(wait, wait.session_id, shown=False)
        else:
            self.leaves = True

    def _ask(self, asked: Asked, session_id: SessionId, *, shown: bool) -> None:
        if not shown:
            self._keys.tell("\n".join([request_head(asked), *request_lines(asked)]))
        try:
            given = ask(self._keys, asked, self._more)
        except LeftError:
            # A stop ends the run by itself; else the person went away, and may answer later.
            self.leaves = self.leaves or self._interrupts.source is None
            return
        if isinstance(given, str):
            self.leaves = True
        else:
            self._answer(asked, session_id, given, CLI)

    def _deny(self, request: Request) -> None:
        questions = questions_of(request)
        given = Given(answers=(None,) * len(questions)) if questions else Given(decision="deny")
        said = "left unanswered" if questions else "denied"
        self._tell(f"{request_head(request)}: {said}, since nobody is here (see --on-ask)")
        self._answer(request, request.session_id, given, CLI_ON_ASK)

    def _answer(self, asked: Asked, session_id: SessionId, given: Given, client: str) -> None:
        try:
            self._manager.answer(
                session_id,
                request_id(asked),
                decision=given.decision,
                scope=given.scope,
                answers=given.answers,
                client=client,
            )
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.WAIT_CLOSED:
                raise
            self._tell(error.refusal.message)
