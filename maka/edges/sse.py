"""Bytes -> server-sent events.

Laws: comments are no frames; a byte order mark at the start is skipped; a frame whose blank line never comes is no
frame, as the standard has it: half a frame must not count as a whole answer. Lines end with LF or CR LF; a lone CR,
which no provider uses, ends none.
"""

from msgspec import Struct

from maka.contracts.limits import SSE_LINE_BYTES_MAX

_BOM = b"\xef\xbb\xbf"


class SseFrame(Struct, frozen=True):
    """One event: its name, empty when none was given, and its data lines joined by LF."""

    event: str
    data: bytes


class SseOverflowError(ValueError):
    """A frame longer than the limit."""


class SseParser:
    """Frames of one stream, fed as the bytes come."""

    def __init__(self, frame_bytes_max: int = SSE_LINE_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._parts: list[bytes] = []  # of the line that isn't whole yet
        self._data: list[bytes] = []
        self._held_bytes = 0
        self._event = ""
        self._at_start = True

    def feed(self, data: bytes) -> list[SseFrame]:
        """Return the frames that these bytes complete. Raises SseOverflowError."""
        if b"\n" not in data:
            self._hold(data)
            return []
        lines = (b"".join(self._parts) + data).split(b"\n")
        self._parts = []
        self._held_bytes = sum(map(len, self._data))
        rest = lines.pop()
        if self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        frames: list[SseFrame] = []
        for line in lines:
            self._line(line.removesuffix(b"\r"), frames)
        self._hold(rest)
        return frames

    def _hold(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._grow(len(part))

    def _grow(self, size: int) -> None:
        self._held_bytes += size
        if self._held_bytes > self._frame_bytes_max:
            raise SseOverflowError(f"an event of the stream is longer than {self._frame_bytes_max} bytes")

    def _line(self, line: bytes, frames: list[SseFrame]) -> None:
        if line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(value)
            self._grow(len(value))
        elif not line:
            if self._data:
                frames.append(SseFrame(self._event, b"\n".join(self._data)))
            self._data = []
            self._held_bytes = 0
            self._event = ""
        elif line.startswith(b"event:"):
            self._event = line[6:].strip().decode("ascii", "replace")
        elif line == b"data":
            self._data.append(b"")
        # Anything else is a comment, an id, a retry time, or no server-sent event at all.
