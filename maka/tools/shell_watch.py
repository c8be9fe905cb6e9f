"""Looks after background shells from time to time: what their sandbox can't hold is put right while they live.

A foreground command is looked after once, at its end; one that may live for days can't wait for that.
"""

import threading
from contextlib import suppress
from time import monotonic

from maka.contracts.limits import SHELL_LOOK_S
from maka.tools.background_shell import BackgroundShell


class Watch:
    """One thread that looks after shells from time to time; it lives while there are any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._shells: list[BackgroundShell] = []
        self._is_running = False

    def add(self, shell: BackgroundShell) -> None:
        """Look after one more, until it has ended."""
        with self._changed:
            self._shells.append(shell)
            if not self._is_running:
                with suppress(RuntimeError):  # no thread is to be had: it is put right at its end, as any command's
                    threading.Thread(target=self._run, name="maka-watch", daemon=True).start()
                    self._is_running = True

    def wake(self) -> None:
        """Let the thread see at once who has ended."""
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        look_at_s = monotonic() + SHELL_LOOK_S
        while self._wait(look_at_s):
            if monotonic() >= look_at_s:
                for shell in self._living():
                    shell.look()
                look_at_s = monotonic() + SHELL_LOOK_S

    def _living(self) -> list[BackgroundShell]:
        with self._changed:
            return list(self._shells)

    def _wait(self, until_s: float) -> bool:
        """Wait for the next look or for an end; False ends the thread, since nobody is left."""
        with self._changed:
            self._shells = [shell for shell in self._shells if shell.must_be_looked_after]
            if self._shells:
                self._changed.wait(max(0.0, until_s - monotonic()))
            self._is_running = bool(self._shells)
            return self._is_running
