"""`maka inbox`: what waits for a person, in every session; in a terminal, answered with one key each."""

import sys
from typing import TYPE_CHECKING

import click

from maka.cli.answer import model_options

if TYPE_CHECKING:
    from maka.cli.keys import Keys
    from maka.config import Config
    from projections.inbox import PendingWait

_MORE = {"n": "next", "q": "quit"}


@click.command()
@model_options
@click.option("--json", "as_json", is_flag=True, help="One request per line.")
@click.option("--list", "just_list", is_flag=True, help="List them, also in a terminal.")
def inbox(profile: str | None, model: str | None, base_url: str | None, as_json: bool, just_list: bool) -> int:
    """List what waits for a person, the oldest first.

    In a terminal each is shown in turn and answered with one key; the run that goes on is followed, as maka answer
    does. Elsewhere, a list. The list works beside a running Maka.
    """
    from maka.cli.keys import is_interactive
    from maka.cli.output import note, write, write_json
    from maka.cli.waits import NOT_KEPT
    from maka.config import load_config

    config = load_config()
    waits = _waits(config)
    if as_json:
        for wait in waits:
            write_json(wait)
        return 0
    if not waits:
        note("Nothing waits for an answer.")
        return 0
    if not just_list and config.waits_keep and is_interactive() and sys.stdout.isatty():
        return _answer_each(config, profile, model, base_url)
    for wait in waits:
        write("\n".join(_lines(wait)) + "\n")
    if not config.waits_keep:
        note(f"maka: {NOT_KEPT}")
    return 0


def _waits(config: "Config") -> "list[PendingWait]":
    from maka.app import open_reader
    from projections.inbox import pending

    reader = open_reader(config)
    try:
        return pending(reader)
    finally:
        reader.close()


def _lines(wait: "PendingWait") -> list[str]:
    from maka.cli import bypass
    from maka.cli.asking import how_to_answer, request_head, request_lines
    from maka.cli.words import moment, short_id

    parts = [request_head(wait), f"session #{wait.session_number}", bypass.warning(wait.boundary)]
    parts += [f"run {short_id(wait.run_id)}", moment(wait.since_ts)]
    return [" · ".join(filter(None, parts)), *request_lines(wait), f"  {how_to_answer(wait)}"]


def _answer_each(config: "Config", profile: str | None, model: str | None, base_url: str | None) -> int:
    """Show each request once, and answer it if the person does; what comes meanwhile is shown, too."""
    from maka.cli.keys import Keys, LeftError
    from maka.cli.output import say, write

    keys = Keys(0, say)
    seen: set[str] = set()
    code = 0
    while (wait := next((each for each in _waits(config) if each.id not in seen), None)) is not None:
        seen.add(wait.id)
        write("\n".join(_lines(wait)[:-1]) + "\n")
        try:
            done = _answer_one(config, keys, wait, profile, model, base_url)
        except LeftError:
            return code
        if done is None:
            return code
        code = done or code
    return code


def _answer_one(
    config: "Config", keys: "Keys", wait: "PendingWait", profile: str | None, model: str | None, base_url: str | None
) -> int | None:
    """Return the exit code of the run that went on, 0 where the person passed on; None to quit."""
    from maka.app import open_reader
    from maka.cli.answer import perform_answer, prepared
    from maka.cli.followed import Look
    from maka.cli.person import ask

    given = ask(keys, wait, _MORE)
    if isinstance(given, str):
        return 0 if given == "n" else None
    reader = open_reader(config)
    try:
        ready = prepared(config, reader, wait, profile, model, base_url)
    finally:
        reader.close()
    return perform_answer(ready, wait, given, Look())
