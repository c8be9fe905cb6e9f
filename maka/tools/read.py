"""Read: the text of a file, whole or a slice of lines.

Laws:
- What is read is bounded, whatever the file's size: a slice is found by counting line ends, and of a long line only
  what fits is kept. No pipe or device is ever waited for.
- The hash that Edit compares is over the whole file. A file over READ_BYTES_MAX isn't hashed and reports none: Edit
  refuses files of that size anyway.
"""

import os
from collections.abc import Callable
from hashlib import sha256

from msgspec import Struct

from maka.contracts.actions import FileSeen, RecoveryMode
from maka.contracts.content import Outcome
from maka.contracts.limits import READ_BYTES_MAX, READ_SCAN_BYTES_MAX
from maka.contracts.masks import NO_MASKS, Masks
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import ToolCall, ToolEnv, ToolListener, ToolResult, Turn
from maka.tools.boundary import PathError, Place, explain, locate, opened, parent_of, refused
from maka.tools.files import read_all, turn_of
from maka.tools.policy import Ground
from maka.tools.results import BODY_BYTES_MAX, BODY_LINES_MAX, line_count, no_effect, take_head, with_footer

SPEC = ToolSpec(
    name="Read",
    description=(
        "Read a text file (UTF-8) of the workspace. Long files are cut: go on with the offset that the result names. "
        "Use Glob for directories."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "Path of the file, relative to the workspace."},
            "offset": {"type": "integer", "minimum": 0, "description": "Lines to skip from the start; 0 if not given."},
            "limit": {"type": "integer", "minimum": 1, "description": "The most lines to return."},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
)
_BLOCK = 1 << 20
_SAMPLE = 8 << 10


class Slice(Struct, frozen=True, kw_only=True):
    """Bytes from some line on: `reached` says that the offset lies within the file, `more` that the file goes on."""

    data: bytes
    reached: bool
    more: bool
    sha256: str | None


class ReadTool:
    """The tool Read."""

    spec: ToolSpec = SPEC
    recovery_mode: RecoveryMode = "replay_safe"
    exclusive: bool = False

    def __init__(self, ground: Ground, masks: Masks = NO_MASKS) -> None:
        self._ground = ground
        self._masks = masks

    def refusal(self, call: ToolCall, env: ToolEnv) -> ToolResult | None:
        """Return why the path can't be read; None where it can."""
        return refused(env, str(call.args["path"]), "read", self._ground)

    def turn(self, call: ToolCall, env: ToolEnv) -> Turn:
        """Return which file the call is about."""
        return turn_of(call, env, writes=False)

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        """Read in the caller's thread: at most READ_SCAN_BYTES_MAX bytes pass through it."""
        offset, limit = int(call.args.get("offset", 0)), int(call.args.get("limit", BODY_LINES_MAX))
        try:
            place = locate(env, str(call.args["path"]), "read", self._ground)
            result = _read(place, offset, min(limit, BODY_LINES_MAX), self._masks)
        except PathError as refusal:
            result = refusal.result
        listener.ended(result)
        return no_effect


def _read(place: Place, offset: int, limit: int, masks: Masks) -> ToolResult:
    try:
        with parent_of(place) as folder, opened(place, folder) as (fd, info):
            size = info.st_size
            found = _small(fd, size, offset) if size <= READ_BYTES_MAX else _large(fd, size, offset, place)
    except OSError as problem:
        raise PathError(explain(problem, place)) from None
    if offset == 0 and _is_binary(found.data[:_SAMPLE]):
        raise PathError(
            f"{place.shown} is a binary file of {size} bytes: look at it with a command, such as file or xxd"
        )
    seen = FileSeen(path=place.real, sha256=found.sha256) if found.sha256 else None
    return ToolResult(outcome=Outcome.OK, text=_shown(found, place, size, offset, limit, masks), seen=seen)


def _small(fd: int, size: int, offset: int) -> Slice:
    data = read_all(fd, size)
    at = 0
    for _ in range(offset):
        at = data.find(b"\n", at) + 1
        if not at:
            return Slice(data=b"", reached=False, more=False, sha256=sha256(data).hexdigest())
    reached = offset == 0 or at < len(data)
    return Slice(data=data[at:], reached=reached, more=False, sha256=sha256(data).hexdigest())


def _large(fd: int, size: int, offset: int, place: Place) -> Slice:
    """Find a line in a file that is too large to be read whole, without keeping what comes before."""
    skipped = at = 0
    while skipped < offset:
        if at >= READ_SCAN_BYTES_MAX:
            raise PathError(
                f"{place.shown} has {size} bytes, and line {offset} lies beyond the first {READ_SCAN_BYTES_MAX}: "
                "use a command, such as tail or sed -n"
            )
        block = os.pread(fd, _BLOCK, at)
        if not block:
            return Slice(data=b"", reached=False, more=False, sha256=None)
        ends = block.count(b"\n")
        if skipped + ends < offset:
            skipped, at = skipped + ends, at + len(block)
            continue
        inside = 0
        for _ in range(offset - skipped):
            inside = block.find(b"\n", inside) + 1
        skipped, at = offset, at + inside
    data = os.pread(fd, _BLOCK, at)
    return Slice(data=data, reached=bool(data), more=at + len(data) < size, sha256=None)


def _shown(found: Slice, place: Place, size: int, offset: int, limit: int, masks: Masks) -> str:
    if not found.reached:
        return f"[{place.shown} has no line at offset {offset}: it is shorter]"
    if not found.data:
        return f"[{place.shown} is empty]"
    # Twice the bound is enough to see whether something is left over, and a character is at most four bytes.
    is_cut = len(found.data) > 4 * BODY_BYTES_MAX or found.more
    text = found.data[: 4 * BODY_BYTES_MAX].decode("utf-8", "replace")
    text = masks.cut(text) if is_cut else masks(text)
    kept = take_head(text, limit, BODY_BYTES_MAX)
    left = is_cut or len(kept) < len(text)
    if not left:
        return kept
    if not kept.endswith("\n"):
        note = f"line {offset} is too long: this is its beginning. Go on with offset={offset + 1}, or use a command"
        return with_footer(kept, note)
    count = line_count(kept)
    return with_footer(
        kept, f"lines {offset} to {offset + count - 1} of a file of {size} bytes; go on with offset={offset + count}"
    )


def _is_binary(sample: bytes) -> bool:
    """Guess from a beginning: more than a tenth of it, and more than a few bytes, is neither text nor space."""
    odd = sum(sample.count(byte) for byte in range(32) if byte not in (7, 8, 9, 10, 12, 13, 27))
    text = sample.decode("utf-8", "replace")
    odd += text.count("\ufffd")
    return odd > 16 and 10 * odd > len(sample)
