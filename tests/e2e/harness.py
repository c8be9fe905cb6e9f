"""The whole of Maka in one test process: a real store, sockets, tools and processes; only the model's words are ours.

A `World` is one test's machine. Whatever a test does, `World.finish` then holds what it left behind to the
invariants (see `checks`): so every test here proves more than its own lines say.
"""

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest
from msgspec.structs import replace

from maka import app
from maka.app import Host, open_host
from maka.config import Config, load_config, with_profile
from maka.contracts.commands import MessageAccepted
from maka.contracts.content import RunLimits
from maka.contracts.errors import LedgerFailedError
from maka.contracts.events import Committed
from maka.contracts.ids import InvocationId, RunId, SessionId
from maka.contracts.limits import SETTLE_WAIT_S
from maka.contracts.model_ports import ModelProfile
from maka.contracts.ports import Append, AppendResult, PutPartial, Timer
from maka.contracts.session_events import Abort, Complete, RunEnded, SessionEvent, TextDelta
from maka.edges.scripted_model import Reply, Script, ScriptedModel, ScriptRequest, Strictness, Turn, by_step
from maka.edges.timers import ThreadTimers
from maka.session_manager import SessionManager
from maka.storage.ledger import LmdbLedger
from maka.storage.reader import LmdbReader
from maka.subscription import Subscription
from projections import run_record
from projections.run_record import RunRecord
from tests.cli.real import Machine
from tests.e2e import checks

WAIT_S = 30.0
PROFILE = "scripted"
STRICT = Strictness()
FINE = Turn(text="fine")
HASTE = 1_000.0
E = TypeVar("E", bound=SessionEvent)


class Model:
    """A scripted model whose script a test may change between runs."""

    def __init__(self, script: Script | Sequence[Reply], strict: Strictness | None) -> None:
        self.strict = strict
        self.script = _script(script)
        self.server = ScriptedModel.start(self._answer, strict=strict, keep=4_096)

    def _answer(self, request: ScriptRequest) -> Reply:
        return self.script(request)

    def says(self, *replies: Reply) -> None:
        """Answer from now on with these, one for each step."""
        self.script = by_step(replies)

    @property
    def requests(self) -> tuple[ScriptRequest, ...]:
        return self.server.requests

    @property
    def count(self) -> int:
        return self.server.request_count

    def roles(self, number: int = -1) -> list[tuple[str, Any]]:
        """Return role and content of each message of a request, without the system prompt."""
        messages = self.requests[number].messages
        return [(message["role"], message.get("content")) for message in messages if message["role"] != "system"]


class Haste:
    """Real deadlines, of which those of a second and more pass a thousand times as fast, or wait for `release`.

    The wait for tools at an ending isn't hastened: its tools take real time.
    """

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.held: list[Callable[[], None]] | None = None

    def over(self, timers: ThreadTimers) -> "HastyTimers":
        return HastyTimers(self, timers)

    def hold(self) -> None:
        """Let no long deadline pass from now on."""
        self.held = []

    def release(self) -> None:
        """Let those that were held pass now, and the next ones in their time."""
        held, self.held = self.held or [], None
        for fire in held:
            fire()


class HastyTimers:
    """A `ports.Timers` over real ones."""

    def __init__(self, haste: Haste, timers: ThreadTimers) -> None:
        self._haste = haste
        self._timers = timers
        self.close = timers.close

    def after(self, delay_s: float, fire: Callable[[], None]) -> Timer:
        if delay_s < 1.0 or delay_s == SETTLE_WAIT_S:
            return self._timers.after(delay_s, fire)
        self._haste.delays.append(delay_s)
        if self._haste.held is None:
            return self._timers.after(delay_s / HASTE, fire)
        never = self._timers.after(1e6, fire)
        self._haste.held.append(never.run)
        return never


class Faults:
    """What is done around each commit of any store in this process: nothing, until a test says so."""

    def __init__(self) -> None:
        self.before: Callable[[Sequence[Append]], None] = lambda _: None
        self.after: Callable[[Sequence[Append]], None] = lambda _: None

    def install(self, patch: pytest.MonkeyPatch) -> None:
        real = LmdbLedger.commit

        def commit(
            store: LmdbLedger, appends: Sequence[Append], partials: Sequence[PutPartial] = ()
        ) -> list[AppendResult]:
            self.before(appends)
            results = real(store, appends, partials)
            self.after(appends)
            return results

        patch.setattr(LmdbLedger, "commit", commit)


class Events:
    """A session's events as they are read."""

    def __init__(self, maka: "Maka", events: Subscription) -> None:
        self.seen: list[SessionEvent] = []
        self._maka = maka
        self._events = events

    def next(self) -> SessionEvent:
        event = self._events.get(WAIT_S)
        assert event is not None, f"no further event; seen: {[type(each).__name__ for each in self.seen]}"
        self.seen.append(event)
        return event

    def peek(self, timeout_s: float) -> SessionEvent | None:
        """Return the next event, or None where none comes in time."""
        return self._events.get(timeout_s)

    def until(self, kind: type[E], where: Callable[[E], bool] = lambda _: True) -> E:
        """Read on to an event of a kind."""
        while not (isinstance(event := self.next(), kind) and where(event)):
            pass
        return event

    def until_said(self, text: str) -> None:
        """Read on until the streamed text holds some words."""
        while text not in self.streamed:
            self.until(TextDelta)

    @property
    def streamed(self) -> str:
        return "".join(event.text for event in self.seen if isinstance(event, TextDelta))

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.seen if isinstance(event, kind)]

    def end(self) -> RunEnded:
        """Read on to the end of the next run that ends, and return its record."""
        event = self.next()
        while not isinstance(event, Complete | Abort):
            event = self.next()
        assert event.run_id is not None
        boundary = self._maka.manager.boundary(event.session_id).profile
        return run_record.run_ended(self._maka.record(event.run_id), boundary)

    def close(self) -> None:
        self._events.close()


class Live(Events):
    """A message that was sent, followed through its session's events. Subscribed before it was sent."""

    def __init__(self, maka: "Maka", events: Subscription, accepted: MessageAccepted) -> None:
        super().__init__(maka, events)
        self.accepted = accepted

    @property
    def run_id(self) -> RunId:
        assert self.accepted.run_id is not None, "the message waits in the queue"
        return self.accepted.run_id


class Maka:
    """One state root and its host, open or closed."""

    def __init__(self, machine: Machine, model: Model, config: Config) -> None:
        self.machine = machine
        self.model = model
        self.config = config
        self._host: Host | None = None
        self._session: SessionId | None = None
        self._followed: list[Events] = []

    # -- the host -------------------------------------------------------------------------------------------------

    def open(self) -> Self:
        assert self._host is None, "open already"
        self._host = open_host(self.config)
        return self

    @property
    def is_open(self) -> bool:
        return self._host is not None

    @property
    def host(self) -> Host:
        assert self._host is not None, "closed"
        return self._host

    @property
    def manager(self) -> SessionManager:
        return self.host.manager

    @property
    def store(self) -> LmdbReader:
        """The owner's own reader."""
        assert isinstance(self.host.reader, LmdbLedger)
        return self.host.reader.reader

    def close(self) -> None:
        """Close the host. Idempotent; raises what the host raises."""
        for events in self._followed:
            events.close()
        self._followed.clear()
        host, self._host = self._host, None
        if host is not None:
            host.close()

    def reopen(self) -> Self:
        self.close()
        return self.open()

    # -- sessions and runs ----------------------------------------------------------------------------------------

    @property
    def session_id(self) -> SessionId:
        """The session that is meant where none is named; made at first use."""
        if self._session is None:
            self._session = self.new_session()
        return self._session

    def new_session(self, title: str | None = None) -> SessionId:
        return self.manager.create_session(str(self.machine.workspace), title=title).session_id

    def send(
        self,
        text: str = "do it",
        session: SessionId | None = None,
        *,
        profile: str = PROFILE,
        limits: RunLimits | None = None,
        command_id: str | None = None,
    ) -> Live:
        """Send a message and return at once, following its session."""
        session_id = session or self.session_id
        events = self.manager.subscribe(session_id, after_position=self.host.reader.head().position)
        try:
            accepted = self.manager.send_message(
                session_id, text, profile=profile, limits=limits, command_id=command_id
            )
        except BaseException:
            events.close()
            raise
        live = Live(self, events, accepted)
        self._followed.append(live)
        return live

    def follow(self, session: SessionId) -> Events:
        """Follow a session from its beginning."""
        events = Events(self, self.manager.subscribe(session))
        self._followed.append(events)
        return events

    def run(self, text: str = "do it", session: SessionId | None = None, **options: Any) -> RunEnded:
        """Send a message and follow its run to the end."""
        live = self.send(text, session, **options)
        try:
            return live.end()
        finally:
            live.close()

    def end_background(self) -> None:
        """End what runs in the background: it is the host's open work, and would end with it."""
        for shell in self.manager.background() if self.is_open else ():
            self.manager.stop_background(shell.session_id, shell.shell_id, by="test")

    # -- what is in the ledger ------------------------------------------------------------------------------------

    def facts(self, session: SessionId | None = None) -> list[Committed]:
        return list(self.host.reader.iter_session(session or self.session_id))

    def record(self, run_id: RunId) -> RunRecord:
        folded = run_record.project(self.host.reader.read_stream(InvocationId(run_id)))
        assert folded is not None
        return run_record.record(folded)

    def contents(self, kind: type[Any], session: SessionId | None = None) -> list[Any]:
        """Return the contents of one kind in a session's facts, in order."""
        return [item.event.content for item in self.facts(session) if isinstance(item.event.content, kind)]

    def actions(self, name: str, session: SessionId | None = None) -> list[Any]:
        """Return the acts of one kind in a session's facts, in order."""
        acts = [item.event.actions for item in self.facts(session)]
        return [found for act in acts if act is not None and (found := getattr(act, name)) is not None]


class World:
    """One test's machine: what it opens here is closed and checked at its end."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.machine = Machine(folder)
        self.haste = Haste()
        self.faults = Faults()
        self.patch = patch
        self.models: list[Model] = []
        self.makas: list[Maka] = []
        self._before = checks.Around.now()
        haste = self.haste

        class Started(ThreadTimers):
            @classmethod
            def start(cls, on_error: Callable[[BaseException], None] | None = None) -> Any:
                return haste.over(ThreadTimers.start(on_error))

        patch.setattr(app, "ThreadTimers", Started)
        patch.setattr(app, "SWEEP_EVERY_S", 0.5)  # below a second, so that it is neither hastened nor held
        self.faults.install(patch)

    @property
    def workspace(self) -> Path:
        return self.machine.workspace

    def model(self, script: Script | Sequence[Reply], *, strict: Strictness | None = STRICT) -> Model:
        self.models.append(Model(script, strict))
        return self.models[-1]

    def maka(self, model: Model, machine: Machine | None = None, **profile: Any) -> Maka:
        """Return a Maka over the machine's state root, not opened yet."""
        machine = machine or self.machine
        config = load_config({**machine.env, **profile.pop("env", {})})
        config = replace(config, log_level="debug")
        self.makas.append(Maka(machine, model, with_profile(config, profile_of(model, **profile))))
        return self.makas[-1]

    def open(self, script: Script | Sequence[Reply], *, strict: Strictness | None = STRICT, **profile: Any) -> Maka:
        """Open a host on the machine's state root, with a model of its own."""
        return self.maka(self.model(script, strict=strict), **profile).open()

    def finish(self) -> None:
        """Check every invariant, on what is open and again after a restart."""
        self.haste.release()
        self.faults.before = self.faults.after = lambda _: None
        for maka in self.makas:
            maka.end_background()
            checks.check(maka)
        for model in self.models:
            checks.check_requests(model.requests, model.strict)
        self.close()
        checks.nothing_left(self._before, self.folder)

    def close(self) -> None:
        """Close everything, whatever state it is in."""
        for model in self.models:
            model.server.close()
        for maka in self.makas:
            with suppress(LedgerFailedError):
                maka.close()


def profile_of(model: Model, name: str = PROFILE, **profile: Any) -> ModelProfile:
    """Return a profile that reaches a scripted model."""
    fields: dict[str, Any] = {"first_event_s": 0.0, **profile}
    return ModelProfile(name=name, base_url=model.server.base_url, model=model.server.model, **fields)


def asked_and_killed(world: World, model: Model, *args: str, **env: str) -> str:
    """Run `asking_host` until it waits, and kill it; returns the request's id. The model is configured from then on."""
    server = model.server
    profile = f'[models.{PROFILE}]\nbase_url = "{server.base_url}"\nmodel = "{server.model}"\n'
    world.machine.config.write_text(profile, "utf-8")
    words = [sys.executable, "-P", "-m", "tests.e2e.asking_host", str(world.workspace), *args]
    with subprocess.Popen(words, env={**world.machine.env, **env}, stdout=subprocess.PIPE, text=True) as host:
        try:
            assert host.stdout is not None
            return host.stdout.readline().strip()
        finally:
            host.send_signal(signal.SIGKILL)


def by_prompt(**replies: Sequence[Reply]) -> Script:
    """Make a script that answers by the newest user message's first word, for sessions that run side by side."""
    scripts = {word: by_step(answers) for word, answers in replies.items()}

    def script(request: ScriptRequest) -> Reply:
        prompts = [message["content"] for message in request.messages if message["role"] == "user"]
        return scripts[str(prompts[-1]).split()[0]](request)

    return script


def _script(script: Script | Sequence[Reply]) -> Script:
    return script if callable(script) else by_step(script)
