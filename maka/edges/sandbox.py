"""Which sandbox holds commands on this machine: bubblewrap, else Landlock, else none, and then nothing runs."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from maka.contracts.process_ports import Launch
from maka.contracts.sandbox_ports import Sandbox, SandboxPolicy
from maka.edges.bubblewrap import find_bubblewrap
from maka.edges.landlock import find_landlock
from maka.edges.sandbox_probe import run_probe

INSTALL = "install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap)"
_PERSON_SAYS = "or let a person give the session the profile bypass"


class NoSandbox:
    """Stands for a sandbox where there is none: whoever asks first sees why."""

    def __init__(self, missing: str) -> None:
        self._missing = missing

    @property
    def name(self) -> str:
        return "none"

    @property
    def missing(self) -> str | None:
        return self._missing

    @property
    def closes_beside_hidden(self) -> bool:
        return False

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy, env: Mapping[str, str]) -> Launch:
        raise AssertionError(f"there is no sandbox to run {argv[0]} in {policy.cwd}: {self._missing}")


def find_sandbox(
    first: Callable[[], Sandbox | str] = find_bubblewrap, second: Callable[[], Sandbox | str] = find_landlock
) -> Sandbox:
    """Try what there is, and return what works. Starts a few short processes; call it once."""
    reasons: list[str] = []
    for find in (first, second):
        found = find()
        if not isinstance(found, str):
            return found
        reasons.append(found)
    return NoSandbox(f"{'; '.join(reasons)}. Please {INSTALL}, {_PERSON_SAYS}")


class Trial(Struct, frozen=True, kw_only=True):
    """What was tried in a sandbox, and whether it went as it must."""

    what: str
    held: bool
    detail: str = ""


def try_sandbox(sandbox: Sandbox, here: SandboxPolicy | None = None) -> tuple[Trial, ...]:
    """Try to work inside of a sandbox and to get out of it, with real commands in a folder of its own.

    `here` is what a command of a real session may touch: whether one starts at all is tried, too.
    """
    assert sandbox.missing is None
    with _grounds() as base:
        inside, outside, secret = base / "inside", base / "outside", base / "secret"
        # A sandbox has a /tmp of its own: the folders are made readable, so that writing is what is denied.
        policy = SandboxPolicy(
            cwd=str(inside), writable=(str(inside),), readable=(str(outside), str(secret)), hidden=(str(secret),)
        )
        socket = "import socket; socket.create_connection(('127.0.0.1', 9), 2)"
        tries = (
            ("writes its workspace", f"echo yes > {inside}/made", True),
            ("doesn't write outside", f"echo no > {outside}/made", False),
            ("doesn't read what is hidden", f"cat {secret}/key", False),
            ("has no network", f'exec "{os.path.realpath(sys.executable)}" -I -S -c "{socket}"', False),
        )
        trials: list[Trial] = []
        for what, command, succeeds in tries:
            done = run_probe(sandbox.wrap(("/bin/sh", "-c", command), policy, {}), str(inside))
            there = (outside / "made").exists() or "swordfish" in done.text
            held = (done.code == 0) == succeeds and done.code >= 0 and not there
            trials.append(Trial(what=what, held=held, detail=done.text))
    if here is not None:
        done = run_probe(sandbox.wrap(("/bin/sh", "-c", ":"), here, {}), here.cwd)
        trials.append(Trial(what="runs a command in this folder", held=done.code == 0, detail=done.text))
    return tuple(trials)


@contextmanager
def _grounds() -> Generator[Path]:
    base = Path(tempfile.mkdtemp(prefix="maka-sandbox-")).resolve()
    try:
        for name in ("inside", "outside", "secret"):
            (base / name).mkdir()
        (base / "secret" / "key").write_text("swordfish")
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)
