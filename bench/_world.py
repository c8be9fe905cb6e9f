"""What the benchmarks append: sessions with a run each, and texts of a size that is common."""

from collections.abc import Sequence
from itertools import count

from msgspec.structs import replace
from uuid_utils import uuid7

from maka.contracts.actions import Actions, StateDelta
from maka.contracts.codec import draft, hash_hex
from maka.contracts.content import (
    BlobRef,
    Content,
    InvocationOpened,
    Route,
    RunConfiguration,
    RunLimits,
    SessionOpened,
    Text,
)
from maka.contracts.events import Author, Role, RuntimeEvent, Status
from maka.contracts.ids import EventId, InvocationId, RunId, SessionId, TurnId
from maka.contracts.ports import Append, Group

VALUE = b"[]"
TEXT = "The failing test divides by the number of rows before it checks that there are any. " * 4


class Run:
    """A session with one run, which mints its own facts in order."""

    def __init__(self, number: int) -> None:
        self.session = SessionId(str(uuid7()))
        self.invocation = InvocationId(str(uuid7()))
        self.run_id, self.turn = RunId(str(uuid7())), TurnId(str(uuid7()))
        self._number = number
        self._seq = count(1)

    def begin(self) -> list[Append]:
        """The appends that open the session and the run."""
        control = InvocationId(self.session)
        opened = SessionOpened(number=self._number, cwd="/w", real_cwd="/w")
        value = BlobRef(sha256=hash_hex(VALUE), size_bytes=len(VALUE))
        opening = InvocationOpened(
            route=Route(profile="p", provider="openai", model="m"),
            configuration=RunConfiguration(
                cwd="/w", boundary_revision=0, limits=RunLimits(), prompt=value, tools=value, history_position=0
            ),
        )
        session = RuntimeEvent(
            id=EventId(str(uuid7())),
            session_id=self.session,
            invocation_id=control,
            ts=1_700_000_000_000,
            role=Role.SYSTEM,
            author=Author.HOST,
            content=opened,
        )
        made = Append(groups=(Group(control, 0, (draft(session),)),))
        return [made, self.append([opening], blobs=(VALUE,))]

    def append(self, contents: Sequence[Content], blobs: tuple[bytes, ...] = ()) -> Append:
        """An append of the run's next facts, encoded."""
        seqs = [next(self._seq) for _ in contents]
        drafts = tuple(draft(self._fact(content)) for content in contents)
        return Append(groups=(Group(self.invocation, seqs[0] - 1, drafts),), blobs=blobs)

    def texts(self, number: int = 1) -> Append:
        """An append of some texts."""
        return self.append([Text(text=TEXT)] * number)

    def end(self) -> Append:
        """The append of the run's terminal."""
        seq = next(self._seq)
        actions = Actions(state_delta=StateDelta(stop_reason="end_turn", duration_ms=5, steps=1), end_invocation=True)
        terminal = replace(
            self._fact(Text(text="")),
            content=None,
            actions=actions,
            role=Role.SYSTEM,
            author=Author.SYSTEM,
            status=Status.COMPLETED,
        )
        return Append(groups=(Group(self.invocation, seq - 1, (draft(terminal),)),))

    def _fact(self, content: Content) -> RuntimeEvent:
        return RuntimeEvent(
            id=EventId(str(uuid7())),
            session_id=self.session,
            invocation_id=self.invocation,
            run_id=self.run_id,
            turn_id=self.turn,
            ts=1_700_000_000_000,
            role=Role.MODEL,
            author=Author.AGENT,
            content=content,
        )


def runs(number: int, first: int = 1) -> list[Run]:
    """Several sessions with a run each."""
    return [Run(first + offset) for offset in range(number)]
