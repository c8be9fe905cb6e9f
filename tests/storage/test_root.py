"""Who owns a state root, and who may look into it."""

import errno
import fcntl
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from maka.contracts.errors import StoreHeldError, StoreOpenError
from maka.storage.environment import Databases
from maka.storage.keys import STORE_SCHEMA, number
from maka.storage.ledger import LmdbLedger
from maka.storage.reader import LmdbReader
from maka.storage.root import acquire_root
from tests.storage.conftest import DiskBench


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def one_line(error: pytest.ExceptionInfo[StoreOpenError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


def test_h75_state_readable_by_others(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        disk = DiskBench(tmp_path / "fresh")
        disk.blobs.put(bytes(100_000))
        disk.close()
        old = tmp_path / "fresh"
        (old / "daemon.log").write_text("x")
        for path in (old, old / "ledger", old / "ledger" / "data.mdb", old / "lock", old / "daemon.log"):
            path.chmod(0o755)
        DiskBench(old).close()
    finally:
        os.umask(before)
    for path in [old, *old.rglob("*")]:
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path


def widen(root: Path) -> None:
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def wide(root: Path) -> list[Path]:
    return [path for path in [root, *root.rglob("*")] if mode(path) & 0o077]


def test_h75_everything_in_a_root_that_was_open_is_closed(tmp_path: Path) -> None:
    disk = DiskBench(tmp_path)
    disk.blobs.put(bytes(100_000))
    disk.close()
    widen(tmp_path)
    DiskBench(tmp_path).close()
    assert wide(tmp_path) == []


def test_h75_who_only_reads_closes_it_too(tmp_path: Path) -> None:
    disk = DiskBench(tmp_path)
    disk.blobs.put(bytes(100_000))
    disk.close()
    widen(tmp_path)
    LmdbReader.open(tmp_path).close()
    assert wide(tmp_path) == []


def test_h75_a_root_that_is_a_link_to_an_open_folder(tmp_path: Path) -> None:
    folder, root = tmp_path / "folder", tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o2777)
    root.symlink_to(folder)
    DiskBench(root).close()
    assert wide(folder) == []
    folder.chmod(0o777)
    LmdbReader.open(root).close()
    assert wide(folder) == []


@pytest.mark.parametrize("reads", [True, False])
def test_h75_what_cannot_be_closed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: bool) -> None:
    DiskBench(tmp_path).close()
    tmp_path.chmod(0o755)

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", denied)
    monkeypatch.setattr(Path, "chmod", denied)
    with pytest.raises(StoreOpenError) as refused:
        LmdbReader.open(tmp_path) if reads else acquire_root(tmp_path)
    assert "others can get into" in one_line(refused)


def test_h75_a_folder_without_a_store_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    tmp_path.chmod(0o755)
    for attempt in (acquire_root, LmdbReader.open):
        with pytest.raises(StoreOpenError):
            attempt(tmp_path)
    assert mode(tmp_path) == 0o755


def test_h75_a_link_in_the_root_is_left_alone(tmp_path: Path) -> None:
    DiskBench(tmp_path / "state").close()
    outside = tmp_path / "outside"
    outside.write_text("mine")
    outside.chmod(0o644)
    (tmp_path / "state" / "link").symlink_to(outside)
    DiskBench(tmp_path / "state").close()
    assert mode(outside) == 0o644


def test_a_second_owner_learns_who_holds_the_root(tmp_path: Path) -> None:
    lock = acquire_root(tmp_path)
    with pytest.raises(StoreHeldError) as held:
        acquire_root(tmp_path)
    assert f"pid {os.getpid()} on {socket.gethostname()}" in one_line(held)
    lock.close()
    lock.close()
    acquire_root(tmp_path).close()


@pytest.mark.parametrize("hint", ["", "garbage", "1 host", "\0\xff", "12 a b"])
def test_h70_stale_pid_file(tmp_path: Path, hint: str) -> None:
    acquire_root(tmp_path).close()
    (tmp_path / "pid").write_text(hint)
    lock = acquire_root(tmp_path)
    (tmp_path / "pid").write_text(hint)
    with pytest.raises(StoreHeldError) as held:
        acquire_root(tmp_path)
    assert ("pid 1 on host" if hint == "1 host" else "another process") in one_line(held)
    lock.close()


def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from maka.storage.root import acquire_root;"
        "lock = acquire_root(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert ended.returncode == -9
    assert (tmp_path / "pid").exists()
    acquire_root(tmp_path).close()


@pytest.mark.parametrize("dead", [True, False])
def test_the_lock_of_a_dead_owner_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead: bool) -> None:
    """A child that a killed owner was just starting holds its lock for some milliseconds more."""
    acquire_root(tmp_path).close()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / "pid").write_text(f"{ended.pid if dead else os.getpid()} {socket.gethostname()}\n")
    taken, real = [True, True, True], fcntl.flock

    def flock(descriptor: int, how: int) -> None:
        if taken:
            taken.pop()
            raise BlockingIOError
        real(descriptor, how)

    monkeypatch.setattr("maka.storage.root.fcntl.flock", flock)
    monkeypatch.setattr("maka.storage.root.LOCK_POLL_S", 0.0)
    if dead:
        acquire_root(tmp_path).close()
    else:
        with pytest.raises(StoreHeldError):
            acquire_root(tmp_path)
    assert len(taken) == (0 if dead else 2)


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last owner's clean-up may fall between our opening of the lock file and our lock."""
    lock, flock = tmp_path / "lock", fcntl.flock
    tries: list[int] = []

    def after_it_was_replaced(descriptor: int, operation: int) -> None:
        tries.append(descriptor)
        if len(tries) == 1:
            lock.unlink()
            lock.touch(0o600)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", after_it_was_replaced)
    held = acquire_root(tmp_path)
    assert len(tries) == 2
    with pytest.raises(StoreHeldError):
        acquire_root(tmp_path)
    held.close()


def test_a_folder_that_is_not_ours_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all my work")
    with pytest.raises(StoreOpenError) as refused:
        acquire_root(tmp_path)
    assert "thesis.txt" in one_line(refused)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_is_no_state_root(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreOpenError) as refused:
            acquire_root(root)
        one_line(refused)


def test_a_start_that_was_cut_short_is_taken_up(tmp_path: Path) -> None:
    acquire_root(tmp_path).close()
    left_over = tmp_path / "blobs" / "tmp" / "half"
    left_over.write_bytes(b"half a value")
    acquire_root(tmp_path).close()
    assert not left_over.exists()


def test_a_newer_store_is_refused_and_unchanged(disk: DiskBench) -> None:
    disk.close()
    with lmdb.open(str(disk.root / "ledger"), max_dbs=len(Databases.__struct_fields__)) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(write=True) as transaction:
            transaction.put(b"schema", number(STORE_SCHEMA + 1), db=meta)
            epoch = transaction.get(b"epoch", db=meta)
    for opening in (LmdbLedger.open, LmdbReader.open):
        with pytest.raises(StoreOpenError) as refused:
            opening(disk.root)
        assert "newer maka" in one_line(refused)
    with lmdb.open(str(disk.root / "ledger"), max_dbs=len(Databases.__struct_fields__)) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin() as snapshot:
            assert snapshot.get(b"epoch", db=meta) == epoch


def test_a_missing_empty_or_foreign_store_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StoreOpenError) as missing:
        LmdbReader.open(tmp_path / "nowhere")
    assert "no maka store" in one_line(missing)
    acquire_root(tmp_path / "bare").close()
    with pytest.raises(StoreOpenError):
        LmdbReader.open(tmp_path / "bare")
    (tmp_path / "bare" / "ledger" / "data.mdb").write_bytes(b"hello" * 4_096)
    with pytest.raises(StoreOpenError) as foreign:
        LmdbReader.open(tmp_path / "bare")
    assert "isn't a ledger" in one_line(foreign)


def test_what_may_not_be_looked_at_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(StoreOpenError) as refused:
        LmdbReader.open(tmp_path)
    assert "Permission denied" in one_line(refused)
    assert "MAKA_HOME" in one_line(refused)


def test_a_file_in_the_place_of_a_root_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreOpenError) as refused:
        acquire_root(tmp_path / "file")
    assert "a file is in its place" in one_line(refused)
