"""One short process, to find out whether something works on this machine."""

import subprocess

from msgspec import Struct

from maka.contracts.process_ports import Launch
from maka.edges.inputs import opened

PROBE_TIMEOUT_S = 10.0
_WORDS_MAX = 300


class Outcome(Struct, frozen=True):
    """An exit code and the first line of what was said; -1 where it didn't run or end."""

    code: int
    text: str


def run_probe(launch: Launch, cwd: str = "/") -> Outcome:
    """Run a program without standard input, with an empty environment. Blocks up to PROBE_TIMEOUT_S."""
    try:
        with opened(launch.argv, launch.inputs) as (argv, fds):
            done = subprocess.run(
                argv,
                check=False,
                cwd=cwd,
                env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=PROBE_TIMEOUT_S,
                start_new_session=True,
                pass_fds=fds,
            )
    except subprocess.TimeoutExpired:
        return Outcome(-1, f"it took longer than {PROBE_TIMEOUT_S:g} s")
    except OSError as error:
        return Outcome(-1, str(error)[:_WORDS_MAX])
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return Outcome(done.returncode, lines[0][:_WORDS_MAX] if lines else "")
