"""Undo: put one file back to what it held before a change, or remove it where it wasn't there.

A tool of Maka's own: no model is offered it, an undo calls it. Laws: the same rules as Write's hold, and the file must
still hold exactly what the undo was planned for. A person asked for it and the record names the file, so exactly this
file may be written, also where the session may not any more; Maka's own files never.
"""

import os
from collections.abc import Callable
from hashlib import sha256

from msgspec.structs import replace

from maka.contracts.actions import RecoveryMode
from maka.contracts.boundary import Boundary, Expansion, FileEntry, Grant
from maka.contracts.errors import LedgerError
from maka.contracts.ids import EventId, SessionId
from maka.contracts.limits import BLOB_BYTES_MAX
from maka.contracts.model_ports import ToolSpec
from maka.contracts.tool_ports import FileNow, ToolCall, ToolEnv, ToolListener
from maka.tools.boundary import PathError, Place, locate
from maka.tools.change import Change, Plan
from maka.tools.files import Before, FileTurns, look
from maka.tools.policy import Ground

SPEC = ToolSpec(
    name="Undo",
    description="Put a file back to what it held before a change.",
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1},
            "from_sha256": {"type": ["string", "null"]},
            "to_sha256": {"type": ["string", "null"]},
            "undoes": {"type": "string"},
            "mode": {"type": "integer"},
        },
        "required": ["path", "from_sha256", "to_sha256", "undoes"],
        "additionalProperties": False,
    },
)


class PutBackTool:
    """The tool Undo. `blob` returns a stored value by its SHA-256, None where there is none."""

    spec: ToolSpec = SPEC
    recovery_mode: RecoveryMode = "outcome_unknown"
    exclusive: bool = False

    def __init__(self, turns: FileTurns, blob: Callable[[str], bytes | None]) -> None:
        self._turns = turns
        self._blob = blob

    def look(self, cwd: str, path: str) -> FileNow:
        """Say what a file is now. Any thread."""
        return read_now(cwd, path, self._turns.ground)[0]

    def start(self, call: ToolCall, env: ToolEnv, listener: ToolListener) -> Callable[[], None]:
        """Put the file back in the caller's thread and, after the commit, in the thread that calls `then`."""

        def decide(place: Place, before: Before) -> Plan:
            _must_be(place, str(call.args["path"]))
            if _hash(before.data) != call.args["from_sha256"]:
                raise PathError(f"nothing was changed: {place.shown} was changed by someone else meanwhile")
            data = self._content(place, call.args["to_sha256"])
            undoes = EventId(str(call.args["undoes"]))
            verb = "Removed" if data is None else "Put back"
            return Plan(data=data, verb=verb, mode=call.args.get("mode"), undoes=undoes)

        allowed = _allowed(env.cwd, str(call.args["path"]), str(call.args["undoes"]))
        return Change(self._turns, call, replace(env, boundary=allowed), listener, decide).start()

    def _content(self, place: Place, digest: str | None) -> bytes | None:
        if digest is None:
            return None
        try:
            data = self._blob(digest)
        except LedgerError as error:
            raise PathError(f"nothing was changed: {error}") from None
        if data is None:
            raise PathError(f"nothing was changed: the old content of {place.shown} isn't stored")
        return data


def read_now(cwd: str, path: str, ground: Ground) -> tuple[FileNow, bytes | None]:
    """Say what a file is now and return its content; None where there is none, or it can't be used."""
    env = ToolEnv(session_id=SessionId(""), cwd=cwd, temp_suffix="", boundary=_allowed(cwd, path, ""))
    try:
        place = locate(env, path, "write", ground)
        _must_be(place, path)
        data = look(place, BLOB_BYTES_MAX).data
    except PathError as error:
        return FileNow(problem=error.said.partition("\n")[0]), None
    return FileNow(sha256=_hash(data)), data


def _allowed(cwd: str, path: str, origin: str) -> Boundary:
    entries = (FileEntry(path=path, access="write", scope="exact"),)
    grant = Grant(origin=EventId(origin), scope="once", expansion=Expansion(filesystem=entries))
    return Boundary(workspace=os.path.realpath(cwd), grants=(grant,))


def _must_be(place: Place, path: str) -> None:
    """Refuse a path that leads elsewhere now: what stands there isn't the file that was changed."""
    if place.real != os.path.normpath(path):
        raise PathError(f"{path} leads to another file now ({place.real}): a link was put in its way")


def _hash(data: bytes | None) -> str | None:
    return None if data is None else sha256(data).hexdigest()
