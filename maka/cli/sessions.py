"""`maka sessions`: every session of the store."""

import click


@click.command()
@click.option("-a", "--all", "with_archived", is_flag=True, help="Archived ones, too.")
@click.option("--json", "as_json", is_flag=True, help="One session per line.")
def sessions(with_archived: bool, as_json: bool) -> None:
    """List the sessions, the newest last."""
    from maka.app import open_reader
    from maka.cli.names import read_headers
    from maka.cli.output import note, write_json
    from maka.cli.revealed import revealed
    from maka.cli.table import write_table
    from maka.cli.words import moment, verdict
    from maka.config import load_config
    from maka.contracts.boundary import Profile

    headers = read_headers(open_reader(load_config()))
    shown = [header for header in headers if with_archived or not header.archived]
    if as_json:
        for header in shown:
            write_json(header)
        return
    if not shown:
        note('There is no session yet: maka run "what to do" makes one.')
        return
    rows = [
        (
            f"#{header.number}",
            "archived" if header.archived else header.status,
            "BYPASS" if header.boundary == Profile.BYPASS else header.boundary,
            verdict(header.last_status or "-", header.last_failure_class, header.last_abort_source),
            str(header.run_count),
            header.model or "-",
            moment(header.activity_ts),
            revealed(header.cwd),
            header.title or "",
        )
        for header in shown
    ]
    write_table(("", "status", "boundary", "last run", "runs", "model", "last activity", "folder", "title"), rows)
