"""How a session is loaded: its log is read behind a barrier, and each open run without an actor is closed.

Law: the session takes no command before that is done.
"""

from actors.address import Address
from actors.messages import Load, ToSession
from actors.messages_ledger import Barrier, CloseRun, ToLedger
from actors.messages_run import ToRun
from maka.contracts.ids import InvocationId, RunId, SessionId
from projections.session_index import Header


class Loading:
    """Used by one SessionActor, on its thread."""

    def __init__(self, session_id: SessionId, ledger: Address[ToLedger]) -> None:
        self._session_id = session_id
        self._ledger = ledger
        self._alive: dict[RunId, Address[ToRun]] = {}
        self._closing: set[InvocationId] = set()
        self._is_reading = True

    @property
    def is_on(self) -> bool:
        return self._is_reading or bool(self._closing)

    def begin(self, message: Load, session: Address[ToSession]) -> None:
        """Ask for the moment from which everything that was sent before is committed."""
        self._alive = {} if message.fenced is not None else dict(message.runs)
        self._ledger.tell(Barrier(to=session))

    def has_read(self) -> None:
        """Note that the log is read, or that there is none."""
        self._is_reading = False

    def living(
        self, header: Header, session: Address[ToSession], *, keeps_waits: bool
    ) -> list[tuple[RunId, Address[ToRun]]]:
        """Return the open runs that have an actor; the others are closed, which takes a while."""
        found: list[tuple[RunId, Address[ToRun]]] = []
        for run_id in header.open_runs:
            alive = self._alive.get(run_id)
            if alive is not None and alive.is_alive():
                found.append((run_id, alive))
            else:
                self._close(InvocationId(run_id), session, keeps_waits)
        return found

    def closed(self, invocation_id: InvocationId) -> None:
        """Note that a run has been closed."""
        self._closing.discard(invocation_id)

    def _close(self, invocation_id: InvocationId, session: Address[ToSession], keeps_waits: bool) -> None:
        self._closing.add(invocation_id)
        self._ledger.tell(
            CloseRun(
                session_id=self._session_id,
                invocation_id=invocation_id,
                reason="actor_crashed",
                to=session,
                keeps_waits=keeps_waits,
            )
        )
