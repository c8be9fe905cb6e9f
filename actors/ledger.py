"""LedgerActor: the single writer. Batch, commit, publish, acknowledge.

Laws: one lane, so order of arrival is order in the log; a batch is committed when nothing more waits, when it is
large, or before any other message; partials alone wait a moment for a batch to go with; nobody hears of a fact before
it is durable. A full store refuses and lives on; a commit whose outcome is unknown answers nobody and ends the
process, and the next start reads what is durable.
"""

from collections.abc import Callable
from typing import Any, assert_never

from msgspec import Struct

from actors import recovery
from actors.address import Address
from actors.base import Log, MakaActor
from actors.messages import Parent
from actors.messages_ledger import (
    AppendDone,
    AppendFacts,
    Barrier,
    BarrierPassed,
    CloseRun,
    Follow,
    LedgerUp,
    PartialsDue,
    Probe,
    Published,
    PutPartialText,
    RoomWanted,
    RunClosed,
    ToLedger,
)
from maka.contracts.codec import drafts
from maka.contracts.errors import (
    FoldError,
    LedgerDamagedError,
    LedgerFailedError,
    LedgerFullError,
    Refusal,
    RefusalCode,
)
from maka.contracts.events import Committed
from maka.contracts.ids import IdSource
from maka.contracts.limits import (
    BATCH_BYTES_MAX,
    BATCH_EVENTS_MAX,
    BATCH_WAIT_S,
    LEDGER_RETRY_FIRST_S,
    LEDGER_RETRY_MAX_S,
    PARTIALS_HOLD_S,
)
from maka.contracts.ports import (
    Append,
    Appended,
    AppendResult,
    BlobWriter,
    Clock,
    Group,
    LedgerStore,
    PutPartial,
    Timers,
)
from projections import recovery_verdict

FULL = Refusal(
    code=RefusalCode.LEDGER_FULL,
    message="the ledger has no room: free disk space where the state root is; nothing was lost",
)


class Close(Struct, frozen=True, kw_only=True):
    """The ending of a run that has no actor, on its way into a batch."""

    message: CloseRun
    verdict: str
    append: Append


class LedgerActor(MakaActor[ToLedger]):
    """`fatal` is called once, from this thread, when a commit's outcome is unknown.

    `waits_keep` says whether a run that waits for a person alone outlives its owner.
    """

    def __init__(
        self,
        log: Log,
        parent: Parent | None,
        store: LedgerStore,
        blobs: BlobWriter,
        clock: Clock,
        timers: Timers,
        ids: IdSource,
        fatal: Callable[[str], None],
        waits_keep: bool = True,
    ) -> None:
        super().__init__(log, parent)
        self._store = store
        self._blobs = blobs
        self._clock = clock
        self._timers = timers
        self._ids = ids
        self._fatal = fatal
        self._waits_keep = waits_keep
        self._followers: list[Address[Any]] = []
        self._appends: list[AppendFacts] = []
        self._closes: list[Close] = []
        self._partials: list[PutPartial] = []
        self._partials_armed = False
        self._events = 0
        self._bytes = 0
        self._since_s = 0.0
        self._full = False
        self._retry_s = LEDGER_RETRY_FIRST_S
        self._refused: set[Address[Any]] = set()
        self._unclosed: list[CloseRun] = []

    def receive(self, message: ToLedger) -> None:
        match message:
            case AppendFacts():
                self._buffer(message)
            case PutPartialText():
                self._note_start()
                self._partials.append(message.partial)
                self._bytes += len(message.partial.text)
            case CloseRun():
                self._close_run(message)
            case PartialsDue():
                self._partials_armed = False
                self._flush()
            case Barrier():
                self._flush()
                message.to.tell(BarrierPassed())
            case Follow():
                self._flush()
                self._followers.append(message.to)
            case RoomWanted(to=to):
                self._flush()
                self._refused.add(to)
                self._close_door("a value found no room")
            case Probe():
                self._flush()
                self._probe()
            case _:
                assert_never(message)
        if self._is_large() or (self.idle and (self._appends or self._closes)):
            self._flush()
        elif self._partials and not self._partials_armed:
            self._partials_armed = True
            self._tell_later(PARTIALS_HOLD_S, PartialsDue())

    def cleanup(self) -> None:
        """Finish the batch that a stop found, then close the store; a crash only closes it."""
        try:
            if not self._full:
                self._flush()
        except LedgerFailedError:
            self.log.error("ledger_failed_at_stop")
        finally:
            self._store.close()

    def _buffer(self, message: AppendFacts) -> None:
        if self._full and any(group.expected_seq == 0 for group in message.append.groups):
            self._refuse(message)  # the door is closed to new runs; what has begun may still end
            return
        self._note_start()
        self._appends.append(message)
        self._count(message.append)

    def _count(self, append: Append) -> None:
        for group in append.groups:
            self._events += len(group.drafts)
            self._bytes += sum(len(draft.payload) for draft in group.drafts)

    def _note_start(self) -> None:
        if not self._appends and not self._closes:
            self._since_s = self._clock.monotonic_s()

    def _is_large(self) -> bool:
        if self._events >= BATCH_EVENTS_MAX or self._bytes >= BATCH_BYTES_MAX:
            return True
        if not self._appends and not self._closes:
            return False
        return self._clock.monotonic_s() - self._since_s >= BATCH_WAIT_S

    def _flush(self) -> None:
        appends, closes, partials = self._appends, self._closes, self._partials
        if not appends and not closes and not partials:
            return
        self._appends, self._closes, self._partials, self._events, self._bytes = [], [], [], 0, 0
        batch = [*(message.append for message in appends), *(close.append for close in closes)]
        try:
            results = self._commit(batch, partials)
        except LedgerFullError as error:
            self._close_door(str(error))
            for message in appends:
                self._refuse(message)
            self._unclosed += (close.message for close in closes)  # answered when there is room again
            return
        self._publish(batch, results)
        for message, result in zip(appends, results[: len(appends)], strict=True):
            if isinstance(result, Refusal) and result.code is RefusalCode.LEDGER_FULL:
                # The store keeps its last room for endings: the same as full to everyone else.
                self._close_door(result.message)
                self._refused.add(message.to)
            message.to.tell(AppendDone(tag=message.tag, result=result))
        for close, result in zip(closes, results[len(appends) :], strict=True):
            if isinstance(result, Refusal):  # the verdict fits the run's facts: so what stands beside them is damaged
                self._note_damaged(close.message, result.message)
            else:
                self._tell_closed(close.message, close.verdict)

    def _commit(self, appends: list[Append], partials: list[PutPartial]) -> list[AppendResult]:
        try:
            return self._store.commit(appends, partials)
        except LedgerFailedError as error:
            self._fatal(str(error))
            raise

    def _publish(self, appends: list[Append], results: list[AppendResult]) -> None:
        items: list[Committed] = []
        for append, result in zip(appends, results, strict=True):
            if isinstance(result, Appended) and not result.known:
                events = (draft.event for group in append.groups for draft in group.drafts)
                items += [
                    Committed(position=position, seq=seq, event=event)
                    for event, (position, seq) in zip(events, result.places, strict=True)
                ]
        if items:
            for follower in self._followers:
                follower.tell(Published(items=tuple(items)))

    def _refuse(self, message: AppendFacts) -> None:
        self._refused.add(message.to)
        message.to.tell(AppendDone(tag=message.tag, result=FULL))

    def _close_door(self, reason: str) -> None:
        self.log.error("ledger_full", error_kind=reason)
        if not self._full:
            self._full = True
            self._retry_s = LEDGER_RETRY_FIRST_S
            self._arm_probe()

    def _tell_later(self, delay_s: float, message: Probe | PartialsDue) -> None:
        address = self.address

        def fire() -> None:
            address.tell(message)

        self._timers.after(delay_s, fire)

    def _arm_probe(self) -> None:
        self._tell_later(self._retry_s, Probe())
        self._retry_s = min(2 * self._retry_s, LEDGER_RETRY_MAX_S)

    def _probe(self) -> None:
        if not self._full:
            return
        if not self._store.has_room():
            self._arm_probe()
            return
        self._full = False
        refused, self._refused = self._refused, set()
        for address in refused:
            address.tell(LedgerUp())
        unclosed, self._unclosed = self._unclosed, []
        for message in unclosed:
            self._close_run(message)

    def _close_run(self, message: CloseRun) -> None:
        """Decide on the tail as it is now; the ending is part of the batch, since a start closes many runs at once."""
        invocation_id = message.invocation_id
        waiting = [*(append.append for append in self._appends), *(close.append for close in self._closes)]
        held = any(group.invocation_id == invocation_id for append in waiting for group in append.groups)
        # Its partials, too: what was seen of an unfinished answer belongs to the ending.
        if held or any(partial.invocation_id == invocation_id for partial in self._partials):
            self._flush()
        try:
            events = recovery.read_run(self._store, invocation_id)
            verdict = recovery_verdict.verdict(
                events,
                self._store.partials(invocation_id),
                reason=message.reason,
                ids=self._ids,
                now_ms=self._clock.now_ms(),
                waits_keep=self._waits_keep and message.keeps_waits,
            )
        except (LedgerDamagedError, FoldError) as error:
            self._note_damaged(message, str(error))
            return
        if not verdict.events:
            self._tell_closed(message, verdict.name)
            return
        try:
            inline = [self._blobs.put(data)[1] for data in verdict.blobs]
        except LedgerFullError as error:
            self._close_door(str(error))
            self._unclosed.append(message)
            return
        group = Group(invocation_id, events[-1].seq, drafts(verdict.events))
        blobs = tuple(data for data in inline if data is not None)
        append = Append(groups=(group,), blobs=blobs, settlement=True)
        self._note_start()
        self._closes.append(Close(message=message, verdict=verdict.name, append=append))
        self._count(append)

    def _note_damaged(self, message: CloseRun, why: str) -> None:
        self.log.error("run_damaged", session_id=message.session_id, error_kind=why)
        self._tell_closed(message, "damaged")

    def _tell_closed(self, message: CloseRun, verdict: str) -> None:
        message.to.tell(RunClosed(session_id=message.session_id, invocation_id=message.invocation_id, verdict=verdict))
