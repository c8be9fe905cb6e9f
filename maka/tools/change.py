"""One change of a file, from the turn to the rename: shared by Write and Edit.

Laws: the fact is durable before the first byte is written, and so is what was there before. A call that is stopped
before the write begins changes nothing; one whose write has begun finishes it.
"""

import stat
import threading
from collections.abc import Callable
from hashlib import sha256

from msgspec import Struct

from maka.contracts.actions import FileSeen
from maka.contracts.content import Outcome
from maka.contracts.ids import EventId
from maka.contracts.limits import BLOB_BYTES_MAX
from maka.contracts.masks import SECRET_MARK, Masks
from maka.contracts.tool_ports import FileFact, ToolCall, ToolEnv, ToolListener, ToolResult
from maka.tools.boundary import PathError, Place, locate
from maka.tools.diffs import unified
from maka.tools.files import Before, FileTurns, look, remove, replace
from maka.tools.leftovers import temp_name


class Plan(Struct, frozen=True, kw_only=True):
    """What the file shall hold, and how the change is told: `verb` before the path, `detail` after the counts.

    Only an undo has no `data`, which removes the file, a `mode` for one that it makes anew, and a change that it
    takes back. What an undo does isn't seen by the model.
    """

    data: bytes | None
    verb: str
    detail: str = ""
    mode: int | None = None
    undoes: EventId | None = None


_MARK = SECRET_MARK.encode()

Decide = Callable[[Place, Before], Plan]
"""Looks at a file and decides its new content; raises PathError where it must stay as it is."""


def _unless_lost(place: Place, before: Before, plan: Plan, masks: Masks) -> None:
    """Refuse to write the mark that a secret was shown as over the secret itself."""
    if before.data is None or plan.data is None or plan.data.count(_MARK) <= before.data.count(_MARK):
        return
    if masks.holds(before.data.decode("utf-8", "replace")):
        raise PathError(
            f"{place.shown} holds a secret that you were shown as {SECRET_MARK}; writing that would lose it. Leave the "
            "lines that hold it as they are: use Edit for the others"
        )


class Change:
    """A call of Write or Edit under way."""

    def __init__(self, turns: FileTurns, call: ToolCall, env: ToolEnv, listener: ToolListener, decide: Decide) -> None:
        self._turns = turns
        self._call = call
        self._env = env
        self._listener = listener
        self._decide = decide
        self._lock = threading.Lock()
        self._settled = False
        self._place: Place | None = None
        self._holds = False

    def start(self) -> Callable[[], None]:
        """Begin when the file is free; returns the cancel function."""
        try:
            place = locate(self._env, str(self._call.args["path"]), "write", self._turns.ground)
        except PathError as refusal:
            self._settle(refusal.result)
            return self.cancel
        self._place = place
        self._turns.take(place.real, lambda: self._begin(place))
        return self.cancel

    def cancel(self) -> None:
        """Stop the call unless its write has begun."""
        self._settle(ToolResult(outcome=Outcome.ABORTED, text="Stopped before the file was written; it is unchanged."))

    def _begin(self, place: Place) -> None:
        with self._lock:
            self._holds = not self._settled
        if not self._holds:
            self._turns.leave(place.real)
            return
        try:
            before = look(place, BLOB_BYTES_MAX)
            plan = self._decide(place, before)
            _unless_lost(place, before, plan, self._turns.masks)
        except PathError as refusal:
            self._settle(refusal.result)
            return
        except BaseException:
            self._let_go()  # a bug of ours must not keep the file from everyone else
            raise
        if before.data == plan.data:
            self._settle(self._result(place, plan, f"{place.shown} already has exactly this content; nothing to do"))
            return
        fact = FileFact(
            path=place.real,
            before_sha256=None if before.data is None else sha256(before.data).hexdigest(),
            after_sha256=None if plan.data is None else sha256(plan.data).hexdigest(),
            pre_image=before.data,
            temp_name=temp_name(self._env.temp_suffix),
            mode=None if before.info is None else stat.S_IMODE(before.info.st_mode),
            undoes=plan.undoes,
        )
        self._listener.commit(fact, lambda granted: self._decided(place, before, plan, fact, granted))

    def _decided(self, place: Place, before: Before, plan: Plan, fact: FileFact, granted: bool) -> None:
        if not granted:
            self._settle(
                ToolResult(outcome=Outcome.NOT_STARTED, text="The change was not recorded, so nothing was written.")
            )
            return
        with self._lock:
            if self._settled:
                return
            self._settled = True
        try:
            with self._turns.made.making(place.real):
                if plan.data is None:
                    remove(place, before)
                else:
                    replace(place, before, plan.data, fact.temp_name, plan.mode)
            if plan.undoes is None and fact.after_sha256 is not None:
                self._turns.wrote(self._env.session_id, place.real, fact.after_sha256)
            diff = unified(place.shown, before.data, plan.data)
            text = f"{plan.verb} {place.shown} ({diff.counts}){plan.detail}"
            result = self._result(place, plan, text, diff.text)
        except PathError as refusal:
            result = refusal.result
        finally:
            self._let_go()
        self._listener.ended(result)

    def _result(self, place: Place, plan: Plan, text: str, diff: str | None = None) -> ToolResult:
        seen: FileSeen | None = None
        if plan.data is not None and plan.undoes is None:
            seen = FileSeen(path=place.real, sha256=sha256(plan.data).hexdigest())
        return ToolResult(outcome=Outcome.OK, text=text, diff=diff, seen=seen)

    def _settle(self, result: ToolResult) -> None:
        with self._lock:
            if self._settled:
                return
            self._settled = True
        self._let_go()
        self._listener.ended(result)

    def _let_go(self) -> None:
        with self._lock:
            held, self._holds = self._holds, False
        if held and self._place is not None:
            self._turns.leave(self._place.real)
