"""`maka doctor`: is everything there that a run needs?"""

import platform
import shutil
import sys
from typing import TYPE_CHECKING

import click

from maka.cli.options import FILLED
from maka.contracts.errors import ExitCode, LedgerError, RefusedError

if TYPE_CHECKING:
    from maka.cli.provider_check import Check
    from maka.config import Config

_LIBRARIES = ("maka", "lmdb", "msgspec", "openai", "pykka")


@click.command()
@click.option(
    "-m", "--profile", type=FILLED, metavar="PROFILE", help="Check this model profile (else the default one)."
)
@click.option("--model", type=FILLED, metavar="M", help="The model's name, in place of the profile's.")
@click.option("--base-url", type=FILLED, metavar="U", help="The server's URL, in place of the profile's.")
@click.option("--json", "as_json", is_flag=True, help="One check per line.")
def doctor(profile: str | None, model: str | None, base_url: str | None, as_json: bool) -> int:
    """Check that everything is there for a run.

    The state root, the versions, the sandbox (does it hold?), and the model profile: is it reachable, does it stream,
    call a tool, report usage?
    """
    from maka.cli.output import write, write_json
    from maka.cli.provider_check import Verdict
    from maka.config import load_config

    config = load_config()
    failed = False
    marks = {Verdict.OK: "✓", Verdict.WARNING: "!", Verdict.FAILED: "✗"}
    tools = (*_sandbox(config), *_limits(config))
    for group in (_installation(config), _store(config), tools, _profile(config, profile, model, base_url)):
        for check in group:
            failed = failed or check.verdict is Verdict.FAILED
            if as_json:
                write_json(check)
            else:
                write(f"{marks[check.verdict]} {check.name}: {check.detail}\n")
    return ExitCode.NOT_READY if failed else ExitCode.COMPLETED


def _installation(config: "Config") -> "list[Check]":
    from importlib.metadata import PackageNotFoundError, version

    found: list[str] = []
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} (not installed)")
    there = "" if config.config_file.exists() else " (none: defaults hold)"
    return [
        _ok("python", f"{platform.python_version()} ({sys.executable})"),
        _ok("versions", ", ".join(found)),
        _ok("configuration", f"{config.config_file}{there}"),
    ]


def _store(config: "Config") -> "list[Check]":
    from maka.app import open_reader
    from maka.cli.bypass import sessions_without_limits
    from maka.cli.names import read_headers
    from maka.cli.output import one_line
    from maka.cli.provider_check import Check, Verdict
    from maka.cli.words import counted
    from maka.contracts.limits import FREE_BYTES_MIN
    from maka.storage.root import has_store

    root = config.state_root
    if not has_store(root):
        return [_ok("state root", f"{root} (made by the first run)")]
    try:
        reader = open_reader(config)
        headers, facts = read_headers(reader), reader.head().position
        state = f"{root}: {counted(len(reader.header_bytes()), 'session')}, {counted(facts, 'fact')}"
    except LedgerError as error:
        return [Check(name="state root", verdict=Verdict.FAILED, detail=one_line(str(error), 500))]
    free = shutil.disk_usage(root).free
    room = Verdict.OK if free > FREE_BYTES_MIN else Verdict.FAILED
    found = [_ok("state root", state), Check(name="free disk", verdict=room, detail=f"{free >> 20:,} MiB")]
    # No failure: a person chose it. But what is said of the sandbox below isn't so for these sessions.
    unlimited = sessions_without_limits(headers)
    return [*found, *([Check(name="boundary", verdict=Verdict.WARNING, detail=unlimited)] if unlimited else [])]


def _sandbox(config: "Config") -> "list[Check]":
    """Say which sandbox is in force, and try to get out of it."""
    import os

    from maka.adapters import policy_here, sandbox_here
    from maka.cli.output import one_line
    from maka.cli.provider_check import Check, Verdict
    from maka.edges.sandbox import try_sandbox

    sandbox = sandbox_here(config.tool_limits)
    if sandbox.missing is not None:
        detail = f"none, so no command and no search runs: {sandbox.missing}"
        return [Check(name="sandbox", verdict=Verdict.WARNING, detail=detail)]
    try:
        here = policy_here(config, os.getcwd())
    except OSError as error:
        return [Check(name="sandbox", verdict=Verdict.FAILED, detail=f"no command runs in this folder: {error}")]
    trials = try_sandbox(sandbox, here)
    broken = [f"it {trial.what}: FAILED ({one_line(trial.detail, 200)})" for trial in trials if not trial.held]
    if broken:
        return [Check(name="sandbox", verdict=Verdict.FAILED, detail=f"{sandbox.name}; tried: {'; '.join(broken)}")]
    return [_ok("sandbox", f"{sandbox.name}; tried: it {', '.join(trial.what for trial in trials)}")]


def _limits(config: "Config") -> "list[Check]":
    """Say what bounds a command, and who holds it to that."""
    import os

    from maka.cli.provider_check import Check, Verdict
    from maka.contracts.limits import TOOL_WATCH_EVERY_S
    from maka.edges.proc_files import pids
    from maka.edges.spawn_bounds import resolved

    limits = resolved(config.tool_limits)
    memory = f"memory {limits.memory_max_mib:,} MiB" if limits.memory_max_mib else "memory unlimited"
    tasks = f"processes and threads {limits.processes_max:,}" if limits.processes_max else "processes unlimited"
    files = f"open files {limits.open_files_max:,} each" if limits.open_files_max else "open files as ours"
    if not pids():
        held = "memory and processes are NOT bounded here, since there is no /proc"
        return [Check(name="limits of a command", verdict=Verdict.WARNING, detail=f"{files}; {held}")]
    kernel = "the kernel holds open files" + ("" if os.geteuid() == 0 else ", and in bubblewrap processes")
    held = f"{kernel}; what all of a call's processes use is looked at every {TOOL_WATCH_EVERY_S:g} s"
    return [_ok("limits of a command", f"{memory}, {tasks}, {files}; {held}")]


def _profile(config: "Config", name: str | None, model: str | None, base_url: str | None) -> "list[Check]":
    from maka.app import open_provider
    from maka.cli.profiles import choose_profile
    from maka.cli.provider_check import Check, Verdict, check_provider
    from maka.cli.revealed import revealed
    from maka.config import with_profile

    try:
        profile = choose_profile(config, name=name, model=model, base_url=base_url)
        with open_provider(with_profile(config, profile), profile.name) as provider:
            found = check_provider(provider)
    except RefusedError as error:
        return [Check(name="model profile", verdict=Verdict.FAILED, detail=error.refusal.message)]
    return [_ok("model profile", f"{profile.name}: {revealed(profile.model)} at {profile.base_url}"), *found]


def _ok(name: str, detail: str) -> "Check":
    from maka.cli.provider_check import Check, Verdict

    return Check(name=name, verdict=Verdict.OK, detail=detail)
