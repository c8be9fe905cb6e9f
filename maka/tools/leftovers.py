"""The file port of recovery: temp files that a dead owner's unfinished writes left.

Law: only what has the name of a temp file of ours is ever removed, whatever the ledger says.
"""

import os

TEMP_PREFIX = ".tmp"


def temp_name(suffix: str) -> str:
    """Return the name of a call's temp file, which stands beside its target. The suffix is the call's own."""
    return TEMP_PREFIX + suffix


class TempFiles:
    """Removes temp files."""

    def unlink_temp(self, path: str) -> bool:
        """Remove a temp file if it is there; say whether there was one."""
        if not os.path.basename(path).startswith(f"{TEMP_PREFIX}.maka-"):
            return False
        try:
            os.unlink(path)
        except OSError:
            return False
        return True
