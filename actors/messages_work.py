"""The work side of the conversation: what BackendActor and ToolActor are told, by their run and by the outside."""

from collections.abc import Callable

from actors.address import ReplyTo
from actors.messages_ledger import Message
from maka.contracts.commands import Reply
from maka.contracts.model_ports import DeltaBatch, ProviderError, StepResult
from maka.contracts.tool_ports import ProcessFact, ToolCall, ToolEnv, ToolFact, ToolResult

# -- to BackendActor ----------------------------------------------------------------------------------------------


class Begin(Message, frozen=True):
    """Send this body. `tries` counts the requests of this step so far, this one included."""

    generation: int
    body: bytes
    tries: int


class Cancel(Message, frozen=True):
    """Sticky: everything of this generation and older is cancelled, also what arrives later."""

    generation: int


class Ack(Message, frozen=True):
    generation: int


class StreamBatch(Message, frozen=True):
    generation: int
    batch: DeltaBatch


class StreamFinished(Message, frozen=True):
    generation: int
    result: StepResult


class StreamFailed(Message, frozen=True):
    generation: int
    error: ProviderError
    observed: bool


# -- to ToolActor -------------------------------------------------------------------------------------------------


class Look(Message, frozen=True):
    """Nothing is dispatched yet: ask the tool whether the call may begin; answered with ToolReady or ToolEnded."""

    call: ToolCall
    env: ToolEnv


class Dispatch(Message, frozen=True):
    """The dispatch is durable: run the call."""

    call: ToolCall
    env: ToolEnv


class CancelTool(Message, frozen=True):
    """Sticky; answered with ToolEnded, as everything is."""


class Grant(Message, frozen=True):
    token: int
    granted: bool


class OutputSeen(Message, frozen=True):
    stream: str
    text: str


class CommitWanted(Message, frozen=True):
    fact: ToolFact
    then: Callable[[bool], None]


class KeepWanted(Message, frozen=True):
    """From the tool: a process is to outlive the call; answered with ShellKept once its fact is durable."""

    fact: ProcessFact
    reply: ReplyTo[Reply]


class ResultSeen(Message, frozen=True):
    result: ToolResult


ToBackend = Begin | Cancel | Ack | StreamBatch | StreamFinished | StreamFailed
ToTool = Look | Dispatch | CancelTool | Grant | OutputSeen | CommitWanted | KeepWanted | ResultSeen
