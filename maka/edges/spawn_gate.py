"""A process that exists but hasn't begun: a shim waits for one byte, and only then becomes the command.

Laws:
- The environment is the given one, or none where a sandbox gives it to the command, and a mark, by which the command's
  descendants are found wherever they went.
- A sandbox is set up before the gate, and the last of what stands in it is the shim: so where that fails, surely
  nothing has run, and no fact says that something had begun.

The gate is the shim's standard input: a byte opens it, an end of file (ours was closed, or our process died) ends the
shim. `/bin/sh` costs 0.5 ms more than no shim at all, a Python shim 6 ms. It is named by its absolute path and imports
nothing, so no file of a workspace can stand in for it.
"""

import errno
import os
import secrets
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress

from maka.contracts.actions import ProcessIdentity
from maka.contracts.limits import KILL_GRACE_S
from maka.contracts.process_ports import Launch
from maka.edges.inputs import opened
from maka.edges.landlock_rules import GATE
from maka.edges.process_end import POLL_S
from maka.edges.process_tree import MARK_VARIABLE, identity_of

SHELL, WAIT, BECOME, BOX = "/bin/sh", "read -r _ || exit 125; ", 'exec "$@" </dev/null', 'exec "$@"'
_OUTER_MARKS_CHARS_MAX = 1_024


class GatedProcess:
    """A child behind its gate, leader of its own session and group. `stdout` and `stderr` are the caller's to close."""

    def __init__(self, child: "subprocess.Popen[bytes]", mark: str, gate: int, stdout: int, stderr: int) -> None:
        self._child = child
        self._gate: int | None = gate
        self.stdout = stdout
        self.stderr = stderr
        self.identity: ProcessIdentity = identity_of(child.pid, mark)

    @property
    def pid(self) -> int:
        return self._child.pid

    def open_gate(self) -> None:
        """Let the command begin. Does nothing when the shim is gone or the gate was closed."""
        if self._gate is not None:
            with suppress(OSError):
                os.write(self._gate, b"\n")
        self.close_gate()

    def close_gate(self) -> None:
        """End the shim, unless its gate was opened before."""
        gate, self._gate = self._gate, None
        if gate is not None:
            os.close(gate)

    def wait(self) -> int | None:
        """Return an ended child's exit code, a negative signal number, or None where someone else collected it.

        Blocks until the child has ended, and leaves it a zombie: so its number names its group until `reap`.
        """
        try:
            ended = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return None
        assert ended is not None, "it blocks"
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def reap(self) -> int | None:
        """Collect an ended child; returns as `wait` does, and blocks as it does."""
        try:
            _, status = os.waitpid(self._child.pid, 0)
        except ChildProcessError:
            self._child.returncode = 0  # only tells Popen that nothing is left to wait for
            return None
        self._child.returncode = os.waitstatus_to_exitcode(status)
        return self._child.returncode

    def reap_killed(self) -> None:
        """Collect a child that was sent KILL; gives up after a second. Blocks, so it is for an I/O thread that ends."""
        deadline = time.monotonic() + KILL_GRACE_S
        while self._child.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_S)


def spawn_gated(launch: Launch, cwd: str, env: Mapping[str, str], bounds: str = "") -> GatedProcess:
    """Start the shim in front of a command. Raises OSError or ValueError where that can't be; then nothing is left.

    `bounds` are words of the shell that bound the command, and a sandbox in front of it.
    """
    mark = secrets.token_hex(16)
    pipes: list[int] = []
    try:
        gate_read, gate_write = _pipe(pipes)
        out_read, out_write = _pipe(pipes)
        err_read, err_write = _pipe(pipes)
        with opened(launch.argv, launch.inputs) as (argv, fds):
            child = subprocess.Popen(
                [SHELL, "-c", bounds + BOX if launch.is_boxed else WAIT + bounds + BECOME, "sh", *argv],
                cwd=cwd,
                env={**({GATE: "1"} if launch.is_boxed else env), MARK_VARIABLE: _marks(env, mark)},
                stdin=gate_read,
                stdout=out_write,
                stderr=err_write,
                start_new_session=True,
                pass_fds=fds,
            )
    except BaseException:
        for fd in pipes:
            os.close(fd)
        raise
    for fd in (gate_read, out_write, err_write):
        os.close(fd)
    os.set_blocking(out_read, False)
    os.set_blocking(err_read, False)
    return GatedProcess(child, mark, gate_write, out_read, err_read)


def _marks(env: Mapping[str, str], mark: str) -> str:
    """Return the value that marks a command. A host within a call of another one passes that one's mark on."""
    outer = env.get(MARK_VARIABLE, "")[-_OUTER_MARKS_CHARS_MAX:]
    return f"{outer}:{mark}" if outer else mark


def _pipe(pipes: list[int]) -> tuple[int, int]:
    ends = os.pipe()
    pipes.extend(ends)
    return ends


def why_not(error: OSError | ValueError, cwd: str) -> str:
    """Say in one line why a process could not be started, and what to do."""
    if not os.path.isdir(cwd):
        return f"the working directory {cwd} does not exist (any more): create it again, or start a session elsewhere"
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return "the process could not be started: its arguments and the environment that Maka was given are too long"
    if isinstance(error, OSError):
        return f"the process could not be started in {cwd}: {error.strerror or error}"
    return f"the process could not be started: {error}"
