"""A story as a value: what happens when, what the model says, and which choice the scheduler makes.

A seed draws one. Each part is independent of the others, so that leaving a part out leaves the rest as it is: that is
what makes a failing story shrink.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec import Struct

from maka.contracts.model_ports import AssembledCall, ErrorKind, ProviderError
from tests.sim.model import ODD, Odd, Said
from tests.sim.tools import SHELL, TOOL_NAMES

T = TypeVar("T")

STEPS = 400
ACTION_SHARE, FAULT_SHARE = 0.045, 0.02
ACTIONS = {
    "send": 6, "stop": 3, "follow": 2, "create": 1, "answer": 5, "answer_twice": 1, "answer_late": 1,
    "answer_elsewhere": 1, "repeat": 2, "conflict": 1, "sweep": 1, "shutdown": 1, "undo": 1, "boundary": 1,
    "stop_shell": 2,
}  # fmt: skip
FAULTS = (
    "crash", "die_lost", "die_kept", "sync_lost", "sync_kept", "full", "refuse", "blobs", "early", "late",
    "kill_run", "kill_backend", "kill_tool", "kill_session", "kill_feed", "kill_kernel", "kill_ledger",
    "stillborn_run", "stillborn_session", "stillborn_backend", "stillborn_tool",
    "threadless_run", "threadless_session", "threadless_backend", "threadless_tool", "unread",
)  # fmt: skip
ANSWERS_MAX = 60
DONE = Said(text=("done",))


class Move(Struct, frozen=True):
    """Something that happens before step `at`. `pick` is all the chance that it has."""

    at: int
    kind: str
    pick: int


class Story(Struct, frozen=True, kw_only=True):
    """One story. Answers of the model in `plain` are "done"; without `choices` the seed draws the schedule."""

    seed: int
    moves: tuple[Move, ...]
    tools: tuple[str, ...] = ("Quick",)
    calls_max: int = 1
    error_share: float = 0.0
    odd_share: float = 0.0
    window: int | None = None
    idle_max: int = 64
    plain: frozenset[int] = frozenset()
    choices: tuple[int, ...] | None = None

    @property
    def steps(self) -> int:
        """The number of steps before everything settles."""
        return STEPS if self.choices is None else 1 + max((move.at for move in self.moves), default=0)

    def answer(self, number: int) -> Said:
        """Return what the model says to its request of that number, from 1."""
        if number > ANSWERS_MAX or number in self.plain:
            return DONE
        return _Answers(self, random.Random(self.seed * 1_000 + number)).draw()


class Choices:
    """The scheduler's choices: drawn and written down, or given; beyond what is given, the first of all."""

    def __init__(self, story: Story) -> None:
        self._random = random.Random(story.seed)
        self._given = story.choices
        self.made: list[int] = []

    def __call__(self, count: int) -> int:
        if self._given is None:
            choice = int(self._random.random() * count)
        else:
            number = len(self.made)
            choice = self._given[number] % count if number < len(self._given) else 0
        self.made.append(choice)
        return choice


def draw(seed: int, only: tuple[str, ...] = (), share: float = ACTION_SHARE) -> Story:
    """Draw a story. Each seed switches some actions, faults and tools off; `only` are the faults to draw from.

    `share` is that of steps at which somebody asks for something.
    """
    chance = random.Random(seed)
    actions = {kind: weight for kind, weight in ACTIONS.items() if kind == "send" or chance.random() < 0.7}
    faults = list(only) or [fault for fault in FAULTS if chance.random() < 0.25]
    kinds, weights = list(actions), list(actions.values())
    moves: list[Move] = [Move(0, "send", chance.getrandbits(30))]
    for at in range(STEPS):
        roll = chance.random()
        if roll < share:
            moves.append(Move(at, chance.choices(kinds, weights)[0], chance.getrandbits(30)))
        elif roll < share + FAULT_SHARE and faults:
            moves.append(Move(at, chance.choice(faults), chance.getrandbits(30)))
    return Story(
        seed=seed,
        moves=tuple(moves),
        tools=(SHELL,) if seed % 6 == 5 else _tools(chance, (SHELL,) if seed % 6 == 4 else ()),
        calls_max=chance.choice((1, 3, 6)),
        error_share=chance.choice((0.0, 0.1, 0.4)),
        odd_share=chance.choice((0.0, 0.3)),
        window=chance.choice((None, 1_000, 2_000, 8_000)),
        idle_max=chance.choice((0, 1, 64)),
    )


def _tools(chance: random.Random, more: tuple[str, ...]) -> tuple[str, ...]:
    return (*more, *(name for name in (*TOOL_NAMES, "Ask") if chance.random() < 0.6)) or ("Quick",)


def moments(kind: str, tool: str, until: int = 120) -> Iterator[Story]:
    """Tell one short story again and again, with something happening at each of its steps in turn."""
    for at in range(12, until):
        for seed in range(4):
            chance = random.Random(seed)
            yield Story(
                seed=seed,
                moves=(Move(0, "send", 5), Move(at, kind, 5), Move(until, "sweep", 0)),
                tools=(tool,),
                idle_max=0,
                choices=tuple(chance.getrandbits(16) for _ in range(2 * until)),
            )


class _Answers:
    """Draws one answer of the model."""

    def __init__(self, story: Story, chance: random.Random) -> None:
        self._story = story
        self._chance = chance

    def draw(self) -> Said:
        chance, story = self._chance, self._story
        if chance.random() < story.error_share:
            return self._error()
        text = tuple(chance.choice(("a", "bb ", "\n", "word ", "x" * 300)) for _ in range(chance.randrange(4)))
        odd: Odd = chance.choice(ODD) if chance.random() < story.odd_share else ""
        if chance.random() < 0.6:
            calls = tuple(self._call(number) for number in range(chance.randint(1, story.calls_max)))
            thinking = ("hm",) if chance.random() < 0.3 else ()
            return Said(text=text, thinking=thinking, calls=calls, odd=odd)
        return Said(text=(*text, "done"), hangs=chance.random() < 0.1, odd=odd)

    def _call(self, number: int) -> AssembledCall:
        chance = self._chance
        # A story that shrinks keeps the tools that it needs: the rest becomes one that does nothing.
        name = chance.choice((*TOOL_NAMES, "Ask", "Ask", "Raise", "Unknown"))
        name = name if name in self._story.tools or name in ("Raise", "Unknown") else self._story.tools[0]
        path = chance.choice(("/w/f", "/w/g", "/boundary/h", "/outside/i", "/outside/raise", None, ""))
        args = {"path": path} if path else None if path is None else {}
        return AssembledCall(provider_id=chance.choice(("k", f"k{number}", None)), name=name, args=args, raw="[]")

    def _error(self) -> Said:
        chance = self._chance
        kind = chance.choice([kind for kind in ErrorKind if kind is not ErrorKind.CANCELLED])
        error = ProviderError(kind=kind, message="trouble", retryable=chance.random() < 0.6)
        return Said(text=("par",) if chance.random() < 0.5 else (), error=error)


def pick_one(pick: int, things: Sequence[T]) -> T | None:
    """Choose one of some things by a move's chance."""
    return things[pick % len(things)] if things else None


Say = Callable[[str], object]
