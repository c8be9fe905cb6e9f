"""Is the store whole? Every rule, the chain, and every rebuildable row, checked again from the records alone.

Works beside a running owner: pages of short snapshots, and a last one in which all that adds up is compared.
"""

from msgspec import Struct

from maka.contracts.errors import LedgerError
from maka.contracts.ports import LedgerHead
from maka.storage.environment import HEAD, STORE_ID, snapshot_of
from maka.storage.keys import GENESIS, unpack_head
from maka.storage.reader import PAGE_POSITIONS, LmdbReader
from maka.storage.survey import Difference, Problem, Survey

PROBLEMS_MAX = 1_000
"""Findings that a report spells out; beyond that they are counted."""


class VerifyReport(Struct, frozen=True, kw_only=True):
    """What was found. `head` is what a later `verify` can be given to prove that no tail is missing since."""

    store_id: str
    head: LedgerHead
    sessions: int
    problem_count: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problem_count


class Findings:
    """Collects problems up to a bound, and counts them all."""

    def __init__(self) -> None:
        self.count = 0
        self.problems: list[Problem] = []

    def add(self, problem: Problem) -> None:
        """Take in a finding."""
        self.count += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)

    def add_difference(self, difference: Difference) -> None:
        """Take in a row that differs."""
        self.add(
            Problem(
                what=f"a row of {difference.database} is {kind_of(difference)}: maka verify --rebuild mends it",
                session_id=difference.session_id,
                database=difference.database,
            )
        )


def kind_of(difference: Difference) -> str:
    """Return in a word how a row differs."""
    if difference.found is None:
        return "missing"
    return "wrong" if difference.expected is not None else "too many"


def verify(reader: LmdbReader, *, head: tuple[int, bytes | str] | None = None) -> VerifyReport:
    """Check a whole store. `head` is an earlier report's (position, hash or its hex), which must still be in it."""
    findings = Findings()
    survey = Survey(reader, findings.add, findings.add_difference)
    at, stored, store_id = 0, GENESIS, ""
    while True:
        with snapshot_of(reader.environment) as snapshot:
            stored = unpack_head(snapshot.get(HEAD, db=reader.databases.meta))
            last = min(stored.position, at + PAGE_POSITIONS)
            if head is not None and at < head[0] < last:
                last = head[0]
            survey.walk(snapshot, at + 1, last)
            at = last
            _check_given_head(findings, head, at, survey.chain_at())
            if at >= stored.position:
                survey.finish(snapshot, stored)
                store_id = (snapshot.get(STORE_ID, db=reader.databases.meta) or b"").hex()
                break
    if head is not None and head[0] > stored.position:
        what = f"the store ends at position {stored.position}: its tail through {head[0]} is missing"
        findings.add(Problem(what=what, position=stored.position))
    return VerifyReport(
        store_id=store_id,
        head=stored,
        sessions=survey.replay.sessions,
        problem_count=findings.count,
        problems=tuple(findings.problems),
    )


def _check_given_head(
    findings: Findings, head: tuple[int, bytes | str] | None, position: int, chain: bytes | None
) -> None:
    if head is None or head[0] != position or chain is None:
        return
    try:
        given = bytes.fromhex(head[1]) if isinstance(head[1], str) else head[1]
    except ValueError:
        raise LedgerError(f"{head[1]!r} is no head: give POSITION:HASH as an earlier verify printed it") from None
    if given != chain:
        findings.add(Problem(what="the chain through here isn't the one of the given head", position=position))
