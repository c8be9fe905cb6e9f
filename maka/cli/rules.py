"""`maka rules`: what a session's tools may touch, with the fact that each grant came from; and taking it back."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NoReturn

import click
from msgspec import Struct

from maka.cli.grants import boundary_options
from maka.cli.options import FILLED
from maka.contracts.boundary import Expansion, Grant
from maka.contracts.errors import FoldError, LedgerDamagedError, Refusal, RefusalCode, RefusedError
from maka.contracts.events import Committed
from maka.contracts.ids import EventId, SessionId

if TYPE_CHECKING:
    from maka.config import Config
    from maka.contracts.boundary import Boundary
    from maka.contracts.ports import LedgerReader

_LISTED_MAX = 10
_PROFILES = {"explore": "reads the workspace", "ask": "reads and writes the workspace"}


class Rule(Struct, frozen=True, kw_only=True, rename="camel"):
    """One grant. `origin` is the id of its fact, `position` the fact's place, None where another session holds it."""

    origin: str
    position: int | None
    source: str
    scope: str
    run_id: str | None
    expansion: Expansion


class Rules(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="rules"):
    """A session's boundary as `maka rules --json` prints it."""

    session_id: str
    number: int
    profile: str
    revision: int
    workspace: str
    grants: tuple[Rule, ...]


@click.command()
@click.argument("session", metavar="S")
@boundary_options
@click.option("--scope", type=click.Choice(("session", "workspace")), help="How far --allow goes (session).")
@click.option(
    "--revoke", multiple=True, type=FILLED, metavar="ORIGIN", help="Take back what this fact granted. Repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="The rules as one JSON object.")
def rules(
    session: str,
    boundary: str | None,
    allow: tuple[str, ...],
    scope: Literal["session", "workspace"] | None,
    revoke: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show what a session's tools may touch, and change it.

    A grant names the fact that it came from; --revoke takes the end of that id. Every change is a fact of its own.
    """
    from maka.cli.grants import parse_allowed
    from maka.cli.output import write, write_json
    from maka.config import load_config

    if scope is not None and not allow:
        _refuse("--scope says how far --allow goes: add --allow, or leave out --scope.")
    config = load_config()
    allowed = parse_allowed(allow, config)
    shown = _read(config, session)
    if boundary is not None or allowed != Expansion() or revoke:
        revoked = _change(config, shown, boundary, allowed, scope or "session", revoke)
        _tell_copies(config, shown, revoked)
        shown = _read(config, session)
    if as_json:
        write_json(shown)
    else:
        write(_text(shown))


def _change(
    config: "Config",
    shown: Rules,
    profile: str | None,
    allowed: Expansion,
    scope: Literal["session", "workspace"],
    revoke: Sequence[str],
) -> tuple[str, ...]:
    """Make the changes and return the grants that were taken back."""
    from maka.app import open_host
    from maka.cli.grants import widen

    revoked = tuple(_origin(shown, name) for name in revoke)
    with open_host(config) as host:
        if revoked:
            host.manager.change_boundary(shown.session_id, revoked=revoked, client="cli")
        widen(host.manager, shown.session_id, profile=profile, grants=allowed, scope=scope)
    return revoked


def _tell_copies(config: "Config", shown: Rules, revoked: Sequence[str]) -> None:
    """Say of each workspace grant that was taken back in which other sessions it still holds."""
    from maka.cli.output import note
    from maka.cli.words import short_id

    origins = dict.fromkeys(rule.origin for rule in shown.grants if rule.scope == "workspace")
    for origin in (each for each in origins if each in revoked):
        held = _holders(config, shown, origin)
        if not held:
            note(f"maka: {short_id(origin)} is taken back; no session of this workspace holds it any more")
            continue
        listed = ", ".join(f"#{number}" for number in held[:_LISTED_MAX])
        more = f" and {len(held) - _LISTED_MAX} more" if len(held) > _LISTED_MAX else ""
        where = f"session #{shown.number}, and for those that begin from now on"
        note(
            f"maka: {short_id(origin)} is taken back in {where}; it still holds in {listed}{more}: revoke it there, too"
        )


def _holders(config: "Config", shown: Rules, origin: str) -> list[int]:
    """Return the numbers of the other sessions of the workspace that hold a grant, by reading their facts."""
    from maka.app import open_reader
    from maka.cli.names import read_headers
    from projections import boundary

    held: list[int] = []
    reader = open_reader(config)
    try:
        for header in read_headers(reader):
            if header.real_cwd != shown.workspace or header.session_id == shown.session_id:
                continue
            with suppress(LedgerDamagedError, FoldError):  # such a session takes no run
                state = boundary.project(reader.iter_session(header.session_id))
                if state is not None and any(grant.origin == origin for grant in state.boundary.grants):
                    held.append(header.number)
    finally:
        reader.close()
    return held


def _origin(shown: Rules, name: str) -> str:
    from maka.cli.words import is_end

    found = {rule.origin for rule in shown.grants if is_end(name, rule.origin)}
    if len(found) != 1:
        what = "is no grant of" if not found else "names several grants of"
        _refuse(f"--revoke {name[:64]!r} {what} session #{shown.number}: see maka rules {shown.number}.")
    return found.pop()


def _read(config: "Config", session: str) -> Rules:
    from maka.app import open_reader
    from maka.cli.names import find_session, read_headers
    from projections import boundary

    reader = open_reader(config)
    try:
        header = find_session(read_headers(reader), session)
        state = boundary.project(reader.iter_session(header.session_id))
        assert state is not None, "a session with a header has facts"
        return _rules(reader, header.session_id, header.number, state.boundary)
    finally:
        reader.close()


def _rules(reader: "LedgerReader", session_id: SessionId, number: int, now: "Boundary") -> Rules:
    wanted = {grant.origin for grant in now.grants}
    facts = {item.event.id: item for item in reader.iter_session(session_id) if item.event.id in wanted}
    return Rules(
        session_id=session_id,
        number=number,
        profile=now.profile.value,
        revision=now.revision,
        workspace=now.workspace,
        grants=tuple(_rule(grant, facts) for grant in now.grants),
    )


def _rule(grant: Grant, facts: dict[EventId, Committed]) -> Rule:
    item = facts.get(grant.origin)
    return Rule(
        origin=grant.origin,
        position=None if item is None else item.position,
        source="an earlier session of this workspace" if item is None else _source(item),
        scope=grant.scope,
        run_id=grant.run_id,
        expansion=grant.expansion,
    )


def _source(item: Committed) -> str:
    actions = item.event.actions
    change = actions.boundary_changed if actions is not None else None
    if change is not None:
        return "a change" + (f" by {change.client}" if change.client else "")
    decision = actions.state_delta.boundary_decision if actions is not None and actions.state_delta else None
    client = decision.client if decision is not None else None
    return "an answer" + (f" by {client}" if client else "")


def _text(shown: Rules) -> str:
    from maka.cli import bypass
    from maka.cli.revealed import revealed
    from maka.cli.words import short_id
    from projections.boundary import expansion_words

    what = bypass.warning(shown.profile) or _PROFILES[shown.profile]
    head = f"session #{shown.number} · {shown.profile} ({what}) · revision {shown.revision}"
    lines = [head, f"workspace {revealed(shown.workspace)}"]
    for rule in shown.grants:
        place = "" if rule.position is None else f", position {rule.position}"
        run = f" of run {short_id(rule.run_id)}" if rule.scope == "once" and rule.run_id else ""
        lines.append(f"{short_id(rule.origin)}  {rule.scope}{run} · from {revealed(rule.source)}{place}")
        lines += [f"  may {revealed(words)}" for words in expansion_words(rule.expansion)]
    return "\n".join(lines if shown.grants else [*lines, "nothing beyond that is allowed"]) + "\n"


def _refuse(message: str) -> NoReturn:
    raise RefusedError(Refusal(code=RefusalCode.INVALID_INPUT, message=message))
