"""`maka sessions`: every session of the store."""

import click


@click.command()
@click.option("-a", "--all", "with_archived", is_flag=True, help="Archived ones, too.")
@click.option("--json", "as_json", is_flag=True, help="One session per line.")
def sessions(with_archived: bool, as_json: bool) -> None:
    """List the sessions, the newest last."""
    from collections import Counter

    import msgspec

    from maka.app import is_running, open_reader
    from maka.cli.bypass import mark
    from maka.cli.names import read_headers
    from maka.cli.output import note, write_json
    from maka.cli.revealed import revealed
    from maka.cli.table import write_table
    from maka.cli.words import INTERRUPTED, honest_status, moment, verdict
    from maka.config import load_config
    from projections import background

    config = load_config()
    reader, owned = open_reader(config), is_running(config)
    headers, shells = read_headers(reader), Counter(shell.session_id for shell in background.live(reader))
    shown = [header for header in headers if with_archived or not header.archived]
    if as_json:
        for header in shown:
            status = honest_status(header.status, owned=owned)
            background_now = shells[header.session_id]
            write_json({**msgspec.to_builtins(header), "status": status, "background": background_now})
        return
    if not shown:
        note('There is no session yet: maka run "what to do" makes one.')
        return
    rows = [
        (
            f"#{header.number}",
            ("archived" if header.archived else honest_status(header.status, owned=owned))
            + (f" +{shells[header.session_id]} in background" if shells[header.session_id] else ""),
            mark(header.boundary),
            verdict(header.last_status or "-", header.last_failure_class, header.last_abort_source),
            str(header.run_count),
            header.model or "-",
            moment(header.activity_ts),
            revealed(header.cwd),
            header.title or "",
        )
        for header in shown
    ]
    if any(honest_status(header.status, owned=owned) == "interrupted" for header in shown):
        note(INTERRUPTED)
    write_table(("", "status", "boundary", "last run", "runs", "model", "last activity", "folder", "title"), rows)
