"""The real store without room, under the whole system: a small map, a disk that fills, and room that comes again."""

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from maka.contracts.content import RunLimits
from maka.contracts.limits import FREE_BYTES_MIN
from maka.contracts.model_ports import ChatRequest
from maka.storage.environment import free_bytes
from maka.storage.ledger import LmdbLedger
from maka.storage.root import acquire_root
from maka.storage.verify import verify
from tests.actors.case import asks
from tests.sim.faults import FaultyLedger
from tests.sim.model import Said
from tests.sim.settle import settle
from tests.sim.story import Story
from tests.sim.swarm import Swarm

DISK_BYTES = FREE_BYTES_MIN + (24 << 20)
FULL = "ledger_unavailable"


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A file system of its own, with little more than the room that runs need to start."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a file system of its own can't be mounted here: that needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def talkative(request: ChatRequest) -> Said:
    """Each step says much and wants one more."""
    text = asks("Quick", text="word " * 2_000)
    return text if len(request.messages) < 400 else Said(text=("done",))


def begin(root: Path, map_bytes: int) -> Swarm:
    acquire_root(root).close()
    swarm = Swarm(Story(seed=1, moves=(), choices=()), store=FaultyLedger(root=root, map_bytes=map_bytes))
    swarm.host.script = swarm.host.provider.script = talkative
    swarm.clients.create()
    while not swarm.sessions:
        swarm.step()
    swarm.clients.send(swarm.sessions[0], "do it", RunLimits())
    return swarm


def run(swarm: Swarm, steps: int) -> None:
    for _ in range(steps):
        swarm.step()


def endings(swarm: Swarm) -> list[str | None]:
    return [None if run.terminal is None else run.terminal.failure_class for run in swarm.checker.runs.values()]


def close(swarm: Swarm) -> None:
    assert isinstance(swarm.host.store.inner, LmdbLedger)
    assert verify(swarm.host.store.inner.reader).ok
    swarm.host.store.inner.close()


def test_h38_a_full_map_ends_the_run_visibly_and_reads_go_on(tmp_path: Path) -> None:
    swarm = begin(tmp_path / "root", 1 << 20)
    run(swarm, 3_000)
    assert endings(swarm) == [FULL], "a terminal still fits"
    assert len(swarm.host.session_facts(swarm.sessions[0])) > 20
    swarm.clients.send(swarm.sessions[0], "again", RunLimits())
    run(swarm, 200)
    assert endings(swarm) == [FULL], "no run starts"
    close(swarm)


def fill(folder: Path, left: int) -> None:
    """Take all of a disk but `left` bytes."""
    with open(folder / "ballast", "ab") as ballast:
        size = os.fstat(ballast.fileno()).st_size + free_bytes(folder) - left
        os.posix_fallocate(ballast.fileno(), 0, size)


def test_h38_a_disk_that_is_almost_full_ends_the_run_with_what_is_left(small_disk: Path) -> None:
    swarm = begin(small_disk / "root", 1 << 30)
    run(swarm, 60)
    fill(small_disk, 8 << 20)
    run(swarm, 400)
    assert endings(swarm) == [FULL]
    os.unlink(small_disk / "ballast")
    settle(swarm)
    close(swarm)


def test_h38_a_full_disk_ends_the_run_once_there_is_room(small_disk: Path) -> None:
    swarm = begin(small_disk / "root", 1 << 30)
    run(swarm, 60)
    fill(small_disk, 0)
    head = swarm.host.store.head()
    run(swarm, 400)
    assert swarm.host.fatal == [], "a disk that is full is no failure of the store"
    assert endings(swarm) == [None]
    assert swarm.host.store.head().position <= head.position + 8, "what fits into pages that are there may still come"
    os.unlink(small_disk / "ballast")
    run(swarm, 400)
    assert endings(swarm)[0] == FULL
    settle(swarm)
    close(swarm)
