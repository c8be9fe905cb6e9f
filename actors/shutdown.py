"""The kernel's way out: every session stops its run, every background shell is ended and recorded, then all is said.

Law: the ends overlap; the answer comes when the last of them is durable, or can't be.
"""

from collections.abc import Iterable
from functools import partial

from actors.address import Address, ReplyTo, Tells
from actors.messages import SessionStopped, StopSession, ToKernel, ToSession
from maka.contracts.background_ports import BackgroundShells
from maka.contracts.commands import HOST_SHUTDOWN, Reply, Stop
from maka.contracts.ids import SessionId


class ShuttingDown:
    """Used on KernelActor's thread alone."""

    def __init__(self, shells: BackgroundShells) -> None:
        self._shells = shells
        self._replies: list[ReplyTo[bool]] = []
        self._sessions: set[SessionId] = set()

    @property
    def is_on(self) -> bool:
        return bool(self._replies)

    def begin(
        self, reply: ReplyTo[bool], sessions: Iterable[tuple[SessionId, Address[ToSession]]], kernel: Address[ToKernel]
    ) -> None:
        """Stop everything; a second call only waits with the first."""
        self._replies.append(reply)
        if len(self._replies) == 1:
            self._shells.close(HOST_SHUTDOWN)
            for session_id, address in sessions:
                stopped: ReplyTo[Reply] = Tells(partial(_note_stopped, kernel, session_id))
                command = Stop(session_id=session_id, source=HOST_SHUTDOWN)
                if address.tell(StopSession(command=command, reply=stopped)):
                    self._sessions.add(session_id)
        self.finish()

    def left(self, session_id: SessionId) -> None:
        """Note that a session has stopped, or has no actor any more."""
        self._sessions.discard(session_id)
        self.finish()

    def died(self, session_id: SessionId) -> None:
        """Note that a session crashed on the way out: it isn't loaded again, so nobody records its shells."""
        self._shells.forget(session_id)
        self.left(session_id)

    def give_up(self) -> None:
        """Wait for nobody: nothing can be made durable any more."""
        self._sessions = set()
        for reply in self._replies:
            reply.set(True)

    def finish(self) -> None:
        """Answer if everything is over."""
        if self._replies and not self._sessions and self._shells.is_empty():
            self.give_up()


def _note_stopped(kernel: Address[ToKernel], session_id: SessionId, _: Reply) -> None:
    kernel.tell(SessionStopped(session_id=session_id))
