"""What every end-to-end test gets: a world of its own, held to the invariants when the test is over."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from maka import adapters
from maka.edges.bubblewrap import find_bubblewrap
from maka.edges.sandbox import find_sandbox
from tests.e2e.harness import World

PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture(params=["bubblewrap", "landlock"])
def each_sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hosts of this test find one sandbox, as on a machine that has only that."""

    def hidden(**_: object) -> str:
        return "bubblewrap is hidden from this test"

    if request.param == "landlock":
        monkeypatch.setattr(adapters, "find_bubblewrap", hidden)
    found = find_sandbox(hidden if request.param == "landlock" else find_bubblewrap)
    if not found.name.lower().startswith(request.param):
        pytest.skip(f"{request.param} does not work here: {found.missing or found.name}")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(tmp_path, monkeypatch)
    try:
        yield world
        if request.node.stash.get(PASSED, False):  # what a failed test left behind would only hide why it failed
            world.finish()
    finally:
        world.close()
