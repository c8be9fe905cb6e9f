"""Logs that explain the process: JSON lines to a file of ours, or to a stream. They aren't the record.

Laws: nothing of structlog's process-wide configuration is touched; every line is masked as a whole, after rendering,
so no key, nested value or exception text escapes; a log that can't be written never breaks what it tells about.
"""

import os
import threading
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import IO, Any, Self

import msgspec
import structlog

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class LogFile:
    """The sink: one line per write, from any thread."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a file for appending, readable by its owner alone, also where it was there before. Raises OSError."""
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.fchmod(handle, 0o600)
        return cls(os.fdopen(handle, "ab", buffering=0))

    def write(self, line: bytes) -> None:
        with self._lock:
            try:
                self._stream.write(line + b"\n")
                self._stream.flush()
            except (OSError, ValueError):  # a full disk, a closed pipe, or closed by `close`
                return

    def close(self) -> None:
        with self._lock:
            self._stream.close()


class _LineLogger:
    """What structlog calls with the rendered line; it has a method for each level."""

    def __init__(self, sink: LogFile) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = sink.write


def make_logger(
    sink: LogFile, redact: Callable[[str], str], level: str = "info"
) -> structlog.typing.FilteringBoundLogger:
    """Return a logger that writes JSON lines; bind keys with `.bind(session_id=…)`. `level` is the lowest shown."""

    def render(logger: object, method: str, event: MutableMapping[str, Any]) -> bytes:
        del logger, method
        try:
            line = msgspec.json.encode(_plain(event), enc_hook=repr)
        except (TypeError, ValueError, RecursionError):
            line = msgspec.json.encode({"event": "log_line_not_writable", "was": ascii(event)[:2_000]})
        return redact(line.decode()).encode()

    wrapped: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        _LineLogger(sink),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        context_class=dict,
        cache_logger_on_first_use=False,
    )
    return wrapped


def _plain(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event with strings that any encoder takes: a lone surrogate in a path must not lose the line."""
    return {
        key: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for key, value in event.items()
    }
