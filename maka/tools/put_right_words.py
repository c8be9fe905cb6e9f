"""What is said, to the model and to people, of what was put right when a command had ended."""

import os
from collections.abc import Collection

from maka.contracts.limits import INDEXES_BYTES_MAX, SURVEY_FOLDERS_MAX
from maka.tools.policy import ASIDE

MOVED = f"These were changed by the command and were moved aside (to *{ASIDE}-N): {{}}."
UNDONE = (
    f"These settings were replaced while the command ran, and could make git run more: moved aside (to *{ASIDE}-N), "
    "and what stood there was put back where it was a file: {}."
)
STUCK = "These were changed by the command and could NOT be moved aside: {}. Remove them."
UNSETTLED = "Not all that the command made could be looked at. The person should look for what is new in {}."
LOST = (
    "These protected files were replaced by someone else while the command ran: {}. From then on the sandbox did not "
    "hold them for it: the person should look at them"
)
UNHELD = (
    "There is more in the folders of this session than is looked at before a command "
    f"({SURVEY_FOLDERS_MAX:,} folders, and {INDEXES_BYTES_MAX >> 20} MiB of git indexes): protected names further down "
    "were not held"
)
UNREAD = (
    "The command changed what the git index in these folders names, in a way that could not be understood: {}. Before "
    "another git command the person should look for submodules that nobody knows: `git ls-files --stage` lists them as "
    "160000"
)
BY_A_PERSON = (
    "Do without it, or tell the person what to do: look at what was moved aside, and rename it back where it is "
    "wanted: {}."
)
LOOK = "Go on without it, and tell the person what to look at."

_NAMED_MAX = 50


def as_text(paths: Collection[str]) -> str:
    named = sorted(paths)[:_NAMED_MAX]
    more = f" and {len(paths) - len(named):,} more" if len(paths) > len(named) else ""
    return os.fsencode(", ".join(named)).decode("utf-8", "replace") + more
