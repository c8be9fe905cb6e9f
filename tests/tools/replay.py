"""One story again, which failed: `python -m tests.tools.replay files|commands SANDBOX NUMBER`."""

import sys
import tempfile
from pathlib import Path
from typing import cast

import pytest

from maka.edges.io_loop import IoLoop
from maka.edges.processes import AsyncProcesses
from tests.tools.conftest import here
from tests.tools.stage import Stage, Tales, play
from tests.tools.worlds import Worlds


def main(tales: Tales, name: str, number: str) -> None:
    """Play it. Raises Escape, with its shortest form, where it still escapes."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        worlds, loop = Worlds(Path(folder)), IoLoop.start()
        try:
            play(Stage(AsyncProcesses(loop), here(name), worlds, patch, name=name), tales, [int(number)])
        finally:
            loop.close()
            worlds.close()
    print(f"story {number} stays inside")


if __name__ == "__main__":
    told, sandbox, story = sys.argv[1:]
    main(cast("Tales", told), sandbox, story)
