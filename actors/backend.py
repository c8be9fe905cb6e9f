"""BackendActor: one run's requests to its model. It owns the provider stream of the newest generation.

Laws: Cancel is sticky (a Begin of that generation or an older one, arriving later, is answered as cancelled); facts
of an older generation are counted and dropped; each Begin is answered with exactly one StepEnded.
"""

from typing import assert_never

from actors import step_loop
from actors.address import Address
from actors.base import MakaActor
from actors.messages import Parent
from actors.messages_run import Deltas, StepEnded, ToRun
from actors.messages_work import Ack, Begin, Cancel, StreamBatch, StreamFailed, StreamFinished, ToBackend
from actors.verdicts import Cancelled, Verdict
from actors.wiring import Ports
from maka.contracts.model_ports import DeltaBatch, Provider, ProviderError, ProviderStream, StepResult


class Listener:
    """Carries one request's facts from the I/O thread into the mailbox."""

    def __init__(self, address: Address[ToBackend], generation: int) -> None:
        self._address = address
        self._generation = generation

    def batch(self, batch: DeltaBatch) -> None:
        self._address.tell(StreamBatch(generation=self._generation, batch=batch))

    def finished(self, result: StepResult) -> None:
        self._address.tell(StreamFinished(generation=self._generation, result=result))

    def failed(self, error: ProviderError, observed: bool) -> None:
        self._address.tell(StreamFailed(generation=self._generation, error=error, observed=observed))


class BackendActor(MakaActor[ToBackend]):
    """Started by RunActor, which is the only one that talks to it besides the provider's listener."""

    def __init__(self, ports: Ports, parent: Parent | None, run: Address[ToRun], provider: Provider) -> None:
        super().__init__(ports.log, parent)
        self._jitter = ports.jitter
        self._run = run
        self._provider = provider
        self._stream: ProviderStream | None = None
        self._generation = 0
        self._cancelled_through = 0
        self._tries = 0
        self._text_seen = False
        self.late_facts = 0

    def receive(self, message: ToBackend) -> None:
        match message:
            case Begin():
                self._begin(message)
            case Cancel(generation=generation):
                self._cancelled_through = max(self._cancelled_through, generation)
                if self._stream is not None and self._generation <= self._cancelled_through:
                    self._stream.cancel()
            case Ack(generation=generation):
                if generation == self._generation and self._stream is not None:
                    self._stream.ack()
            case StreamBatch(generation=generation, batch=batch):
                if self._is_live(generation):
                    self._text_seen = self._text_seen or any(k == "text" and t.strip() for k, t in batch.pieces)
                    self._run.tell(Deltas(generation=generation, batch=batch))
            case StreamFinished(generation=generation, result=result):
                if self._is_live(generation):
                    self._end(step_loop.after_finished(result, text_seen=self._text_seen))
            case StreamFailed(generation=generation, error=error, observed=observed):
                if self._is_live(generation):
                    tries, jitter = self._tries, self._jitter()
                    self._end(step_loop.after_failed(error, observed=observed, tries=tries, jitter=jitter))
            case _:
                assert_never(message)

    def cleanup(self) -> None:
        if self._stream is not None:
            self._stream.cancel()

    def _begin(self, message: Begin) -> None:
        assert message.generation > self._generation, "a generation is used once"
        if self._stream is not None:
            self._stream.cancel()
        self._generation = message.generation
        self._tries = message.tries
        self._text_seen = False
        if message.generation <= self._cancelled_through:
            self._end(Cancelled())
            return
        self._stream = self._provider.start(message.body, Listener(self.address, message.generation))

    def _is_live(self, generation: int) -> bool:
        if generation == self._generation and self._stream is not None and generation > self._cancelled_through:
            return True
        self.late_facts += 1
        if generation == self._generation and self._stream is not None:
            self._end(Cancelled())
        return False

    def _end(self, verdict: Verdict) -> None:
        self._stream = None
        self._run.tell(StepEnded(generation=self._generation, verdict=verdict))
