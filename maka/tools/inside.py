"""One command inside the sandbox: what it may touch before it starts, and what is put right and told when it ended."""

import errno
import os
import re
from collections.abc import Mapping

from msgspec.structs import replace

from maka.contracts.boundary import Boundary
from maka.contracts.content import Outcome
from maka.contracts.limits import SURVEY_DEPTH_MAX
from maka.contracts.tool_ports import BoundaryNeed, SandboxPolicy, ToolResult
from maka.tools.boundary import refusal_text
from maka.tools.closed import open_again
from maka.tools.denial import Kind, likely
from maka.tools.guard import ASIDE, Guard, Guards, decisive_name, put_aside, put_repositories_right
from maka.tools.policy import PROTECTED_NAMES, Ground, covers, is_under, judge, needed, sandbox_policy
from maka.tools.results import with_footer
from maka.tools.survey import Standing, come, led_to, protected_paths, replaced, standing, survey, watched
from maka.tools.walk import Walk

LOOKS_A_WALK = 10
_ROUNDS = 4
_NOT_SET_UP = re.compile(
    r"bwrap: |the sandbox could not be set up|\S+: \d+: exec: \S+: (?:not found|Permission denied)"
)


class Inside:
    """A command's time in the sandbox. Made before it starts; `settled` is called once, when all of it has ended.

    While one runs for long, `look` is called from time to time, from one thread at a time.
    """

    def __init__(self, boundary: Boundary, ground: Ground, guards: Guards) -> None:
        self._boundary = boundary
        self._ground = ground
        self._before = Walk(boundary)
        self._protected = protected_paths(self._before, ground)
        self._led_to = led_to(self._before, self._protected)
        self._standing = standing(self._before, self._protected)
        self._guard = Guard(self._watched(), guards)
        self._made = guards.made
        self._looks = 0
        self._network = False
        self._suspects: frozenset[str] = frozenset()
        self._moved: set[str] = set()
        self._stuck: set[str] = set()
        self._lost: set[str] = set()

    @property
    def must_look(self) -> bool:
        """Say whether there are protected names that the sandbox can't hold."""
        return not self._guard.is_empty

    def look(self) -> None:
        """Put right what has changed for longer than since the last look: a tool is then done with making it."""
        changed = self._guard.changed()
        self._moved.update(self._guard.put_right(changed & self._suspects))
        self._suspects = changed
        self._looks += 1
        if self._looks % LOOKS_A_WALK == 0:
            self._put_planted_right()

    def _put_planted_right(self) -> None:
        """Walk through all that can be written and put right what has come; names that are watched are done already."""
        # What a planted name or setting leads to needs no protection once that is gone: so again, until all is well.
        # What went from its place just now, with its folder, is found in another one.
        for _ in range(_ROUNDS):
            self._stuck.clear()
            now = self._opened()
            new = self._before.new_repositories(now)
            judged = {path: its for path, its in new.items() if not self._is_granted(decisive_name(path))}
            moved, all_seen = put_repositories_right(self._before.folders, judged, self._before.roots)
            if not moved:
                moved, names_seen = self._put_names_right(now, new)
                all_seen = all_seen and names_seen
            self._moved.update(moved)
            if not moved and all_seen and not now.is_torn:
                return

    def _put_names_right(self, now: Walk, new: Mapping[str, str | None]) -> tuple[list[str], bool]:
        """Return what was moved, and whether nothing that has to go was missed."""
        try:
            standing_now = standing(now, protected_paths(now, self._ground))
        except PermissionError as closed:
            self._stuck.add(str(closed.filename))
            return [], True
        planted = self._planted(standing_now, new)
        moved, stuck = put_aside(planted)
        self._stuck.update(stuck)
        if not moved:
            found = replaced(self._standing, standing_now)
            self._lost.update(path for path in found if self._is_held(path) and not self._made.holds(path))
        names = [path for _, path, _ in now.places if os.path.basename(path) in PROTECTED_NAMES]
        return moved, len(moved) == len(planted) and all(path in standing_now for path in names)

    def _planted(self, now: Mapping[str, Standing], new: Mapping[str, str | None]) -> list[str]:
        """Return what has come and has to go; a new repository was judged as a whole."""
        found = come(self._before, self._standing, now)
        judged = [its for its in new.values() if its is not None]
        found = [
            path
            for path in found
            if os.path.basename(path) != ".git" and not any(is_under(path, folder) for folder in judged)
        ]
        planted: list[str] = []
        for path in [path for path in found if os.path.basename(path) in PROTECTED_NAMES] or found:
            if not self._is_held(path):
                self._made.note(path)
            elif not self._made.holds(path):
                planted.append(path)
        return planted

    def _opened(self) -> Walk:
        """Walk through what there is when everything was opened that has been closed since the command began."""
        now = self._before.after()
        for _ in range(SURVEY_DEPTH_MAX):
            if not (closed := set(now.closed) - set(self._before.closed)):
                break
            for folder in closed:
                open_again(folder)
            now = self._before.after()
        return now

    def _watched(self) -> tuple[str, ...]:
        return tuple(path for path in watched(self._before, self._ground) if self._is_held(path))

    def _is_held(self, path: str) -> bool:
        """Say whether a name isn't the command's to make: what was granted by its name may come and go."""
        return judge(self._boundary, path, "write", self._ground, self._led_to) is not None

    def _is_granted(self, path: str) -> bool:
        """Say whether a name was granted as such, not with all of its surroundings."""
        return judge(self._boundary, path, "write", self._ground, (path,)) is None

    def policy(self, cwd: str) -> SandboxPolicy:
        """Survey the workspace and return what the command may touch. Raises OSError where that isn't where it was."""
        workspace = self._boundary.workspace
        if os.path.realpath(workspace) != workspace:
            raise OSError(errno.ELOOP, "it turned into a link", workspace)
        found = survey(self._before, self._ground, self._protected)
        policy = sandbox_policy(self._boundary, os.path.realpath(cwd), found, self._ground)
        self._network = policy.network
        return policy

    def settled(self, result: ToolResult) -> ToolResult:
        """Put right what the sandbox couldn't hold, and say what it probably denied."""
        found = self.verdict(result.text, failed=result.outcome is Outcome.ERROR)
        if found is None:
            return replace(result, text=with_footer(result.text, note)) if (note := self.note()) else result
        text = with_footer(result.text, refusal_text(*found))
        return replace(result, outcome=Outcome.ERROR, text=text, need=found[0])

    def note(self) -> str:
        """Say what the sandbox didn't hold to the end, once the verdict is known; nothing where it held all."""
        if not self._lost:
            return ""
        lost = _as_text(sorted(self._lost))
        return (
            f"These protected files were replaced by someone else while the command ran: {lost}. From then on the "
            "sandbox did not hold them for it: the person should look at them"
        )

    def verdict(self, text: str, *, failed: bool) -> tuple[BoundaryNeed, str] | None:
        """Put right what the sandbox couldn't hold; return that, or what it probably denied, in words."""
        self._moved.update(self._guard.put_right())
        self._put_planted_right()
        moved, stuck = sorted(self._moved), sorted(self._guard.stuck | self._stuck)
        if moved or stuck:
            first = (moved or stuck)[0]
            # What is no text can't be named to a person, and so not be granted.
            expansion = needed(first, "write") if _as_text([first]) == first else None
            need = BoundaryNeed(expansion=expansion, reason="it takes effect later outside the sandbox")
            words = [f"These were changed by the command and were moved aside (to *{ASIDE}-N): {_as_text(moved)}."]
            left = f"These were changed by the command and could NOT be moved aside: {_as_text(stuck)}. Remove them."
            return need, " ".join([*(words if moved else []), *([left] if stuck else [])])
        if not failed or _NOT_SET_UP.match(text):
            return None
        expansion = likely(text, self._boundary.workspace, _kind, self._allowed)
        if expansion is None or (expansion.network and self._network):
            return None
        for entry in expansion.filesystem:
            if any(entry.path == own or entry.path.startswith(own + "/") for own in self._ground.own):
                expansion = None
                break
        need = BoundaryNeed(expansion=expansion, reason="likely, as the command's output reads")
        return need, "The sandbox has probably denied something."

    def _allowed(self, path: str) -> bool:
        try:
            return covers(self._boundary, os.path.realpath(path), "write", self._ground)
        except OSError:  # it changes at this moment, so it is inside of what is writable
            return True


def _kind(path: str) -> Kind:
    if os.path.isdir(path):
        return "folder"
    return "other" if os.path.lexists(path) else "missing"


def _as_text(paths: list[str]) -> str:
    return os.fsencode(", ".join(paths)).decode("utf-8", "replace")
