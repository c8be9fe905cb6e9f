"""Kinds I and S through the whole path: a store that is full, held, or read for long."""

import os
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from maka.app import open_host
from maka.contracts.content import FunctionResponse
from maka.contracts.errors import RefusedError, StoreHeldError
from maka.contracts.limits import MAP_BYTES_MAX
from maka.edges.scripted_model import Call, Turn
from maka.storage.ledger import LmdbLedger
from tests.e2e import checks
from tests.e2e.harness import WAIT_S, World

CHATTER = Turn(calls=(Call(name="Bash", args={"command": "head -c 3000 /dev/zero | tr '\\0' x"}),))
DONE = Turn(text="done")


@pytest.fixture
def map_bytes(world: World) -> Callable[[int], None]:
    """Return a function that sets the size of the maps of the stores that are opened from then on."""
    size = [MAP_BYTES_MAX]
    real = LmdbLedger.open

    def small(root: Path) -> LmdbLedger:
        return real(root, map_bytes=size[0])

    def set_size(bytes_: int) -> None:
        size[0] = bytes_

    world.patch.setattr(LmdbLedger, "open", small)
    return set_size


def test_h38_map_full(world: World, map_bytes: Callable[[int], None]) -> None:
    map_bytes(1 << 20)
    maka = world.open([CHATTER])
    ended = maka.run()
    assert (ended.status, ended.failure_class, ended.exit) == ("failed", "ledger_unavailable", "try_again")
    with pytest.raises(RefusedError) as refused:
        maka.run()
    assert refused.value.refusal.code == "ledger_full"
    facts = checks.all_facts(maka.store)
    assert facts[-1].position == maka.host.reader.head().position, "reads go on"
    assert len(maka.contents(FunctionResponse)) > 10
    map_bytes(MAP_BYTES_MAX)


def test_h40_the_same_store_opened_twice_in_one_process(world: World) -> None:
    maka = world.open([DONE])
    link = world.folder / "link"
    link.symlink_to(world.machine.state)
    for root in (str(world.machine.state), str(link)):
        other = world.maka(maka.model, env={"MAKA_HOME": root})
        with pytest.raises(StoreHeldError) as held:
            other.open()
        assert f"in use by pid {os.getpid()}" in str(held.value)
        assert "\n" not in str(held.value)
        world.makas.remove(other)
    assert maka.run().status == "completed"


def test_h41_a_reader_held_open_grows_the_file(world: World) -> None:
    maka = world.open([*[CHATTER] * 60, DONE])
    session = maka.session_id
    data = world.machine.state / "ledger" / "data.mdb"
    with maka.manager.subscribe(session):  # reads nothing while its buffer fills
        assert maka.run().steps == 61
        stored = sum(len(answer.result) for answer in maka.contents(FunctionResponse))
        assert stored >= 60 * 3_000
        assert data.stat().st_size < 8 * stored
    checks.eventually(lambda: "no active readers" in maka.store.environment.readers(), "a transaction is open")


@pytest.mark.parametrize("hint", ["{foreign} somewhere", "1 somewhere", "", "\x00\xffgarbage " * 100])
def test_h70_stale_pid_file(world: World, hint: str) -> None:
    maka = world.open([DONE])
    maka.run()
    maka.close()
    with subprocess.Popen(["sleep", "30033"]) as foreign:
        (world.machine.state / "pid").write_text(hint.format(foreign=foreign.pid), "latin-1")
        maka.open()
        assert maka.run().status == "completed"
        assert foreign.poll() is None, "the stranger lives on"
        foreign.kill()


def test_h71_two_starts_at_once(world: World) -> None:
    first = world.open([DONE])
    first.run()
    first.close()
    for _ in range(10):
        together = threading.Barrier(2)

        def start(together: threading.Barrier = together) -> object:
            together.wait(WAIT_S)
            try:
                return open_host(first.config)
            except StoreHeldError as error:
                return error

        with ThreadPoolExecutor(2) as pool:
            results = [future.result(WAIT_S) for future in [pool.submit(start) for _ in range(2)]]
        losers = [result for result in results if isinstance(result, StoreHeldError)]
        for host in results:
            if not isinstance(host, StoreHeldError):
                host.close()  # type: ignore[attr-defined]
        assert len(losers) == 1
        assert "in use by" in str(losers[0])


def test_a_start_that_was_cut_short_before_its_first_store_can_be_made_again(world: World) -> None:
    maka = world.maka(world.model([DONE]))

    def killed(root: Path, **options: Any) -> LmdbLedger:
        raise KeyboardInterrupt

    with world.patch.context() as patch:
        patch.setattr(LmdbLedger, "open", killed)
        with pytest.raises(KeyboardInterrupt):
            maka.open()
    assert maka.open().run().status == "completed"
