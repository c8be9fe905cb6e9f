"""Large values as files: durable before they are named, stored once, whole or not there."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from maka.contracts.errors import LedgerError, LedgerFullError
from maka.contracts.limits import BLOB_BYTES_MAX, BLOB_INLINE_BYTES_MAX
from maka.storage.blobs import FileBlobs
from maka.storage.memory import MemoryBlobs
from tests.storage.facts import blob_ref

LARGE = b"z" * (BLOB_INLINE_BYTES_MAX + 1)


def files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def test_a_small_value_makes_no_file(tmp_path: Path) -> None:
    value = bytes(BLOB_INLINE_BYTES_MAX)
    assert FileBlobs(tmp_path).put(value) == (blob_ref(value), value)
    assert FileBlobs(tmp_path).put(b"") == (blob_ref(b""), b"")
    assert files(tmp_path) == []


def test_a_large_value_is_one_file_however_often_it_is_put(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path / "state")
    (tmp_path / "state").mkdir()
    with ThreadPoolExecutor(4) as threads:
        refs = list(threads.map(blobs.put, [LARGE] * 16))
    assert refs == [(blob_ref(LARGE), None)] * 16
    (path,) = files(tmp_path)
    assert path.read_bytes() == LARGE and path.name == blob_ref(LARGE).sha256


def test_a_file_of_another_size_is_replaced(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    blobs.put(LARGE)
    (path,) = files(tmp_path)
    path.write_bytes(b"half")
    blobs.put(LARGE)
    assert path.read_bytes() == LARGE


@pytest.mark.parametrize(
    ("code", "expected"), [(errno.ENOSPC, LedgerFullError), (errno.EDQUOT, LedgerFullError), (errno.EIO, LedgerError)]
)
def test_a_value_that_cannot_be_made_durable_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: type[LedgerError]
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(expected) as failed:
        FileBlobs(tmp_path).put(LARGE)
    assert type(failed.value) is expected and "\n" not in str(failed.value)
    assert files(tmp_path) == []


@pytest.mark.parametrize("memory", [False, True])
def test_a_value_is_bounded(tmp_path: Path, memory: bool) -> None:
    blobs = MemoryBlobs() if memory else FileBlobs(tmp_path)
    with pytest.raises(ValueError, match="cut it"):
        blobs.put(bytes(BLOB_BYTES_MAX + 1))
