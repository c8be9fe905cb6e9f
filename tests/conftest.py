"""What every test gets: reproducible examples, and none of the settings of the person who runs it."""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

# Nothing in a test is timed, so Hypothesis doesn't time either.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_configure(config: pytest.Config) -> None:
    """Drop the keys, servers and state roots of the person's environment, so that no test can reach them."""
    del config
    for name in list(os.environ):
        if name.startswith(("MAKA_", "OPENAI_", "OPENROUTER_")):
            del os.environ[name]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the garbage collector pass over what lives to the end: thousands of tests, and every module."""
    del session
    gc.collect()
    gc.freeze()
