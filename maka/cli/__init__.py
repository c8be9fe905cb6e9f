"""The command line: argv -> a call of the session manager or a read of the ledger -> text or JSON lines.

One file per command group. Importing this package, and asking for help, loads click and nothing else of weight.
"""


def main() -> None:
    """Run the command line of this process and exit with its code."""
    import sys

    try:
        from maka.cli.import_path import hold

        hold()
        from maka.cli.output import open_streams

        open_streams()
        from maka.cli.program import run_program

        code = run_program(sys.argv[1:])
    except KeyboardInterrupt:  # before there was anything to stop
        code = 130
    sys.exit(code)
