"""The worlds of the end-to-end tests, for cases of damage and death."""

from tests.e2e.conftest import pytest_runtest_makereport, world

__all__ = ["pytest_runtest_makereport", "world"]
