"""PURE: secrets out of what one tool call says, in every field that is stored or shown."""

from msgspec.structs import replace

from maka.contracts.actions import BoundaryRequest
from maka.contracts.masks import Masks, MaskStream
from maka.contracts.tool_ports import Asked, ProcessFact, ToolResult, WorkspaceDiff


class LiveMasks:
    """A call's live output, stream by stream."""

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._streams: dict[str, MaskStream] = {}

    def feed(self, stream: str, text: str) -> str:
        """Return what may be shown now."""
        if stream not in self._streams:
            self._streams[stream] = self._masks.stream()
        return self._streams[stream].feed(text)

    def end(self) -> list[tuple[str, str]]:
        """Return each stream with what was held back of it."""
        streams, self._streams = self._streams, {}
        return [(name, text) for name, stream in streams.items() if (text := stream.end())]


def masked_process(fact: ProcessFact, masks: Masks) -> ProcessFact:
    """Return the fact of a process whose command line shows no secret."""
    return replace(fact, command=masks(fact.command))


def masked_result(result: ToolResult, masks: Masks) -> ToolResult:
    """Return a result without secrets. A file whose path holds one isn't remembered as seen."""
    return replace(
        result,
        text=masks(result.text),
        whole=None if result.whole is None else _masked_bytes(result.whole, masks),
        diff=None if result.diff is None else masks(result.diff),
        seen=None if result.seen is None or masks.holds(result.seen.path) else result.seen,
        workspace=None if result.workspace is None else _masked_names(result.workspace, masks),
    )


def masked_request(asked: Asked | str, masks: Masks) -> Asked | str:
    """Return a request to a person, or a refusal without secrets: also where a link leads to a path that holds one."""
    if isinstance(asked, str):
        return masks(asked)
    if isinstance(asked, BoundaryRequest) and any(masks.holds(entry.path) for entry in asked.expansion.filesystem):
        return "not asked: a path holds a secret, which would be recorded"
    return asked


def _masked_bytes(data: bytes, masks: Masks) -> bytes:
    return masks(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _masked_names(found: WorkspaceDiff, masks: Masks) -> WorkspaceDiff:
    added, modified, deleted = (tuple(map(masks, names)) for names in (found.added, found.modified, found.deleted))
    return replace(found, added=added, modified=modified, deleted=deleted)
