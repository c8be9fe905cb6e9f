"""What a tool's process costs beyond itself: the gate, the bounds, the watch over its tree. Times are in ms."""

import argparse
import os
import threading
import time

from bench._report import machine, quantile
from maka.contracts.actions import ProcessIdentity
from maka.contracts.process_ports import Launch, ProcessEnd, ProcessHandle, ProcessSpec
from maka.contracts.tool_limits import ToolLimits
from maka.edges.io_loop import IoLoop
from maka.edges.process_tree import Table, identity_of
from maka.edges.processes import AsyncProcesses
from maka.edges.spawn_bounds import bounding_words
from maka.edges.spawn_gate import spawn_gated

TRUE = ("/bin/true",)
RATIO_GOAL = 1.2


class Call:
    """A process that is let through its gate at once."""

    def __init__(self) -> None:
        self.handle: ProcessHandle | None = None
        self.known = threading.Event()
        self.over = threading.Event()

    def waiting(self, process: ProcessIdentity) -> None:
        del process
        self.known.wait()
        assert self.handle is not None
        self.handle.release()

    def output(self, stream: str, data: bytes) -> None:
        del stream, data

    def ended(self, end: ProcessEnd) -> None:
        assert end.exit_code == 0, end
        self.over.set()

    def failed(self, message: str) -> None:
        raise AssertionError(message)


def gate_ms(bounds: str) -> float:
    """Return the time of one spawn, from the fork to the command's end."""
    started = time.perf_counter()
    child = spawn_gated(Launch(argv=TRUE), "/", {}, bounds)
    child.open_gate()
    child.reap()
    took_ms = (time.perf_counter() - started) * 1e3
    os.close(child.stdout)
    os.close(child.stderr)
    return took_ms


def port_ms(processes: AsyncProcesses) -> float:
    """Return the time of one call of the port, until its end is told."""
    call = Call()
    started = time.perf_counter()
    call.handle = processes.spawn(ProcessSpec(launch=Launch(argv=TRUE), cwd="/", env={}, timeout_s=60.0), call)
    call.known.set()
    call.over.wait()
    return (time.perf_counter() - started) * 1e3


def look_ms() -> float:
    """Return the processor's time that one look of the watch at all processes takes."""
    started = time.thread_time()
    Table().related(identity_of(os.getpid()))
    return (time.thread_time() - started) * 1e3


def main() -> None:
    """Print the figures; what is compared takes turns, so that both meet the same machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    rounds = range(parser.parse_args().rounds)
    print(machine())
    words = bounding_words(ToolLimits())
    gates = [(gate_ms(""), gate_ms(words)) for _ in rounds]
    show("gate alone", [bare for bare, _ in gates])
    show("gate with bounds", [bound for _, bound in gates])
    change = quantile([bound for _, bound in gates], 0.5) / quantile([bare for bare, _ in gates], 0.5)
    print(f"    bounds cost {change:.2f} times the gate's median (goal {RATIO_GOAL:g})")
    io = IoLoop.start()
    try:
        processes = AsyncProcesses(io)
        show("a whole call of the port", [port_ms(processes) for _ in rounds])
    finally:
        io.close()
    show("one look, processor's time", [look_ms() for _ in rounds])


def show(name: str, times: list[float]) -> None:
    print(f"{name:<28} p50 {quantile(times, 0.5):6.3f} ms   p99 {quantile(times, 0.99):6.3f} ms")


if __name__ == "__main__":
    main()
