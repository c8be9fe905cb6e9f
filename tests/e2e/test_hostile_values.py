"""What a program hands to SessionManager: whatever it is, no actor ends of it, and the host goes on."""

import inspect
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

from maka.contracts.boundary import Expansion, FileEntry
from maka.contracts.content import RunLimits
from maka.contracts.errors import RefusedError
from maka.session_manager import SessionManager
from maka.subscription import Subscription
from tests.e2e.harness import FINE, PROFILE, Maka, World

METHODS = [name for name, _ in inspect.getmembers(SessionManager, inspect.isfunction) if not name.startswith("_")]


class Text(str):
    """A text that is more than one: none of its own methods may be trusted."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        raise RuntimeError("planted")

    def __str__(self) -> str:
        raise RuntimeError("planted")

    def __len__(self) -> int:
        return 1 << 40


def nested() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def entry(path: Any = "/tmp", access: Any = "read", scope: Any = "subtree") -> FileEntry:
    return FileEntry(path=path, access=access, scope=scope)


PLAIN: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    math.nan,
    math.inf,
    10**30,
    "",
    " ",
    "\0",
    "a\nb",
    "\udcff",
    "x" * 300_000,
    "host.shutdown",
    "01980000-0000-7000-8000-000000000000",
    b"x",
    bytearray(b"x"),
    memoryview(b"x"),
    datetime(2026, 1, 1, tzinfo=UTC),
    object(),
    Mock(spec=str),  # says that it is a text
    Text("x"),
    lambda: 0,
    {},
    set[int](),
    nested(),
]
VALUES: list[Any] = [
    *PLAIN,
    *([value] for value in PLAIN),
    *(RunLimits(**{name: value}) for name in ("steps_max", "active_s_max", "tokens_max") for value in PLAIN),
    *(Expansion(network=value) for value in PLAIN),
    *(Expansion(filesystem=value) for value in PLAIN),
    *(Expansion(filesystem=(value,)) for value in PLAIN),
    *(Expansion(filesystem=(entry(path=value),)) for value in PLAIN),
    Expansion(filesystem=(entry(access="all"), entry(scope=5))),
]


def outcome(call: Callable[..., object], given: dict[str, Any]) -> RefusedError | None:
    """Return the refusal of a call; anything else that it raises is a mistake of ours."""
    try:
        made = call(**given)
    except RefusedError as error:
        return error
    if isinstance(made, Subscription):
        made.close()
    return None


def usable(maka: Maka, name: str) -> dict[str, Any]:
    """Return arguments that a method takes."""
    known = {
        "session_id": maka.session_id,
        "cwd": str(maka.machine.workspace),
        "profile": PROFILE,
        "request_id": "01980000-0000-7000-8000-000000000000",
    }
    parameters = list(inspect.signature(getattr(SessionManager, name)).parameters.values())[1:]
    given = {each.name: known.get(each.name, "x") for each in parameters if each.default is inspect.Parameter.empty}
    return {**given, "decision": "allow"} if name == "answer" else given


def test_no_value_whatever_ends_an_actor(world: World) -> None:
    maka = world.open([FINE])
    for name in METHODS:
        method, given = getattr(maka.manager, name), usable(maka, name)
        for parameter in list(inspect.signature(method).parameters):
            for value in VALUES:
                refused = outcome(method, {**given, parameter: value})
                if refused is not None:
                    assert "\n" not in str(refused), (name, parameter)
                    assert len(str(refused)) < 5_000, (name, parameter)
    assert "crashed" not in (world.machine.state / "maka.log").read_text()
    live = maka.send("still there?")
    while maka.host.reader.open_work():  # some of the values were messages, and have runs of their own
        live.end()
    newest = maka.facts()[-1].event.run_id
    assert newest is not None
    assert (maka.record(newest).status, maka.record(newest).final_text) == ("completed", "fine")
    assert maka.model.roles()[-1] == ("user", "still there?")
