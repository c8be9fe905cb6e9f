"""Sequences of calls with links, renames and races: told by chance, the same ones for the same number."""

from random import Random
from typing import Literal

from msgspec import Struct

from maka.contracts.boundary import Profile
from tests.tools.worlds import MARK, NAMES, PROTECTED, SETTLING, Granted, Move, Race, Way, When

Kind = Literal["Read", "Write", "Edit", "Grep", "Glob", "Bash", "Undo", "move"]


class Step(Struct, frozen=True):
    """A call with those who race against it; for Bash the path is a command. A `move` is a race of its own."""

    kind: Kind
    path: str
    races: tuple[Race, ...] = ()


class Story(Struct, frozen=True):
    """What is done in one world."""

    profile: Profile
    granted: Granted
    steps: tuple[Step, ...]


PROFILES = (Profile.ASK, Profile.EXPLORE)
GRANTS: tuple[Granted, ...] = (None, "read", "write")
KINDS: tuple[Kind, ...] = ("Read", "Read", "Write", "Write", "Edit", "Undo", "Grep", "Glob")
THERE = ("a", "d/a", "d/a", "d/d/a", "e/a", "d/d", "d")
ODD = (
    "b",
    "l",
    "l/a",
    "l/d/a",
    "n",
    "n/n",
    "d/n",
    "l/n",
    "d/n/n",
    "e",
    ".",
    "..",
    "d/..",
    "l/..",
    "l/../a",
    "../a",
    "../../a",
)
OBEYED = (*PROTECTED, *PROTECTED, ".git/hooks/new", "d/.envrc", ".git", "d/CLAUDE.md", ".vscode/x", "d/.git/config")
BESIDE = ("../outside/", "OUT/", "GRANTED/", "HOME/", "../ws2/", "HOME/ws2/")
SPECIAL = ("notes", ".ssh/id", ".ssh", "plain", ".envrc", "n", "d/.envrc")
FAR = ("OUT", "OUT/d", "OUT/a", "../outside", "HOME", "HOME/.ssh", "HOME/ws2", "GRANTED", "GRANTED/.ssh")
NEAR = (".envrc", ".git", ".git/hooks", "..", "../..", ".", "l", "d", "n", "OUT/new", "OUT/plain")
WAYS: tuple[Way, ...] = ("link", "link", "rename", "remove", "folder", "file", "hard")
CHANGES = ("echo MARK > P", "echo MARK > P", "rm -rf P", "mkdir -p P", "ln -sfn T P", "ln -f T P", "mv -f N P")
COPIES = ("cat P", "cat < P", "cp T P", "cp -r T P", "head -c 99 P > n", "tee P < a", "ls -R T", "cat T", "cd P")


def chance(random: Random, *weighted: tuple[int, str]) -> str:
    """Return one of some words."""
    return random.choices([word for _, word in weighted], [weight for weight, _ in weighted])[0]


def path(random: Random) -> str:
    match chance(random, (6, "there"), (2, "odd"), (1, "obeyed"), (2, "beside")):
        case "there":
            return random.choice(THERE)
        case "odd":
            return random.choice(ODD)
        case "obeyed":
            return random.choice(OBEYED)
        case _:
            return beside(random)


def beside(random: Random) -> str:
    return random.choice(BESIDE) + random.choice((*THERE, *SPECIAL, ".ssh/id", ".ssh/d/a"))


def target(random: Random) -> str:
    """Return where a link leads. SAME is the path of what is swapped, so that all below it is there, too."""
    match chance(random, (3, "same"), (1, "far"), (1, "near")):
        case "same":
            return random.choice(("OUT/SAME", "OUT/SAME", "HOME/ws2/SAME", "GRANTED/SAME"))
        case "far":
            return random.choice(FAR)
        case _:
            return random.choice(NEAR)


def move(random: Random) -> Move:
    return Move(random.choice(WAYS), random.choice((*NAMES, *NAMES, "d/a", "d/l", "e/l")), target(random))


def races(random: Random) -> tuple[Race, ...]:
    moments: dict[str, When] = {
        "soon": random.randint(1, 4),
        "later": random.randint(1, 20),
        "any": random.randint(-200, -1),
        "commit": "commit",
        "end": "end",
    }
    when = moments[chance(random, (6, "soon"), (3, "later"), (1, "any"), (3, "commit"), (1, "end"))]
    swap = Race(when, Move("swap", random.randint(0, 2), target(random)))
    match chance(random, (3, "none"), (5, "swap"), (2, "swap and back"), (1, "move")):
        case "none":
            return ()
        case "swap":
            return (swap,)
        case "swap and back":
            return (swap, Race(random.choice(("end", "end", "commit", -200)), Move("back", "", "")))
        case _:
            return (Race(swap.when, move(random)),)


def races_with(random: Random, kind: Kind) -> tuple[Race, ...]:
    """A search runs in a process of its own: whoever swaps its start until it has ended isn't seen by the last look."""
    if kind in ("Grep", "Glob") and random.randrange(2):
        swap = Race("commit", Move("swap", random.randint(0, 2), target(random)))
        return (swap, Race("end", Move("back", "", ""))) if random.randrange(2) else (swap,)
    return races(random)


def told(random: Random, patterns: tuple[str, ...]) -> str:
    """Fill a command's pattern in. Nothing climbs by dots here: a fault may be planted."""
    match chance(random, (4, "there"), (2, "obeyed"), (2, "beside")):
        case "there":
            its = random.choice((*THERE, "l", "l/a", "n", "d/n", "l/n"))
        case "obeyed":
            its = random.choice(OBEYED)
        case _:
            its = beside(random)
    end = random.choice((*FAR, "..", ".envrc", ".git", ".git/hooks", "d", "l", "n", "OUT/new"))
    words = {"P": f"'{its}'", "T": f"'{end}'", "N": random.choice(NAMES), "MARK": MARK}
    return " ".join(words.get(word, word) for word in random.choice(patterns).split(" "))


def of_files(number: int) -> Story:
    """Tell a story of all tools. Its commands copy nothing, so no word gets into the workspace by right."""
    random = Random(f"files {number}")
    steps: list[Step] = []
    for _ in range(random.randint(1, 5)):
        match chance(random, (12, "file"), (3, "move"), (1, "command")):
            case "file":
                kind = random.choice(KINDS)
                steps.append(Step(kind, path(random), races_with(random, kind)))
            case "move":
                steps.append(Step("move", "", (Race("end", move(random)),)))
            case _:
                steps.append(Step("Bash", told(random, CHANGES), races(random)))
    return Story(random.choice(PROFILES), random.choice(GRANTS), tuple(steps))


def of_commands(number: int) -> Story:
    """Tell a story of commands, a few in each call."""
    random = Random(f"commands {number}")
    steps: list[Step] = []
    for _ in range(random.choice((1, 1, 2))):
        script = "; ".join(told(random, random.choice((CHANGES, COPIES))) for _ in range(random.randint(1, 6)))
        match chance(random, (1, "none"), (1, "when it begins"), (1, "when it has ended")):
            case "none":
                late: tuple[Race, ...] = ()
            case "when it begins":
                late = (Race("commit", move(random)),)
            case _:
                swap = Move("swap", random.choice(("d", "d", "e")), target(random))
                late = (Race(SETTLING + random.randint(1, 20), swap),)
        steps.append(Step("Bash", script, late))
    return Story(random.choice((Profile.ASK, *PROFILES)), random.choice(GRANTS), tuple(steps))
