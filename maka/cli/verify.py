"""`maka verify`: does the store keep every rule, and is it whole?"""

from typing import TYPE_CHECKING

import click
from msgspec import Struct

from maka.cli.options import FILLED
from maka.contracts.errors import ExitCode, Refusal, RefusalCode, RefusedError

if TYPE_CHECKING:
    from maka.storage.rebuild import RebuildReport
    from maka.storage.survey import Problem
    from maka.storage.verify import VerifyReport


class Finding(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that breaks a rule."""

    what: str
    session_id: str | None = None
    position: int | None = None
    database: str | None = None


class Changed(Struct, frozen=True, kw_only=True, rename="camel"):
    """Rows of a rebuildable database that were missing, wrong or too many."""

    database: str
    kind: str
    rows: int


class Rebuilt(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="rebuilt"):
    """What a rebuild put right."""

    changed: tuple[Changed, ...]


class Verified(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="verified"):
    """What a check found. `head` is what `--head` takes."""

    ok: bool
    store_id: str
    sessions: int
    facts: int
    head: str
    problem_count: int
    problems: tuple[Finding, ...]


@click.command()
@click.option("--rebuild", "with_rebuild", is_flag=True, help="First recreate what is derived from the facts.")
@click.option("--head", type=FILLED, metavar="H", help="A head that an earlier check printed: is all of it still here?")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def verify(with_rebuild: bool, head: str | None, as_json: bool) -> int:
    """Check the whole store.

    Every rule of the ledger, the hash chain, and all that is derived from the facts. Works beside a running Maka;
    --rebuild needs the store for itself and says what differed.
    """
    from maka.app import open_reader
    from maka.cli.output import write, write_json
    from maka.config import load_config
    from maka.storage.rebuild import rebuild
    from maka.storage.root import has_store
    from maka.storage.verify import verify as verify_store

    given = None if head is None else parse_head(head)
    config = load_config()
    # A rebuild would begin a store where there is none; reading says what to do.
    if with_rebuild and has_store(config.state_root):
        rebuilt = _rebuilt(rebuild(config.state_root))
        if as_json:
            write_json(rebuilt)
        else:
            write(_rebuilt_text(rebuilt))
    verified = _verified(verify_store(open_reader(config), head=given))
    if as_json:
        write_json(verified)
    else:
        write(_verified_text(verified, proven=given is not None))
    return ExitCode.COMPLETED if verified.ok else ExitCode.DAMAGE


def parse_head(text: str) -> tuple[int, str]:
    """Return the position and the hash of a head as `maka verify` prints it."""
    position, colon, digest = text.strip().partition(":")
    hexadecimal = len(digest) == 64 and all(letter in "0123456789abcdef" for letter in digest)
    if not colon or not (position.isascii() and position.isdecimal()) or not hexadecimal:
        message = f"{text[:100]!r} is no head: give POSITION:HASH as an earlier maka verify printed it."
        raise RefusedError(Refusal(code=RefusalCode.INVALID_INPUT, message=message))
    return int(position), digest


def _verified(report: "VerifyReport") -> Verified:
    return Verified(
        ok=report.ok,
        store_id=report.store_id,
        sessions=report.sessions,
        facts=report.head.position,
        head=f"{report.head.position}:{report.head.hash.hex()}",
        problem_count=report.problem_count,
        problems=tuple(_finding(problem) for problem in report.problems),
    )


def _finding(problem: "Problem") -> Finding:
    return Finding(
        what=problem.what, session_id=problem.session_id, position=problem.position, database=problem.database
    )


def _rebuilt(report: "RebuildReport") -> Rebuilt:
    changed = sorted(report.changed.items())
    return Rebuilt(changed=tuple(Changed(database=name, kind=kind, rows=rows) for (name, kind), rows in changed))


def _verified_text(verified: Verified, *, proven: bool) -> str:
    from maka.cli.words import counted

    what = f"{counted(verified.facts, 'fact')} of {counted(verified.sessions, 'session')}"
    if verified.ok:
        lines = [f"✓ {what}: every rule holds and the chain is whole"]
        lines += ["✓ everything through the given head is here"] if proven else []
    else:
        lines = [f"✗ {what}: {counted(verified.problem_count, 'problem')}", *map(_finding_line, verified.problems)]
        unsaid = verified.problem_count - len(verified.problems)
        lines += [f"  … and {unsaid:,} more"] if unsaid else []
    return "\n".join([*lines, f"store {verified.store_id}", f"head {verified.head}"]) + "\n"


def _finding_line(finding: Finding) -> str:
    where = [f"position {finding.position}"] if finding.position is not None else []
    where += [f"session {finding.session_id}"] if finding.session_id is not None else []
    return f"  {', '.join(where)}: {finding.what}" if where else f"  {finding.what}"


def _rebuilt_text(rebuilt: Rebuilt) -> str:
    if not rebuilt.changed:
        return "rebuilt: nothing differed\n"
    return "".join(f"rebuilt: {change.database}: {change.rows:,} {change.kind}\n" for change in rebuilt.changed)
