"""What callers hand over, checked before it becomes a command: nobody behind this door meets a value of another type.

Law: whatever doesn't fit is refused here, with words for the caller; nothing of it is stored and no actor hears of it.
"""

import os
from collections.abc import Callable
from typing import TypeVar

import msgspec

from maka.contracts.boundary import Expansion, Profile
from maka.contracts.errors import Refusal, RefusalCode, RefusedError
from maka.contracts.limits import CLIENT_CHARS_MAX, PROMPT_CHARS_MAX

C = TypeVar("C", bound=msgspec.Struct)
Normalise = Callable[[Expansion, str], Expansion]
"""Brings grants into the form of facts, given the workspace; raises RefusedError."""


def as_it_is(grants: Expansion, workspace: str) -> Expansion:
    """Take grants as they come: for a manager without files behind it."""
    return grants


def refused(message: str) -> RefusedError:
    return RefusedError(Refusal(code=RefusalCode.INVALID_INPUT, message=message))


def fitting(command: C) -> C:
    """Return a command whose every field is of its type. Raises RefusedError."""
    try:
        msgspec.json.decode(msgspec.json.encode(command), type=type(command))
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise refused(f"{type(command).__name__} doesn't fit: {error}") from None
    return command


def client_name(name: str | None) -> str | None:
    """Return the name of a client. Raises RefusedError for a long one."""
    if name is not None and len(name) > CLIENT_CHARS_MAX:
        raise refused(f"a client's name has at most {CLIENT_CHARS_MAX} characters")
    return None if name is None else text(name)


def answer_text(text: str | None) -> str | None:
    """Return an answer that the ledger takes: half characters are replaced, a novel is refused."""
    if text is None:
        return None
    if len(text) > PROMPT_CHARS_MAX:
        raise refused(f"an answer has at most {PROMPT_CHARS_MAX:,} characters; put it into a file and name that")
    return text.encode("utf-8", "replace").decode("utf-8", "replace")


def text(given: str) -> str:
    """Return a text that can be stored: half characters, which have no bytes, are replaced."""
    return given.encode("utf-8", "replace").decode()


def check_directory(path: str) -> None:
    """Refuse what no session can work in."""
    shown = text(path)
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


def profile(name: str) -> Profile:
    """Return the profile of this name. Raises RefusedError."""
    try:
        return Profile(name)
    except ValueError:
        raise refused(f"{name!r} is no boundary; choose one of {', '.join(Profile)}") from None
