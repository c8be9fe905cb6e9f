"""Signals become one stop; a second one leaves."""

import os
import signal
import threading

import pytest

from maka.cli.interrupts import Interrupts
from maka.contracts.commands import StopReceipt
from maka.contracts.ids import SessionId

WAIT_S = 20.0
RECEIPT = StopReceipt(session_id=SessionId("s"), was="streaming")


def nothing() -> None:
    """Nothing runs that would have to be killed."""


@pytest.mark.parametrize(
    ("number", "source"),
    [(signal.SIGINT, "cli.interrupt"), (signal.SIGTERM, "cli.terminated"), (signal.SIGHUP, "cli.terminated")],
)
def test_a_signal_stops_with_its_source_and_keeps_the_receipt(number: signal.Signals, source: str) -> None:
    sources: list[str] = []

    def stop(source: str) -> StopReceipt:
        sources.append(source)
        return RECEIPT

    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        interrupts.arm(stop, nothing)
        os.kill(os.getpid(), number)
        assert interrupts.answered.wait(WAIT_S)
    assert (sources, interrupts.receipt) == ([source], RECEIPT)
    assert interrupts.exit_code() == (130 if number == signal.SIGINT else 6)
    assert signal.getsignal(number) is before


def test_a_signal_before_there_is_a_run_is_served_once_there_is_one() -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        interrupts.arm(lambda source: RECEIPT, nothing)
        assert interrupts.answered.wait(WAIT_S)
    assert interrupts.source == "cli.interrupt"


def test_a_second_signal_leaves_while_the_first_still_waits() -> None:
    asked, left, release = threading.Event(), threading.Event(), threading.Event()
    codes: list[int] = []

    def stop(source: str) -> StopReceipt:
        asked.set()
        release.wait(WAIT_S)
        return RECEIPT

    def leave(code: int) -> None:
        codes.append(code)
        left.set()

    with Interrupts(leave) as interrupts:
        interrupts.arm(stop, lambda: codes.append(0))
        os.kill(os.getpid(), signal.SIGINT)
        assert asked.wait(WAIT_S)
        os.kill(os.getpid(), signal.SIGINT)
        assert left.wait(WAIT_S)
        release.set()
        assert interrupts.answered.wait(WAIT_S)
    assert codes == [0, 130], "what still runs is killed first"


def test_a_stop_that_fails_is_kept_as_its_error() -> None:
    def stop(source: str) -> StopReceipt:
        raise OSError("gone")

    with Interrupts() as interrupts:
        interrupts.arm(stop, nothing)
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.answered.wait(WAIT_S)
    assert str(interrupts.error) == "gone"
    assert interrupts.receipt is None


def test_ignored_hangups_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert interrupts.source is None
    finally:
        signal.signal(signal.SIGHUP, before)
