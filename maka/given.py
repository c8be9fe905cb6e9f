"""What callers hand over, checked before it becomes a command: nobody behind this door meets a value of another type.

Law: whatever doesn't fit is refused here, with words for the caller; nothing of it is stored and no actor hears of it.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from pathlib import PurePath
from typing import TypeVar, cast
from uuid import UUID

import msgspec

from maka.contracts.boundary import Expansion, Profile
from maka.contracts.commands import HOST_SHUTDOWN
from maka.contracts.content import RunLimits
from maka.contracts.errors import Refusal, RefusalCode, RefusedError
from maka.contracts.ids import CommandId, RunId, SessionId, is_command_id, is_id
from maka.contracts.limits import CLIENT_CHARS_MAX, PATH_BYTES_MAX, PROMPT_CHARS_MAX, RUN_LIMIT_MAX
from projections.artifacts import Artifact

C = TypeVar("C", bound=msgspec.Struct)
Normalise = Callable[[Expansion, str], Expansion]
"""Brings grants into the form of facts, given the workspace; raises RefusedError."""

_NO_TEXT = (bytes, bytearray, datetime, date, time, timedelta, Decimal, UUID)
"""What msgspec would turn into a text, had it leave to."""
_POSITION_MAX = (1 << 63) - 1
_SHOWN_CHARS = 64
_WORDS_CHARS = 2_000


def as_it_is(grants: Expansion, workspace: str) -> Expansion:
    """Take grants as they come: for a manager without files behind it."""
    return grants


def refused(message: str) -> RefusedError:
    return RefusedError(Refusal(code=RefusalCode.INVALID_INPUT, message=one_line(message)))


def one_line(message: str) -> str:
    """Return words in one line of sane length, whatever of the caller's is named in them."""
    if len(message) > _WORDS_CHARS:
        message = f"{message[: _WORDS_CHARS // 2]} … {message[-_WORDS_CHARS // 2 :]}"
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in message)


def fitting(command: C) -> C:
    """Return a copy of a command, its every field of exactly its type. Raises RefusedError.

    What comes back has nothing of the caller's in it that could change, and is one that the ledger can hold.
    """
    try:
        plain = msgspec.to_builtins(command, builtin_types=_NO_TEXT)
        copy = msgspec.convert(plain, type=type(command))
        msgspec.json.encode(copy)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise refused(f"{type(command).__name__} doesn't fit: {error}") from None
    return copy


def word(given: object, what: str) -> str:
    """Return what must be a text, as a plain one. Raises RefusedError."""
    if isinstance(given, str):
        with suppress(TypeError):  # of what only passes itself off as a text
            return str.__str__(given)
    raise refused(f"{what} is a text, not {type(given).__name__}")


def text(given: object, what: str) -> str:
    """Return a text that can be stored: half characters, which have no bytes, are replaced."""
    return word(given, what).encode("utf-8", "replace").decode()


def name(given: object, what: str) -> str:
    """Return a short text that names something. Raises RefusedError."""
    if len(word(given, what)) > CLIENT_CHARS_MAX:
        raise refused(f"{what} has at most {CLIENT_CHARS_MAX} characters")
    return text(given, what)


def client_name(given: object) -> str | None:
    """Return the name of a client, if one is given. Raises RefusedError."""
    return None if given is None else name(given, "a client's name")


def source(given: object) -> str:
    """Return what a stop comes from. Raises RefusedError also for the host's own, which is nobody's to give."""
    if (found := name(given, "the source of a stop")) == HOST_SHUTDOWN:
        raise refused(f"{HOST_SHUTDOWN} is the host's own source; name yours")
    return found


def answer_text(given: object) -> str | None:
    """Return an answer that the ledger takes: half characters are replaced, a novel is refused."""
    if given is None:
        return None
    if len(word(given, "an answer")) > PROMPT_CHARS_MAX:
        raise refused(f"an answer has at most {PROMPT_CHARS_MAX:,} characters; put it into a file and name that")
    return text(given, "an answer")


def several(given: object, what: str) -> tuple[object, ...]:
    """Return the members of a list or tuple. Raises RefusedError; a text is none, though it has characters."""
    if isinstance(given, Sequence) and not isinstance(given, str | bytes | bytearray):
        return tuple(cast("Sequence[object]", given))
    raise refused(f"{what} come as a list or tuple, not {type(given).__name__}")


def session(given: object) -> SessionId:
    """Return the id of a session. Raises RefusedError for what can be none."""
    if not is_id(found := word(given, "a session's id")):
        raise refused(f"not a session id: {found[:_SHOWN_CHARS]!r}; `maka sessions` lists them")
    return SessionId(found)


def run(given: object) -> RunId:
    """Return the id of a run. Raises RefusedError for what can be none."""
    if not is_id(found := word(given, "a run's id")):
        raise refused(f"not a run's id: {found[:_SHOWN_CHARS]!r}; `maka show` names a session's runs")
    return RunId(found)


def artifact(given: object) -> Artifact:
    """Return an artifact as it was listed. Raises RefusedError."""
    if not isinstance(given, Artifact):
        raise refused(f"an artifact is one that artifacts() returned, not {type(given).__name__}")
    return given


def size(given: object, what: str) -> int:
    """Return a number of bytes. Raises RefusedError."""
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise refused(f"{what} is a whole number of bytes from 0 on")
    return int(given)


def command_id(given: object) -> CommandId:
    """Return a client's own id of a command. Raises RefusedError."""
    if not is_command_id(found := word(given, "a command id")):
        raise refused("a command id is 1 to 128 letters, digits and _.:- ; choose another")
    return CommandId(found)


def position(given: object) -> int:
    """Return a position in the log. Raises RefusedError."""
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= _POSITION_MAX:
        raise refused("a position is a whole number from 0 on")
    return int(given)


def limits(given: object) -> RunLimits:
    """Return a run's limits; those of None are none. Raises RefusedError."""
    if given is None:
        return RunLimits()
    if not isinstance(given, RunLimits):
        raise refused(f"limits are RunLimits, not {type(given).__name__}")
    found = fitting(given)
    for each in (found.steps_max, found.active_s_max, found.tokens_max):
        if each is not None and not (isfinite(each) and 0 < each <= RUN_LIMIT_MAX):
            raise refused(
                f"a run's limits are above 0, at most {RUN_LIMIT_MAX:,}; leave out those that it shouldn't have"
            )
    return found


def grants(given: object) -> Expansion:
    """Return what is to be granted; None is nothing. Raises RefusedError."""
    if given is None:
        return Expansion()
    if not isinstance(given, Expansion):
        raise refused(f"grants are an Expansion, not {type(given).__name__}")
    found = fitting(given)
    for entry in found.filesystem:
        path(entry.path)
    return found


def path(given: object) -> str:
    """Return a path that the system takes. Raises RefusedError."""
    found = word(str(given) if isinstance(given, PurePath) else given, "a path")
    if "\0" in found:
        raise refused("a path has no NUL in it")
    if len(found.encode("utf-8", "surrogatepass")) > PATH_BYTES_MAX:
        raise refused(f"a path has at most {PATH_BYTES_MAX:,} bytes")
    return found


def check_directory(path: str) -> None:
    """Refuse what no session can work in."""
    shown = text(path, "a path")
    if shown != path:
        words = "has a name that is no UTF-8"
    elif not os.path.exists(path):
        words = "does not exist"
    elif not os.path.isdir(path):
        words = "is not a directory"
    elif not os.access(path, os.R_OK | os.X_OK):
        words = "is not readable"
    else:
        return
    raise refused(f"working directory {shown} {words}; name one that you can read")


def profile(given: object) -> Profile:
    """Return the profile of this name. Raises RefusedError."""
    found = word(given, "a boundary")
    try:
        return Profile(found)
    except ValueError:
        raise refused(f"{found[:_SHOWN_CHARS]!r} is no boundary; choose one of {', '.join(Profile)}") from None
