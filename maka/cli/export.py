"""`maka export`: a session's facts as JSONL."""

import click


@click.command()
@click.argument("session", metavar="S")
@click.option("--json", "as_json", is_flag=True, help="The same: an export is JSON lines.")
def export(session: str, as_json: bool) -> None:
    """Write a session's facts as JSONL.

    One RuntimeEvent per line in camelCase, with its position and seq.
    """
    from maka.app import open_reader
    from maka.cli import bypass
    from maka.cli.names import find_session, read_headers
    from maka.cli.output import write_line
    from maka.config import load_config
    from maka.contracts.codec import export_line

    reader = open_reader(load_config())
    header = find_session(read_headers(reader), session)
    bypass.tell(header.number, header.boundary)
    for item in reader.iter_session(header.session_id):
        write_line(export_line(item))
