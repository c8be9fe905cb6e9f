"""What the composition root hands to every actor: ports, and a way to start further actors."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from actors.address import Address
from actors.base import Log, MakaActor
from maka.contracts.background_ports import BackgroundShells
from maka.contracts.ids import IdSource
from maka.contracts.masks import NO_MASKS, Masks
from maka.contracts.model_ports import ProviderSource
from maka.contracts.ports import BlobWriter, Clock, LedgerReader, Timers
from maka.contracts.process_ports import Processes
from maka.contracts.tool_ports import ToolCatalog, UndoTool

M = TypeVar("M")


class Spawn(Protocol):
    """Starts an actor: on a thread in production, under the seeded scheduler in simulation."""

    def __call__(self, actor: type[MakaActor[M]], *args: Any) -> Address[M]: ...


class Leftovers(Protocol):
    """The file port of recovery."""

    def unlink_temp(self, path: str) -> bool:
        """Remove a temp file that a dead owner left; say whether there was one."""
        ...


class Ports(Struct, frozen=True, kw_only=True):
    """Everything outside that actors see. `prompt` is cwd -> system prompt; `jitter` is a number in [0, 1).

    `masks` takes secrets out of what tools say.
    """

    ids: IdSource
    clock: Clock
    timers: Timers
    jitter: Callable[[], float]
    reader: LedgerReader
    blobs: BlobWriter
    providers: ProviderSource
    catalog: ToolCatalog
    undo: UndoTool
    processes: Processes
    background: BackgroundShells
    leftovers: Leftovers
    prompt: Callable[[str], str]
    spawn: Spawn
    log: Log
    masks: Masks = NO_MASKS
