"""Swarm scenarios: each seed draws which actions and faults there are, what the model says, and the schedule.

A failing seed is a whole failing story: `python -m tests.sim.swarm SEED` tells it.
"""

import random
import sys
from collections.abc import Callable

from maka.contracts.commands import SessionCreated
from maka.contracts.content import RunLimits
from maka.contracts.ids import SessionId
from maka.contracts.model_ports import AssembledCall, ChatRequest, ErrorKind, ProviderError
from tests.sim.checkers import Checker
from tests.sim.host import SimHost
from tests.sim.outside import TOOL_NAMES, BrokenLaw, Said, SimReply

ACTIONS = ("send", "send", "stop", "follow", "create", "answer", "answer", "undo", "undo")
FAULTS = ("crash", "full", "kill_run", "kill_backend", "kill_tool", "kill_session")
VICTIMS = {
    "kill_run": "RunActor",
    "kill_backend": "BackendActor",
    "kill_tool": "ToolActor",
    "kill_session": "SessionActor",
}
STEPS_MAX = 400


class Swarm:
    """One seed's world and story."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        draw = self.random
        self.faults = [fault for fault in FAULTS if draw.random() < 0.4]
        self.tools = [name for name in (*TOOL_NAMES, "Ask") if draw.random() < 0.7] or ["Quick"]
        self.calls_max = draw.choice((1, 3, 6))
        self.error_share = draw.choice((0.0, 0.1, 0.4))
        self.host = SimHost(seed, self.answer, window=draw.choice((None, 400, 4_000)))
        self.checker = Checker(self.host)
        self.sessions: list[SessionId] = []
        self.replies: list[tuple[str, SimReply]] = []
        self.story: list[str] = []

    # -- the model ------------------------------------------------------------------------------------------------

    def answer(self, request: ChatRequest) -> Said:
        draw = self.random
        if draw.random() < self.error_share:
            return self._error()
        text = tuple(draw.choice(("a", "bb ", "\n", "word ")) for _ in range(draw.randrange(4)))
        steps = sum(message.role == "assistant" for message in request.messages)
        if draw.random() < (0.6 if steps < 6 else 0.1):
            calls = tuple(self._call(number) for number in range(draw.randint(1, self.calls_max)))
            return Said(text=text, thinking=("hm",) if draw.random() < 0.3 else (), calls=calls)
        return Said(text=(*text, "done"), hangs=draw.random() < 0.1)

    def _call(self, number: int) -> AssembledCall:
        draw = self.random
        name = draw.choice((*self.tools, "Raise", "Unknown"))
        args = draw.choice(({"path": "/w/f"}, {"path": "/w/g"}, None, {}))
        return AssembledCall(provider_id=draw.choice(("k", f"k{number}", None)), name=name, args=args, raw="[]")

    def _error(self) -> Said:
        draw = self.random
        kind = draw.choice([kind for kind in ErrorKind if kind is not ErrorKind.CANCELLED])
        error = ProviderError(kind=kind, message="trouble", retryable=draw.random() < 0.6)
        return Said(text=("par",) if draw.random() < 0.5 else (), error=error)

    # -- the story ------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Let actions, faults and steps mix, then let everything settle without faults, and check."""
        self.sessions.append(self.host.session())
        for _ in range(STEPS_MAX):
            roll = self.random.random()
            if roll < 0.04:
                self._act(self.random.choice(ACTIONS))
            elif roll < 0.055 and self.faults:
                self._fault(self.random.choice(self.faults))
            else:
                self.host.world.step()
            self.checker.step()
            self._note_sessions()
        self.settle()

    def settle(self) -> None:
        """End all faults, stop what hangs, and check that everything comes to its end."""
        self.host.store.full = False
        self._steps()
        for _ in range(80):
            for session_id in self.sessions:
                self.replies.append(("stop", self.host.stop(session_id)))
            self._steps()
            if all(run.terminal is not None for run in self.checker.runs.values()):
                break
        self.checker.settled()
        unanswered = [name for name, reply in self.replies if reply.value is None]
        if unanswered:
            raise BrokenLaw(f"commands without an answer: {unanswered}")

    def _steps(self) -> None:
        self.host.world.run(60_000)
        self.checker.step()

    def _act(self, action: str) -> None:
        draw, host = self.random, self.host
        session_id = draw.choice(self.sessions)
        self.story.append(action)
        match action:
            case "send":
                limits = RunLimits(steps_max=draw.choice((None, 1, 3)), active_s_max=draw.choice((None, 5.0)))
                self.replies.append(
                    (action, host.send(session_id, draw.choice(("go", "on", "x" * 900)), limits=limits))
                )
            case "stop":
                self.replies.append((action, host.stop(session_id)))
            case "undo":
                runs = [run.run.run_id for run in self.checker.runs.values() if run.run.session_id == session_id]
                run_id = draw.choice(runs) if runs and draw.random() < 0.5 else None
                self.replies.append((action, host.undo_changes(session_id, run_id=run_id)))
            case "answer":
                waits = host.waits(session_id)
                if waits:
                    self.replies.append((action, host.answer(session_id, draw.choice(waits))))
            case "follow":
                host.follow(session_id, draw.choice((0, host.store.head().position)))
            case _:
                self.replies.append((action, host.create()))

    def _note_sessions(self) -> None:
        for _, reply in self.replies:
            if isinstance(reply.value, SessionCreated) and reply.value.session_id not in self.sessions:
                self.sessions.append(reply.value.session_id)

    def _fault(self, fault: str) -> None:
        self.story.append(fault)
        match fault:
            case "crash":
                self.host.crash()
                self.replies.clear()  # who asked a dead process asks again
            case "full":
                self.host.store.full = not self.host.store.full
            case _:
                self._kill(
                    {"run": "RunActor", "backend": "BackendActor", "tool": "ToolActor"}.get(fault[5:], "SessionActor")
                )

    def _kill(self, name: str) -> None:
        """Let an actor meet a bug: its next message raises."""
        found = [actor for actor in self.host.world.actors if type(actor).__name__ == name]
        if found:
            victim = self.random.choice(found)

            def broken(message: object) -> None:
                raise RuntimeError(f"planted in {name}")

            victim.receive = broken


def play(seed: int) -> Swarm:
    """Play one seed; raises with the seed in the message where a law breaks."""
    swarm = Swarm(seed)
    try:
        swarm.play()
    except BaseException as error:
        error.add_note(f"seed {seed}; story {swarm.story}; last steps {swarm.host.world.trace[-40:]}")
        raise
    return swarm


def main(arguments: list[str], say: Callable[[str], object] = print) -> None:
    first, count = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1
    for seed in range(first, first + count):
        play(seed)
    say(f"{count} seeds from {first}: every law held")


if __name__ == "__main__":
    main(sys.argv[1:])
