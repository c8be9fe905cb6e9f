"""The LMDB environment of a state root: opening it, its databases, its schema, and what its errors mean.

Laws: the map is sized once (a resize breaks every open read transaction); no read transaction outlives a call; LMDB's
errors leave this room as ledger errors of one clear line.
"""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import lmdb
from msgspec import Struct

from maka.contracts.errors import (
    LedgerDamagedError,
    LedgerError,
    LedgerFailedError,
    LedgerFullError,
    StoreOpenError,
)
from maka.contracts.limits import FREE_BYTES_MIN, MAP_BYTES_MAX, READERS_MAX
from maka.storage.keys import STORE_SCHEMA
from maka.storage.root import DATA_FILE, LEDGER_DIR, RootLock, acquire_root, close_to_others, has_store

__all__ = ["RootLock", "acquire_root"]

MAP_BYTES_LEAST = 1 << 20
SCHEMA, STORE_ID, EPOCH, HEAD, PROBE = b"schema", b"store_id", b"epoch", b"head", b"probe"

_DAMAGE = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.VersionMismatchError)

Database: TypeAlias = "lmdb._Database"
Snapshot: TypeAlias = "lmdb.Transaction[bytes]"


class Databases(Struct, frozen=True):
    """The handles of a store's databases; all but events, partials, blobs and meta can be rebuilt from events."""

    events: Database
    stream: Database
    by_session: Database
    event_ids: Database
    tails: Database
    open_work: Database
    commands: Database
    session_headers: Database
    session_numbers: Database
    partials: Database
    blobs: Database
    meta: Database


REBUILDABLE = (
    "stream",
    "by_session",
    "event_ids",
    "tails",
    "open_work",
    "commands",
    "session_headers",
    "session_numbers",
)


def open_environment(
    root: Path, *, write: bool, map_bytes: int = MAP_BYTES_MAX, readers_max: int = READERS_MAX
) -> lmdb.Environment:
    """Open a root's environment with the largest map that fits; raises StoreOpenError with one clear line."""
    if not write and not has_store(root):
        raise StoreOpenError(f"there is no maka store in {root} yet: `maka run` makes one")
    if not write:
        close_to_others(root)
    while True:
        try:
            environment = lmdb.open(
                str(root / LEDGER_DIR),
                map_size=map_bytes,
                readonly=not write,
                create=write,
                mode=0o600,
                max_readers=readers_max,
                max_dbs=len(Databases.__struct_fields__),
            )
            environment.reader_check()
            _lengthen(root, environment)
            return environment
        except lmdb.MemoryError:
            map_bytes //= 2
            if map_bytes < MAP_BYTES_LEAST:
                raise StoreOpenError(f"no address space to map the store in {root}: raise the memory limit") from None
        except lmdb.Error as error:
            raise _open_error(root, error) from None


def _lengthen(root: Path, environment: lmdb.Environment) -> None:
    """Give a file that was cut short its length back, as a hole: reading past its end would kill the process.

    What was lost then shows as damage. A whole file may lack pages at its end, too, that no one uses.
    """
    wanted = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    path = root / LEDGER_DIR / DATA_FILE
    try:
        size = path.stat().st_size
        if size < wanted:
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), size, wanted - size)
    except OSError as error:
        environment.close()
        raise LedgerDamagedError(f"the file {path} is shorter than it says, and {error.strerror}") from None


def open_databases(root: Path, environment: lmdb.Environment, *, write: bool) -> Databases:
    """Open every database, made where the store is new; raises StoreOpenError for a store of a newer program."""
    try:
        handles = {name: environment.open_db(name.encode(), create=write) for name in Databases.__struct_fields__}
        databases = Databases(**handles)
        with environment.begin() as snapshot:
            schema = snapshot.get(SCHEMA, db=databases.meta)
    except lmdb.NotFoundError:
        raise StoreOpenError(f"the store in {root} is empty: `maka run` begins it") from None
    except lmdb.Error as error:
        raise _open_error(root, error) from None
    if schema is not None and int.from_bytes(schema, "big") > STORE_SCHEMA:
        raise StoreOpenError(f"the store in {root} was written by a newer maka: update this one")
    if schema is None and not write:
        raise StoreOpenError(f"the store in {root} is empty: `maka run` begins it")
    return databases


@contextmanager
def snapshot_of(environment: lmdb.Environment) -> Generator[Snapshot]:
    """Yield a read transaction that ends with the block; slots of dead readers are freed where none is left."""
    try:
        try:
            snapshot = environment.begin()
        except lmdb.ReadersFullError:
            environment.reader_check()
            snapshot = environment.begin()
    except lmdb.ReadersFullError:
        raise LedgerError("every reader slot of the store is taken: close some of the programs that read it") from None
    except lmdb.Error as error:
        raise read_error(environment, error) from None
    try:
        with snapshot:
            yield snapshot
    except lmdb.BadValsizeError:
        raise  # about the key that was asked for, not about the store
    except lmdb.Error as error:
        raise read_error(environment, error) from None


def read_error(environment: lmdb.Environment, error: lmdb.Error) -> LedgerError:
    """Say what a failed read means: damage of the file itself, or a store that can't be read now."""
    if isinstance(error, _DAMAGE):
        return LedgerDamagedError(f"the file in {environment.path()} is damaged ({error}): put a copy in its place")
    return LedgerError(f"the store can't be read: {error}")


def write_error(root: Path, error: lmdb.Error, *, stored_nothing: bool) -> LedgerError:
    """Say what a failed write means. `stored_nothing` is what a fresh look at the store showed.

    A disk that fills up shows as a short write, which LMDB reports as an I/O error: so little free space and a head
    that didn't move mean that there is no room. Anything else leaves the outcome unknown.
    """
    if isinstance(error, lmdb.MapFullError):
        return LedgerFullError(f"the ledger's map in {root} is full: nothing was stored")
    free = free_bytes(root)
    if isinstance(error, lmdb.DiskError) or (stored_nothing and free < FREE_BYTES_MIN):
        missing = max(FREE_BYTES_MIN - free, 0) >> 20
        return LedgerFullError(f"the disk of {root} is full: free {missing} MiB more; nothing was stored")
    return LedgerFailedError(f"a write to the ledger in {root} failed ({error}): restart maka to read what is durable")


def free_bytes(root: Path) -> int:
    """Return the free disk space of a root's file system."""
    return shutil.disk_usage(root).free


def _open_error(root: Path, error: lmdb.Error) -> LedgerError:
    text = str(error)
    if "already open in this process" in text:
        return StoreOpenError(f"the store in {root} is open in this process already: use that handle")
    if isinstance(error, lmdb.CorruptedError | lmdb.PageNotFoundError):
        return LedgerDamagedError(f"the file in {root / LEDGER_DIR} is damaged ({text}): put a copy in its place")
    if isinstance(error, lmdb.InvalidError | lmdb.VersionMismatchError):
        return StoreOpenError(f"the file {root / LEDGER_DIR} isn't a ledger that this maka can read: {text}")
    if isinstance(error, lmdb.DiskError):
        return LedgerFullError(f"the disk of {root} is full: free {FREE_BYTES_MIN >> 20} MiB")
    return StoreOpenError(f"can't open the store in {root} ({text}): mend its rights, or set another MAKA_HOME")
