"""PURE: the course of an undo. One file after another, each a call of Maka's own; no model is asked.

Laws: everything else is as in any run: a call is dispatched before it starts, a change is a fact before it is done,
a stop settles what is open. A file that can't be put back doesn't keep the others from it.
"""

from collections.abc import Sequence

from actors import mapper
from actors.run_ending import active_ms, append, complete
from actors.run_types import Deciding, Purpose, Work
from maka.contracts.actions import ToolDispatch
from maka.contracts.codec import canonical_json, hash_hex
from maka.contracts.content import FunctionCall, Outcome
from maka.contracts.events import Status
from maka.contracts.ids import CallId
from maka.contracts.limits import UNDO_LISTED_MAX
from projections import undo_record
from projections.settlement import Ending
from projections.undo_plan import UndoStep

STOP_REASON = "undone"


def next_file(d: Deciding) -> None:
    """Dispatch the next file's call, or end the run after the last one."""
    steps = d.state.plan.undo
    assert steps is not None, "only an undo goes from file to file"
    if d.state.undone == len(steps):
        _finish(d)
        return
    args = undo_record.call_args(steps[d.state.undone])
    call = mapper.undo_call(d.who, d.at(), FunctionCall(name=undo_record.TOOL, args=args))
    call_id = CallId(call.id)
    dispatch = ToolDispatch(
        call_id=call_id,
        name=undo_record.TOOL,
        operation_id=d.env.ids(),
        args_hash=hash_hex(canonical_json(args)),
        recovery_mode="outcome_unknown",
    )
    work = Work(call_id=call_id, name=undo_record.TOOL, step=0, args=args)
    d.set(undone=d.state.undone + 1, step_calls=(call,))
    append(d, Purpose.DISPATCH, (call, mapper.dispatch(d.who, d.at(), dispatch)), work=(work,))


def note_trouble(d: Deciding, answered: tuple[Work, ...]) -> None:
    """Remember the files that were not put back."""
    failed = (work for work in answered if work.answer is not None and work.answer.outcome is not Outcome.OK)
    d.set(trouble=(*d.state.trouble, *(str(work.args["path"]) for work in failed if work.args is not None)))


def _finish(d: Deciding) -> None:
    trouble = d.state.trouble
    words = (mapper.undo_words(d.who, d.at(), trouble_words(trouble)),) if trouble else ()
    terminal = mapper.completed(d.who, d.at(), stop_reason=STOP_REASON, steps=0, duration_ms=active_ms(d))
    complete(d, Ending(status=Status.COMPLETED, stop_reason=STOP_REASON), (*words, terminal))


# -- words for the model ------------------------------------------------------------------------------------------


def opening_words(steps: Sequence[UndoStep]) -> str:
    """Tell the model what is being undone. True also where the undo is cut off in the middle."""
    back = [step.path for step in steps if step.then_sha256 is not None]
    gone = [step.path for step in steps if step.then_sha256 is None]
    parts = ["These files are being set back by Maka's undo, as the person asked; you need not do anything about it."]
    if back:
        parts.append(f"Set back to an earlier content: {_listed(back)}.")
    if gone:
        parts.append(f"Removed, since they weren't there before: {_listed(gone)}.")
    parts.append("Read a file again before you rely on what it holds.")
    return f"[{' '.join(parts)}]"


def trouble_words(paths: Sequence[str]) -> str:
    """Tell the model which of the files were not set back after all."""
    return f"[Of these files, the undo may not have set back: {_listed(paths)}.]"


def _listed(paths: Sequence[str]) -> str:
    more = len(paths) - UNDO_LISTED_MAX
    return ", ".join(paths[:UNDO_LISTED_MAX]) + (f" and {more:,} more" if more > 0 else "")
