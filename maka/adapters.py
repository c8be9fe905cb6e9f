"""Which adapters stand behind the ports of one host, and what no tool of it touches."""

import os
import random
import shlex
import site
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date
from functools import cache, partial
from pathlib import Path
from platform import platform
from shutil import which
from threading import Lock

import actors
import projections
from actors.base import Log
from actors.troupe import Troupe
from actors.wiring import Ports
from maka.config import Config, read_key
from maka.contracts.boundary import Boundary, Expansion
from maka.contracts.errors import Refusal, RefusalCode, RefusedError
from maka.contracts.model_ports import ModelProfile, Provider
from maka.contracts.sandbox_ports import Sandbox, SandboxPolicy
from maka.contracts.tool_limits import ToolLimits
from maka.contracts.tool_ports import FileNow
from maka.edges.bubblewrap import find_bubblewrap
from maka.edges.clock import SystemClock
from maka.edges.ids import UuidSource
from maka.edges.instructions import system_prompt
from maka.edges.io_loop import IoLoop
from maka.edges.openai_chat import OpenAIChat
from maka.edges.processes import AsyncProcesses
from maka.edges.sandbox import find_sandbox
from maka.edges.secrets import Secrets
from maka.edges.timers import ThreadTimers
from maka.file_diffs import Look
from maka.given import refused
from maka.storage.blobs import FileBlobs
from maka.storage.ledger import LmdbLedger
from maka.tools.background import BackgroundTable
from maka.tools.expansion import ExpansionError, normalise
from maka.tools.files import FileTurns
from maka.tools.guard import Guards
from maka.tools.inside import Inside
from maka.tools.leftovers import TempFiles
from maka.tools.policy import Ground
from maka.tools.put_back import PutBackTool, read_now
from maka.tools.registry import builtin_tools
from maka.tools.settler import Settler
from maka.tools.shells import Shells
from maka.tools.survey import ground_of
from projections.background import read as read_shells


class Providers:
    """Profile name -> provider, made at first use and kept; the key is read then and held nowhere else."""

    def __init__(self, profiles: Mapping[str, ModelProfile], io: IoLoop, secrets: Secrets) -> None:
        self._profiles = profiles
        self._secrets = secrets
        self._io = io
        self._lock = Lock()
        self._made: dict[str, OpenAIChat] = {}

    def __call__(self, name: str) -> Provider:
        with self._lock:
            if name not in self._made:
                profile = self._profiles.get(name)
                if profile is None:
                    words = (
                        f"no model profile {name!r} in this host; `maka models` lists those of config.toml, and "
                        "with_profile() adds one to a configuration"
                    )
                    raise RefusedError(Refusal(code=RefusalCode.NOT_READY, message=words))
                key = read_key(profile)
                self._secrets.add(key)
                self._made[name] = OpenAIChat(profile, key, self._io, SystemClock())
            return self._made[name]


def make_ports(
    config: Config,
    log: Log,
    processes: AsyncProcesses,
    timers: ThreadTimers,
    store: LmdbLedger,
    blobs: FileBlobs,
    providers: Providers,
    troupe: Troupe,
    secrets: Secrets,
    settler: Settler,
) -> Ports:
    """Put an adapter behind each port."""
    ground = untouchable(config)
    background = BackgroundTable()
    turns = FileTurns(ground, secrets)
    return Ports(
        ids=UuidSource(),
        clock=SystemClock(),
        timers=timers,
        jitter=random.random,
        reader=store,
        blobs=blobs,
        providers=providers,
        catalog=builtin_tools(
            processes,
            child_env=config.child_env,
            rg_path=_ripgrep(config),
            sandbox=sandbox_here(config.tool_limits),
            ground=ground,
            turns=turns,
            masks=secrets,
            shells=Shells(table=background, record=partial(read_shells, store), blob=store.blob),
            settler=settler,
        ),
        undo=PutBackTool(turns, store.blob),
        processes=processes,
        background=background,
        leftovers=TempFiles(),
        prompt=partial(_prompt, config, secrets),
        spawn=troupe,
        log=log,
        masks=secrets,
    )


def sandbox_here(limits: ToolLimits) -> Sandbox:
    """Return what holds commands on this machine. Starts a few short processes; call it once."""
    found = partial(find_bubblewrap, processes_max=limits.processes_max, unix_sockets=limits.unix_sockets)
    return find_sandbox(found)


def _ripgrep(config: Config) -> str | None:
    # The wheel puts it beside the interpreter, which need not be on anyone's PATH.
    own = Path(sys.executable).with_name("rg")
    return str(own) if own.exists() else which("rg", path=config.child_env.get("PATH"))


def _prompt(config: Config, secrets: Secrets, cwd: str) -> str:
    return system_prompt(
        cwd,
        config_dir=str(config.config_dir),
        date=date.today().isoformat(),
        platform=platform(terse=True),
        masks=secrets,
    )


def normaliser(config: Config) -> Callable[[Expansion, str], Expansion]:
    """Return what brings the grants of a program into the form of facts, given the session's workspace."""
    ground = Ground(own=tuple(map(os.path.realpath, own_files(config))))

    def real(grants: Expansion, workspace: str) -> Expansion:
        try:
            return normalise(grants, workspace, ground)
        except (ExpansionError, OSError) as error:
            raise refused(str(error)) from None

    return real


def untouchable(config: Config) -> Ground:
    """Return what no session touches unasked on this machine."""
    packages = (str(Path(__file__).parent), actors.__path__[0], projections.__path__[0])
    persons = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    code = (sys.prefix, sys.base_prefix, *persons, *packages, *_key_programs(config))
    return ground_of(str(Path.home()), own_files(config), config.child_env.get("PATH", ""), code)


def files_now(config: Config) -> Look:
    """Return what says how a file is now, by the rules that an undo keeps to."""

    @cache
    def ground() -> Ground:
        # At first use: most hosts are never asked, and it looks at many places.
        return untouchable(config)

    def look(cwd: str, path: str) -> tuple[FileNow, bytes | None]:
        return read_now(cwd, path, ground())

    return look


def policy_here(config: Config, folder: str) -> SandboxPolicy:
    """Return what a command of a session in a folder may touch. Raises OSError where that can't be looked at."""
    inside = Inside(Boundary(workspace=os.path.realpath(folder)), untouchable(config), Guards())
    return inside.policy(folder)


def _key_programs(config: Config) -> list[str]:
    """Return every existing file that a profile's `key_cmd` names: it runs outside of every sandbox."""
    words: list[str] = []
    for profile in config.profiles.values():
        with suppress(ValueError):  # a quote that isn't closed: told when the key is used
            words += shlex.split(profile.key_cmd or "")
    found = (which(word) or str(Path(word).expanduser()) for word in words)
    return [path for path in found if os.path.isabs(path) and os.path.isfile(path)]


def own_files(config: Config) -> tuple[str, ...]:
    """Return what no tool touches: the ledger, the configuration, the files that hold models' keys."""
    keys = [str(Path(profile.key_file).expanduser()) for profile in config.profiles.values() if profile.key_file]
    named = [str(config.config_file), *(str(config.config_dir / name) for name in ("AGENTS.md", "CLAUDE.md"))]
    return (str(config.state_root), *named, *keys)
