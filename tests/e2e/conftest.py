"""What every end-to-end test gets: a world of its own, held to the invariants when the test is over."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import World

PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(tmp_path, monkeypatch)
    try:
        yield world
        if request.node.stash.get(PASSED, False):  # what a failed test left behind would only hide why it failed
            world.finish()
    finally:
        world.close()
