"""Values stored once by their SHA-256: small ones travel with the append that names them, large ones are files.

Laws: a file has its name only when its bytes are durable; a value is never changed; storing it again is harmless.
"""

import contextlib
import errno
import os
import tempfile
from hashlib import sha256
from pathlib import Path

from maka.contracts.content import BlobRef
from maka.contracts.errors import LedgerDamagedError, LedgerError, LedgerFullError
from maka.contracts.limits import BLOB_BYTES_MAX, BLOB_INLINE_BYTES_MAX
from maka.storage.root import BLOBS_DIR, TEMP_DIR


class FileBlobs:
    """The BlobWriter of a state root. Any thread may put."""

    def __init__(self, root: Path) -> None:
        self._folder = root / BLOBS_DIR

    def put(self, data: bytes) -> tuple[BlobRef, bytes | None]:
        """Store a value over 32 KiB as a durable file; return a smaller one to travel with its append.

        Raises ValueError over the size bound, LedgerFullError where the disk is full, LedgerError where the file
        can't be written.
        """
        check_size(data)
        name = sha256(data).hexdigest()
        ref = BlobRef(sha256=name, size_bytes=len(data))
        if len(data) <= BLOB_INLINE_BYTES_MAX:
            return ref, data
        try:
            self._store(blob_path(self._folder, name), data)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise LedgerFullError(f"no room for a value of {len(data)} bytes in {self._folder}") from None
            raise LedgerError(f"can't store a value in {self._folder}: {error.strerror or error}") from None
        return ref, None

    def _store(self, path: Path, data: bytes) -> None:
        if not (path.is_file() and path.stat().st_size == len(data)):
            for folder in (self._folder, self._folder / TEMP_DIR, path.parent):
                folder.mkdir(mode=0o700, exist_ok=True)
            descriptor, temp = tempfile.mkstemp(dir=self._folder / TEMP_DIR)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temp, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temp)
                raise
        # Also for a file that was there: whoever wrote it may have died before its name was durable.
        _sync_folder(path.parent)
        _sync_folder(self._folder)


def check_size(data: bytes) -> None:
    """Raise ValueError for a value over the bound."""
    if len(data) > BLOB_BYTES_MAX:
        raise ValueError(f"a value of {len(data)} bytes is over the bound of {BLOB_BYTES_MAX}: cut it")


def blob_path(folder: Path, name: str) -> Path:
    """Return the file of a value; 256 folders keep each of them small."""
    return folder / name[:2] / name


def blob_key(name: str) -> bytes | None:
    """Return the 32 bytes of a SHA-256 in lower-case hex; None for any other text, which then names no value."""
    if len(name) != 64 or not name.isascii() or not name.isalnum() or name.lower() != name:
        return None
    try:
        return bytes.fromhex(name)
    except ValueError:
        return None


def file_size(root: Path, key: bytes) -> int | None:
    """Return the size of a value's file, None where there is none."""
    try:
        return blob_path(root / BLOBS_DIR, key.hex()).stat().st_size
    except OSError:
        return None


def read_file(root: Path, key: bytes) -> bytes | None:
    """Return a value from its file, None where there is none."""
    try:
        return blob_path(root / BLOBS_DIR, key.hex()).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(f"can't read value {key.hex()}: {error.strerror or error}") from None


def checked(key: bytes, data: bytes) -> bytes:
    """Return a value whose bytes are those of its name; raises LedgerDamagedError for others."""
    if sha256(data).digest() != key:
        raise LedgerDamagedError(f"the stored value {key.hex()} has other bytes than its name says")
    return data


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
