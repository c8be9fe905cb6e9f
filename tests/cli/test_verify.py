"""`maka verify`: what a report says, and the check of a real store."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from maka.cli.verify import parse_head
from maka.contracts.errors import RefusedError
from maka.contracts.ids import SessionId
from maka.contracts.ports import LedgerHead
from maka.edges.scripted_model import ScriptedModel, Turn, by_step
from maka.storage import rebuild, verify
from maka.storage.rebuild import RebuildReport
from maka.storage.survey import Problem
from maka.storage.verify import VerifyReport
from tests.cli.builders import whole_log
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeHost, FakeReader, install
from tests.cli.real import Machine

HEAD = LedgerHead(43, b"\xab" * 32)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, surroundings: Path) -> Callable[[VerifyReport], None]:
    """Return a function that says what the next check finds."""
    install(monkeypatch, FakeHost(FakeReader(whole_log()[0].items)))

    def find(report: VerifyReport) -> None:
        def check(reader: object, *, head: object = None) -> VerifyReport:
            return report

        monkeypatch.setattr(verify, "verify", check)

    return find


def report(*problems: Problem, count: int | None = None) -> VerifyReport:
    number = len(problems) if count is None else count
    return VerifyReport(store_id="c0ffee", head=HEAD, sessions=2, problem_count=number, problems=problems)


def test_a_whole_store(cli: Cli, found: Callable[[VerifyReport], None]) -> None:
    found(report())
    code, out, _ = cli("verify")
    assert (code, out.splitlines()) == (
        0,
        [
            "✓ 43 facts of 2 sessions: every rule holds and the chain is whole",
            "store c0ffee",
            f"head 43:{'ab' * 32}",
        ],
    )
    assert "✓ everything through the given head is here" in cli("verify", "--head", f"7:{'00' * 32}")[1]


def test_damage_is_named_and_has_its_own_code(cli: Cli, found: Callable[[VerifyReport], None]) -> None:
    problem = Problem(what="the chain breaks", session_id=SessionId("s-1"), position=7)
    found(report(problem, Problem(what="a row is missing", database="tails"), count=5))
    code, out, _ = cli("verify")
    assert (code, out.splitlines()[:4]) == (
        3,
        [
            "✗ 43 facts of 2 sessions: 5 problems",
            "  position 7, session s-1: the chain breaks",
            "  a row is missing",
            "  … and 3 more",
        ],
    )
    code, out, _ = cli("verify", "--json")
    assert code == 3
    assert json.loads(out) == {
        "type": "verified",
        "ok": False,
        "storeId": "c0ffee",
        "sessions": 2,
        "facts": 43,
        "head": f"43:{'ab' * 32}",
        "problemCount": 5,
        "problems": [
            {"what": "the chain breaks", "sessionId": "s-1", "position": 7},
            {"what": "a row is missing", "database": "tails"},
        ],
    }


def test_a_rebuild_says_what_differed(
    cli: Cli, found: Callable[[VerifyReport], None], monkeypatch: pytest.MonkeyPatch, surroundings: Path
) -> None:
    (surroundings / "state" / "ledger").mkdir(parents=True)
    (surroundings / "state" / "ledger" / "data.mdb").write_bytes(b"begun")
    changed = {("tails", "wrong"): 2, ("by_session", "missing"): 1}

    def rebuilt(root: Path) -> RebuildReport:
        return RebuildReport(changed=changed, problem_count=0, problems=())

    monkeypatch.setattr(rebuild, "rebuild", rebuilt)
    found(report())
    code, out, _ = cli("verify", "--rebuild")
    assert code == 0
    assert out.splitlines()[:2] == ["rebuilt: by_session: 1 missing", "rebuilt: tails: 2 wrong"]
    lines = [json.loads(line) for line in cli("verify", "--rebuild", "--json")[1].splitlines()]
    assert lines[0]["changed"][0] == {"database": "by_session", "kind": "missing", "rows": 1}
    assert lines[1]["type"] == "verified"


@pytest.mark.parametrize("text", ["", "7", "7:", ":" + "00" * 32, "x:" + "00" * 32, "7:" + "zz" * 32, "7:00"])
def test_a_head_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="POSITION:HASH"):
        parse_head(text)


def test_a_head_proves_that_no_tail_is_missing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    model = ScriptedModel.start(by_step([Turn(text="Hello.")]))
    try:
        assert machine.run(model, "one").code == 0
        head = machine.maka("verify", "--json").record["head"]
        assert machine.run(model, "two").code == 0
    finally:
        model.close()
    done = machine.maka("verify", "--head", head)
    assert (done.code, "everything through the given head is here" in done.out) == (0, True), done
    position, _, digest = head.partition(":")
    other = machine.maka("verify", "--head", f"{position}:{digest[::-1]}")
    assert other.code == 3, other
    longer = machine.maka("verify", "--head", f"{int(position) + 1_000}:{digest}")
    assert (longer.code, "missing" in longer.out) == (3, True), longer
    rebuilt = machine.maka("verify", "--rebuild", "--json")
    assert (rebuilt.code, rebuilt.lines[0]) == (0, {"type": "rebuilt", "changed": []}), rebuilt
