"""One command inside the sandbox: what it may touch before it starts, and what is put right and told when it ended."""

import errno
import os
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from time import monotonic

from msgspec.structs import replace

from maka.contracts.boundary import Boundary
from maka.contracts.content import Outcome
from maka.contracts.limits import SURVEY_DEPTH_MAX
from maka.contracts.sandbox_ports import Sandbox, SandboxPolicy
from maka.contracts.tool_ports import BoundaryNeed, ToolResult
from maka.tools.before import Before, Standing, is_same, names_in, standing
from maka.tools.boundary import all_the_same_text, refusal_text
from maka.tools.closed import open_again
from maka.tools.denied import Denied
from maka.tools.granted import all_of, is_granted, need_of
from maka.tools.guard import Guard, Guards, is_surely_harmless, put_aside, put_back, put_repositories_right
from maka.tools.identity import Identity
from maka.tools.indexes import FOREIGN
from maka.tools.new_repository import runs_the_same
from maka.tools.policy import ASIDE, PROTECTED_NAMES, Ground, is_under, sandbox_policy
from maka.tools.put_right_words import LOST, MOVED, STUCK, UNDONE, UNHELD, UNREAD, UNSETTLED, as_text
from maka.tools.repositories import decisive_name, real_of
from maka.tools.results import with_footer
from maka.tools.survey import led_to, protected_paths, survey, watched
from maka.tools.walk import ROOT_BYTES_MAX, Walk

LOOKS_A_WALK = 10
_ROUNDS, _RESTLESS = 64, 4
ROUNDS_S = 3.0
"""For so long one command's end may keep others waiting, beyond what the walk before it took."""


class Inside:
    """A command's time in the sandbox. Made before it starts; `settled` is called once, when all of it has ended, or
    `drop`.

    While one runs for long, `look` is called from time to time, from one thread at a time.
    """

    def __init__(
        self, boundary: Boundary, ground: Ground, guards: Guards, command: str = "", sandbox: Sandbox | None = None
    ) -> None:
        self._boundary = boundary
        self._command = command
        self._closes_beside_hidden = sandbox is not None and sandbox.closes_beside_hidden
        self._ground = ground
        self._guards = guards
        self._made = guards.made
        self._before = Before(boundary, ground, guards.made, guards.enter)
        try:
            self._guard = Guard(self._watched(), guards)
            self._real = frozenset(path for path in self._guard.before if _is_in_its_folder(path))
        except BaseException:
            self._before.end()
            raise
        self._looks = 0
        self._is_torn = False
        self._denied: Denied | None = None
        self._suspects: frozenset[str] = frozenset()
        self._moved: set[str] = set()
        self._unread: set[str] = set()
        self._links_met: dict[Identity, str] = {}
        self._undone: set[str] = set()
        self._stuck: set[str] = set()
        self._lost: set[str] = set()

    @property
    def must_look(self) -> bool:
        """Say whether there are protected names that the sandbox can't hold, or not for good."""
        return not self._guard.is_empty or bool(self._before.standing)

    def look(self) -> bool:
        """Put right what has changed for longer than since the last look: a tool is then done with making it.

        Return whether the command has to end: a file that the sandbox held was replaced, and the new one isn't held.
        """
        changed = self._guard.changed().intersection(self._here())
        self._moved.update(self._guard.put_right(changed & self._suspects))
        self._suspects = changed
        self._looks += 1
        if self._looks % LOOKS_A_WALK == 0 or self._before.renewed():
            self._put_planted_right()
        return bool(self._lost or self._undone)

    def _put_planted_right(self) -> bool:
        """Walk through all that can be written and put right what has come; names that are watched are done already.

        Return whether all was found: each round that moves something may uncover more, and what goes from its place
        just now, with its folder, is found in another one.
        """
        restless, until_s = 0, monotonic() + ROUNDS_S + self._before.walk.took_s
        for _ in range(_ROUNDS):
            self._stuck.clear()
            moved, is_whole = self._round(until_s)
            self._moved.update(moved)
            restless = 0 if moved else restless + 1
            if not moved and (is_whole or restless == _RESTLESS):
                return is_whole
            if monotonic() > until_s:
                return False
        return False

    def _round(self, until_s: float) -> tuple[list[str], bool]:
        """Return what was moved aside in one walk, and whether all was seen."""
        now = self._opened(until_s)
        walk = self._before.walk
        new = walk.new_repositories(now)
        judged = {path: its for path, its in new.items() if not self._is_judged_otherwise(path)}
        moved, all_seen = put_repositories_right(walk.folders, judged, walk.roots)
        moved += self._put_back_renewed()
        foreign = [os.path.join(folder, "index") for folder, why in now.unread - walk.unread if why.startswith(FOREIGN)]
        moved_links, all_links_moved = self._put_aside([*self._planted_links(now), *foreign])
        moved += moved_links
        names = names_in(now)
        found = standing(names)
        moved_names, all_moved = self._put_names_right(now, found)
        moved += moved_names
        self._is_torn = now.is_torn and not now.is_cut
        self._unread = {folder for folder, _ in now.unread - walk.unread}
        # What was too much before says nothing about what has come: that is told by itself.
        is_cut = now.is_cut and not walk.is_cut
        all_moved = all_moved and all_links_moved
        is_whole = all_seen and all_moved and not (now.is_torn or is_cut) and len(found) == len(set(names))
        # What a planted name or setting leads to needs no protection once that is gone.
        if not moved:
            return self._put_led_to_right(now, [its for its in new.values() if its is not None], is_whole)
        return moved, is_whole

    def _is_judged_otherwise(self, path: str) -> bool:
        """Say whether a new repository was granted as such, or is a pointer that replaced another one."""
        if self._before.grants(decisive_name(path)):
            return True
        return self._before.stands_in_place(path) and not self._before.leads_elsewhere(path)

    def _planted_links(self, now: Walk) -> list[str]:
        """Return the links in repositories to move aside: not those under names that are watched, nor moved already."""
        for path, its in now.links.items():
            self._links_met.setdefault(its, path)
        watched_too = (*self._before.standing, *self._guard.before)
        return [
            path
            for path in self._before.walk.new_links(now)
            if path not in watched_too
            and path.rpartition(f"{ASIDE}-")[0] not in (*self._guard.before, self._links_met[now.links[path]])
        ]

    def _put_back_renewed(self) -> list[str]:
        moved: list[str] = []
        for path, now in self._before.renewed().items():
            try:
                if self._put_back(path, now):
                    moved.append(path)
            except Exception:  # of ours: one that can't be judged must not shield the others
                self._stuck.add(path)
        return moved

    def _put_back(self, path: str, now: Standing) -> bool:
        """Undo it where git would run something else since a file was replaced; else remember to tell of it."""
        was = self._before.standing[path].content
        if not self._before.holds(path):
            self._made.note(path)
        elif not (is_same(was, now.content) or self._made.holds(path) or self._guards.is_granted(path)):
            if path not in self._before.decisive or was is None:
                self._lost.add(path)
            elif not runs_the_same(was, now.content):
                self._undone.add(path)
                if not (is_back := put_back(path, was)):
                    self._stuck.add(path)
                return is_back
        self._before.accept(path, now)
        return False

    def _put_names_right(self, now: Walk, found: Mapping[str, Standing]) -> tuple[list[str], bool]:
        """Return which protected names were moved aside, and whether all that had to be."""
        planted: list[str] = []
        for path in self._before.come(found, now):
            if not self._before.holds(path):
                self._made.note(path)
            elif self._is_planted(path, found[path], now):
                planted.append(path)
        return self._put_aside(planted)

    def _put_aside(self, planted: Sequence[str]) -> tuple[list[str], bool]:
        moved, stuck = put_aside(planted)
        self._stuck.update(stuck)
        return moved, len(moved) == len(planted)

    def _put_led_to_right(self, now: Walk, new: Collection[str], is_whole: bool) -> tuple[list[str], bool]:
        """Do the same with what protected names lead to; a new repository was judged as a whole."""
        try:
            paths = protected_paths(now, self._ground)
        except PermissionError as closed:
            open_again(str(closed.filename))
            self._stuck.add(str(closed.filename))
            return [], False
        others = standing(path for path in paths if os.path.basename(path) not in (*PROTECTED_NAMES, ".git"))
        come = [path for path in self._before.come(others, now) if not any(is_under(path, folder) for folder in new)]
        worktrees = {folder for path in come if self._is_new_worktree(folder := os.path.dirname(path))}
        come = [path for path in come if os.path.dirname(path) not in worktrees]
        ends = led_to(now, paths)
        moved, all_moved = self._put_aside([path for path in come if self._is_planted(path, others[path], now, ends)])
        return moved, is_whole and all_moved

    def _is_planted(self, path: str, one: Standing, now: Walk, ends: AbstractSet[str] = frozenset()) -> bool:
        """Say so of what has come and is protected by now. `ends` are where settings lead."""
        if is_granted(self._boundary, path, self._ground, ends) or self._made.holds(path):
            return False
        return not self._before.is_copy(path, one, now)

    def _is_new_worktree(self, folder: str) -> bool:
        """Say whether a folder is what a repository from before notes of a worktree, wherever that is, and harmless."""
        walk = self._before.walk
        known = (*walk.folders, *walk.git)
        above = os.path.dirname(folder)
        if os.path.basename(above) != "worktrees" or os.path.dirname(above) not in known:
            return False
        try:
            return is_surely_harmless(folder, known, walk.roots)
        except OSError:  # it changes at this moment
            return False

    def _opened(self, until_s: float) -> Walk:
        """Walk through what there is when everything was opened that has been closed since the command began."""
        before = self._before.walk
        now = before.after(until_s)
        for _ in range(SURVEY_DEPTH_MAX):
            if not (closed := set(now.closed) - set(before.closed)):
                break
            for folder in closed:
                open_again(folder)
            now = before.after(until_s)
        return now

    def _watched(self) -> tuple[str, ...]:
        return tuple(path for path in watched(self._before.walk, self._ground) if self._before.holds(path))

    def _here(self) -> list[str]:
        """Return what is watched, but in folders that lead out of the session's by now: it is someone else's there.

        A folder may be granted by the names of its files, and so only once it is there.
        """
        return [path for path in self._guard.before if self._is_here(path) and self._before.holds(path)]

    def _is_here(self, path: str) -> bool:
        if path not in self._real or _is_in_its_folder(path):
            return True
        return any(is_under(real_of(os.path.dirname(path)), root) for root in self._before.walk.writable)

    def policy(self, cwd: str) -> SandboxPolicy:
        """Survey the workspace and return what the command may touch. Raises OSError where that isn't where it was."""
        workspace = self._boundary.workspace
        if os.path.realpath(workspace) != workspace:
            raise OSError(errno.ELOOP, "it turned into a link", workspace)
        if len(os.fsencode(workspace)) > ROOT_BYTES_MAX:
            raise OSError(errno.ENAMETOOLONG, "its path is too long for a sandbox: move it further up", workspace)
        found = survey(self._before.walk, self._ground, self._before.protected)
        policy = sandbox_policy(self._boundary, os.path.realpath(cwd), found, self._ground)
        self._denied = Denied(
            self._boundary,
            self._ground,
            policy,
            self._command,
            closes_beside_hidden=self._closes_beside_hidden,
        )
        return policy

    def drop(self) -> None:
        """Count it no more: its command never began, or is over."""
        self._guard.is_over = True
        self._before.end()

    def settled(self, result: ToolResult, errors: str = "") -> ToolResult:
        """Put right what the sandbox couldn't hold, and say what it probably denied. `errors` is its standard error."""
        found = self.verdict(result.text, failed=result.outcome is Outcome.ERROR, exit_code=result.exit_code)
        if found is not None:
            text = with_footer(result.text, self.note(), refusal_text(*found))
            return replace(result, outcome=Outcome.ERROR, text=text, need=found[0])
        need = None
        if result.outcome is Outcome.OK and self._denied is not None:
            need = self._denied.need_all_the_same(result.text, errors)
        notes = [note for note in (self.note(), "" if need is None else all_the_same_text(need)) if note]
        return replace(result, text=with_footer(result.text, *notes), need=need) if notes else result

    def note(self) -> str:
        """Say what the sandbox didn't hold, or not to the end, once the verdict is known; nothing where it held all."""
        lost = LOST.format(as_text(self._lost)) if self._lost else ""
        unread = UNREAD.format(as_text(self._unread)) if self._unread else ""
        return ". ".join(filter(None, (lost, unread, UNHELD if self._before.walk.is_cut else "")))

    def verdict(self, text: str, *, failed: bool, exit_code: int | None = None) -> tuple[BoundaryNeed, str] | None:
        """Put right what the sandbox couldn't hold; return that, or what it probably denied, in words."""
        self._moved.update(self._guard.put_right(self._here()))
        self._guard.is_over = True
        is_settled = self._settle()
        moved, stuck = self._moved - self._undone, self._guard.stuck | self._stuck
        unsettled = [] if is_settled or stuck else [self._boundary.workspace]
        if moved or stuck or self._undone or unsettled:
            why = "it takes effect later outside the sandbox"
            need = need_of(self._boundary, moved, self._ground, why) if moved else all_of(self._undone or stuck, why)
            words = {MOVED: moved, UNDONE: self._undone - stuck, STUCK: stuck, UNSETTLED: unsettled}
            return need, "\n".join(line.format(as_text(paths)) for line, paths in words.items() if paths)
        if not failed or self._denied is None:
            return None
        lacking = self._denied.need(text, exit_code)
        return None if lacking is None else (lacking, "The sandbox has probably denied something.")

    def _settle(self) -> bool:
        """Put right for the last time; what couldn't be looked at stays to be found by the next command's end."""
        try:
            is_settled = self._put_planted_right()
        except Exception:  # of ours: whatever a command made must not keep us from saying so
            is_settled = False
        self._before.is_over = True
        if is_settled:
            self._guards.settled(self._before)
        else:
            self._guards.keep(self._before)
        self._before.end()
        # Where others make and remove folders all the time the next command's end looks again.
        return is_settled or self._is_torn


def _is_in_its_folder(path: str) -> bool:
    folder = os.path.dirname(path)
    return real_of(folder) == folder
