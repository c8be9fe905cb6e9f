"""What an undo would do: (changes, target, files as they are now) -> steps, and what stays as it is and why.

Laws: a file is put back from the newest change to the oldest, as long as it is, before each, exactly what that change
left behind; so what anyone else did to it is never lost. `force` drops that condition for files that a person named,
and even then the step records what it replaces. Pure: whoever asks looks at the files.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from maka.contracts.commands import LeftFile
from maka.contracts.content import BlobRef
from maka.contracts.ids import EventId, RunId
from maka.contracts.tool_ports import FileNow
from projections.changes import Chain, Changes, Edit, changed_by_command

_SHOWN = 12


class UndoStep(Struct, frozen=True, kw_only=True):
    """One file: what it holds now, what it shall hold (None: no file), and the oldest change that is taken back.

    `mode` holds the permission bits that a file gets which isn't there now.
    """

    path: str
    now_sha256: str | None
    then_sha256: str | None
    then: BlobRef | None
    mode: int | None
    undoes: EventId


class UndoPlan(Struct, frozen=True, kw_only=True):
    """The steps of an undo, in order of path, and the files that stay, or aren't taken back all the way."""

    steps: tuple[UndoStep, ...]
    left: tuple[LeftFile, ...]


class _Walk(Struct, frozen=True, kw_only=True):
    """How far back a file could be taken: the oldest change reached, and what stood in the way."""

    reached: Edit | None
    mismatch: Edit | None = None
    later: Edit | None = None
    content: str | None


def candidates(found: Changes, run_id: RunId | None, files: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the files that an undo of the session, or of one run, may be about, in order of path."""
    named = set(files)
    return tuple(
        path
        for path, chain in sorted(found.chains.items())
        if (not named or path in named) and _may_reach(chain, run_id)
    )


def plan(
    found: Changes,
    run_id: RunId | None,
    now: Mapping[str, FileNow],
    *,
    files: Sequence[str] = (),
    force: bool = False,
) -> UndoPlan:
    """Plan an undo of the session, or of one run. `now` tells of every candidate."""
    steps: list[UndoStep] = []
    left: list[LeftFile] = []
    wanted = candidates(found, run_id, files)
    for path in wanted:
        step, stays = _of_file(found, found.chains[path], run_id, now[path], force=force)
        steps += [] if step is None else [step]
        left += [] if stays is None else [stays]
    for path in sorted(set(files) - set(wanted)):
        whose = "this session" if run_id is None else "this run"
        message = f"no change by {whose} stands in this file, so there is nothing to undo"
        left.append(LeftFile(path=path, reason="nothing", message=message))
    return UndoPlan(steps=tuple(steps), left=tuple(left))


def _is_wanted(edit: Edit, run_id: RunId | None) -> bool:
    """A session's undo is about its agent's changes; a run's, about all that it did, undos included."""
    return edit.undoes is None if run_id is None else edit.run_id == run_id


def _may_reach(chain: Chain, run_id: RunId | None) -> bool:
    """Say whether a wanted change stands, or would if a maybe had never happened."""
    ways, seen = [chain.top], set[int]()
    while ways:
        at = ways.pop()
        if at < 0 or at in seen:
            continue
        seen.add(at)
        entry = chain.entries[at]
        if _is_wanted(entry.edit, run_id):
            return True
        ways += [entry.below] if entry.edit.sure else [entry.below, entry.prior]
    return False


def _walk(chain: Chain, run_id: RunId | None, now: str | None, *, blind: bool) -> _Walk:
    """Go back from the top. `blind` passes over what others did to the file, and over later runs."""
    reached: Edit | None = None
    content, at = now, chain.top
    while at >= 0:
        entry = chain.entries[at]
        edit = entry.edit
        fits = content == edit.after_sha256
        if not fits and not edit.sure and content == edit.before_sha256:
            at = entry.prior  # it never happened
            continue
        mine, undo = _is_wanted(edit, run_id), edit.undoes is not None
        if not mine and not undo and (reached is not None or not blind):
            return _Walk(reached=reached, later=None if reached is not None else edit, content=content)
        if not fits and not blind:
            return _Walk(reached=reached, mismatch=edit, content=content)
        reached = edit if mine else reached
        content = edit.after_sha256 if undo and not mine else edit.before_sha256
        at = entry.prior if mine else entry.below
    return _Walk(reached=reached, content=content)


def _of_file(
    found: Changes, chain: Chain, run_id: RunId | None, now: FileNow, *, force: bool
) -> tuple[UndoStep | None, LeftFile | None]:
    if now.problem is not None:
        return None, LeftFile(path=chain.path, reason="unusable", message=now.problem)
    goal = _walk(chain, run_id, now.sha256, blind=True).reached
    if goal is not None and now.sha256 == goal.before_sha256:
        message = "it holds what it held before these changes already"
        return None, LeftFile(path=chain.path, reason="already", message=message, current_sha256=now.sha256)
    if goal is not None and force:
        return _step(chain.path, goal, now), None
    walk = _walk(chain, run_id, now.sha256, blind=False)
    left = _left(found, chain.path, walk, now.sha256)
    if walk.reached is None or walk.reached.before_sha256 == now.sha256:
        return None, left
    return _step(chain.path, walk.reached, now), left


def _step(path: str, edit: Edit, now: FileNow) -> UndoStep:
    return UndoStep(
        path=path,
        now_sha256=now.sha256,
        then_sha256=edit.before_sha256,
        then=edit.pre_image,
        mode=edit.mode,
        undoes=edit.event_id,
    )


def _left(found: Changes, path: str, walk: _Walk, now: str | None) -> LeftFile | None:
    if walk.later is not None:
        who = f"run {walk.later.run_id} changed it later: undo that run first"
        return LeftFile(path=path, reason="later", message=who, ours_sha256=walk.later.after_sha256, current_sha256=now)
    if walk.mismatch is None:
        return None
    ours, here = walk.mismatch.after_sha256, walk.content
    if walk.reached is not None:
        message = (
            f"it goes back no further than to what someone else made of it ({shown(here)}); before that, a change of "
            f"this session had left {shown(ours)}"
        )
        return LeftFile(path=path, reason="changed_between", message=message, ours_sha256=ours, current_sha256=here)
    who = "a command" if changed_by_command(found, path, walk.mismatch.position) else "someone else"
    message = f"{who} changed it since: the agent left {shown(ours)}, it is {shown(now)} now"
    return LeftFile(path=path, reason="changed", message=message, ours_sha256=ours, current_sha256=now)


def shown(sha256: str | None) -> str:
    """Return a content's hash in short, as people compare it."""
    return "no file" if sha256 is None else sha256[:_SHOWN]
