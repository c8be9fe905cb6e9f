"""`maka ps`: background processes as the store and the system know them, together."""

import json
import os
import sys
from collections.abc import Sequence

import pytest

from maka.config import Config
from maka.contracts.actions import Actions, ProcessEnded, ProcessIdentity, ProcessStarted
from maka.contracts.content import BlobRef
from maka.contracts.events import Author, Role
from maka.contracts.ids import CallId
from maka.edges.process_tree import identity_of
from tests.cli.builders import LogBuilder, uid
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeHost, FakeReader, install

GONE = ProcessIdentity(pid=os.getpid(), group=os.getpid(), start_ticks=1, boot_id="another boot")
OUTPUT = b"ready\n"


def start(log: LogBuilder, number: int, process: ProcessIdentity, command: str = "npm run dev") -> ProcessStarted:
    call_id = CallId(uid(0x900000 + number))
    started = ProcessStarted(call_id=call_id, process=process, command=command, background=True, shell_id=f"b{number}")
    log.add(None, None, Actions(process_started=started), role=Role.SYSTEM, author=Author.TOOL, hidden=True)
    return started


def end(log: LogBuilder, started: ProcessStarted, how: str, by: str | None = None) -> None:
    ended = ProcessEnded(
        call_id=started.call_id,
        process=started.process,
        how=how,
        exit_code=143,
        shell_id=started.shell_id,
        by=by,
        output=BlobRef(sha256="a" * 64, size_bytes=len(OUTPUT)),
    )
    log.add(None, None, Actions(process_ended=ended), role=Role.SYSTEM, author=Author.HOST, hidden=True)


@pytest.fixture
def alive() -> ProcessIdentity:
    """A process that lives and that nobody may take for this one: its parent's."""
    return identity_of(os.getppid())


def living(monkeypatch: pytest.MonkeyPatch, *pids: int) -> None:
    """Let the system know of these processes alone."""

    def which_live(recorded: Sequence[ProcessIdentity]) -> list[bool]:
        return [each.pid in pids for each in recorded]

    monkeypatch.setattr("maka.edges.process_tree.which_live", which_live)


def reading(monkeypatch: pytest.MonkeyPatch, *logs: LogBuilder, owned: bool = True) -> None:
    reader = FakeReader([item for log in logs for item in log.items], {"a" * 64: OUTPUT})
    install(monkeypatch, FakeHost(reader))

    def is_running(config: Config) -> bool:
        return owned

    monkeypatch.setattr(sys.modules["maka.app"], "is_running", is_running)


def test_those_that_live_are_listed_with_what_can_be_done(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, alive: ProcessIdentity
) -> None:
    living(monkeypatch, alive.pid)
    log, other = LogBuilder(), LogBuilder(2, 13, first_position=100)
    end(log, start(log, 1, GONE), "stopped", "cli")
    start(log, 2, alive)
    start(other, 1, alive, "a \u202e b")
    reading(monkeypatch, log, other)
    code, out, err = cli("ps")
    head, first, second = out.splitlines()
    assert code == 0
    assert head.split() == ["session", "boundary", "id", "pid", "status", "started", "command"]
    assert first.split()[:5] == ["#12", "ask", "b2", str(alive.pid), "running"] and first.endswith("npm run dev")
    assert second.startswith("#13") and second.endswith(r"a \u202e b")
    assert "the Maka that runs now" in err and "no other process can" in err
    assert len(cli("ps", "13")[1].splitlines()) == 2


@pytest.mark.parametrize(
    ("lives", "owned", "status"),
    [(True, True, "running"), (False, True, "ending"), (True, False, "left over"), (False, False, "orphaned")],
)
def test_what_the_facts_call_live_is_that_only_while_process_and_owner_are(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, lives: bool, owned: bool, status: str
) -> None:
    living(monkeypatch, *([GONE.pid] if lives else []))
    log = LogBuilder()
    start(log, 1, GONE)
    reading(monkeypatch, log, owned=owned)
    record = json.loads(cli("ps", "--json")[1])
    assert (record["status"], record["alive"], record["sessionNumber"], record["shellId"]) == (status, lives, 12, "b1")
    assert ("the next maka run ends" in cli("ps")[2]) != owned


def test_those_that_ended_say_how(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder()
    end(log, start(log, 1, GONE), "stopped", "cli")
    reading(monkeypatch, log)
    assert cli("ps") == (0, "", "No background process lives; --all lists those that ended.\n")
    code, out, err = cli("ps", "--all")
    assert (code, err) == (0, "")
    assert "stopped by cli" in out
    (line,) = cli("ps", "-a", "--json")[1].splitlines()
    record = json.loads(line)
    assert (record["status"], record["by"], record["exitCode"], record["alive"]) == ("stopped", "cli", 143, False)


def test_an_empty_store_has_none(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    reading(monkeypatch, LogBuilder())
    assert cli("ps", "--all") == (0, "", "No background process.\n")


def test_sessions_show_and_log_tell_of_them(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder()
    end(log, start(log, 1, GONE), "stopped", "cli")
    start(log, 2, GONE)
    reading(monkeypatch, log)
    assert "idle +1 in background" in cli("sessions")[1]
    assert json.loads(cli("sessions", "--json")[1])["background"] == 1
    shown = cli("show", "12", "--full")[1]
    assert f"background b1 npm run dev · pid {GONE.pid} · stopped by cli" in shown and "│ ready" in shown
    assert f"background b2 npm run dev · pid {GONE.pid} · running" in shown
    lines = cli("log", "12")[1].splitlines()
    assert lines[2].endswith(f"process {GONE.pid} in the background as b1 of npm run dev")
    assert lines[3].endswith(f"process {GONE.pid} (b1) stopped by cli, exit code 143, 6 bytes of output kept")
