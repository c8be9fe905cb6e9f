"""The output of a command: shown live in pieces, kept within a fixed memory, told to the model in short.

Laws:
- Memory is bounded whatever the command prints: the first and the last half of OUTPUT_BLOB_BYTES_MAX are kept.
- Bytes become text piece by piece: a character that is split between two reads isn't broken, one that is no UTF-8
  becomes U+FFFD.
- Secrets are taken out before anything is kept, cut or shown: of each stream by itself, and of both as they are kept.
- The command is never slowed down or ended for its output; after LIVE_CHARS_MAX a stream is no longer shown live.
"""

import codecs
from collections import deque
from collections.abc import Callable

from maka.contracts.limits import LIVE_CHARS_MAX, LIVE_DELTA_CHARS_MAX, OUTPUT_BLOB_BYTES_MAX, RESULT_BYTES_MAX
from maka.contracts.masks import NO_MASKS, Masks, MaskStream
from maka.tools.results import cut_middle, fits

ERRORS_CHARS_MAX = 16_000
HALF = OUTPUT_BLOB_BYTES_MAX // 2
SUPPRESSED = "\n[more output comes; it is not shown live]\n"
HINT = "The whole output is kept for the person; to see more of it, filter it rather than repeat what has effects"


class Kept:
    """The beginning and the end of a text of any length."""

    def __init__(self, half: int = HALF) -> None:
        self._half = half
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.size = 0
        self._breaks = 0
        self._ends_line = True

    @property
    def lines(self) -> int:
        return self._breaks + (0 if self._ends_line else 1)

    @property
    def dropped(self) -> int:
        return self.size - len(self._head) - self._tail_size

    def add(self, data: bytes) -> None:
        """Keep some more UTF-8."""
        if not data:
            return
        self.size += len(data)
        self._breaks += data.count(b"\n")
        self._ends_line = data.endswith(b"\n")
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._half:
            self._tail_size -= len(self._tail.popleft())

    def whole(self) -> bytes:
        """Return what is kept, with a note where something was dropped between."""
        note = f"\n[... {self.dropped} bytes were dropped here ...]\n".encode() if self.dropped else b""
        return bytes(self._head) + note + b"".join(self._tail)

    def ends(self, size: int) -> tuple[str, str]:
        """Return the first and the last `size` bytes as text; both are everything where it is short."""
        if self.size <= size:
            everything = (bytes(self._head) + b"".join(self._tail)).decode("utf-8", "replace")
            return everything, everything
        last: list[bytes] = []
        missing = size
        for piece in reversed(self._tail):
            if missing <= 0:
                break
            last.append(piece[-missing:])
            missing -= len(last[-1])
        if missing > 0:
            last.append(bytes(self._head[-missing:]))
        tail = b"".join(reversed(last))
        return bytes(self._head[:size]).decode("utf-8", "ignore"), tail.decode("utf-8", "ignore")


class SafeText:
    """Makes text of one stream's bytes as they come, without secrets, also where a read cut one in two."""

    def __init__(self, mask: MaskStream) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._mask = mask
        self.shown = 0

    def take(self, data: bytes, final: bool = False) -> str:
        """Return what may be shown and kept now; all that is left where the stream is over."""
        safe = self._mask.feed(self._decoder.decode(data, final))
        return safe + self._mask.end() if final else safe


class CommandOutput:
    """Both streams of a command, kept in the order of arrival as a terminal shows them. On the I/O thread."""

    def __init__(self, show: Callable[[str, str], None], masks: Masks = NO_MASKS, half: int = HALF) -> None:
        self._show = show
        self._masks = masks
        # A secret that was printed half to one stream and half to the other is whole only where both are kept.
        self._both = masks.stream()
        self._streams: dict[str, SafeText] = {}
        self.kept = Kept(half)
        self.errors = ""
        """The end of what it said of itself, on its standard error."""

    def take(self, stream: str, data: bytes, final: bool = False) -> None:
        """Take the next bytes of a stream."""
        state = self._streams.setdefault(stream, SafeText(self._masks.stream()))
        text = state.take(data, final)
        if not text:
            return
        self.kept.add(self._both.feed(text).encode())
        if stream == "stderr":
            self.errors = (self.errors + text)[-ERRORS_CHARS_MAX:]
        room = LIVE_CHARS_MAX - state.shown
        if room <= 0:
            return
        state.shown += len(text)
        live = text[:room]
        for at in range(0, len(live), LIVE_DELTA_CHARS_MAX):
            self._show(stream, live[at : at + LIVE_DELTA_CHARS_MAX])
        if state.shown >= LIVE_CHARS_MAX:
            self._show(stream, SUPPRESSED)

    def close(self) -> None:
        """Take what an unfinished character, or what could have become a secret, left behind."""
        for stream in list(self._streams):
            self.take(stream, b"", final=True)
        self.kept.add(self._both.end().encode())

    def for_model(self) -> tuple[str, bytes | None]:
        """Return the bounded text, and all that is kept where the text isn't all of it."""
        head, tail = self.kept.ends(2 * RESULT_BYTES_MAX)
        if self.kept.size <= 2 * RESULT_BYTES_MAX and fits(head):
            return head, None
        return cut_middle(head, tail, self.kept.lines, self.kept.size, HINT), self.kept.whole()
