"""The command line: argv -> a call of the session manager or a read of the ledger -> text or JSON lines.

One file per command group. Importing this package, and asking for help, loads click and nothing else of weight.
"""


def main() -> None:
    """Run the command line of this process and exit with its code."""
    import sys

    from maka.cli.output import open_streams

    open_streams()
    from maka.cli.program import run_program

    sys.exit(run_program(sys.argv[1:]))
