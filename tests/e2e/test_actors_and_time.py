"""Kinds K, L and U through the whole path: a tool that ends the world, one that floods it, a clock that steps back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maka import adapters, app
from maka.contracts.actions import RecoveryMode
from maka.contracts.content import FunctionResponse, Outcome
from maka.contracts.limits import RESULT_BYTES_MAX
from maka.contracts.model_ports import ToolSpec
from maka.contracts.session_events import TextDelta
from maka.contracts.tool_ports import FileFact, ToolCall, ToolEnv, ToolListener
from maka.edges.clock import SystemClock
from maka.edges.scripted_model import Call, Gate, Turn
from maka.tools.registry import Catalog, builtin_tools
from tests.e2e import checks
from tests.e2e.harness import World, by_prompt


class Quit:
    """A tool that asks for the end of the process: at once, or when its fact is durable."""

    spec = ToolSpec(name="Quit", description="Ends it.", parameters={"type": "object", "properties": {}})
    recovery_mode: RecoveryMode = "replay_safe"
    exclusive = False

    def __init__(self, error: type[BaseException], late: bool) -> None:
        self._error = error
        self._late = late

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        if not self._late:
            raise self._error("the tool says so")
        fact = FileFact(path="/x", before_sha256=None, after_sha256="0" * 64, pre_image=None, temp_name=".x.maka-1")
        listener.commit(fact, self._quit)
        return lambda: None

    def _quit(self, granted: bool) -> None:
        raise self._error("the tool says so")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_h48_system_exit_in_one_actor_stops_all(world: World, error: type[BaseException], late: bool) -> None:
    def with_quit(processes: Any, **options: Any) -> Catalog:
        tools = builtin_tools(processes, **options)
        return Catalog([*(tool for spec in tools.specs() if (tool := tools.get(spec.name))), Quit(error, late)])

    world.patch.setattr(adapters, "builtin_tools", with_quit)
    gate = Gate()
    script = by_prompt(
        quit=[Turn(calls=(Call(name="Quit", args={}),)), Turn(text="still here")], talk=[Turn(text="so far", gate=gate)]
    )
    maka = world.open(script)
    other = maka.send("talk", maka.new_session())
    other.until(TextDelta)
    assert maka.run("quit").final_text == "still here"
    (answer,) = maka.contents(FunctionResponse)
    assert answer.outcome is Outcome.ERROR
    assert error.__name__ in answer.result
    gate.open()
    assert other.end().status == "completed", "the other session lives on"


def peak_rss_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) << 10


@pytest.mark.usefixtures("each_sandbox")
def test_h51_very_large_output(world: World) -> None:
    command = "yes 0123456789012345678901234567890123456789 | head -c 100000000"
    maka = world.open([Turn(calls=(Call(name="Bash", args={"command": command}),)), Turn(text="much")])
    maka.new_session()
    Path("/proc/self/clear_refs").write_text("5")  # begins the peak anew
    before = peak_rss_bytes()
    assert maka.run().status == "completed"
    assert peak_rss_bytes() - before < 50 << 20
    (answer,) = maka.contents(FunctionResponse)
    assert len(answer.result.encode()) <= RESULT_BYTES_MAX
    assert answer.result.startswith("0123456789")
    assert answer.whole is not None
    assert answer.whole.size_bytes < 10 << 20, "head and tail"
    data = (world.machine.state / "ledger" / "data.mdb").stat()
    assert data.st_blocks * 512 < 8 << 20, "the ledger holds what the model saw"


class SteppingClock(SystemClock):
    """The system's clock, which a test may set back."""

    offset_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + type(self).offset_ms


def test_h76_clock_steps_back(world: World) -> None:
    class Clock(SteppingClock):
        pass

    for module in (app, adapters):
        world.patch.setattr(module, "SystemClock", Clock)
    gate = Gate()
    maka = world.open([Turn(text="one", gate=gate)])
    live = maka.send("first")
    live.until(TextDelta)
    Clock.offset_ms = -3_600_000
    gate.open()
    first = live.end()
    maka.model.says(Turn(text="two"))
    second = maka.run("second")
    maka.reopen()
    maka.model.says(Turn(text="three"))
    third = maka.run("third")
    assert [said for _, said in maka.model.roles()] == ["first", "one", "second", "two", "third"]
    stamps = [item.event.ts for item in maka.facts()]
    assert stamps != sorted(stamps), "the clock did step back"
    for ended in (first, second, third):
        assert 0 <= ended.duration_ms < 60_000
    (header,) = checks.headers(maka.store)
    assert header.activity_ts == max(stamps), "activity never steps back"
    ids = [item.event.id for item in maka.facts()]
    assert len(set(ids)) == len(ids)
