"""Clock, ids, deadlines, and logs."""

import io as io_module
import os
import stat
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maka.contracts.ids import id_bytes
from maka.edges.clock import SystemClock
from maka.edges.ids import UuidSource
from maka.edges.logs import LogFile, make_logger
from maka.edges.redact import Redactor
from maka.edges.timers import ThreadTimers


def test_the_clock_runs_forward() -> None:
    clock = SystemClock()
    assert clock.now_ms() > 1_700_000_000_000
    assert clock.monotonic_s() <= clock.monotonic_s()


def test_ids_are_canonical_and_grow_over_threads() -> None:
    source = UuidSource()
    made: list[list[str]] = [[] for _ in range(4)]

    def mint(into: list[str]) -> None:
        into.extend(source() for _ in range(2_000))

    threads = [threading.Thread(target=mint, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(own == sorted(own) for own in made)
    everything = [one for own in made for one in own]
    assert len(set(everything)) == 8_000
    assert all(id_bytes(one)[6] >> 4 == 7 for one in everything)


def test_h76_ids_grow_although_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fixed:
        def __init__(self, value: int) -> None:
            self.int = value

    hour = 3_600_000 << 80
    base = (1_700_000_000_000 << 80) | (0x7 << 76) | (0b10 << 62)
    ticks = iter([base, base + 5, base - hour, base - hour + 1, base + 6])
    monkeypatch.setattr("uuid_utils.uuid7", lambda: Fixed(next(ticks)))
    source = UuidSource()
    made = [source() for _ in range(5)]
    assert made == sorted(set(made))
    assert all(id_bytes(one)[6] >> 4 == 7 for one in made)


def test_deadlines_fire_in_order_and_once() -> None:
    timers = ThreadTimers.start()
    order: list[str] = []
    over = threading.Event()
    timers.after(0.03, over.set)
    timers.after(0.02, lambda: order.append("later"))
    timers.after(0.01, lambda: order.append("sooner"))
    timers.after(-1, lambda: order.append("at once"))
    cancelled = timers.after(0.015, lambda: order.append("never"))
    cancelled.cancel()
    cancelled.cancel()
    assert over.wait(30)
    assert order == ["at once", "sooner", "later"]
    timers.close()


def test_an_earlier_deadline_wakes_the_thread() -> None:
    timers = ThreadTimers.start()
    timers.after(3_600, lambda: None)
    timers.after(1e12, lambda: None)
    fired = threading.Event()
    timers.after(0, fired.set)
    assert fired.wait(30)
    timers.close()


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt()])
def test_what_a_deadline_raises_is_told_and_the_thread_lives(error: BaseException) -> None:
    told: list[BaseException] = []
    timers = ThreadTimers.start(told.append)

    def fail() -> None:
        raise error

    fired = threading.Event()
    timers.after(0, fail)
    timers.after(0, fired.set)
    assert fired.wait(30)
    assert told == [error]
    timers.close()


def test_closed_timers_fire_nothing_and_end_their_thread() -> None:
    timers = ThreadTimers.start()
    fired: list[int] = []
    for _ in range(3_000):
        timers.after(3_600, lambda: fired.append(1)).cancel()
    closed = threading.Event()

    def close_from_within() -> None:
        timers.close()
        closed.set()

    timers.after(0, close_from_within)
    assert closed.wait(30)
    timers.close()
    timers.after(0, lambda: fired.append(2)).cancel()
    assert not any(thread.name == "maka-timers" for thread in threading.enumerate())
    assert fired == []


def lines(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def test_log_lines_are_json_masked_and_private(tmp_path: Path) -> None:
    path = tmp_path / "maka.log"
    path.write_bytes(b"")
    path.chmod(0o644)
    sink = LogFile.open(path)
    log = make_logger(sink, Redactor(["my-secret-key"])).bind(session_id="s1")
    log.info(
        "provider_retry", attempt=2, message="my-secret-key and Bearer abcdef123456", nested={"a": ["my-secret-key"]}
    )
    log.debug("not_shown")
    try:
        raise ValueError("my-secret-key")
    except ValueError:
        log.exception("actor_failed", path="a\ud83d", odd={1, 2}, thing=object())
    log.error("odd", worse={(1, 2): "my-secret-key"})
    sink.close()
    log.warning("after_close")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert b"my-secret-key" not in path.read_bytes()
    first, second, third = lines(path)
    assert first.pop("at").endswith("Z")
    assert first == {
        "event": "provider_retry",
        "level": "info",
        "session_id": "s1",
        "attempt": 2,
        "message": "*** and ***",
        "nested": {"a": ["***"]},
    }
    assert "ValueError: ***" in second["exception"]
    assert third["event"] in ("odd", "log_line_not_writable")


def test_two_logs_of_one_process_are_apart(tmp_path: Path) -> None:
    sinks = [LogFile.open(tmp_path / name) for name in "ab"]
    logs = [make_logger(sinks[0], Redactor()), make_logger(sinks[1], Redactor(), level="debug")]
    for log in logs:
        log.debug("seen")
    assert [len(lines(tmp_path / name)) for name in "ab"] == [0, 1]
    for sink in sinks:
        sink.close()


def test_a_log_that_cannot_be_written_breaks_nothing() -> None:
    class Full(io_module.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(28, "No space left on device")

    make_logger(LogFile(Full()), Redactor()).error("x")
