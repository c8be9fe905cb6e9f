"""LedgerActor: the single writer. Batch, commit, publish, acknowledge.

Laws: one lane, so order of arrival is order in the log; a batch is committed when nothing more waits, when it is
large, or before any other message; nobody hears of a fact before it is durable. A full store refuses and lives on;
a commit whose outcome is unknown answers nobody and ends the process, and the next start reads what is durable.
"""

from collections.abc import Callable
from typing import Any, assert_never

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
    Probe,
    Published,
    PutPartialText,
    RoomWanted,
    RunClosed,
    ToLedger,
)
from maka.contracts.codec import drafts
from maka.contracts.errors import LedgerDamagedError, LedgerFailedError, LedgerFullError, Refusal, RefusalCode
from maka.contracts.events import Committed
from maka.contracts.ids import IdSource
from maka.contracts.limits import (
    BATCH_BYTES_MAX,
    BATCH_EVENTS_MAX,
    BATCH_WAIT_S,
    LEDGER_RETRY_FIRST_S,
    LEDGER_RETRY_MAX_S,
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
        self._partials: list[PutPartial] = []
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
                self._flush()
                self._close_run(message)
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
        if self.idle or self._is_large():
            self._flush()

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
        for group in message.append.groups:
            self._events += len(group.drafts)
            self._bytes += sum(len(draft.payload) for draft in group.drafts)

    def _note_start(self) -> None:
        if not self._appends and not self._partials:
            self._since_s = self._clock.monotonic_s()

    def _is_large(self) -> bool:
        if not self._appends and not self._partials:
            return False
        waited_s = self._clock.monotonic_s() - self._since_s
        return self._events >= BATCH_EVENTS_MAX or self._bytes >= BATCH_BYTES_MAX or waited_s >= BATCH_WAIT_S

    def _flush(self) -> None:
        appends, partials = self._appends, self._partials
        if not appends and not partials:
            return
        self._appends, self._partials, self._events, self._bytes = [], [], 0, 0
        try:
            results = self._commit([message.append for message in appends], partials)
        except LedgerFullError as error:
            self._close_door(str(error))
            for message in appends:
                self._refuse(message)
            return
        self._publish([message.append for message in appends], results)
        for message, result in zip(appends, results, strict=True):
            if isinstance(result, Refusal) and result.code is RefusalCode.LEDGER_FULL:
                # The store keeps its last room for endings: the same as full to everyone else.
                self._close_door(result.message)
                self._refused.add(message.to)
            message.to.tell(AppendDone(tag=message.tag, result=result))

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

    def _arm_probe(self) -> None:
        address = self.address

        def fire() -> None:
            address.tell(Probe())

        self._timers.after(self._retry_s, fire)
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
        verdict = self._decide_close(message)
        if verdict is None:
            self._unclosed.append(message)  # answered when there is room again
            return
        message.to.tell(RunClosed(session_id=message.session_id, invocation_id=message.invocation_id, verdict=verdict))

    def _decide_close(self, message: CloseRun) -> str | None:
        try:
            events = recovery.read_run(self._store, message.invocation_id)
        except LedgerDamagedError as error:
            self.log.error("run_damaged", session_id=message.session_id, error_kind=str(error))
            return "damaged"
        partials = self._store.partials(message.invocation_id)
        verdict = recovery_verdict.verdict(
            events,
            partials,
            reason=message.reason,
            ids=self._ids,
            now_ms=self._clock.now_ms(),
            waits_keep=self._waits_keep and message.keeps_waits,
        )
        if not verdict.events:
            return verdict.name
        group = Group(message.invocation_id, events[-1].seq, drafts(verdict.events))
        try:
            inline = (self._blobs.put(data)[1] for data in verdict.blobs)
            blobs = tuple(data for data in inline if data is not None)
            append = Append(groups=(group,), blobs=blobs, settlement=True)
            results = self._commit([append], [])
        except LedgerFullError as error:
            self._close_door(str(error))
            return None
        assert isinstance(results[0], Appended), f"a verdict was refused: {results[0]}"
        self._publish([append], results)
        return verdict.name
