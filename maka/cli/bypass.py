"""What is said of a session's profile: the same words in every command, so that a bypass is never passed over.

A line of stdout that is about one session or run has them in it or above it; where stdout is what a program reads (a
diff, an artifact, an export), they go to stderr, and JSON has the profile as `boundary`.
"""

from collections.abc import Iterable

from maka.cli.output import note
from maka.contracts.boundary import Profile
from projections.session_index import Header

NO_LIMITS = "its tools have no limits"
NUMBERS_SHOWN = 20


def mark(profile: str) -> str:
    """Return a profile as a cell of a table."""
    return profile.upper() if profile == Profile.BYPASS else profile


def warning(profile: str) -> str:
    """Return the plain words for a session without limits, "" for any other."""
    return f"{mark(profile)}: {NO_LIMITS}" if profile == Profile.BYPASS else ""


def tell(number: int, profile: str) -> None:
    """Say on stderr that a session has no limits, if it has none."""
    if words := warning(profile):
        note(f"maka: session #{number} · {words}")


def sessions_without_limits(headers: Iterable[Header]) -> str:
    """Name the sessions that have no limits now, "" where each has some."""
    numbers = [f"#{header.number}" for header in headers if header.boundary == Profile.BYPASS]
    more = f" and {len(numbers) - NUMBERS_SHOWN:,} more" if len(numbers) > NUMBERS_SHOWN else ""
    return f"{warning(Profile.BYPASS)}: session {', '.join(numbers[:NUMBERS_SHOWN])}{more}" if numbers else ""
