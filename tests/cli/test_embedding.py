"""A program that embeds Maka: what it hands over wrongly is refused or mended, and ends no actor."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from maka.app import Host, open_host
from maka.config import load_config
from maka.contracts.content import RunLimits
from maka.contracts.errors import RefusalCode, RefusedError

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
