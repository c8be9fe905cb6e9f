"""The world outside the actors, scripted and virtual: processes, readers. The model is in `model`, tools in `tools`.

Each part checks the laws where it stands: a reader refuses a fact that isn't durable.
"""

from collections.abc import Callable, Sequence
from typing import Any

from maka.contracts.actions import (
    ProcessIdentity,
)
from maka.contracts.content import FunctionResponse
from maka.contracts.events import Committed
from maka.contracts.session_events import SessionEvent, ToolOutputDelta
from tests.sim.laws import SECRET, BrokenLaw, Facts
from tests.sim.model import Said, SimProvider
from tests.sim.world import World

__all__ = ["BrokenLaw", "Facts", "Said", "SimProvider"]


class SimLeftovers:
    def __init__(self) -> None:
        self.unlinked: list[str] = []

    def unlink_temp(self, path: str) -> bool:
        self.unlinked.append(path)
        return True


class LeftOver:
    """What the calls that a dead owner left open may have left on the machine: a start ends it before it writes."""

    def __init__(self, facts: Sequence[Committed]) -> None:
        self._processes: dict[str, ProcessIdentity] = {}
        self._shells: dict[str, ProcessIdentity] = {}
        self._temp_files: dict[str, str] = {}
        for item in facts:
            content, actions = item.event.content, item.event.actions
            if isinstance(content, FunctionResponse):
                self._processes.pop(content.call_id, None)
                self._temp_files.pop(content.call_id, None)
            if actions is not None and (started := actions.process_started) is not None:
                (self._shells if started.background else self._processes)[started.call_id] = started.process
            if actions is not None and (ended := actions.process_ended) is not None:
                del self._shells[ended.call_id]
            if actions is not None and (change := actions.file_change) is not None:
                self._temp_files[change.call_id] = f"{change.path.rpartition('/')[0]}/{change.temp_name}"

    def check(self, killed: Sequence[ProcessIdentity], leftovers: SimLeftovers) -> None:
        """Raise where something of it is still there."""
        if any(process not in killed for process in (*self._processes.values(), *self._shells.values())):
            raise BrokenLaw("a verdict was written before the processes of a dead owner were killed")
        if any(path not in leftovers.unlinked for path in self._temp_files.values()):
            raise BrokenLaw("a verdict was written before the temp files of a dead owner were removed")


class SimSink:
    """A reader that checks what it is shown: durable facts only, in order, each once."""

    def __init__(self, world: World, head: Callable[[], int]) -> None:
        self._world = world
        self._head = head
        self.events: list[SessionEvent] = []
        self._live: dict[str, str] = {}
        self.last_position = 0
        self.is_lost = False

    def put(self, events: tuple[SessionEvent, ...]) -> bool:
        for event in events:
            live = ""
            if isinstance(event, ToolOutputDelta):
                live = self._live.get(event.call_id, "") + event.text
                self._live[event.call_id] = live
            if SECRET in repr(event) or SECRET in live:
                self._world.breaks("a secret was shown")
            if event.position is not None:
                if event.position > self._head():
                    self._world.breaks("a fact was shown before it was durable")
                if event.position <= self.last_position:
                    self._world.breaks("a fact was shown twice or out of order")
                self.last_position = event.position
            self.events.append(event)
        return True

    def lost(self) -> None:
        self.is_lost = True


class Watch:
    """Stands before the feed: what the ledger publishes is durable, in order, each fact once and none left out."""

    def __init__(self, world: World, head: Callable[[], int], tell: Callable[[Any], object]) -> None:
        self._world = world
        self._head = head
        self._tell = tell
        self.position = head()

    def tell(self, message: Any) -> None:
        items: tuple[Committed, ...] = message.items
        for item in items:
            if item.position > self._head():
                self._world.breaks("a fact was published before it was durable")
            if item.position != self.position + 1:
                self._world.breaks(f"position {item.position} was published after {self.position}")
            self.position = item.position
        self._tell(message)


class SimReply:
    """A one-shot answer that can be looked at."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def set(self, value: Any) -> None:
        if not self.values:
            self.values.append(value)

    @property
    def value(self) -> Any:
        return self.values[0] if self.values else None
