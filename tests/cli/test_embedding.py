"""A program that embeds Maka: what it hands over wrongly is refused or mended, and ends no actor."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from maka.app import Host, open_host
from maka.config import load_config
from maka.contracts.boundary import Expansion, FileEntry
from maka.contracts.content import RunLimits
from maka.contracts.errors import RefusalCode, RefusedError
from maka.session_manager import SessionManager

HALF = "a\ud800"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    config = load_config({"MAKA_HOME": str(tmp_path / "state"), "PATH": "/usr/bin"})
    with open_host(config) as opened:
        yield opened
    assert "crashed" not in (tmp_path / "state" / "maka.log").read_text()


def test_half_characters_end_no_actor(host: Host, tmp_path: Path) -> None:
    session = host.manager.create_session(str(tmp_path), title=HALF)
    with pytest.raises(RefusedError) as refused:
        host.manager.send_message(session.session_id, HALF, profile=HALF)
    assert refused.value.refusal.code == RefusalCode.NOT_READY
    assert host.manager.stop(session.session_id, HALF).run_id is None


@pytest.mark.parametrize(
    "limits",
    [RunLimits(steps_max=0), RunLimits(active_s_max=math.nan), RunLimits(active_s_max=-1), RunLimits(tokens_max=-1)],
)
def test_limits_are_above_nothing(host: Host, tmp_path: Path, limits: RunLimits) -> None:
    session = host.manager.create_session(str(tmp_path))
    with pytest.raises(RefusedError, match="above 0"):
        host.manager.send_message(session.session_id, "x", profile="p", limits=limits)


def test_a_folder_whose_name_is_no_text_is_refused(host: Host, tmp_path: Path) -> None:
    (tmp_path / "odd\udcff").mkdir()
    with pytest.raises(RefusedError, match="no UTF-8"):
        host.manager.create_session(str(tmp_path / "odd\udcff"))


WRONG: Any = object()
ENTRY = FileEntry(path="/tmp", access="read", scope="subtree")
CALLS: dict[str, Callable[[SessionManager, str], object]] = {
    "no session to answer": lambda manager, _: manager.answer(WRONG, "r", decision="allow"),
    "no session to send to": lambda manager, _: manager.send_message(cast("Any", None), "x", profile="p"),
    "no session to stop": lambda manager, _: manager.stop(cast("Any", None), "me"),
    "no session to undo": lambda manager, _: manager.undo(cast("Any", None)),
    "no session for a shell": lambda manager, _: manager.stop_background(cast("Any", None), "b1"),
    "a number for an id": lambda manager, s: manager.send_message(s, "x", profile="p", command_id=cast("Any", 5)),
    "no such decision": lambda manager, s: manager.answer(s, "r", decision=cast("Any", "yes")),
    "no such scope": lambda manager, s: manager.answer(s, "r", decision="allow", scope=cast("Any", "forever")),
    "a number for a client": lambda manager, s: manager.answer(s, "r", answers=(cast("Any", 5),)),
    "both": lambda manager, s: manager.answer(s, "r", decision="allow", answers=("x",)),
    "neither": lambda manager, s: manager.answer(s, "r"),
    "a long client": lambda manager, s: manager.answer(s, "r", decision="deny", client="c" * 900_000),
    "no such access": lambda manager, s: manager.change_boundary(s, grants=grant("/tmp", cast("Any", "rw"))),
    "no such scope of a grant": lambda manager, s: manager.change_boundary(s, scope=cast("Any", "x"), profile="ask"),
    "all of the machine": lambda manager, s: manager.change_boundary(s, grants=grant("/", "write")),
    "a NUL": lambda manager, s: manager.change_boundary(s, grants=grant("a\0b", "write")),
    "too many": lambda manager, s: manager.change_boundary(s, grants=Expansion(filesystem=(ENTRY,) * 5_000)),
}


def grant(path: str, access: Literal["read", "write"]) -> Expansion:
    return Expansion(filesystem=(FileEntry(path=path, access=access, scope="subtree"),))


@pytest.mark.parametrize("name", CALLS)
def test_a_value_of_another_type_reaches_nobody(host: Host, tmp_path: Path, name: str) -> None:
    """It is refused at the door: no actor dies of it, and nothing of it is stored."""
    session = host.manager.create_session(str(tmp_path))
    head = host.reader.head()
    with pytest.raises((RefusedError, AttributeError, TypeError)):
        CALLS[name](host.manager, session.session_id)
    assert host.reader.head() == head
    assert host.manager.stop(session.session_id, "me").run_id is None, "it goes on"


def test_a_grant_of_a_program_is_real_and_absolute(host: Host, tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    (workspace / "in").mkdir(parents=True)
    session = host.manager.create_session(str(workspace))
    host.manager.change_boundary(session.session_id, grants=grant("../ws/in/..", "write"))
    (held,) = host.manager.boundary(session.session_id).grants
    assert [entry.path for entry in held.expansion.filesystem] == [str(workspace.resolve())]
    with pytest.raises(RefusedError, match="belongs to Maka itself"):
        host.manager.change_boundary(session.session_id, grants=grant(str(tmp_path / "state"), "read"))
