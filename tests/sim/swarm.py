"""Swarm scenarios: each seed draws which actions and faults there are, what the model says, and the schedule.

A failing seed is a whole failing story: `python -m tests.sim.swarm SEED` tells the shortest one that fails the same
way; `python -m tests.sim.swarm FIRST COUNT` plays many on all cores.
"""

import random
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from unittest.mock import patch

from maka.contracts.content import RunLimits
from maka.contracts.ids import SessionId
from maka.contracts.model_ports import ChatRequest
from tests.sim.checkers import Checker
from tests.sim.clients import Clients
from tests.sim.faults import FaultyLedger
from tests.sim.host import SimHost
from tests.sim.laws import BrokenLaw
from tests.sim.model import Said
from tests.sim.settle import settle
from tests.sim.shrink import shrink
from tests.sim.story import DONE, Choices, Move, Story, draw, pick_one

VICTIMS = {
    "run": "RunActor",
    "backend": "BackendActor",
    "tool": "ToolActor",
    "session": "SessionActor",
    "feed": "ProjectionActor",
    "kernel": "KernelActor",
    "ledger": "LedgerActor",
}
OF_THE_STORE = ("crash", "die_lost", "die_kept", "sync_lost", "sync_kept", "refuse", "full", "blobs", "unread")
LEAVES_AFTER_STEPS = 12
"""How long a process whose ledger failed still lives, at most."""
BLOCK = 250


class Swarm:
    """One story being played."""

    def __init__(self, story: Story, *, store: FaultyLedger | None = None) -> None:
        self.story = story
        self.choices = Choices(story)
        self.host = SimHost(story.seed, self.answer, window=story.window, choose=self.choices, store=store)
        self.checker = Checker(self.host)
        self.clients = Clients(self.host)
        self.waits: list[tuple[SessionId, str]] = []
        self.told: list[str] = []
        self.steps = 0
        self._asked = 0
        self._leaving = -1
        self._head_at_death: int | None = None

    @property
    def sessions(self) -> list[SessionId]:
        return self.clients.sessions

    def answer(self, _: ChatRequest) -> Said:
        self._asked += 1
        said = self.story.answer(self._asked)
        self.tell(f"the model answers request {self._asked}: {said}")
        return said

    def tell(self, words: str) -> None:
        self.told.append(f"step {self.steps:4}  {words}")

    def play(self) -> None:
        """Let moves and steps mix, then let everything settle without faults, and check."""
        self.clients.create()
        self._run_until_session()
        moves = list(self.story.moves)
        for at in range(self.story.steps):
            while moves and moves[0].at <= at:
                self._move(moves.pop(0))
            self.step()
        settle(self)

    def step(self) -> None:
        """One step of the world, then every check."""
        self.steps += 1
        self.host.world.step()
        self.look()

    def look(self) -> None:
        """Check everything, and let the process leave where it must."""
        self.checker.step()
        self.clients.check()
        if self.host.is_gone:
            self.crash("dies at a commit")
        elif self.host.fatal:
            self._leave()

    def crash(self, why: str) -> None:
        self.tell(f"the process {why}, and starts again")
        self._leaving = -1
        self.host.crash()
        self.clients.crashed()

    def _leave(self) -> None:
        """The ledger or the kernel died: the process goes within some steps; a dead ledger stores nothing more."""
        if self._leaving < 0:
            self._leaving, self._head_at_death = LEAVES_AFTER_STEPS, None
        store, head = self.host.store, self.host.store.head().position
        if self._head_at_death is None and (store.failed or store.closed):
            self._head_at_death = head
        if self._head_at_death not in (None, head):
            raise BrokenLaw("a fact was stored after the ledger's death")
        self._leaving -= 1
        if self._leaving <= 0:
            self.crash("leaves, since its ledger or kernel died")

    def _run_until_session(self) -> None:
        while not self.sessions:
            self.step()

    # -- moves ----------------------------------------------------------------------------------------------------

    def _move(self, move: Move) -> None:
        self.tell(move.kind)
        self._note_waits()
        if move.kind.startswith(("kill_", "stillborn_", "threadless_")):
            self._kill(move)
        elif move.kind in OF_THE_STORE:
            self._fail(move.kind)
        elif move.kind in ("early", "late"):
            self.host.world.pass_time(late_s=0.0 if move.kind == "early" else float(move.pick % 8))
        elif move.kind.startswith("answer"):
            self._answer_wait(move)
        else:
            self._ask(move)
        self.look()

    def _ask(self, move: Move) -> None:
        chance, clients = random.Random(move.pick), self.clients
        session_id = chance.choice(self.sessions)
        match move.kind:
            case "send":
                limits = RunLimits(steps_max=chance.choice((None, 1, 3)), active_s_max=chance.choice((None, 5.0)))
                clients.send(session_id, chance.choice(("go", "on", "x" * 900)), limits)
            case "stop":
                clients.stop(session_id)
            case "create":
                clients.create()
            case "follow":
                self.host.follow(session_id, chance.choice((0, self.host.store.head().position)))
            case "repeat" | "conflict":
                if (asked := pick_one(move.pick, clients.sent)) is not None:
                    clients.repeat(asked, text="another" if move.kind == "conflict" and asked.text else None)
            case "sweep":
                self.host.sweep()
            case "undo":
                clients.undo(session_id)
            case "boundary":
                clients.change_boundary(session_id, chance)
            case "shutdown":
                clients.shut_down()
            case _:
                raise AssertionError(f"an unknown move: {move.kind}")

    def _note_waits(self) -> None:
        for session_id in self.sessions:
            for wait in self.host.waits(session_id):
                if (session_id, wait) not in self.waits:
                    self.waits.append((session_id, wait))

    def _answer_wait(self, move: Move) -> None:
        """Answer a wait: an open one, one that may be over, or one under another session's name."""
        open_now: list[tuple[SessionId, str]] = [
            (session, wait) for session in self.sessions for wait in self.host.waits(session)
        ]
        late = move.kind in ("answer_late", "answer_elsewhere")
        found = pick_one(move.pick, list(self.waits) if late else open_now)
        if found is None:
            return
        session_id, wait = found
        if move.kind == "answer_elsewhere":
            session_id = self.sessions[move.pick % len(self.sessions)]
        for _ in range(2 if move.kind == "answer_twice" else 1):
            self.clients.answer(session_id, wait)

    # -- faults ---------------------------------------------------------------------------------------------------

    def _fail(self, kind: str) -> None:
        match kind:
            case "crash":
                self.crash("dies between two messages")
            case "full":
                self.host.store.full = not self.host.store.full
            case "unread":
                self.host.reader.failing = 1
            case "blobs":
                self.host.blobs.full = not self.host.blobs.full
            case _:
                self.host.store.next = kind  # type: ignore[assignment]

    def _kill(self, move: Move) -> None:
        """Let an actor meet a bug: its next message raises; or let the next of its class fail to start."""
        how, _, whom = move.kind.partition("_")
        name = VICTIMS[whom]
        if how != "kill":
            world = self.host.world
            (world.stillborn if how == "stillborn" else world.threadless).append(name)
            return
        victim = pick_one(move.pick, [each for each in self.host.world.actors if type(each).__name__ == name])
        if victim is None:
            return

        def broken(message: object) -> None:
            raise RuntimeError(f"planted in {name}")

        victim.receive = broken


def tell(story: Story, swarm: Swarm | None, error: BaseException) -> str:
    """Tell a failing story in full."""
    lines = [f"{type(error).__name__}: {error}", f"tools {story.tools}, window {story.window}, idle {story.idle_max}"]
    if swarm is not None:
        lines += [*swarm.told, "the last steps: " + ", ".join(swarm.host.world.trace[-40:])]
    return "\n".join(lines)


def attempt(story: Story) -> tuple[Swarm | None, BaseException | None]:
    """Play a story; return it as far as it came, and what broke."""
    swarm: Swarm | None = None
    with patch("actors.kernel.SESSIONS_IDLE_MAX", story.idle_max):
        try:
            swarm = Swarm(story)
            swarm.play()
        except Exception as error:
            return swarm, error
        finally:
            if swarm is not None:
                swarm.host.world.drop_all()  # else Pykka's registry knows them for ever, and grows slow
    return swarm, None


def play(seed: int, only: tuple[str, ...] = ()) -> Swarm:
    """Play one seed; where a law breaks, raise with the shortest story that breaks one in the same way."""
    story = draw(seed, only)
    swarm, error = attempt(story)
    if error is None:
        assert swarm is not None
        return swarm
    made = () if swarm is None else tuple(swarm.choices.made)

    def fails(smaller: Story) -> tuple[int, ...] | None:
        played, found = attempt(smaller)
        same = found is not None and type(found) is type(error)
        return tuple(played.choices.made) if same and played is not None else None

    short = shrink(story, made, fails)
    played, found = attempt(short)
    failure = found or error
    failure.add_note(f"seed {seed}\n{tell(short, played, failure)}")
    raise failure


def play_many(first: int, count: int) -> int:
    """Play seeds one after the other; return how many."""
    for seed in range(first, first + count):
        play(seed)
    return count


def main(arguments: list[str], say: Callable[[str], object] = print) -> None:
    first, count = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1
    if count <= BLOCK:
        play_many(first, count)
    else:
        with ProcessPoolExecutor() as pool:
            blocks = [(start, min(BLOCK, first + count - start)) for start in range(first, first + count, BLOCK)]
            for done in pool.map(play_many, *zip(*blocks, strict=True)):
                assert done
    say(f"{count} seeds from {first}: every law held")


__all__ = ["DONE", "Swarm", "attempt", "main", "play", "play_many"]

if __name__ == "__main__":
    main(sys.argv[1:])
