"""`maka answer`: one answer, and the run that goes on with it."""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from msgspec import Struct

from maka.cli.failure import EXIT_CODES
from maka.cli.options import FILLED, WholeNumber
from maka.cli.run import on_ask_option
from maka.contracts.errors import Refusal, RefusalCode, RefusedError

if TYPE_CHECKING:
    from maka.app import Host
    from maka.cli.followed import Followed, Look, Target
    from maka.cli.interrupts import Interrupts
    from maka.cli.person import Given
    from maka.config import Config
    from maka.contracts.commands import MessageAccepted
    from maka.contracts.ports import LedgerReader
    from projections.inbox import PendingWait

F = TypeVar("F", bound=Callable[..., Any])
_ORDER = "maka.answer.order"


class AnswerOptions(Struct, frozen=True, kw_only=True):
    """A command line of `maka answer`, as typed. `order` names --option and --text as they came."""

    request: str
    decision: str | None = None
    scope: str | None = None
    option: tuple[int, ...] = ()
    text: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    profile: str | None = None
    model: str | None = None
    base_url: str | None = None
    as_json: bool = False
    output: str | None = None
    quiet: bool = False
    on_ask: str | None = None


class InOrder(click.Command):
    """A command that remembers in which order --option and --text came: click itself sorts them by name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        ctx.meta[_ORDER] = tuple(param.name for param in order if param.name in ("option", "text"))
        return super().parse_args(ctx, args)


def model_options(function: F) -> F:
    """Add the options that say where a run's model is now."""
    for option in (
        click.option("--base-url", type=FILLED, metavar="U", help="The server's URL, in place of the profile's."),
        click.option(
            "--model", type=FILLED, metavar="M", help="The model's name, in place of the one that the run had."
        ),
        click.option(
            "-m",
            "--profile",
            type=FILLED,
            metavar="PROFILE",
            help="Go on with this profile, in place of the run's own.",
        ),
    ):
        function = option(function)
    return function


@click.command(cls=InOrder, epilog=EXIT_CODES)
@click.argument("request", metavar="ID")
@click.argument("decision", required=False, metavar="[allow|deny]")
@click.option("--scope", type=click.Choice(("once", "session", "workspace")), help="How long it holds (session).")
@click.option("--option", type=WholeNumber(min=1), multiple=True, metavar="N", help="The N-th option.")
@click.option("--text", multiple=True, metavar="WORDS", help="Words of your own; none leave a question open.")
@model_options
@click.option("--json", "as_json", is_flag=True, help="One event per line; the last line is the run's record.")
@click.option("-o", "--output", type=FILLED, metavar="FILE", help="Write the final text to a file, too.")
@click.option("-q", "--quiet", is_flag=True, help="Print the final text only.")
@on_ask_option
@click.pass_context
def answer(context: click.Context, /, **options: object) -> int:
    """Answer what a run waits for, and follow the run on.

    ID is the end of a request's id, as maka inbox lists it. A wider boundary takes allow or deny; several questions
    take --option and --text in their order. The first answer wins. What waits beside it is left waiting: exit 4.
    """
    from msgspec import convert

    from maka.app import open_reader
    from maka.cli.followed import Look
    from maka.cli.waits import check_kept, find_wait
    from maka.config import load_config

    given_options = convert({**options, "order": context.meta[_ORDER]}, AnswerOptions)
    config = load_config()
    reader = open_reader(config)
    try:
        wait = find_wait(reader, given_options.request)
        check_kept(config, "Nothing was answered")
        given = given_answer(given_options, wait)
        models = (given_options.profile, given_options.model, given_options.base_url)
        ready, look = prepared(config, reader, wait, *models), given_options
    finally:
        reader.close()
    shown = Look(as_json=look.as_json, quiet=look.quiet, output=look.output, on_ask=look.on_ask)
    return perform_answer(ready, wait, given, shown)


def given_answer(options: AnswerOptions, wait: "PendingWait") -> "Given":
    """Return the answer of a command line, held against what is asked. Raises RefusedError."""
    from maka.cli.asking import how_to_answer
    from maka.cli.person import Given
    from maka.cli.words import counted

    if wait.expansion is not None:
        if options.order or options.decision not in ("allow", "deny"):
            _refuse(f"This asks for a wider boundary: {how_to_answer(wait)}.")
        if options.decision == "deny" and options.scope is not None:
            _refuse("--scope says how long an allow holds; a deny has none.")
        return Given(decision=options.decision, scope=options.scope or "session")  # type: ignore[arg-type]
    if options.decision is not None or options.scope is not None or len(options.order) != len(wait.questions):
        _refuse(f"This asks {counted(len(wait.questions), 'question')}, in order: {how_to_answer(wait)}.")
    numbers, texts = iter(options.option), iter(options.text)
    answers: list[str | None] = []
    for question, kind in zip(wait.questions, options.order, strict=True):
        if kind == "text":
            answers.append(_clean(next(texts)))
            continue
        number = next(numbers)
        if number > len(question.options):
            _refuse(f"--option {number}: this question has {len(question.options)} options; see maka inbox.")
        answers.append(question.options[number - 1])
    return Given(answers=tuple(answers))


def prepared(
    config: "Config",
    reader: "LedgerReader",
    wait: "PendingWait",
    profile: str | None,
    model: str | None,
    base_url: str | None,
) -> "Config":
    """Return a configuration with the model that the run had, under the name by which the run knows it.

    Raises RefusedError where it can't be reached: then nothing is answered.
    """
    from msgspec.structs import replace

    from maka.cli.profiles import check_server, choose_profile
    from maka.config import presets, with_profile
    from maka.contracts.content import InvocationOpened
    from maka.contracts.ids import InvocationId

    (opening,) = reader.read_stream(InvocationId(wait.run_id), 0, 1)
    assert isinstance(opening.event.content, InvocationOpened)
    route = opening.event.content.route
    known = {preset.name for preset in presets()} | set(config.profiles)
    name = profile or (route.profile if route.profile in known and base_url is None else None)
    try:
        chosen = choose_profile(config, name=name, model=model or route.model, base_url=base_url)
    except RefusedError as error:
        what = f"The run used profile {route.profile} and model {route.model}. {error.refusal.message}"
        raise RefusedError(Refusal(code=error.refusal.code, message=what)) from None
    check_server(chosen)
    return with_profile(config, replace(chosen, name=route.profile))


def perform_answer(config: "Config", wait: "PendingWait", given: "Given", look: "Look") -> int:
    """Open the host, answer, and follow the run and what is queued behind it; close the host again."""
    from maka.app import open_host
    from maka.cli.followed import Target, follow_run
    from maka.cli.interrupts import Interrupts
    from maka.cli.names import find_session, read_headers
    from maka.cli.ps import note_of_ends
    from maka.contracts.commands import MessageAccepted

    with Interrupts() as interrupts, open_host(config) as host:
        if interrupts.source is not None:
            return interrupts.exit_code()
        header = find_session(read_headers(host.reader), wait.session_id)
        target = Target(
            session_id=header.session_id,
            number=header.number,
            cwd=header.real_cwd,
            position=host.reader.head().position,
            boundary=header.boundary,
        )
        interrupts.arm(lambda source: host.manager.stop(target.session_id, source), host.abandon)

        def begin() -> MessageAccepted:
            taken = host.manager.answer(
                wait.session_id,
                wait.id,
                decision=given.decision,
                scope=given.scope,
                answers=given.answers,
                client="cli",
            )
            return MessageAccepted(session_id=taken.session_id, position=taken.position, run_id=taken.run_id)

        done = follow_run(host, config, look, target, interrupts, begin)
        code = done.code if done.position is None else _go_on(host, config, look, target, interrupts, done)
        note_of_ends(host.reader, quiet=look.quiet)
        return code


def _go_on(
    host: "Host", config: "Config", look: "Look", target: "Target", interrupts: "Interrupts", done: "Followed"
) -> int:
    """Follow what was queued behind the run; returns the first exit code that isn't 0."""
    from msgspec.structs import replace

    from maka.cli.followed import follow_run
    from maka.cli.next_run import next_run
    from maka.contracts.ids import SessionId

    code = done.code
    while done.position is not None and interrupts.source is None:
        begun = next_run(host.reader, SessionId(target.session_id), config.profiles)
        if begun is None:
            break
        where = replace(target, position=done.position)
        done = follow_run(host, config, look, where, interrupts, partial(_same, begun))
        code = code or done.code
    return code


def _same(begun: "MessageAccepted") -> "MessageAccepted":
    return begun


def _clean(text: str) -> str | None:
    return os.fsencode(text).decode("utf-8", "replace").replace("\0", "\ufffd") or None


def _refuse(message: str) -> NoReturn:
    raise RefusedError(Refusal(code=RefusalCode.INVALID_INPUT, message=message))
