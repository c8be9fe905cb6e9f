"""SIGKILL for real: a host under load is killed at random moments, again and again, on one store.

After each kill: nothing acknowledged is missing, `verify` is clean and the head before the kill is in the chain,
recovery adds what it must once and nothing the second time, no tool ran twice, and no process is left.
"""

import random
import secrets
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from msgspec import Struct

from maka.app import open_host
from maka.config import load_config, with_profile
from maka.contracts.content import FunctionCall, FunctionResponse, Outcome
from maka.contracts.errors import StoreOpenError
from maka.contracts.events import Committed, is_terminal
from maka.contracts.ids import CommandId
from maka.contracts.model_ports import ModelProfile
from maka.contracts.ports import LedgerHead, LedgerReader
from maka.edges.scripted_model import Call, Reply, ScriptedModel, ScriptRequest, Strictness, Turn
from maka.storage.reader import LmdbReader
from maka.storage.verify import verify
from tests.checkers import check_endings
from tests.cli.real import ROOT, Machine
from tests.e2e import checks

SESSIONS = 8
LINES_MAX = 60
WAIT_S = 60.0


def bash(token: str) -> Call:
    """A call that leaves its line, then takes a moment."""
    command = f"echo {token} >> lines; head -c 2000000 /dev/urandom | sha256sum"
    return Call(name="Bash", args={"command": command})


def script(request: ScriptRequest) -> Reply:
    """Two calls at once, a third, then words; each call's line is of this run and this place alone."""
    asked = [message["content"] for message in request.messages if message["role"] == "user"][-1]
    name = str(asked).removeprefix("work ")
    if request.steps == 0:
        return Turn(text="I begin. " * 20, chunk_chars=20, calls=(bash(f"{name}-a"), bash(f"{name}-b")))
    if request.steps == 1:
        return Turn(text="And one more.", calls=(bash(f"{name}-c"),))
    return Turn(text="That is all of it. " * 20, chunk_chars=20)


class Said(Struct):
    """What a child said before it died."""

    accepted: list[tuple[str, str, int]] = []
    ended: list[tuple[str, int]] = []

    def take(self, line: str) -> None:
        match line.split():
            case ["accepted", command, session, position]:
                self.accepted.append((command, session, int(position)))
            case ["ended", run, position]:
                self.ended.append((run, int(position)))
            case _:
                return


class Target:
    """One store, the model that it is used with, and what all its owners were told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine = Machine(folder)
        self.model = ScriptedModel.start(script, strict=Strictness())
        for name in ("MAKA_HOME", "MAKA_CONFIG"):
            monkeypatch.setenv(name, self.machine.env[name])
        self.said = Said()
        self.round = 0

    def kill_after(self, lines: int) -> None:
        """Start an owner and kill it once it has said so many lines; what it said until its death counts."""
        self.round += 1
        arguments = (self.model.base_url, str(self.machine.workspace), str(self.round), str(SESSIONS))
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.crash.child", *arguments],
            cwd=ROOT,
            env=self.machine.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        for _ in range(lines):
            line = child.stdout.readline()
            assert line.endswith("\n"), f"the child ended by itself:\n{child.communicate()}"
            self.said.take(line)
        child.kill()
        rest, _ = child.communicate(timeout=WAIT_S)
        for line in rest.splitlines(keepends=True):
            if line.endswith("\n"):
                self.said.take(line)

    def recover(self, model: ScriptedModel) -> tuple[int, LedgerHead]:
        """Start and stop an owner in this process; return how many runs it closed, and the head."""
        profile = ModelProfile(name="scripted", base_url=model.base_url, model="scripted")
        with open_host(with_profile(load_config(), profile)) as host:
            return host.recovered_runs, host.reader.head()

    def queued(self) -> bool:
        """Whether an accepted message waits for its run: a started host goes on with it, which is no recovery."""
        try:
            reader = LmdbReader.open(self.machine.state)
        except StoreOpenError:
            return False  # killed before it had a store
        try:
            return any(work.run_id is None for work in reader.open_work())
        finally:
            reader.close()

    def lines(self) -> Counter[str]:
        path = self.machine.workspace / "lines"
        return Counter(path.read_text().split()) if path.exists() else Counter()

    def check(self, before: LedgerHead | None) -> LedgerHead:
        """Recover and hold the store to everything; returns its head."""
        queued = self.queued()
        # A model of its own: the other one may still be reading what the killed owner had sent.
        model = ScriptedModel.start(script, strict=Strictness())
        try:
            _, head = self.recover(model)
            if not queued:
                assert self.recover(model) == (0, head), "a second recovery found something to do"
                assert model.request_count == 0, "recovery called a model"
        finally:
            model.close()
        checks.eventually(lambda: not checks.living_in(self.machine.workspace), "a process is left")
        reader = LmdbReader.open(self.machine.state)
        try:
            report = verify(reader, head=None if before is None else (before.position, before.hash))
            assert report.ok, report.problems
            assert not [work for work in reader.open_work() if work.run_id is not None]
            facts = checks.all_facts(reader)
            self.check_acknowledged(reader, facts)
        finally:
            reader.close()
        check_endings(facts)
        self.check_tools(facts)
        return head

    def check_acknowledged(self, reader: LedgerReader, facts: list[Committed]) -> None:
        """Nothing that an owner was told is missing."""
        for command, session, position in self.said.accepted:
            known = reader.command(session, CommandId(command))
            assert known is not None and known.position == position, f"{command} was acknowledged at {position}"
        for run, position in self.said.ended:
            event = facts[position - 1].event
            assert event.run_id == run and is_terminal(event), f"run {run} was shown to end at {position}"

    def check_tools(self, facts: list[Committed]) -> None:
        """Each call's line is there at most once, and exactly once where the log says that it ran well."""
        lines = self.lines()
        assert max(lines.values(), default=1) == 1, f"a tool ran twice: {lines.most_common(3)}"
        calls: dict[str, str] = {}
        for item in facts:
            content = item.event.content
            if isinstance(content, FunctionCall):
                calls[item.event.id] = str(content.args["command"]).split()[1]
            if isinstance(content, FunctionResponse):
                token = calls[content.call_id]
                if content.outcome is Outcome.OK:
                    assert lines[token] == 1, f"{token} is said to have run"
                if content.outcome is Outcome.NOT_STARTED:
                    assert lines[token] == 0, f"{token} is said not to have run"

    def verify_by_hand(self, head: LedgerHead) -> None:
        """What a person would run."""
        done = self.machine.maka("verify", "--head", f"{head.position}:{head.hash.hex()}", "--json")
        assert (done.code, done.record["ok"]) == (0, True), done


def kill_often(target: Target, kills: int) -> None:
    seed = secrets.randbelow(1 << 30)
    chance = random.Random(seed)
    head: LedgerHead | None = None
    for number in range(kills):
        # The first lines are those of a start: recovery is killed, too.
        lines = chance.choice((1, 2, chance.randint(3, 3 + SESSIONS), chance.randint(3, LINES_MAX)))
        if number == 0:
            lines = 3 + SESSIONS  # a first owner that acknowledges something, whatever the others come to
        try:
            target.kill_after(lines)
            head = target.check(head)
        except BaseException as error:
            error.add_note(f"seed {seed}, kill {number + 1}, after {lines} lines")
            raise
    assert head is not None and len(target.said.accepted) >= kills / 2
    target.verify_by_hand(head)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    return Target(tmp_path, monkeypatch)


def test_a_killed_host_loses_nothing_and_does_nothing_twice(target: Target) -> None:
    try:
        kill_often(target, 3)
    finally:
        target.model.close()


@pytest.mark.slow
def test_h34_h35_fifty_kills_lose_nothing_and_do_nothing_twice(target: Target) -> None:
    try:
        kill_often(target, 50)
    finally:
        target.model.close()
