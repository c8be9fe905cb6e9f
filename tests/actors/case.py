"""One run in a world of its own, for tests that tell a short story about it."""

from collections.abc import Callable
from typing import Any

from maka.contracts.commands import StopReceipt
from maka.contracts.content import FunctionResponse, Outcome, RunLimits
from maka.contracts.ids import InvocationId
from maka.contracts.model_ports import AssembledCall, ChatRequest, ErrorKind, ProviderError
from projections import run_record
from projections.run_record import RunRecord
from tests.sim.checkers import Checker
from tests.sim.host import SimHost
from tests.sim.outside import Said, SimReply

Script = Callable[[ChatRequest], Said]


def asks(*names: str, text: str = "", args: dict[str, Any] | None = None) -> Said:
    given = {"path": "/w/f"} if args is None else args
    calls = tuple(
        AssembledCall(provider_id=f"p{number}", name=name, args=given, raw="{}") for number, name in enumerate(names)
    )
    return Said(text=(text,) if text else (), calls=calls)


def then(*answers: Said) -> Script:
    """Answer the first request with the first, and so on; the last one for all that follow."""
    given: list[ChatRequest] = []

    def script(request: ChatRequest) -> Said:
        given.append(request)
        return answers[min(len(given), len(answers)) - 1]

    return script


def trouble(kind: ErrorKind, *, retryable: bool = False, text: tuple[str, ...] = ()) -> Said:
    return Said(text=text, error=ProviderError(kind=kind, message="the provider said no", retryable=retryable))


class Case:
    """One run in a world of its own."""

    def __init__(
        self, script: Script, *, seed: int = 1, limits: RunLimits | None = None, window: int | None = None
    ) -> None:
        self.host = SimHost(seed, script, window=window)
        self.session_id = self.host.session()
        self.sink = self.host.follow(self.session_id)
        self.sent = self.host.send(self.session_id, "do it", limits=limits)
        self.host.world.run(until=lambda: self.sent.value is not None)

    def finish(self) -> RunRecord:
        """Run to the end, check every law, and return the record of the first run."""
        self.host.world.run()
        Checker(self.host).settled()
        folded = run_record.project(self.host.store.read_stream(InvocationId(self.sent.value.run_id)))
        assert folded is not None
        return run_record.record(folded)

    def until(self, condition: Callable[[], bool]) -> None:
        self.host.world.run(until=condition)
        assert condition(), "it never came to that"

    def shown(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.sink.events if isinstance(event, kind)]

    def outcomes(self) -> list[Outcome]:
        contents = [item.event.content for item in self.host.session_facts(self.session_id)]
        return [content.outcome for content in contents if isinstance(content, FunctionResponse)]

    def requests(self) -> list[ChatRequest]:
        return self.host.provider.requests


def kill(host: SimHost, name: str, nth: int | None = None) -> None:
    """Let the next message of each actor of this class raise; with `nth`, of that one alone, and send it one."""
    for number, actor in enumerate(each for each in host.world.actors if type(each).__name__ == name):
        if nth in (None, number):

            def broken(_: object) -> None:
                raise RuntimeError("planted")

            actor.receive = broken
            if nth is not None:
                actor.actor_ref.tell("anything")


def stop(case: Case, source: str = "test.button") -> SimReply:
    return case.host.stop(case.session_id, source)


def receipt_of(reply: SimReply) -> StopReceipt:
    assert isinstance(reply.value, StopReceipt), reply.value
    return reply.value
