"""What a session's runs left for a person to look at: files that were written, diffs, long outputs and texts.

Laws: an artifact is named by a fact, in the order of the facts; a value that lies beside the log by its SHA-256. Of a
written file the log keeps no copy of its own: its content follows from the call (see `maka artifacts`), or isn't kept.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from maka.contracts.actions import Actions, FileChange
from maka.contracts.content import BlobRef, FunctionResponse, SessionOpened, Text, Thinking
from maka.contracts.events import Committed
from maka.contracts.ids import CallId, RunId, SessionId
from projections.chunks import Chunks
from projections.log_order import check_next


class Artifact(Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing. `kind` is file, diff, output or text; `sha256` names its content. `call_id` is null for a text."""

    kind: str
    name: str
    run_id: RunId
    call_id: CallId | None
    tool: str | None
    sha256: str | None
    size_bytes: int | None
    position: int
    ts: int


class Artifacts(Struct, frozen=True, gc=False, kw_only=True):
    """All artifacts of a session as of a position; `changes` and `commands` are those of calls without a response."""

    session_id: SessionId
    position: int
    root: str = ""
    found: Chunks[Artifact] = Chunks()
    changes: Mapping[CallId, FileChange] = {}
    commands: Mapping[CallId, str] = {}


def project(items: Iterable[Committed], state: Artifacts | None = None) -> Artifacts | None:
    """Fold a session's facts in order of position."""
    for item in items:
        state = fold(state, item)
    return state


def fold(state: Artifacts | None, item: Committed) -> Artifacts:
    """Take in one fact of the session. Raises FoldError on a foreign session or a position that doesn't grow."""
    event, content = item.event, item.event.content
    if state is None:
        state = Artifacts(session_id=event.session_id, position=0)
    check_next(item, state.session_id, state.position)
    state = replace(state, position=item.position)
    if isinstance(content, SessionOpened):
        return replace(state, root=content.real_cwd)
    if event.run_id is None or event.partial:
        return state
    if event.actions is not None:
        state = _noted(state, event.actions)
    for artifact in _of_fact(state, item, event.run_id):
        state = replace(state, found=state.found.append(artifact))
    if isinstance(content, FunctionResponse):
        changes = {call_id: change for call_id, change in state.changes.items() if call_id != content.call_id}
        commands = {call_id: words for call_id, words in state.commands.items() if call_id != content.call_id}
        state = replace(state, changes=changes, commands=commands)
    return state


def _noted(state: Artifacts, actions: Actions) -> Artifacts:
    if (change := actions.file_change) is not None:
        return replace(state, changes={**state.changes, change.call_id: change})
    if (started := actions.process_started) is not None:
        return replace(state, commands={**state.commands, started.call_id: started.command})
    return state


def _of_fact(state: Artifacts, item: Committed, run_id: RunId) -> Iterator[Artifact]:
    event, content = item.event, item.event.content

    def made(kind: str, name: str, ref: BlobRef | None, call_id: CallId | None, sha256: str | None = None) -> Artifact:
        return Artifact(
            kind=kind,
            name=name,
            run_id=run_id,
            call_id=call_id,
            tool=content.name if isinstance(content, FunctionResponse) else None,
            sha256=sha256 if ref is None else ref.sha256,
            size_bytes=None if ref is None else ref.size_bytes,
            position=item.position,
            ts=event.ts,
        )

    for delta in event.actions.artifact_delta if event.actions is not None else ():
        change = state.changes.get(delta.call_id)
        after = change.after_sha256 if change is not None and delta.kind == "file" else None
        yield made(delta.kind, delta.name, delta.blob, delta.call_id, after)
    if isinstance(content, FunctionResponse):
        if content.diff is not None:
            changed = state.changes.get(content.call_id)
            name = content.name if changed is None else relative(state.root, changed.path)
            yield made("diff", name, content.diff, content.call_id)
        if content.whole is not None:
            yield made("output", state.commands.get(content.call_id, content.name), content.whole, content.call_id)
    if isinstance(content, Text | Thinking) and content.whole is not None:
        yield made("text", "thinking" if isinstance(content, Thinking) else "answer", content.whole, None)


def relative(root: str, path: str) -> str:
    """Return a path relative to the workspace where it lies inside."""
    return path.removeprefix(root.rstrip("/") + "/")
