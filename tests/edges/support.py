"""What the tests of the provider edge share: a listener that remembers, and servers and providers in one line."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from maka.contracts.model_ports import (
    ChatMessage,
    ChatRequest,
    DeltaBatch,
    ModelProfile,
    ProviderError,
    ProviderStream,
    StepResult,
)
from maka.edges.clock import SystemClock
from maka.edges.io_loop import IoLoop
from maka.edges.openai_chat import OpenAIChat
from maka.edges.scripted_model import DONE, Raw, Script, ScriptedModel, Step, chunk

WAIT_S = 30.0
HELLO = ChatRequest(system="", messages=(ChatMessage(role="user", text="hello"),))


class Heard:
    """A `ProviderListener` that remembers everything. `acks` False leaves batches unanswered."""

    def __init__(self, *, acks: bool = True) -> None:
        self.acks = acks
        self.stream: ProviderStream | None = None
        self.batches: list[DeltaBatch] = []
        self.verdicts: list[StepResult | ProviderError] = []
        self.observed: bool | None = None
        self.first_batch = threading.Event()
        self.over = threading.Event()
        self.on_batch: Callable[[], None] | None = None
        self._ready = threading.Event()

    def attach(self, stream: ProviderStream) -> None:
        self.stream = stream
        self._ready.set()

    def batch(self, batch: DeltaBatch) -> None:
        assert not self.verdicts, "a batch after the verdict"
        self.batches.append(batch)
        self.first_batch.set()
        if self.on_batch is not None:
            self.on_batch()
        if self.acks:
            self.ack()

    def finished(self, result: StepResult) -> None:
        self.verdicts.append(result)
        self.over.set()

    def failed(self, error: ProviderError, observed: bool) -> None:
        self.verdicts.append(error)
        self.observed = observed
        self.over.set()

    def ack(self) -> None:
        assert self._ready.wait(WAIT_S)
        assert self.stream is not None
        self.stream.ack()

    def cancel(self) -> None:
        assert self.stream is not None
        self.stream.cancel()

    def wait(self) -> "Heard":
        assert self.over.wait(WAIT_S), "no verdict came"
        assert len(self.verdicts) == 1
        return self

    @property
    def text(self) -> str:
        return self.said("text")

    def said(self, kind: str) -> str:
        return "".join(text for batch in self.batches for key, text in batch.pieces if key == kind)

    @property
    def result(self) -> StepResult:
        self.wait()
        assert isinstance(self.verdicts[0], StepResult), self.verdicts[0]
        return self.verdicts[0]

    @property
    def error(self) -> ProviderError:
        self.wait()
        assert isinstance(self.verdicts[0], ProviderError), self.verdicts[0]
        return self.verdicts[0]


class Edge:
    """One I/O loop and the servers of one test."""

    def __init__(self) -> None:
        self.io = IoLoop.start()
        self.servers: list[ScriptedModel] = []

    def provider(self, target: ScriptedModel | str, key: str = "", **profile: Any) -> OpenAIChat:
        url = target if isinstance(target, str) else target.base_url
        return OpenAIChat(ModelProfile(name="t", base_url=url, model="m", **profile), key, self.io, SystemClock())

    def serve(self, script: Script, **options: Any) -> ScriptedModel:
        server = ScriptedModel.start(script, **options)
        self.servers.append(server)
        return server

    def start(self, provider: OpenAIChat, heard: Heard | None = None, request: ChatRequest = HELLO) -> Heard:
        """Start a request, and return its listener at once."""
        heard = heard or Heard()
        heard.attach(provider.start(provider.encode(request), heard))
        return heard

    def hear(self, *steps: Step, **options: Any) -> Heard:
        """Let a server send exact frames, and return what was heard when all is over."""
        profile = options.pop("profile", {})
        server = self.serve(lambda _: Raw(steps=steps, **options))
        return self.start(self.provider(server, **profile)).wait()

    def settle(self) -> None:
        """Wait until every request has also given back its connection."""
        over = threading.Event()

        async def others() -> None:
            if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(tasks)

        self.io.submit(others(), lambda _: over.set())
        assert over.wait(WAIT_S)

    def close(self) -> None:
        self.io.close()
        for server in self.servers:
            server.close()


def tool_call(**call: Any) -> bytes:
    """Return a frame with one fragment of a tool call."""
    return chunk({"tool_calls": [call]})


def function(name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    given = {"name": name, "arguments": arguments}
    return {key: value for key, value in given.items() if value is not None}


def finish(reason: str) -> bytes:
    return chunk({}, reason)


CALLS = (finish("tool_calls"), DONE)
STOP = (finish("stop"), DONE)
