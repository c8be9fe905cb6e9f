"""What the record and the table together know of a session's background shells; the tools that show and end them ask.

Law: only a session's own shells can be found, by the names that its facts gave them.
"""

from collections.abc import Callable

from msgspec import Struct

from maka.contracts.ids import SessionId
from maka.contracts.limits import BACKGROUND_LISTED_MAX, RESULT_BYTES_MAX
from maka.tools.background import BackgroundTable
from maka.tools.background_shell import BackgroundShell
from maka.tools.results import cut_middle, fits, line_count, with_footer
from projections.background import Shell, just_ended, status_words

BRIEF_CHARS_MAX = 120
HINT = "The person can see all that was kept of it"


def _no_record(session_id: SessionId) -> list[Shell]:
    return []


def _no_blob(sha256: str) -> bytes | None:
    return None


class Shells(Struct, frozen=True, kw_only=True):
    """The table of the host, and its record: the shells in a session's facts, and stored values."""

    table: BackgroundTable
    record: Callable[[SessionId], list[Shell]] = _no_record
    blob: Callable[[str], bytes | None] = _no_blob

    def of(self, session_id: SessionId) -> list[Shell]:
        """Return a session's shells in the order of their starts, with ends that aren't recorded yet."""
        return [self._now(shell) for shell in self.record(session_id)]

    def held(self, shell: Shell) -> BackgroundShell | None:
        """Return the table's own, while it lives or its end isn't recorded."""
        return self.table.find(shell.call_id)

    def output(self, shell: Shell) -> str:
        """Return what a shell has printed, within the model's bounds."""
        held = self.held(shell)
        if held is not None:
            return held.glance().text
        kept = self.blob(shell.output.sha256) if shell.output is not None else None
        return in_short(kept or b"")

    def _now(self, shell: Shell) -> Shell:
        held = self.held(shell) if shell.is_live else None
        return shell if held is None or held.end is None else just_ended(shell, held.end)


def in_short(kept: bytes) -> str:
    """Return kept output within the model's bounds."""
    text = kept.decode("utf-8", "replace")
    if fits(text):
        return text
    return cut_middle(text[: 2 * RESULT_BYTES_MAX], text[-2 * RESULT_BYTES_MAX :], line_count(text), len(kept), HINT)


def line(shell: Shell) -> str:
    """Say in one line what a shell is and how it is."""
    command = " ".join(shell.command.split())
    brief = command if len(command) <= BRIEF_CHARS_MAX else command[: BRIEF_CHARS_MAX - 1] + "…"
    return f"{shell.shell_id} · {status_words(shell)} · pid {shell.process.pid} · {brief}"


def listed(shells: list[Shell]) -> str:
    """List the newest shells, those that live first of all."""
    if not shells:
        return "This session has no background shells. Bash starts one with run_in_background."
    live = [shell for shell in shells if shell.is_live]
    ended = [shell for shell in shells if not shell.is_live]
    room = max(0, BACKGROUND_LISTED_MAX - len(live))
    left_out = max(0, len(ended) - room)
    notes = [f"{left_out} that ended earlier are not listed"] if left_out else []
    lines = "\n".join(map(line, (*live, *ended[left_out:])))
    return with_footer(lines, *notes) if notes else lines


def wrong_id(shells: list[Shell]) -> str:
    """Say which ids there are; what was given isn't repeated."""
    return f"There is no such background shell in this session. These are there:\n{listed(shells)}"


def state(shell: Shell) -> list[str]:
    """Say how a shell is, in a few notes."""
    notes = [f"{shell.shell_id}: {status_words(shell)}"]
    if shell.note:
        notes.append(shell.note)
    if shell.survivors:
        pids = ", ".join(map(str, shell.survivors))
        notes.append(f"these processes could not be ended and may still run: {pids}")
    return notes
