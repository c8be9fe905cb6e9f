"""One I/O loop and its servers for a test, closed behind it."""

from collections.abc import Iterator

import pytest

from tests.edges.support import Edge


@pytest.fixture
def edge() -> Iterator[Edge]:
    made = Edge()
    yield made
    made.close()
