"""The program: its commands, and the one place where an error becomes a line and an exit code."""

import traceback
from collections.abc import Sequence

import click

from maka.cli import (
    answer,
    artifacts,
    demo,
    diff,
    doctor,
    export,
    inbox,
    log,
    models,
    ps,
    rules,
    run,
    sessions,
    show,
    undo,
    verify,
)
from maka.cli.failure import EXIT_CODES, Failure, describe
from maka.cli.output import OutputClosedError, discard_output, note, write_json
from maka.contracts.errors import ExitCode

_COMMANDS = (
    run.run,
    inbox.inbox,
    answer.answer,
    rules.rules,
    sessions.sessions,
    show.show,
    log.log,
    diff.diff,
    undo.undo,
    ps.ps,
    artifacts.artifacts,
    export.export,
    verify.verify,
    models.models,
    doctor.doctor,
    demo.demo,
)


def make_program() -> click.Group:
    """Build the command tree."""

    @click.group(
        epilog=EXIT_CODES,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    @click.version_option(package_name="maka", message="%(prog)s %(version)s")
    def program() -> None:
        """Run AI agents on this machine and keep a complete record of everything they did.

        A session has a number: #12, 12, @last or a unique end of its id name it everywhere.
        """

    for command in _COMMANDS:
        program.add_command(command)
    return program


def run_program(args: Sequence[str]) -> int:
    """Run one command line and return its exit code; prints every error itself."""
    try:
        code = make_program().main(list(args), prog_name="maka", standalone_mode=False)
        return int(code or 0)
    except (KeyboardInterrupt, click.Abort):
        note("interrupted")
        return ExitCode.INTERRUPTED
    except (OutputClosedError, BrokenPipeError):
        discard_output()
        return ExitCode.COMPLETED
    except click.exceptions.NoArgsIsHelpError as error:
        note(error.format_message())
        return ExitCode.NOT_READY
    except Exception as error:
        _show_traceback(error)
        code = _report(describe(error), as_json=_wants_json(args))
        if isinstance(error, OSError):
            # It may be stdout that failed; what is buffered for it would fail once more at exit.
            discard_output()
        return code


def _wants_json(args: Sequence[str]) -> bool:
    words = list(args)
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def _report(failure: Failure, *, as_json: bool) -> int:
    note(f"maka: {failure.message}")
    if as_json:
        try:
            write_json(failure.as_json())
        except (OutputClosedError, OSError):
            discard_output()
    return failure.exit


def _show_traceback(error: Exception) -> None:
    from maka.config import wants_traceback

    if wants_traceback():
        note("".join(traceback.format_exception(error)).rstrip("\n"))
