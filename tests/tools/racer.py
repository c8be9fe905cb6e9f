"""Someone who makes changes in a workspace exactly between two system calls of a tool."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Literal

import pytest

from maka.contracts.tool_ports import ToolResult
from maka.tools.inside import Inside
from maka.tools.search import Start
from tests.tools.worlds import SETTLING, Move, Race, World, components

SEAMS = (
    "open",
    "stat",
    "lstat",
    "readlink",
    "scandir",
    "listdir",
    "mkdir",
    "access",
    "replace",
    "rename",
    "unlink",
    "fstat",
)


class Racer:
    """Makes moves between two system calls of the thread that runs a tool."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._world: World | None = None
        self._races: tuple[Race, ...] = ()
        self._aim = ""
        self._thread = 0
        self._from = 0
        self._counts: Counter[str] = Counter()
        for name in SEAMS:
            patch.setattr(os, name, self._before(getattr(os, name)))
        looked, settled = Start.must_be_there, Inside.settled

        def looks(start: Start) -> None:
            self.at("end")
            looked(start)

        def settles(inside: Inside, result: ToolResult, errors: str = "") -> ToolResult:
            self._follow(SETTLING)
            return settled(inside, result, errors)

        patch.setattr(Start, "must_be_there", looks)
        patch.setattr(Inside, "settled", settles)

    @contextmanager
    def racing(self, world: World, races: tuple[Race, ...], aim: str) -> Generator[None]:
        """Race against a call to a path."""
        self._races, self._aim = races, aim
        self._follow(0)
        self._world = world
        try:
            yield
        finally:
            self._world = None

    def _follow(self, first: int) -> None:
        """Count the system calls of this thread from now on."""
        self._thread, self._from = threading.get_ident(), first
        self._counts.clear()

    def at(self, when: Literal["commit", "end"]) -> None:
        """Make the moves that are due now. Any thread."""
        self._move([race.move for race in self._races if race.when == when])

    def _move(self, moves: list[Move]) -> None:
        world = self._world
        if world is None or not moves:
            return
        self._world = None  # its own calls are nobody's
        for move in moves:
            world.move(move, self._aim)
        self._world = world

    def _before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def raced(*args: Any, **kwargs: Any) -> Any:
            if self._world is not None and threading.get_ident() == self._thread:
                self._called(args[0] if args else "")
            return call(*args, **kwargs)

        return raced

    def _called(self, path: object) -> None:
        name = os.path.basename(path) if isinstance(path, str) else ""
        self._counts[name] += 1
        self._counts["all"] -= 1
        due = (self._counts["all"], self._from + self._counts[name])
        aims = [(race, aimed(race.move.name, self._aim)) for race in self._races]
        self._move([race.move for race, aim in aims if race.when == due[0] or (aim == name and race.when == due[1])])


def aimed(name: str | int, aim: str) -> str:
    """Return the name of what is moved."""
    return ["", *components(name, aim)][-1]
