"""Background processes of the simulated world: scripted and virtual, under the real table of background shells.

The law is checked where it stands: a process that runs before a durable fact of its session names it breaks one.
"""

from collections.abc import Callable, Sequence

from maka.contracts.actions import ProcessIdentity
from maka.contracts.ids import CallId
from maka.contracts.masks import Masks
from maka.contracts.process_ports import Launch, ProcessEnd, ProcessHandle, ProcessListener, ProcessSpec
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolListener
from maka.tools.background import BackgroundTable
from maka.tools.background_shell import Order
from tests.sim.laws import SECRET, Facts
from tests.sim.tools import Effects, SimTool
from tests.sim.world import World

QUICK, TIMED = "/w/f", "/w/h"
"""Commands that end by themselves: at once, and after a while. Any other one lives until it is ended."""
TIMED_S = 3.0


class SimProcesses:
    """Starts processes in the world, and knows those of dead hosts."""

    def __init__(self, world: World, facts: Facts, effects: Effects) -> None:
        self.world = world
        self.facts = facts
        self.effects = effects
        self.killed: list[ProcessIdentity] = []

    def spawn(self, spec: ProcessSpec, listener: ProcessListener) -> ProcessHandle:
        self.effects.pids += 1
        child = SimChild(self, spec.launch.argv[0], listener, self.effects.pids)
        self.soon(child.begin)
        return child

    def soon(self, act: Callable[[], None]) -> None:
        self.world.soon("process", act)

    def kill_left_over(self, found: Sequence[ProcessIdentity]) -> list[ProcessIdentity]:
        self.killed += found
        return [each for each in found if self.effects.alive.pop(each.pid, None) is not None]


class SimChild:
    """One process behind its gate."""

    def __init__(self, processes: SimProcesses, path: str, listener: ProcessListener, pid: int) -> None:
        self._processes = processes
        self._path = path
        self._listener = listener
        self._identity = ProcessIdentity(pid=pid, group=pid, start_ticks=pid, boot_id="boot")
        self._cancelled = False
        self._over = False
        self._runs = False

    def begin(self) -> None:
        if self._cancelled:
            self._end("not_started")
        elif not self._over:
            self._listener.waiting(self._identity)

    def release(self) -> None:
        self._processes.soon(self._run)

    def cancel(self) -> None:
        self._cancelled = True
        self._processes.soon(lambda: self._end("cancelled" if self._runs else "not_started"))

    def _run(self) -> None:
        if self._over or self._cancelled or self._runs:
            return
        self._runs = True
        world, effects = self._processes.world, self._processes.effects
        call_id = self._named()
        if call_id is None:
            world.breaks("a background process ran that no durable fact of its session names")
        effects.alive[self._identity.pid] = call_id
        effects.done.add(call_id)
        self._listener.output("stdout", f"line {SECRET}\n".encode())
        if self._path == QUICK:
            self._processes.soon(lambda: self._end("exited"))
        elif self._path == TIMED:
            world.after(TIMED_S, lambda: self._end("exited"))

    def _named(self) -> CallId | None:
        for item in self._processes.facts():
            started = item.event.actions.process_started if item.event.actions is not None else None
            if started is not None and started.process == self._identity and item.event.run_id is None:
                return started.call_id
        return None

    def _end(self, cause: str) -> None:
        if self._over:
            return
        self._over = True
        self._processes.effects.alive.pop(self._identity.pid, None)
        self._listener.ended(ProcessEnd(cause=cause, exit_code=0 if cause == "exited" else None))


class SimShell(SimTool):
    """A call whose process outlives it: the real table, over processes of this world."""

    def __init__(
        self,
        world: World,
        facts: Facts,
        seen: Effects,
        table: BackgroundTable,
        processes: SimProcesses,
        masks: Masks,
    ) -> None:
        super().__init__("Shell", world, facts, seen)
        self._masks = masks
        self._table = table
        self._processes = processes

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        self.check_start(call)
        path = str(call.args["path"])
        order = Order(
            call_id=call.call_id,
            session_id=env.session_id,
            command=f"{path} {SECRET}",
            settle=lambda _end, _text: None,
            masks=self._masks,
        )
        spec = ProcessSpec(launch=Launch(argv=(path,)), cwd=env.cwd, env={}, timeout_s=None)
        return self._table.start(order, listener, self._processes, spec)
