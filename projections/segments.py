"""What to show of a file's changes: stretches in which each change began where the one before it had ended.

Between two stretches someone else changed the file; one diff over both would show their work as the agent's.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from maka.contracts.content import BlobRef
from maka.contracts.ids import RunId
from projections.changes import Changes, Edit


class Segment(Struct, frozen=True, gc=False, kw_only=True):
    """Changes of one file without anyone else's in between. Hashes as in FileChange."""

    path: str
    before_sha256: str | None
    pre_image: BlobRef | None
    after_sha256: str | None
    edits: tuple[Edit, ...]

    @property
    def is_sure(self) -> bool:
        """Say whether all of its changes happened for certain."""
        return all(edit.sure for edit in self.edits)


def segments(found: Changes, run_id: RunId | None = None) -> Mapping[str, tuple[Segment, ...]]:
    """Return, by path, what stands of the agent's changes in a session, or all that one run changed."""
    if run_id is None:
        shown = {
            path: [edit for edit in chain.standing() if edit.undoes is None] for path, chain in found.chains.items()
        }
    else:
        shown = {
            path: [entry.edit for entry in chain.entries if entry.edit.run_id == run_id]
            for path, chain in found.chains.items()
        }
    return {path: _joined(path, edits) for path, edits in sorted(shown.items()) if edits}


def _joined(path: str, edits: Iterable[Edit]) -> tuple[Segment, ...]:
    parts: list[list[Edit]] = []
    for edit in edits:
        if parts and parts[-1][-1].after_sha256 == edit.before_sha256:
            parts[-1].append(edit)
        else:
            parts.append([edit])
    return tuple(
        Segment(
            path=path,
            before_sha256=part[0].before_sha256,
            pre_image=part[0].pre_image,
            after_sha256=part[-1].after_sha256,
            edits=tuple(part),
        )
        for part in parts
    )


def is_undone(found: Changes, path: str, run_id: RunId) -> bool:
    """Say whether nothing of what a run did to a file stands any more."""
    return all(edit.run_id != run_id for edit in found.chains[path].standing())
