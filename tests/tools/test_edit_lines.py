"""The search for lines: every place, at a cost that the lines alone set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka.tools.edit_lines import lines_like


class Key(str):
    """Text that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Key.compared += 1
        return str.__eq__(self, str(other))

    __hash__ = str.__hash__


@pytest.mark.parametrize("there", [["a"] * 4_000, ["a", "b"] * 2_000])
def test_the_search_for_lines_costs_no_more_than_they_are(there: list[str]) -> None:
    """However often they repeat: nothing stops a search on its way."""
    Key.compared = 0
    assert lines_like(there, [*there[:2_000], "c"], Key) == []
    assert lines_like(there, [*there[:1_999], "c", *there[:1_999]], Key) == []
    assert Key.compared <= 8 * len(there)


@given(st.lists(st.sampled_from("ab"), max_size=14), st.lists(st.sampled_from("abc"), min_size=1, max_size=5))
def test_the_search_for_lines_finds_every_place(lines: list[str], wanted: list[str]) -> None:
    places = [at for at in range(len(lines)) if lines[at : at + len(wanted)] == wanted]
    assert lines_like(lines, wanted, str) == places
