"""A session's background shells, from the facts of its control stream."""

import pytest
from msgspec.structs import replace

from maka.contracts.actions import Actions, ProcessEnded, ProcessStarted
from maka.contracts.errors import FoldError
from maka.contracts.events import Author, ModelVisibility, Role
from maka.storage.memory import MemoryLedger
from projections import background, recovery_verdict
from projections.background import Background, Shell
from tests.builders import SessionLog, log
from tests.strategies import started


def start(session: SessionLog, number: int) -> ProcessStarted:
    shell = replace(started(number), command=f"serve {number}")
    session.control(actions=Actions(process_started=shell))
    return shell


def end(session: SessionLog, shell: ProcessStarted, how: str = "exited", **more: object) -> None:
    ended = ProcessEnded(call_id=shell.call_id, process=shell.process, how=how, **more)  # type: ignore[arg-type]
    session.control(actions=Actions(process_ended=ended))


def state_of(session: SessionLog) -> Background:
    state = background.project(session)
    assert state is not None
    return state


def test_shells_are_listed_in_the_order_of_their_starts_and_named_by_it() -> None:
    session = log()
    first, second = start(session, 1), start(session, 2)
    end(session, first, "stopped", by="cli", exit_code=143)
    third = start(session, 3)
    state = state_of(session)
    found = background.shells(state)
    assert [(shell.shell_id, shell.status, shell.command) for shell in found] == [
        ("b1", "stopped", "serve 1"),
        ("b2", "running", "serve 2"),
        ("b3", "running", "serve 3"),
    ]
    assert (found[0].by, found[0].exit_code) == ("cli", 143)
    assert list(state.live) == [second.call_id, third.call_id]
    assert state.next_id == "b4"


def test_a_name_is_never_given_twice() -> None:
    session = log()
    end(session, start(session, 1))
    assert state_of(session).next_id == "b2"


def test_facts_of_runs_change_nothing() -> None:
    session = log()
    start(session, 1)
    before = state_of(session)
    session.run()
    assert state_of(session) == before


def test_an_end_without_a_start_is_a_broken_log() -> None:
    session = log()
    end(session, started(9))
    with pytest.raises(FoldError, match="isn't live"):
        background.project(session)


@pytest.mark.parametrize(
    ("how", "exit_code", "by", "words"),
    [
        ("exited", 0, None, "exited with code 0"),
        ("killed", 137, None, "killed by a signal (exit code 137)"),
        ("timeout", None, None, "timed out and was ended"),
        ("stopped", 143, "host.shutdown", "stopped by host.shutdown"),
        ("stopped", None, None, "stopped"),
        ("limit", 137, None, "ended, since it met a limit (exit code 137)"),
        ("not_started", None, None, "ended before it began"),
        ("orphaned", None, None, "orphaned: Maka ended while it ran, and what was left of it was killed"),
        ("unknown", None, None, "ended; how isn't known"),
    ],
)
def test_each_end_has_its_words(how: str, exit_code: int | None, by: str | None, words: str) -> None:
    session = log()
    end(session, start(session, 1), how, exit_code=exit_code, by=by)
    (shell,) = background.shells(state_of(session))
    assert background.status_words(shell) == words


def test_what_a_dead_owner_left_is_reported_as_orphaned_once() -> None:
    session = log()
    first, second = start(session, 1), start(session, 2)
    end(session, first)
    ids = iter(f"0198c0de-0000-7000-a000-{number:012}" for number in range(9))
    verdict = recovery_verdict.verdict(list(session)[:4], (), reason="app_restarted", ids=lambda: next(ids), now_ms=7)
    assert verdict.name == recovery_verdict.ORPHANS_ENDED
    (event,) = verdict.events
    assert event.actions is not None and event.actions.process_ended == ProcessEnded(
        call_id=second.call_id, process=second.process, how="orphaned", shell_id="b2"
    )
    assert (event.role, event.author, event.run_id, event.ts) == (Role.SYSTEM, Author.HOST, None, 7)
    assert event.model_visibility is ModelVisibility.HIDDEN
    end(session, second, "orphaned")
    again = recovery_verdict.verdict(list(session), (), reason="app_restarted", ids=lambda: "", now_ms=8)
    assert again.events == ()


def test_an_unknown_session_has_none() -> None:
    assert background.read(MemoryLedger(), log().session_id) == list[Shell]()
