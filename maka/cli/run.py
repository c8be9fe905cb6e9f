"""`maka run`: one message to an agent, followed to the end of its run."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from msgspec import Struct

from maka.cli.failure import EXIT_CODES
from maka.cli.grants import boundary_options
from maka.cli.options import FILLED, Number, WholeNumber
from maka.contracts.errors import Refusal, RefusalCode, RefusedError

if TYPE_CHECKING:
    from maka.app import Host
    from maka.cli.followed import Look, Target
    from maka.cli.interrupts import Interrupts
    from maka.config import Config
    from maka.contracts.boundary import Expansion
    from maka.contracts.commands import MessageAccepted

F = TypeVar("F", bound="Any")
ON_ASK = ("deny", "park", "fail")


class RunOptions(Struct, frozen=True, kw_only=True):
    """A command line of `maka run`, as typed."""

    prompt: str | None = None
    cwd: str | None = None
    session: str | None = None
    continue_newest: bool = False
    profile: str | None = None
    model: str | None = None
    base_url: str | None = None
    max_steps: int | None = None
    timeout_s: float | None = None
    as_json: bool = False
    output: str | None = None
    quiet: bool = False
    boundary: str | None = None
    allow: tuple[str, ...] = ()
    on_ask: str | None = None
    timeline: bool | None = None
    """Whether the timeline is shown; None leaves it to whether stdout is a terminal."""

    def look(self) -> "Look":
        """Return how its run is shown."""
        from maka.cli.followed import Look

        return Look(
            as_json=self.as_json,
            quiet=self.quiet,
            output=self.output,
            timeline=self.timeline,
            on_ask=self.on_ask,
        )


def on_ask_option(function: F) -> F:
    """Add --on-ask to a command."""
    return click.option(
        "--on-ask",
        type=click.Choice(ON_ASK),
        help="When the run asks a person. deny: it is told no, and goes on (the default where no terminal is). park: "
        "leave it waiting, exit 4; maka answer goes on. fail: stop it, exit 1. In a terminal you are asked.",
    )(function)


@click.command(epilog=EXIT_CODES)
@click.argument("prompt", required=False, metavar="[PROMPT|-]")
@click.option("--cwd", type=FILLED, metavar="DIR", help="The folder to work in (that of the shell).")
@click.option("-s", "--session", type=FILLED, metavar="S", help="Go on with this session.")
@click.option(
    "-c",
    "--continue",
    "continue_newest",
    is_flag=True,
    help="Go on with the session that was active last in this folder.",
)
@click.option("-m", "--profile", type=FILLED, metavar="PROFILE", help="A model profile; maka models lists them.")
@click.option("--model", type=FILLED, metavar="M", help="The model's name, in place of the profile's.")
@click.option("--base-url", type=FILLED, metavar="U", help="The server's URL, in place of the profile's.")
@click.option("--max-steps", type=WholeNumber(min=1), metavar="N", help="End the run after N model steps.")
@click.option("--timeout", "timeout_s", type=Number(min=0, min_open=True), metavar="S", help="Seconds.")
@click.option("--json", "as_json", is_flag=True, help="One event per line; the last line is the run's record.")
@click.option("-o", "--output", type=FILLED, metavar="FILE", help="Write the final text to a file, too.")
@click.option("-q", "--quiet", is_flag=True, help="Print the final text only.")
@boundary_options
@on_ask_option
def run(**options: object) -> int:
    """Give an agent a task and follow it to the end.

    A PROMPT and piped stdin are joined; - is stdin alone. To a terminal everything is shown as it happens, to a pipe
    the final text alone.
    """
    from msgspec import convert

    return execute(convert(options, RunOptions))


def execute(options: RunOptions) -> int:
    """Do what a command line of `maka run` asks and return the exit code."""
    from maka.cli.grants import parse_allowed
    from maka.cli.profiles import check_server, choose_profile
    from maka.cli.prompt import read_prompt
    from maka.cli.waits import check_kept
    from maka.config import load_config, with_profile

    if options.session and options.continue_newest:
        _refuse("--session and --continue exclude each other: one names the session, the other picks it.")
    if options.timeout_s is not None and not options.timeout_s > 0:  # not-a-number
        _refuse("--timeout takes a number of seconds above 0.")
    config = load_config()
    if options.on_ask == "park":
        check_kept(config, "--on-ask park leaves nothing that could be answered")
    profile = choose_profile(config, name=options.profile, model=options.model, base_url=options.base_url)
    real_cwd = checked_folder(options.cwd or ".")
    allowed = parse_allowed(options.allow, config)
    _check_output(options.output)
    text = read_prompt(options.prompt)
    check_server(profile)
    return perform(with_profile(config, profile), profile.name, options, real_cwd, text, allowed)


def perform(
    config: "Config",
    profile: str,
    options: RunOptions,
    real_cwd: str,
    text: str,
    allowed: "Expansion | None" = None,
) -> int:
    """Open the host, send the message, follow its run, and close the host again."""
    from maka.app import open_host
    from maka.cli.interrupts import Interrupts
    from maka.cli.output import note
    from maka.cli.ps import note_of_ends
    from maka.cli.words import counted

    with Interrupts() as interrupts, open_host(config) as host:
        if interrupts.source is not None:
            return interrupts.exit_code()
        if host.recovered_runs and not options.quiet:
            note(f"maka: closed {counted(host.recovered_runs, 'run')} that had no end when Maka started")
        target = _target(host, options, real_cwd)
        interrupts.arm(lambda source: host.manager.stop(target.session_id, source), host.abandon)
        _widen(host, options, target, allowed)
        code = _follow(host, config, profile, options, target, text, interrupts)
        note_of_ends(host.reader, quiet=options.quiet)
        return code


def _widen(host: "Host", options: RunOptions, target: "Target", allowed: "Expansion | None") -> None:
    """Make what was allowed beforehand a fact, before there is a message."""
    from maka.cli.grants import widen
    from maka.contracts.boundary import Expansion

    if options.boundary is not None or allowed not in (None, Expansion()):
        widen(host.manager, target.session_id, profile=options.boundary, grants=allowed or Expansion())


def _follow(
    host: "Host",
    config: "Config",
    profile: str,
    options: RunOptions,
    target: "Target",
    text: str,
    interrupts: "Interrupts",
) -> int:
    from maka.cli.followed import follow_run
    from maka.cli.output import note
    from maka.cli.waits import parked_run
    from maka.contracts.content import RunLimits

    limits = RunLimits(steps_max=options.max_steps, active_s_max=options.timeout_s)

    def send() -> "MessageAccepted":
        accepted = host.manager.send_message(target.session_id, text, profile=profile, limits=limits)
        # One that waits for a person is told with how to answer it.
        waits = accepted.run_id is None and parked_run(host.reader, accepted.session_id) is not None
        if accepted.run_id is None and not waits and not options.quiet:
            note(f"maka: session #{target.number} is busy; the message waits its turn")
        return accepted

    return follow_run(host, config, options.look(), target, interrupts, send).code


def _target(host: "Host", options: RunOptions, real_cwd: str) -> "Target":
    from maka.cli.followed import Target
    from maka.cli.names import find_session, read_headers, session_to_continue
    from maka.cli.output import note

    if not options.session and not options.continue_newest:
        boundary = options.boundary or "ask"
        created = host.manager.create_session(real_cwd, boundary=boundary)
        return Target(
            session_id=created.session_id,
            number=created.number,
            cwd=real_cwd,
            position=created.position,
            boundary=boundary,
        )
    headers = read_headers(host.reader)
    if options.session:
        header = find_session(headers, options.session)
        if options.cwd is not None and header.real_cwd != real_cwd:
            _refuse(f"Session #{header.number} works in {header.real_cwd}: leave out --cwd, or start a new session.")
    else:
        header = session_to_continue(headers, real_cwd)
        note(f"maka: going on with session #{header.number}: {header.title or header.session_id}")
    return Target(
        session_id=header.session_id,
        number=header.number,
        cwd=header.real_cwd,
        position=host.reader.head().position,
        boundary=options.boundary or header.boundary,
    )


def checked_folder(path: str) -> str:
    """Return the real path of a folder that can be read and entered; raises RefusedError for anything else."""
    try:
        real = os.path.realpath(os.path.expanduser(path))
        real.encode()
    except FileNotFoundError:
        _refuse("The folder of the shell is gone: change to one that is there, or give --cwd.")
    except UnicodeEncodeError:
        _refuse(f"The name of {path!r} is no UTF-8, which the record can't hold: rename it, or give another --cwd.")
    if not os.path.exists(real):
        _refuse(f"There is no folder {path}: create it, or give another --cwd.")
    if not os.path.isdir(real):
        _refuse(f"{path} is no folder: give another --cwd.")
    if not os.access(real, os.R_OK | os.X_OK):
        _refuse(f"{path} can't be read: mend its rights, or give another --cwd.")
    return real


def _check_output(output: str | None) -> None:
    """Refuse a file that can't be written before anything is done; it is opened when there is something to write."""
    if output is None:
        return
    path = Path(output)
    if path.is_dir():
        _refuse(f"{output} is a folder: -o wants a file.")
    existing = path if path.exists() else path.parent
    if not existing.exists() or not os.access(existing, os.W_OK):
        _refuse(f"{output} can't be written: give another file to -o.")


def _refuse(message: str) -> NoReturn:
    raise RefusedError(Refusal(code=RefusalCode.INVALID_INPUT, message=message))
