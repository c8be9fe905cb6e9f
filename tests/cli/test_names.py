"""Sessions by name."""

import pytest
from msgspec.structs import replace

from maka.cli.names import find_session, matching_sessions, session_to_continue
from maka.contracts.errors import RefusedError
from maka.contracts.ids import SessionId
from projections.session_index import Header, SessionStatus


def header(number: int, end: str, *, position: int = 0, **changes: object) -> Header:
    made = Header(
        session_id=SessionId(f"01890000-0000-7000-8000-{end:0>12}"),
        number=number,
        title=None,
        cwd="/project",
        real_cwd="/project",
        boundary="ask",
        created_ts=0,
        activity_ts=0,
        position=position or number,
        run_count=1,
    )
    return replace(made, **changes)


HEADERS = [header(1, "00aa"), header(2, "00ba", position=90), header(12, "0c12"), header(13, "0002")]


@pytest.mark.parametrize(
    ("name", "number"),
    [("#12", 12), ("12", 12), ("2", 2), ("@last", 2), ("00aa", 1), ("0C12", 12), ("0002", 2), ("00002", 2)],
)
def test_a_session_is_named_by_number_last_or_the_end_of_its_id(name: str, number: int) -> None:
    assert find_session(HEADERS, name).number == number


def test_a_whole_id_is_a_name() -> None:
    assert find_session(HEADERS, HEADERS[3].session_id).number == 13


@pytest.mark.parametrize("name", ["#7", "7x", "", "#", "@first", "zz"])
def test_an_unknown_name_says_where_to_look(name: str) -> None:
    with pytest.raises(RefusedError, match="maka sessions"):
        find_session(HEADERS, name)


def test_an_end_that_several_ids_share_is_refused_with_their_numbers() -> None:
    with pytest.raises(RefusedError, match="#1, #2"):
        find_session([header(1, "1cafe"), header(2, "2cafe")], "cafe")


@pytest.mark.parametrize("name", ["a", "aa", "0aa", "AA"])
def test_an_end_of_a_few_characters_names_nothing(name: str) -> None:
    with pytest.raises(RefusedError, match="at least 4 characters"):
        find_session(HEADERS, name)


def test_an_empty_store_has_no_last_session() -> None:
    assert matching_sessions([], "@last") == []


def test_the_newest_session_of_the_folder_that_is_not_busy_is_continued() -> None:
    headers = [
        header(1, "1", position=10),
        header(2, "2", position=20),
        header(3, "3", position=30, archived=True),
        header(4, "4", position=40, status=SessionStatus.RUNNING),
        header(5, "5", position=50, status=SessionStatus.QUEUED),
        header(6, "6", position=60, status=SessionStatus.WAITING),
        header(7, "7", position=70, real_cwd="/elsewhere"),
        header(8, "8", position=80, run_count=0),
    ]
    assert session_to_continue(headers, "/project").number == 6, "one that waits for a person isn't passed over"
    assert session_to_continue(headers[:5], "/project").number == 2
    assert session_to_continue(headers[-1:], "/project").number == 8, "one without a run is better than none"
    with pytest.raises(RefusedError, match="/nowhere"):
        session_to_continue(headers, "/nowhere")
