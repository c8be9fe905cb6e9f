"""Everything beside the events, made again from them. Needs ownership; one transaction, all or nothing."""

from pathlib import Path

import lmdb
from msgspec import Struct

from maka.contracts.errors import LedgerDamagedError
from maka.storage.environment import (
    HEAD,
    Databases,
    Snapshot,
    open_databases,
    open_environment,
    read_error,
    write_error,
)
from maka.storage.keys import unpack_head
from maka.storage.reader import LmdbReader
from maka.storage.root import acquire_root
from maka.storage.survey import Difference, Problem, Survey
from maka.storage.verify import Findings, kind_of


class RebuildReport(Struct, frozen=True, kw_only=True):
    """What differed: (database, missing / wrong / too many) -> rows, and the damage that no rebuild cures."""

    changed: dict[tuple[str, str], int]
    problem_count: int
    problems: tuple[Problem, ...]


def rebuild(root: Path) -> RebuildReport:
    """Recreate the rebuildable rows of a root that nobody else owns; rows of damaged sessions are left as they are.

    Raises StoreHeldError while somebody owns it, and LedgerFullError where there is no room.
    """
    lock = acquire_root(root)
    try:
        environment = open_environment(root, write=True)
        try:
            databases = open_databases(root, environment, write=True)
            return _rebuild(LmdbReader(root, environment, databases))
        finally:
            environment.close()
    finally:
        lock.close()


def _rebuild(reader: LmdbReader) -> RebuildReport:
    findings = Findings()
    changed: dict[tuple[str, str], int] = {}
    try:
        with reader.environment.begin(write=True) as transaction:

            def mend(difference: Difference) -> None:
                kind = (difference.database, kind_of(difference))
                changed[kind] = changed.get(kind, 0) + 1
                _put_right(transaction, reader.databases, difference)

            survey = Survey(reader, findings.add, mend)
            head = unpack_head(transaction.get(HEAD, db=reader.databases.meta))
            if not head.position and transaction.stat(reader.databases.events)["entries"]:
                # Every row would be one too many, and nothing could be read any more.
                raise LedgerDamagedError("the store has facts but its head is lost: nothing was rebuilt")
            survey.walk(transaction, 1, head.position)
            survey.finish(transaction, head)
    except (lmdb.CorruptedError, lmdb.PageNotFoundError) as error:
        raise read_error(reader.environment, error) from None
    except lmdb.Error as error:
        raise write_error(reader.root, error, stored_nothing=True) from None
    return RebuildReport(changed=changed, problem_count=findings.count, problems=tuple(findings.problems))


def _put_right(transaction: Snapshot, databases: Databases, difference: Difference) -> None:
    database = getattr(databases, difference.database)
    if difference.expected is None:
        transaction.delete(difference.key, db=database)
    else:
        transaction.put(difference.key, difference.expected, db=database)
