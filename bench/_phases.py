"""Runs that are brought into a phase, to be stopped there: what `bench/stop.py` measures on."""

import queue
import select
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from os import close, pidfd_open
from pathlib import Path
from time import monotonic_ns

from msgspec import Struct

from maka.app import Host
from maka.config import Config
from maka.contracts.ids import InvocationId, RunId, SessionId
from maka.contracts.model_ports import ModelProfile
from maka.contracts.session_events import ProviderRetry, SessionEvent, TextDelta, ToolOutputDelta, ToolResultEvent

PROFILE = "bench"
PATIENCE_S = 60.0
REACHED: dict[str, type[SessionEvent] | None] = {
    "stream": TextDelta,
    "head": None,
    "retry": ProviderRetry,
    "tool": ToolOutputDelta,
    "deaf": ToolOutputDelta,
    "steps": ToolResultEvent,
}
"""What says that a run is in a phase; for "head" it is the server that says so."""


class Model:
    """The scripted model's process, and what it says of its requests."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self._lines = process.stdout
        self.base_url = self._lines.readline().strip()
        self.said: dict[tuple[str, str], queue.SimpleQueue[int]] = defaultdict(queue.SimpleQueue)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self._lines:
            what, name, *when = line.split()
            self.said[what, name].put(int(when[0]) if when else 0)

    def wait(self, what: str, name: str) -> int:
        """Wait until it was said; returns its time."""
        return self.said[what, name].get(timeout=PATIENCE_S)


@contextmanager
def phase_server() -> Generator[Model]:
    """Run the server in its own process."""
    program = Path(__file__).with_name("_phase_server.py")
    with subprocess.Popen(
        [sys.executable, "-P", str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        try:
            yield Model(process)
        finally:
            process.stdin.close()


class Live(Struct, frozen=True, kw_only=True):
    """A run in its phase. `pidfd` is its command's, where it has one."""

    name: str
    phase: str
    session_id: SessionId
    run_id: RunId
    pidfd: int | None


class Runs:
    """Begins runs, and tells when the last of their effects was over."""

    def __init__(self, host: Host, model: Model, folder: Path) -> None:
        self._host = host
        self._model = model
        self._folder = str(folder)
        self._names = count(1)

    def begin(self, phase: str) -> Live:
        """Start a run in a new session, and return when it is in its phase."""
        name, manager = f"n{next(self._names)}", self._host.manager
        session_id = manager.create_session(self._folder).session_id
        with manager.subscribe(session_id) as events:
            accepted = manager.send_message(session_id, f"{phase} {name}", profile=PROFILE)
            assert accepted.run_id is not None
            self._model.wait("asked", name)
            wanted = REACHED[phase]
            while wanted is not None and not isinstance(event := events.get(PATIENCE_S), wanted):
                assert event is not None, f"no {wanted.__name__}"
        pid = self._pid_of(accepted.run_id) if phase in ("tool", "deaf") else None
        return Live(
            name=name,
            phase=phase,
            session_id=session_id,
            run_id=accepted.run_id,
            pidfd=None if pid is None else pidfd_open(pid),
        )

    def _pid_of(self, run_id: RunId) -> int:
        acts = (item.event.actions for item in self._host.reader.read_stream(InvocationId(run_id)))
        (pid,) = (act.process_started.process.pid for act in acts if act is not None and act.process_started)
        return pid

    def effects_over_ns(self, live: Live) -> int:
        """Return when the run's connection was closed or its process had ended; 0 where it had neither."""
        if live.pidfd is not None:
            ready, _, _ = select.select([live.pidfd], [], [], PATIENCE_S)
            over_ns = monotonic_ns()
            close(live.pidfd)
            assert ready, "the process lives on"
            return over_ns
        return self._model.wait("left", live.name) if live.phase in ("stream", "head") else 0


def config_of(folder: Path, base_url: str) -> Config:
    profile = ModelProfile(name=PROFILE, base_url=base_url, model="scripted", first_event_s=0.0)
    return Config(
        state_root=folder / "state",
        config_file=folder / "config.toml",
        config_dir=folder,
        profiles={PROFILE: profile},
        child_env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
